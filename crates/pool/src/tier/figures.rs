//! What a tier counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use policy::cache::Kind;
use policy::valve::Flush;

/// Counters since the opening, and what is cached now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Bytes of reads that came from the fast volume.
    pub hit_bytes: u64,
    /// Bytes of reads that came from the slow volume, of objects that may be cached.
    pub missed_bytes: u64,
    /// Installs that ended: pages of a read, or the rest of a unit.
    pub promotions: u64,
    /// Their bytes.
    pub promoted_bytes: u64,
    /// Bytes of new objects that were installed as they were written, because what they hold was read before.
    pub inherited_bytes: u64,
    /// Installs that were given up: a write came, the queue was full, or too little room was free.
    pub promotions_dropped: u64,
    /// Units that were evicted from the fast volume in use.
    pub evictions: u64,
    /// Units that lost the pages which were read seldom, and kept others.
    pub trims: u64,
    /// Pages whose places had to wait for a record before they were free.
    pub deferred_pages: u64,
    /// Records that a unit is not as the checkpoint says.
    pub doubts: u64,
    /// Durable appends that carried them.
    pub appends: u64,
    /// Checkpoints of the map.
    pub checkpoints: u64,
    /// How often the fast volume was given up.
    pub detached: u64,
    /// How often the counts of reads of pages were halved, for the fast volume in use.
    pub generation: u32,
    /// Bytes of valid pages on the fast volume.
    pub cached_bytes: u64,
    /// Bytes of pages whose newest bytes are only on the fast volume.
    pub dirty_bytes: u64,
    /// The policy that chooses which unit is evicted, now; `None` without a fast volume in use.
    pub policy: Option<Kind>,
    /// Bytes that were dirty on a fast volume that was lost: reads of them fail until they are written.
    pub stale_bytes: u64,
    /// The time since the first write of the unit that is dirty for longest, to within [`Options::valve_every`]; `None` if none
    /// is dirty. An opening begins anew.
    ///
    /// [`Options::valve_every`]: super::Options::valve_every
    pub dirty_age: Option<Duration>,
    /// Writes that stayed on the fast volume.
    pub kept_writes: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Bytes of writes to objects in place that went to the slow volume, while writes are kept back.
    pub written_through: u64,
    /// Writes to the slow volume that wrote dirty bytes back.
    pub flush_writes: u64,
    /// Their bytes.
    pub flushed_bytes: u64,
    /// Flushes of a unit that failed: its bytes are as dirty as before.
    pub flushes_failed: u64,
    /// How dirty units are flushed now.
    pub flush: Flush,
}

/// What the map of the fast volume in use counts: see [`Figures`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Room {
    pub(super) cached_bytes: u64,
    pub(super) evictions: u64,
    pub(super) trims: u64,
    pub(super) deferred_pages: u64,
    pub(super) generation: u32,
    pub(super) dirty_bytes: u64,
    pub(super) policy: Option<Kind>,
}

/// What is dirty now, and how it is flushed: see [`Figures`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Dirt {
    pub(super) stale_bytes: u64,
    pub(super) age: Option<Duration>,
    pub(super) flush: Flush,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) hit_bytes: Counter,
    pub(super) missed_bytes: Counter,
    pub(super) promotions: Counter,
    pub(super) promoted_bytes: Counter,
    pub(super) inherited_bytes: Counter,
    pub(super) promotions_dropped: Counter,
    pub(super) doubts: Counter,
    pub(super) appends: Counter,
    pub(super) checkpoints: Counter,
    pub(super) detached: Counter,
    pub(super) kept_writes: Counter,
    pub(super) kept_bytes: Counter,
    pub(super) flush_writes: Counter,
    pub(super) flushed_bytes: Counter,
    pub(super) flushes_failed: Counter,
    pub(super) written_through: Counter,
}

#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// With what the map of the fast volume in use counts.
    pub(super) fn figures(&self, room: Room, dirt: Dirt) -> Figures {
        Figures {
            hit_bytes: self.hit_bytes.get(),
            missed_bytes: self.missed_bytes.get(),
            promotions: self.promotions.get(),
            promoted_bytes: self.promoted_bytes.get(),
            inherited_bytes: self.inherited_bytes.get(),
            promotions_dropped: self.promotions_dropped.get(),
            evictions: room.evictions,
            policy: room.policy,
            trims: room.trims,
            deferred_pages: room.deferred_pages,
            generation: room.generation,
            doubts: self.doubts.get(),
            appends: self.appends.get(),
            checkpoints: self.checkpoints.get(),
            detached: self.detached.get(),
            cached_bytes: room.cached_bytes,
            dirty_bytes: room.dirty_bytes,
            stale_bytes: dirt.stale_bytes,
            dirty_age: dirt.age,
            kept_writes: self.kept_writes.get(),
            kept_bytes: self.kept_bytes.get(),
            written_through: self.written_through.get(),
            flush_writes: self.flush_writes.get(),
            flushed_bytes: self.flushed_bytes.get(),
            flushes_failed: self.flushes_failed.get(),
            flush: dirt.flush,
        }
    }
}
