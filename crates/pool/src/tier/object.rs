//! An object of a tier: reads from either volume, changes on the slow one first of all.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join, select, try_join_all};
use volume::ranges::Claim;
use volume::{
    Check, Error, Extent, Io, IoBuf, IoBufMut, Object, Pending, Result, Zeros, blocking, extent,
};

use super::accesses::counts;
use super::fast::{Changed, Fast, Fill, Reading, Source, units};
use super::reads::Joined;
use super::route::{self, Piece};
use super::shared::{Install, Shared};
use super::track::{Changing, Ended, Track};

/// How long a reader waits for another one's bytes before it reads itself: the other may be a future that nobody polls.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct TierObject {
    pub(super) shared: Arc<Shared>,
    pub(super) track: Arc<Track>,
    pub(super) slow: Arc<dyn Object>,
}

/// A change under way: its range is claimed, and none of its pages is cached.
struct Change {
    marks: Changing,
    changed: Option<(Arc<Fast>, Changed)>,
    _claim: Claim,
}

impl TierObject {
    /// Whether every call goes to the slow volume.
    fn is_plain(&self) -> bool {
        self.slow.is_log() || self.track.is_bypassed()
    }

    async fn read(&self, offset: u64, mut into: IoBufMut, io: Io) -> Result<IoBufMut> {
        if self.is_plain() {
            return self.slow.read_at(offset, into, io).await;
        }
        let range = extent::within(offset, into.len() as u64, self.slow.len());
        if range.is_empty() {
            into.resize(0);
            return Ok(into);
        }
        // A change may be on one of the volumes only.
        self.track.changes.settled(route::widened(&range)).await;
        let Some(fast) = self.shared.fast() else {
            return self.slow.read_at(offset, into, io).await;
        };
        let len = (range.end - range.start) as usize;
        into.resize(len);
        let counts = counts(io);
        if let Some(pin) = fast.begin_hit(&self.track, &range, counts) {
            self.shared.counters.hit_bytes.add(len as u64);
            match fast.slab.read(pin.at, into, io).await {
                Ok(read) => return Ok(read),
                Err(e) => self.fast_failed(&fast, range.start, &e),
            }
            return self.slow.read_at(offset, IoBufMut::zeroed(len), io).await;
        }
        let may_fill = self.shared.queue.has_room();
        let reading = fast.begin_read(&self.track, range.clone(), may_fill, counts);
        if reading.is_short {
            // The tier's own work makes room for the next fill.
            self.shared.queue.wake();
        }
        let missed = reading.route.slow.end - reading.route.slow.start;
        self.shared.counters.missed_bytes.add(missed);
        self.shared.counters.hit_bytes.add(len as u64 - missed);
        if reading.route.fast.is_empty() && reading.fills.is_empty() {
            return self.missed(&range, into, io).await;
        }
        match self.read_both(&fast, reading, &range, into, io).await? {
            Ok(read) => Ok(read),
            Err((at, e)) => {
                self.fast_failed(&fast, at, &e);
                self.slow.read_at(offset, IoBufMut::zeroed(len), io).await
            }
        }
    }

