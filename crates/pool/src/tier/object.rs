//! An object of a tier: reads from either volume, changes on the slow one first of all.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, join, select, try_join, try_join_all};
use futures_util::stream;
use policy::intent::PageReads;
use policy::purpose::{Origin, Step};
use volume::ranges::Claim;
use volume::{
    Check, Error, ErrorKind, Extent, Io, IoBuf, IoBufMut, Object, Pending, ReadTime, Result, Zeros,
    blocking, extent,
};

use super::accesses::counts;
use super::back::{self, Begun};
use super::fast::{Changed, Fast, Fill, Pin, Reading, Source, units};
use super::flush;
use super::reads::Joined;
use super::route::{self, PAGE, Piece};
use super::shared::{Install, Shared};
use super::stale;
use super::track::{Changing, Ended, Track};

/// The purpose of what follows a change of length.
const LEN: Io = Io::new(Origin::UserWrite, Step::Data);

/// Pages of new bytes that are installed at a time.
const AT_ONCE: usize = 8;

/// How long a reader waits for another one's bytes before it reads itself: the caller of the other may have stopped polling it.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct TierObject {
    pub(super) shared: Arc<Shared>,
    pub(super) track: Arc<Track>,
    pub(super) slow: Arc<dyn Object>,
    /// How often what a new object will hold was read before.
    pub(super) reads: Option<Arc<[PageReads]>>,
}

/// A change under way: its range is claimed, and none of its pages is cached.
struct Change {
    marks: Changing,
    changed: Option<(Arc<Fast>, Changed)>,
    _claim: Claim,
    _flushes: Option<Claim>,
}

/// A write to the fast volume that the next sync covers, from its end on.
struct Noted<'a>(Option<&'a Track>);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        if let Some(track) = self.0 {
            track.written_back();
        }
    }
}

impl TierObject {
    /// Whether every call goes to the slow volume.
    fn is_plain(&self) -> bool {
        self.slow.is_log() || self.track.is_bypassed()
    }

    /// Reads a hit, or calls `read_any`, whose future has a box of its own: so that of a hit is small.
    async fn read(&self, offset: u64, mut into: IoBufMut, io: Io) -> Result<IoBufMut> {
        let range = extent::within(offset, into.len() as u64, self.slow.len());
        if let Some(fast) = &*self.shared.fast_now()
            && let Some(pin) = self.begin_hit(fast, &range, io)
        {
            let len = (range.end - range.start) as usize;
            into.resize(len);
            self.shared.counters.hit_bytes.add(len as u64);
            return match fast.slab.read(pin.at, into, io).await {
                Ok(read) => Ok(read),
                Err(e) => {
                    self.read_failed(fast, &range, range.start, e)?;
                    self.slow.read_at(offset, IoBufMut::zeroed(len), io).await
                }
            };
        }
        Box::pin(self.read_any(offset, range, into, io)).await
    }

