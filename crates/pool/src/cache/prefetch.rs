//! Reads warm blocks ahead, with spare operations.
//!
//! Once a second it plans which blocks are worth their room ([`policy::prefetch`]). In between it reads a
//! few blocks at a time, in class idle, each for one operation. On a volume that its users saturate, it
//! reads nothing and cancels waiting reads.
//!
//! The caller drives it: [`Prefetcher::on_second`] each second, and [`Prefetcher::work`] in between.
//! Dropping it cancels its reads.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use policy::heat::Block;
use policy::placement::VolumeId;
use policy::prefetch::{Action, Mode, PrefetchState, Switch, WARM, plan};
use policy::purpose::{Io, Origin, Step};
use volume::buf::PAGE;
use volume::{ErrorKind, IoBuf, IoBufMut, Object};

use super::prefetched::{BLOCK_BYTES, Prefetched, Source};
use super::{Cache, Inner, Reads, SLACK};

const IO: Io = Io::new(Origin::Prefetch, Step::Data);

/// Concurrent reads: enough to overlap their waits.
const IN_FLIGHT: usize = 4;

/// The most blocks of one plan; the next plan has newer heats.
pub(super) const FETCHES_MAX: usize = 1024;

/// Reads blocks into a cache. See the [module](self).
pub struct Prefetcher {
    cache: Cache,
    switches: BTreeMap<VolumeId, Switch>,
    planned: VecDeque<Fetch>,
    under_way: Vec<(VolumeId, UnderWay)>,
    /// Single reads, as of the last second.
    reads: Option<Reads>,
    /// Reads a second that a block's room answers, or would answer, when used for single reads.
    worth: f32,
}

/// A read that was begun; dropping it cancels it.
type UnderWay = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Prefetcher {
    /// A prefetcher of blocks into `cache`.
    #[must_use]
    pub fn new(cache: Cache) -> Self {
        let (switches, planned, under_way) = Default::default();
        Self { cache, switches, planned, under_way, reads: None, worth: 0.0 }
    }

    /// Ends a second in which users took, or waited for, these shares of each volume's paid rate. Other
    /// volumes have an unknown load: they count as light.
    pub fn on_second(&mut self, used: impl IntoIterator<Item = (VolumeId, f64)>) {
        for (volume, used) in used {
            self.switches.entry(volume).or_default().on_second(used);
        }
        let inner = Arc::clone(&self.cache.0);
        let now = inner.now.fetch_add(1, Ordering::Relaxed) + 1;
        let reads = inner.reads();
        let last = self.reads.as_ref().map_or(0.0, |before| reads.worth(before));
        // An average that halves each second, as heats do. A rise of returns counts at once, a fall slowly:
        // without evictions there are no returns either.
        let quick = reads.least_share.is_some() || last > self.worth;
        self.worth += (last - self.worth) * if quick { 0.5 } else { 0.1 };
        self.reads = Some(reads);
        let Some(prefetched) = &inner.prefetched else { return };
        prefetched.set_displaced(self.worth);
        let switches = &self.switches;
        *prefetched.modes.lock() =
            switches.iter().map(|(&volume, switch)| (volume, switch.mode())).collect();
        let heavy =
            |volume| switches.get(&volume).is_some_and(|switch| switch.mode() == Mode::Heavy);
        self.under_way.retain(|&(volume, _)| !heavy(volume));
        let most = (inner.bytes_for_blocks() / BLOCK_BYTES) as usize;
        self.under_way.truncate(most);
        let mut heats = BTreeMap::new();
        let mut warm = Vec::new();
        prefetched.sweep(now, |block, heat| {
            if heat > WARM {
                warm.push((block, heat));
            }
            heats.insert(block, heat);
        });
        let mut fetches = BTreeMap::new();
        warm.retain(|&(block, _)| {
            if prefetched.has_room(block) {
                return false;
            }
            let volume = prefetched.handle(block).map(|handle| handle.volume_at(block.start()));
            let light = volume.filter(|&volume| !heavy(volume));
            light.is_some_and(|volume| fetches.insert(block, volume).is_none())
        });
        let state = inner.state(prefetched, &heats, self.under_way.len(), warm);
        self.planned.clear();
        for step in plan(state, FETCHES_MAX) {
            match step {
                Action::Drop(block) => prefetched.drop_block(block),
                Action::Fetch { block, instead_of } => {
                    let volume = fetches[&block];
                    self.planned.push_back(Fetch { block, instead_of, volume });
                }
            }
        }
    }

    /// Reads the planned blocks; ready when none is left. It may be dropped and called again.
    pub async fn work(&mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    /// [`Prefetcher::work`] for callers that poll other futures too; it may be polled again after it is
    /// ready.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            while self.under_way.len() < IN_FLIGHT
                && let Some(fetch) = self.planned.pop_front()
            {
                let volume = fetch.volume;
                self.under_way.push((volume, Box::pin(fetch.run(self.cache.clone()))));
            }
            let before = self.under_way.len();
            self.under_way.retain_mut(|(_, fetch)| fetch.as_mut().poll(cx).is_pending());
            if self.under_way.is_empty() && self.planned.is_empty() {
                return Poll::Ready(());
            }
            if self.under_way.len() == before {
                return Poll::Pending;
            }
        }
    }
}