    /// Reads pieces from both volumes, and has the missing pages installed. The inner error is one of the fast volume, with
    /// its place.
    async fn read_both(
        &self,
        fast: &Arc<Fast>,
        reading: Reading,
        range: &Range<u64>,
        mut into: IoBufMut,
        io: Io,
    ) -> Result<std::result::Result<IoBufMut, (u64, Error)>> {
        let Reading { route, fills, pins, is_short: _ } = reading;
        // Whole pages for the fills: the slow volume reads them anyhow.
        let wanted =
            if fills.is_empty() { route.slow.clone() } else { route::widened(&route.slow) };
        let pieces = route.fast.iter().map(|piece| async move {
            let into = IoBufMut::zeroed((piece.bytes.end - piece.bytes.start) as usize);
            let read = fast.slab.read(piece.at, into, io).await;
            read.map_err(|e| (piece.bytes.start, e))
        });
        let missed = async {
            let into = IoBufMut::zeroed((wanted.end - wanted.start) as usize);
            if into.is_empty() {
                return Ok(into);
            }
            self.missed(&wanted, into, io).await
        };
        let (hits, missed) = join(try_join_all(pieces), missed).await;
        drop(pins);
        let missed = missed?;
        let is_end = (missed.len() as u64) < wanted.end - wanted.start;
        self.install(fills, wanted.start, &missed, is_end);
        let hits = match hits {
            Ok(hits) => hits,
            Err(failed) => return Ok(Err(failed)),
        };
        let place = |at: u64| (at - range.start) as usize;
        for (Piece { bytes, .. }, hit) in route.fast.iter().zip(hits) {
            into[place(bytes.start)..place(bytes.end)].copy_from_slice(&hit);
        }
        if !route.slow.is_empty() {
            let part = missed.get((route.slow.start - wanted.start) as usize..).unwrap_or_default();
            let count = part.len().min((route.slow.end - route.slow.start) as usize);
            let (from, to) = (place(route.slow.start), place(route.slow.end));
            into[from..from + count].copy_from_slice(&part[..count]);
            if from + count < to {
                // The object was cut meanwhile.
                into.resize(from + count);
            }
        }
        Ok(Ok(into))
    }

    /// Reads a range from the slow volume, or has the bytes of another user's read that is under way.
    async fn missed(&self, range: &Range<u64>, mut into: IoBufMut, io: Io) -> Result<IoBufMut> {
        if !counts(io) {
            return self.slow.read_at(range.start, into, io).await;
        }
        let joined = self.track.reads.join(range, &self.track.changes, self.shared.unit);
        let leader = match joined {
            Joined::Leads(leader) => Some(leader),
            Joined::Alone => None,
            Joined::Follows(follower) => {
                let patience = self.shared.accesses.sleep(PATIENCE);
                let followed = pin!(follower.bytes(range));
                if let Either::Left((Some(bytes), _)) = select(followed, patience).await {
                    into.copy_from_slice(&bytes);
                    return Ok(into);
                }
                None
            }
        };
        let read = self.slow.read_at(range.start, into, io).await?;
        if let Some(leader) = leader {
            leader.end(&read);
        }
        Ok(read)
    }

    /// Queues fills with the bytes that were read at `offset`.
    fn install(&self, fills: Vec<Fill>, offset: u64, bytes: &[u8], is_end: bool) {
        for fill in fills {
            let source = if fill.is_whole {
                Some(Source::Slow(Arc::clone(&self.slow)))
            } else {
                fill.pages_of(offset, bytes, is_end)
            };
            let Some(source) = source else { continue };
            let cost = source.bytes(self.shared.unit);
            let job = Install { fill, source, object: self.track.number };
            if self.shared.queue.push(job, cost).is_err() {
                self.shared.counters.promotions_dropped.add(1);
            }
        }
    }

    /// Claims a range, and drops its pages once no crash can bring them back. `marked` is the range that is in doubt until
    /// the next sync; `counts` says that the filter hears of a write.
    async fn begin(&self, range: Range<u64>, marked: Range<u64>, counts: bool) -> Result<Change> {
        let claimed = route::widened(&range);
        let claim = self.track.changes.claim(claimed.clone()).await;
        self.track.reads.forget(&claimed);
        let marks = self.track.change(units(&marked, self.shared.unit));
        loop {
            let Some(fast) = self.shared.fast_for_change().await? else {
                return Ok(Change { marks, changed: None, _claim: claim });
            };
            match fast.begin_change(self.track.number, &range, counts) {
                Ok(changed) => {
                    return Ok(Change { marks, changed: Some((fast, changed)), _claim: claim });
                }
                Err(marked) => {
                    if let Err(e) = fast.journal.doubt(&marked, &fast.map).await {
                        self.shared.detach(&fast, &e);
                    }
                }
            }
        }
    }