    /// Begins a read of which the fast volume has everything in one piece, and that no change holds up.
    fn begin_hit<'a>(&self, fast: &'a Fast, range: &Range<u64>, io: Io) -> Option<Pin<'a>> {
        let may_hit = !range.is_empty()
            && !self.is_plain()
            && self.track.changes.is_free(&route::widened(range))
            && self.track.stale_in(range).is_none();
        if may_hit { fast.begin_hit(&self.track, range, counts(io)) } else { None }
    }

    /// Reads after the changes of the range, from either volume or both.
    async fn read_any(
        &self,
        offset: u64,
        range: Range<u64>,
        mut into: IoBufMut,
        io: Io,
    ) -> Result<IoBufMut> {
        if self.is_plain() {
            // A removal that failed leaves stale bytes.
            self.refuse_stale(&range)?;
            return self.slow.read_at(offset, into, io).await;
        }
        if range.is_empty() {
            into.resize(0);
            return Ok(into);
        }
        // A change may be on one of the volumes only.
        self.track.changes.settled(route::widened(&range)).await;
        let fast = self.shared.fast();
        self.refuse_stale(&range)?;
        let Some(fast) = &fast else {
            return self.slow.read_at(offset, into, io).await;
        };
        let len = (range.end - range.start) as usize;
        into.resize(len);
        let may_fill = self.shared.queue.has_room();
        let reading = fast.begin_read(&self.track, range.clone(), may_fill, counts(io));
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
        match self.read_both(fast, reading, &range, into, io).await? {
            Ok(read) => Ok(read),
            Err((at, e)) => {
                self.read_failed(fast, &range, at, e)?;
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
        // Dirty pages lie over older bytes of the slow volume.
        for (Piece { bytes, .. }, hit) in route.fast.iter().zip(hits) {
            let (from, to) = (place(bytes.start), place(bytes.end).min(into.len()));
            if from < to {
                into[from..to].copy_from_slice(&hit[..to - from]);
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

    /// Claims a range, and drops its pages once no crash can bring them back; dirty ones are written back first. `marked` is
    /// the range that is in doubt until the next sync; `counts` says that the filter hears of a write.
    async fn begin(&self, range: Range<u64>, marked: Range<u64>, counts: bool) -> Result<Change> {
        let claimed = route::widened(&range);
        let _flushes = if self.track.is_in_place {
            Some(self.track.flushes.claim(claimed.clone()).await)
        } else {
            None
        };
        let _claim = self.track.changes.claim(claimed.clone()).await;
        self.track.reads.forget(&claimed);
        let marks = self.track.change(units(&marked, self.shared.unit));
        loop {
            let Some(fast) = self.shared.fast_for_change().await? else {
                return Ok(Change { marks, changed: None, _claim, _flushes });
            };
            if self.track.is_in_place && fast.has_dirty(self.track.number, &claimed) {
                let (shared, slow) = (&self.shared, &*self.slow);
                let flushed = flush::range(shared, &fast, &self.track, slow, &claimed).await;
                if let Err(e) = flushed
                    && shared.is_in_use(&fast)
                {
                    return Err(e);
                }
                continue;
            }
            match fast.begin_change(self.track.number, &range, counts) {
                Ok(changed) => {
                    let changed = Some((fast, changed));
                    return Ok(Change { marks, changed, _claim, _flushes });
                }
                Err(marked) => {
                    if let Err(e) = fast.journal.doubt(&marked, &fast.map).await {
                        self.shared.detach(&fast, &e);
                    }
                }
            }
        }
    }

    /// Writes to the fast volume alone. False if the write must go to the slow one.
    async fn keep(&self, offset: u64, data: &IoBuf, io: Io, is_durable: bool) -> Result<bool> {
        let track = &self.track;
        let range = offset..offset.saturating_add(data.len() as u64);
        if !self.shared.keeps() || !track.is_in_place || range.end > self.slow.len() {
            return Ok(false);
        }
        if track.is_unknown() && self.sync_slow(self.slow.sync(io)).await.is_err() {
            return Ok(false);
        }
        let claimed = route::widened(&range);
        let _claim = track.changes.claim(claimed.clone()).await;
        track.reads.forget(&claimed);
        let len = self.slow.len().min(track.durable_len());
        let (fast, back, data) = loop {
            let Some(fast) = self.shared.fast_for_change().await? else { return Ok(false) };
            if range.end > len || track.stale_in(&claimed).is_some() {
                return Ok(false);
            }
            let data = match claimed == range {
                true => data.clone(),
                false => match self.merged(&fast, &claimed, offset, data, io).await {
                    Some(merged) => merged,
                    None => return Ok(false),
                },
            };
            let may_grow = self.shared.may_dirty(&fast);
            match fast.begin_back(track.number, &claimed, may_grow, counts(io)) {
                Begun::Past => return Ok(false),
                Begun::Ready(back) => break (fast, back, data),
                Begun::Marked(entries) => {
                    if let Err(e) = fast.journal.doubt(&entries, &fast.map).await {
                        self.shared.detach(&fast, &e);
                    }
                }
            }
        };
        let at_once = is_durable && back.is_recorded;
        // Readers may see it even if the caller gives up: the next sync covers it.
        let mut noted = Noted(Some(track));
        if let Err(e) = back.write(claimed.start, &data, io, is_durable).await {
            drop(back);
            self.fast_failed(&fast, offset, &e);
            return Ok(false);
        }
        if !back.end(claimed.start, &data) {
            return Ok(false);
        }
        if at_once {
            noted.0 = None;
        }
        drop(noted);
        // Also if it need not be durable: the death of the process alone must not lose it.
        if !back.is_recorded {
            if is_durable {
                return back.record(&self.shared, track).await;
            }
            let extents = units(&range, self.shared.unit);
            return back::commit(&self.shared, &fast, track, extents).await;
        }
        Ok(true)
    }

    /// `data` with the rest of its first and of its last page; `None` if the fast volume does not have them. The caller has claimed
    /// these pages.
    async fn merged(
        &self,
        fast: &Arc<Fast>,
        pages: &Range<u64>,
        offset: u64,
        data: &[u8],
        io: Io,
    ) -> Option<IoBuf> {
        let end = offset + data.len() as u64;
        let mut merged = IoBufMut::zeroed((pages.end - pages.start) as usize);
        let first = (offset > pages.start).then_some(pages.start);
        let last =
            (end < pages.end).then_some(pages.end - PAGE).filter(|&last| Some(last) != first);
        for at in first.into_iter().chain(last) {
            let (pin, sum) = fast.begin_merge(&self.track, at)?;
            match fast.slab.read_page(pin.at, sum, io).await {
                Ok(page) => {
                    merged[(at - pages.start) as usize..][..page.len()].copy_from_slice(&page)
                }
                Err(e) => {
                    drop(pin);
                    self.fast_failed(fast, at, &e);
                    return None;
                }
            }
        }
        merged[(offset - pages.start) as usize..][..data.len()].copy_from_slice(data);
        Some(merged.freeze())
    }

    /// # Errors
    /// `Corrupt`: bytes of the range are stale.
    fn refuse_stale(&self, range: &Range<u64>) -> Result<()> {
        match self.track.stale_in(range) {
            Some(stale) => Err(flush::stale(&self.track, &stale)),
            None => Ok(()),
        }
    }

    /// # Errors
    /// `Corrupt`: bytes of pages that a change of `range` leaves in part are stale.
    fn refuse_stale_edges(&self, range: &Range<u64>) -> Result<Range<u64>> {
        let whole = stale::whole(range, self.slow.len().max(range.end));
        if whole.is_empty() {
            self.refuse_stale(range)?;
            return Ok(whole);
        }
        self.refuse_stale(&(range.start..whole.start))?;
        self.refuse_stale(&(whole.end.min(range.end)..range.end))?;
        Ok(whole)
    }

    /// A change gave these pages new bytes.
    async fn mend(&self, pages: &Range<u64>, io: Io) -> Result<()> {
        if pages.is_empty() || self.track.stale_in(pages).is_none() {
            return Ok(());
        }
        self.slow.sync(io).await?;
        self.shared.mend(&self.track, pages).await
    }

    /// The fast volume did not give bytes of a range: the caller goes on with the slow one.
    ///
    /// # Errors
    /// The slow volume has older bytes.
    fn read_failed(&self, fast: &Arc<Fast>, range: &Range<u64>, at: u64, e: Error) -> Result<()> {
        self.fast_failed(fast, at, &e);
        if self.shared.is_in_use(fast) && fast.has_dirty(self.track.number, range) {
            return Err(e.within(format!("{}: newest bytes {range:?}", self.track.name)));
        }
        self.refuse_stale(range)
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
        if self.keep(offset, &data, io, is_durable).await? {
            self.shared.counters.kept_writes.add(1);
            self.shared.counters.kept_bytes.add(data.len() as u64);
            return Ok(());
        }
        if self.shared.keeps() && self.track.is_in_place {
            self.shared.counters.written_through.add(data.len() as u64);
        }
        // A gap behind the end of the object becomes zeros.
        let marked = range.start.min(self.slow.len())..range.end;
        let change = self.begin(range.clone(), marked, counts(io)).await?;
        let Change { marks, changed, _claim, _flushes } = change;
        let whole = match self.refuse_stale_edges(&range) {
            Ok(whole) => whole,
            Err(e) => {
                marks.end(Ended::Durable);
                return Err(e);
            }
        };
        let ended = if is_durable { Ended::Durable } else { Ended::Written };
        let Some((fast, changed)) = changed else {
            on_slow().await?;
            marks.end(ended);
            return self.mend(&whole, io).await;
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
        self.mend(&whole, io).await?;
        // A later change makes these fills void, as it claims the range after this one.
        let fills = self
            .reads
            .as_ref()
            .map_or_else(Vec::new, |reads| fast.begin_inherited(self.track.number, &range, reads));
        drop((changed, _claim, _flushes));
        self.install_inherited(fills, offset, &data).await;
        Ok(())
    }

    /// Installs pages of bytes that were just written at `offset`. Not in the queue of what users read: that one is small, and the
    /// bytes are in memory here.
    async fn install_inherited(&self, fills: Vec<Fill>, offset: u64, data: &IoBuf) {
        let is_end = offset + data.len() as u64 == self.slow.len();
        let installs = fills.into_iter().filter_map(|fill| {
            let source = fill.pages_of(offset, data, is_end)?;
            let job = Install { fill, source, object: self.track.number };
            Some(self.shared.install(job))
        });
        let mut installed = stream::iter(installs).buffer_unordered(AT_ONCE);
        while let Some(bytes) = installed.next().await {
            self.shared.counters.inherited_bytes.add(bytes);
        }
    }

    /// Makes a change after which no page of the range is cached. `anew` gives the pages whose bytes are new after it, once the
    /// range is claimed.
    async fn change(
        &self,
        range: Range<u64>,
        marked: Range<u64>,
        ended: Ended,
        on_slow: impl Future<Output = Result<()>> + Send,
        (anew, io): (impl FnOnce() -> Result<Range<u64>> + Send, Io),
    ) -> Result<()> {
        if self.is_plain() {
            return on_slow.await;
        }
        // The claims last until the end, so that no page that is lost meanwhile is taken for a new one.
        let Change { marks, changed: _changed, _claim, _flushes } =
            self.begin(range, marked, false).await?;
        let anew = match anew() {
            Ok(anew) => anew,
            Err(e) => {
                marks.end(Ended::Durable);
                return Err(e);
            }
        };
        on_slow.await?;
        marks.end(ended);
        self.mend(&anew, io).await
    }

    async fn sync_slow(&self, synced: Pending<'_, ()>) -> Result<()> {
        let (sync, len, cuts) = (self.track.sync_begins(), self.slow.len(), self.track.cuts());
        synced.await?;
        self.track.synced(sync);
        self.track.set_durable_len(len, cuts);
        Ok(())
    }

    /// Syncs what is on the fast volume alone, and the slow volume, unless that one has nothing to sync.
    async fn sync_both(&self, io: Io) -> Result<()> {
        let track = &self.track;
        let is_idle = self.shared.keeps()
            && track.is_in_place
            && track.is_all_synced()
            && track.durable_len() == self.slow.len();
        let on_fast = async {
            let (written, fast) = (track.uncommitted(), self.shared.fast());
            if let (Some(written), Some(fast)) = (written, fast)
                && back::commit(&self.shared, &fast, track, 0..u32::MAX).await?
            {
                track.committed(written);
            }
            Ok(())
        };
        let on_slow = async {
            if is_idle {
                return Ok(());
            }
            self.sync_slow(self.slow.sync(io)).await
        };
        try_join(on_fast, on_slow).await?;
        if track.take_lost() {
            let what = format!("{}: a fast volume was lost with its newest bytes", track.name);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
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
        if self.slow.is_log() {
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
            let anew = || self.refuse_stale_edges(&range);
            self.change(range.clone(), range.clone(), Ended::Written, zeroed, (anew, io)).await
        })
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        Box::pin(async move {
            let range = len.min(self.slow.len())..u64::MAX;
            let behind = len.next_multiple_of(PAGE)..u64::MAX;
            let cut = async {
                self.track.cut_durable_len(len);
                let cut = self.slow.set_len(len).await;
                // A sync that began meanwhile may know the old length.
                self.track.cut_durable_len(len);
                cut
            };
            let anew = || Ok(behind);
            self.change(range.clone(), range, Ended::Written, cut, (anew, LEN)).await
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
            self.refuse_stale(&range)?;
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
            let marked = range.start..range.start;
            let anew = || Ok(0..0);
            self.change(range, marked, Ended::Durable, aligned, (anew, io)).await
        })
    }

    fn expected_read(&self, offset: u64, len: u64) -> ReadTime {
        let range = extent::within(offset, len, self.slow.len());
        match self.shared.fast() {
            Some(fast)
                if !self.is_plain()
                    && !range.is_empty()
                    && fast.has_all(self.track.number, &range) =>
            {
                fast.slab.volume().expected_read()
            }
            _ => self.slow.expected_read(offset, len),
        }
    }

    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        volume::ahead::sync(self, more, io)
    }

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            if !self.track.is_in_place {
                return self.sync_slow(self.slow.seal(io)).await;
            }
            let _change = self.begin(0..u64::MAX, 0..0, false).await?;
            self.refuse_stale(&(0..u64::MAX))?;
            self.sync_slow(self.slow.seal(io)).await
        })
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(self.sync_both(io))
    }

    /// What is dirty may be a hole of the slow volume.
    fn extents(&self, offset: u64, len: u64) -> Pending<'_, Vec<Extent>> {
        Box::pin(async move {
            let range = extent::within(offset, len, self.slow.len());
            let fast = self.shared.fast().filter(|_| self.track.is_in_place);
            if fast.is_some_and(|fast| fast.has_dirty(self.track.number, &range)) {
                drop(self.begin(range.clone(), range.start..range.start, false).await?);
            }
            self.slow.extents(offset, len).await
        })
    }

    volume::forward! {
        self => self.slow;
        fn len() -> u64;
        fn is_log() -> bool;
        fn is_empty() -> bool;
    }
}