impl Inner {
    /// The input of a plan at these `heats`: `candidates` have no room yet; `coming` blocks have room, but
    /// are not in memory.
    pub(super) fn state(
        &self,
        prefetched: &Prefetched,
        heats: &BTreeMap<Block, f32>,
        coming: usize,
        candidates: Vec<(Block, f32)>,
    ) -> PrefetchState {
        let here = prefetched.here().into_iter();
        let reads = self.bytes_of_reads() + SLACK * self.shards.len() as u64;
        let most = (self.bytes_for_blocks() / BLOCK_BYTES) as usize;
        PrefetchState {
            displaced: prefetched.displaced(),
            free: (self.bytes_for_reads().saturating_sub(reads) / BLOCK_BYTES) as usize,
            most: most.saturating_sub(coming),
            held: here.map(|block| (block, heats.get(&block).copied().unwrap_or(0.0))).collect(),
            candidates,
        }
    }
}

/// A block to be read.
struct Fetch {
    block: Block,
    instead_of: Option<Block>,
    volume: VolumeId,
}

impl Fetch {
    async fn run(self, cache: Cache) {
        let inner = &cache.0;
        let Some(prefetched) = &inner.prefetched else { return };
        let Some(handle) = prefetched.handle(self.block) else { return };
        let start = self.block.start();
        let len = handle.len().saturating_sub(start).min(Block::BYTES) as usize;
        if len == 0 {
            return prefetched.cool(self.block);
        }
        self.instead_of.into_iter().for_each(|victim| prefetched.drop_block(victim));
        let Some(room) = inner.take_room(prefetched, self.block) else { return };
        let into = IoBufMut::zeroed(len.next_multiple_of(PAGE));
        match handle.read_at(start, into, IO).await {
            Ok(bytes) if bytes.len() >= len => {
                if room.keep(bytes.freeze().slice(0..len), Source::Volume) {
                    inner.drop_reads_of(self.block);
                    prefetched.prefetches.fetch_add(1, Ordering::Relaxed);
                }
            }
            // The gate has too many waiters; the next plan may try again.
            Err(error) if error.kind() == ErrorKind::Busy => {}
            // The block must become warm again before a retry. A user's read reports the error itself.
            Ok(_) => prefetched.cool(self.block),
            Err(error) => {
                tracing::debug!("a block was not prefetched: {error}");
                prefetched.cool(self.block);
            }
        }
    }
}

impl Inner {
    /// Takes room for a block from single reads; `None` if blocks have all the room they may have.
    pub(super) fn take_room<'a>(
        &self,
        prefetched: &'a Prefetched,
        block: Block,
    ) -> Option<Room<'a>> {
        let _shrinking = self.shrinking.lock();
        let room = Room::take(prefetched, block, self.bytes_for_blocks())?;
        self.shrink();
        Some(room)
    }
}

/// Room for a block that is being read; released on drop, unless the block arrived.
pub(super) struct Room<'a> {
    prefetched: &'a Prefetched,
    block: Block,
    kept: bool,
}

impl<'a> Room<'a> {
    fn take(prefetched: &'a Prefetched, block: Block, most: u64) -> Option<Self> {
        let room = || Self { prefetched, block, kept: false };
        prefetched.reserve(block, most).then(room)
    }

    /// Keeps the block; false if its object is gone.
    pub(super) fn keep(mut self, bytes: IoBuf, source: Source) -> bool {
        self.kept = true;
        self.prefetched.keep(self.block, bytes, source)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.prefetched.give_back(self.block);
        }
    }
}