    async fn write(&self, offset: u64, data: IoBuf, io: Io, is_durable: bool) -> Result<()> {
        let on_slow = || {
            let data = data.clone();
            if is_durable {
                self.slow.write_durable(offset, data, io)
            } else {
                self.slow.write_at(offset, data, io)
            }
        };
        let range = offset..offset.saturating_add(data.len() as u64);
        if self.is_plain() || range.is_empty() {
            return on_slow().await;
        }
        // A gap behind the end of the object becomes zeros.
        let marked = range.start.min(self.slow.len())..range.end;
        let Change { marks, changed, _claim } = self.begin(range, marked, counts(io)).await?;
        let ended = if is_durable { Ended::Durable } else { Ended::Written };
        let Some((fast, changed)) = changed else {
            on_slow().await?;
            marks.end(ended);
            return Ok(());
        };
        let on_fast = changed.write(offset, &data, io);
        let cached = if changed.is_alone {
            let (written, cached) = join(on_slow(), on_fast).await;
            written?;
            cached
        } else {
            // A reader that began before could get bytes which the slow volume then refuses.
            on_slow().await?;
            on_fast.await
        };
        marks.end(ended);
        match cached {
            Ok(()) => changed.is_written(),
            Err(e) => self.fast_failed(&fast, offset, &e),
        }
        Ok(())
    }

    /// Makes a change after which no page of the range is cached.
    async fn change(
        &self,
        range: Range<u64>,
        marked: Range<u64>,
        ended: Ended,
        on_slow: impl Future<Output = Result<()>> + Send,
    ) -> Result<()> {
        if self.is_plain() {
            return on_slow.await;
        }
        let change = self.begin(range, marked, false).await?;
        on_slow.await?;
        change.marks.end(ended);
        Ok(())
    }

    async fn sync_slow(&self, synced: Pending<'_, ()>) -> Result<()> {
        let sync = self.track.sync_begins();
        synced.await?;
        self.track.synced(sync);
        Ok(())
    }

    fn fast_failed(&self, fast: &Arc<Fast>, at: u64, error: &Error) {
        self.shared.failed(fast, self.track.number, (at / self.shared.unit) as u32, error);
    }
}

#[deny(clippy::missing_trait_methods)]
impl Object for TierObject {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        Box::pin(self.read(offset, into, io))
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(self.write(offset, data, io, false))
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(self.write(offset, data, io, true))
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        if self.is_plain() {
            return self.slow.blocking_read_at(offset, into, io);
        }
        blocking::read_at(self, offset, into, io)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        if self.is_plain() {
            return self.slow.blocking_write_at(offset, data, io);
        }
        blocking::write_at(self, offset, data, io)
    }

    fn zero(&self, offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            // Up to where it is long once the change begins: a write may make it longer meanwhile.
            let range = offset..offset.saturating_add(len);
            let zeroed = self.slow.zero(offset, len, room, io);
            if range.is_empty() {
                return zeroed.await;
            }
            self.change(range.clone(), range, Ended::Written, zeroed).await
        })
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        Box::pin(async move {
            let range = len.min(self.slow.len())..u64::MAX;
            self.change(range.clone(), range, Ended::Written, self.slow.set_len(len)).await
        })
    }

    /// The refused bytes may be those of the fast volume.
    fn read_again(
        &self,
        offset: u64,
        into: IoBufMut,
        io: Io,
        check: Check,
    ) -> Pending<'_, IoBufMut> {
        Box::pin(async move {
            let range = extent::within(offset, into.len() as u64, self.slow.len());
            if self.is_plain() || range.is_empty() {
                return self.slow.read_again(offset, into, io, check).await;
            }
            let change = self.begin(range.clone(), range.start..range.start, false).await?;
            let read = self.slow.read_again(offset, into, io, check).await;
            change.marks.end(Ended::Durable);
            read
        })
    }

    /// The alignment may choose other bytes than those that were read.
    fn align(&self, offset: u64, len: u64, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            let range = offset..offset.saturating_add(len);
            let aligned = self.slow.align(offset, len, io);
            if range.is_empty() {
                return aligned.await;
            }
            self.change(range.clone(), range.start..range.start, Ended::Durable, aligned).await
        })
    }

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(self.sync_slow(self.slow.seal(io)))
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(self.sync_slow(self.slow.sync(io)))
    }

    volume::forward! {
        self => self.slow;
        fn extents(offset: u64, len: u64) -> Pending<'_, Vec<Extent>>;
        fn len() -> u64;
        fn is_log() -> bool;
        fn is_empty() -> bool;
    }
}
