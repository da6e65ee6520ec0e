//! Which bytes of an object were written since its copies were synced: a copy that fails may have lost them, whatever it
//! answered to the writes. And whether there are any: a close of the pool syncs such objects.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use policy::purpose::{Io, Origin, Step};
use volume::Object;

use super::Spread;
use super::resync::PIECE;

/// An orderly end of the process waits for it.
const IO: Io = Io::new(Origin::UserWrite, Step::Data);
/// Objects that a close syncs at once.
const AT_ONCE: usize = 16;

/// The bytes that were written since the last sync.
#[derive(Default)]
pub(super) struct Unsynced {
    writes: Mutex<Writes>,
    /// How many changes began, and how many ended: their sum.
    changes: AtomicU64,
    /// The value of `changes` when the last sync that ended well began.
    durable: AtomicU64,
}

/// A sync of all copies that has begun.
pub(super) struct Sync {
    number: u64,
    changes: u64,
}

#[derive(Default)]
struct Writes {
    /// How many syncs began.
    syncs: u64,
    /// Where pieces begin that were written, and how many syncs had begun then.
    pieces: BTreeMap<u64, u64>,
    /// The first byte of changes without an end, and how many syncs had begun at the last of them.
    from: Option<(u64, u64)>,
}

impl Unsynced {
    /// Notes that a change begins, and again that it ends: a sync that began in between may not have its bytes.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether bytes may have changed since the last sync.
    pub(super) fn is_changed(&self) -> bool {
        self.durable.load(Ordering::Acquire) != self.changes.load(Ordering::Acquire)
    }

    /// Notes which bytes a write changes, before it begins and again when it ends.
    pub(super) fn note(&self, range: &Range<u64>) {
        let mut writes = self.writes.lock();
        let syncs = writes.syncs;
        if range.end == u64::MAX {
            let from = writes.from.map_or(range.start, |(from, _)| from.min(range.start));
            writes.from = Some((from, syncs));
            return;
        }
        let pieces = (range.start / PIECE * PIECE..range.end).step_by(PIECE as usize);
        writes.pieces.extend(pieces.map(|at| (at, syncs)));
    }

    /// A sync of all copies begins.
    pub(super) fn sync_begins(&self) -> Sync {
        let changes = self.changes.load(Ordering::Acquire);
        let mut writes = self.writes.lock();
        writes.syncs += 1;
        Sync { number: writes.syncs, changes }
    }

    /// A sync ended well: the writes that ended before it began are durable.
    pub(super) fn synced(&self, sync: &Sync) {
        self.durable.fetch_max(sync.changes, Ordering::AcqRel);
        let mut writes = self.writes.lock();
        writes.pieces.retain(|_, syncs| *syncs >= sync.number);
        writes.from = writes.from.filter(|(_, syncs)| *syncs >= sync.number);
    }

    /// The bytes.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        let writes = self.writes.lock();
        let pieces = writes.pieces.keys().map(|&at| at..at + PIECE);
        pieces.chain(writes.from.map(|(from, _)| from..u64::MAX)).collect()
    }
}

impl Spread {
    /// Syncs every object that was written since its last sync, but for tables; true if all of them are durable. Otherwise a
    /// power cut after an orderly end could leave other bytes in each copy, which the next opening would not compare.
    pub(super) async fn sync_written(&self) -> bool {
        let syncs = self.0.catalog.unsynced().into_iter().map(|inode| async move {
            let handle = self.handle(inode);
            let synced = handle.sync(IO).await;
            if let Err(e) = &synced {
                let name = &handle.inode().name;
                tracing::warn!("a power cut may take what was last written to {name}: {e}");
            }
            synced.is_ok()
        });
        let synced: Vec<_> = stream::iter(syncs).buffer_unordered(AT_ONCE).collect().await;
        synced.into_iter().all(|synced| synced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_leaves_the_writes_that_had_not_ended_when_it_began() {
        let unsynced = Unsynced::default();
        unsynced.note(&(5..7));
        unsynced.note(&(PIECE - 1..PIECE + 1));
        unsynced.note(&(9 * PIECE..u64::MAX));
        let first = unsynced.sync_begins();
        // The end of the second write, and the beginning of another.
        unsynced.note(&(PIECE - 1..PIECE + 1));
        unsynced.note(&(3 * PIECE..3 * PIECE + 1));
        let all = [0..PIECE, PIECE..2 * PIECE, 3 * PIECE..4 * PIECE, 9 * PIECE..u64::MAX];
        assert_eq!(unsynced.ranges(), all);
        let second = unsynced.sync_begins();
        unsynced.synced(&first);
        assert_eq!(unsynced.ranges(), all[..3]);
        unsynced.synced(&second);
        assert_eq!(unsynced.ranges(), []);
    }

    #[test]
    fn a_change_that_had_not_ended_when_a_sync_began_needs_another() {
        let unsynced = Unsynced::default();
        assert!(!unsynced.is_changed());
        unsynced.changed();
        let first = unsynced.sync_begins();
        unsynced.changed();
        let second = unsynced.sync_begins();
        unsynced.synced(&first);
        assert!(unsynced.is_changed());
        unsynced.synced(&second);
        assert!(!unsynced.is_changed());
        // A sync that began earlier ends later.
        unsynced.synced(&first);
        assert!(!unsynced.is_changed());
    }
}
