//! Dirty pages written back to the slow volume.
//!
//! ```text
//!   claim of flushes ─▶ [map: these pages] ─▶ fast ─▶ slow ─▶ sync ─▶ claim of changes ─▶ journal: clean, unless changed
//! ```
//! Writes to the fast volume go on during a flush; what they change stays dirty. A change of the slow volume claims flushes
//! first, so that no flush puts older bytes over it.
//!
//! A page that does not fit its [checksum](super::sums) is read from another copy of the fast volume. If none fits, it is stale.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use policy::cache::Slot;
use policy::purpose::{Io, Origin, Step};
use volume::{Error, ErrorKind, IoBufMut, Name, Object, Result};

use super::fast::{Fast, Pins, units};
use super::map::{Map, Pages, Unit};
use super::route::PAGE;
use super::shared::Shared;
use super::slab;
use super::sums::{self, Sum};
use super::track::Track;

/// A flush that the background work starts: no caller waits for it.
const BEHIND: Io = Io::new(Origin::WriteBack, Step::Data);

/// A flush that a user waits for.
const AHEAD: Io = Io::new(Origin::UserChange, Step::Data);

/// Bytes of one write, if the slow volume names no stripe.
const WRITE: u64 = 256 << 10;

/// Writes back a unit, and notes whether that failed; with `holds`, writes to it wait meanwhile, so that nothing of it is dirty on return.
///
/// # Errors
/// Those of either volume: what failed is as dirty as before. A fast volume that failed is given up.
pub(super) async fn unit(shared: &Shared, fast: &Arc<Fast>, unit: Unit, holds: bool) -> Result<()> {
    let flushed = write_back(shared, fast, unit, holds).await;
    match &flushed {
        Ok(()) => drop(shared.unflushed.lock().remove(&unit)),
        Err(e) => {
            shared.counters.flushes_failed.add(1);
            shared.unflushed.lock().insert(unit, e.to_string());
            if !shared.is_in_use(fast) {
                shared.unflushed.lock().remove(&unit);
            }
        }
    }
    flushed
}

async fn write_back(shared: &Shared, fast: &Arc<Fast>, unit: Unit, holds: bool) -> Result<()> {
    let Some(track) = shared.tracks.lock().numbered(unit.object).cloned() else { return Ok(()) };
    let slow = match track.slow() {
        Some(slow) => slow,
        None => match shared.slow.open(&track.name).await {
            Ok(slow) => slow,
            // It was removed meanwhile, with all that was dirty.
            Err(e) if e.kind() == ErrorKind::NotFound && track.is_bypassed() => return Ok(()),
            Err(e) => return Err(e),
        },
    };
    let at = u64::from(unit.extent) * fast.unit;
    let range = at..at + fast.unit;
    let _flushes = track.flushes.claim(range.clone()).await;
    let held = if holds { Some(track.changes.claim(range.clone()).await) } else { None };
    let copied = copy(shared, fast, &track, &*slow, &range, BEHIND).await?;
    let _changes = match held {
        Some(held) => held,
        None => track.changes.claim(range.clone()).await,
    };
    copied.end(shared, fast, &track).await
}

/// Writes back a range whose changes and flushes the caller has claimed.
///
/// # Errors
/// As for [`unit`].
pub(super) async fn range(
    shared: &Shared,
    fast: &Arc<Fast>,
    track: &Track,
    slow: &dyn Object,
    range: &Range<u64>,
) -> Result<()> {
    copy(shared, fast, track, slow, range, AHEAD).await?.end(shared, fast, track).await
}

/// Clears the marks of those of these units that are clean.
///
/// # Errors
/// Those of the slow volume.
pub(super) async fn unmark(shared: &Shared, fast: &Fast, of: &[(Name, u32)]) -> Result<()> {
    let cleared = shared.dirty.clear(of, |apply| {
        let map = fast.map.lock();
        apply(&|at| is_clean(shared, &map, &of[at]));
    });
    cleared.await
}

/// Of an object that is not followed, nothing is known.
fn is_clean(shared: &Shared, map: &Map, (name, extent): &(Name, u32)) -> bool {
    let Some(track) = shared.tracks.lock().get(name) else { return false };
    let entry = map.find(Unit { object: track.number, extent: *extent });
    !map.is_dead() && !entry.is_some_and(|entry| map.has_dirty(entry))
}

/// Drops what is dirty of an object that is about to be removed, and whose changes and flushes the caller has claimed. Until
/// then it is stale, so that no older bytes are given if the removal fails.
///
/// # Errors
/// Those of the slow volume.
pub(super) async fn discard(shared: &Shared, fast: &Arc<Fast>, track: &Track) -> Result<()> {
    let dirty: Vec<_> = {
        let mut map = fast.map.lock();
        let found = map.within(track.number, 0..u32::MAX).into_iter();
        let dirty: Vec<_> =
            found.map(|(entry, _)| map.dirty_pages(entry, &(0..u32::MAX))).collect();
        dirty.iter().for_each(|pages| map.begin_flush(pages));
        dirty
    };
    let ranges = dirty.iter().flat_map(|pages| {
        let at = u64::from(pages.unit.extent) * fast.unit;
        pages.runs.iter().map(move |run| {
            let byte = |page: u32| at + u64::from(page) * PAGE;
            byte(run.pages().start)..byte(run.pages().end)
        })
    });
    set_stale(shared, track, ranges.collect()).await?;
    // A fast volume that fails is given up, and the caller sees it.
    drop(clean(shared, fast, track, &dirty).await);
    Ok(())
}

/// Makes ranges of an object stale, durably.
///
/// # Errors
/// Those of the slow volume.
async fn set_stale(shared: &Shared, track: &Track, ranges: Vec<Range<u64>>) -> Result<()> {
    track.with_stale(|stale| ranges.into_iter().for_each(|range| stale.add(range)));
    shared.dirty.set_stale(false, || shared.stale(), || {}).await
}

/// What a flush copied to the slow volume.
struct Copied {
    pages: Vec<Pages>,
    _pins: Pins,
    /// Of these, what no copy of the fast volume has as it was written.
    damaged: Vec<Dirty>,
}

/// A dirty page when its flush began.
#[derive(Clone, Copy)]
struct Dirty {
    entry: Slot,
    page: u32,
    /// Where it begins in the object.
    byte: u64,
    sum: Sum,
}

/// Copies dirty pages to the slow volume; durable on return.
async fn copy(
    shared: &Shared,
    fast: &Arc<Fast>,
    track: &Track,
    slow: &dyn Object,
    range: &Range<u64>,
    io: Io,
) -> Result<Copied> {
    let (mut pins, mut pages, mut dirty) = (Pins::new(fast), Vec::new(), BTreeMap::new());
    {
        let mut map = fast.map.lock();
        let mut found = map.within(track.number, units(range, fast.unit));
        found.sort_unstable_by_key(|(_, extent)| *extent);
        found.retain(|(entry, _)| map.has_dirty(*entry));
        for (entry, extent) in found {
            let of = map.dirty_pages(entry, &fast.pages_in(extent.into(), range));
            map.begin_flush(&of);
            pins.pin(&mut map, entry);
            for page in of.runs.iter().flat_map(|run| run.pages()) {
                let byte = u64::from(extent) * fast.unit + u64::from(page) * PAGE;
                dirty.insert(byte, Dirty { entry, page, byte, sum: map.sum(entry, page) });
            }
            pages.push(of);
        }
    }
    let pieces = pages.iter().flat_map(|pages| {
        let unit_at = u64::from(pages.unit.extent) * fast.unit;
        pages.runs.iter().map(move |run| {
            let byte = |page: u32| unit_at + u64::from(page) * PAGE;
            (byte(run.pages().start)..byte(run.pages().end), slab::position(run.place))
        })
    });
    let mut damaged = Vec::new();
    let stripe = shared.slow.limits().stripe.unwrap_or(WRITE).max(WRITE);
    for write in writes(pieces, stripe) {
        let (start, end) = (write[0].0.start, write[write.len() - 1].0.end);
        let mut bytes = IoBufMut::zeroed((end - start) as usize);
        let (mut good, mut good_from) = (Vec::new(), start);
        for (range, at) in &write {
            let of = dirty.range(range.clone()).map(|(_, page)| *page);
            let into = &mut bytes[(range.start - start) as usize..(range.end - start) as usize];
            let lost = read(fast, of, *at, into, io).await.map_err(|e| {
                shared.failed(fast, track.number, (range.start / fast.unit) as u32, &e);
                e.within(format!("{}: dirty bytes at {}", track.name, range.start))
            })?;
            for page in lost {
                good.push(good_from..page.byte);
                good_from = page.byte + PAGE;
                damaged.push(page);
            }
        }
        good.push(good_from..end);
        let bytes = bytes.freeze();
        for range in good {
            // Behind the end of the object there are zeros.
            let part = range.start..range.end.min(slow.len());
            if part.is_empty() {
                continue;
            }
            let bytes = bytes.slice((part.start - start) as usize..(part.end - start) as usize);
            slow.write_at(part.start, bytes, io).await?;
            shared.counters.flush_writes.add(1);
            shared.counters.flushed_bytes.add(part.end - part.start);
        }
    }
    if !pages.is_empty() {
        slow.sync(io).await?;
    }
    Ok(Copied { pages, _pins: pins, damaged })
}

/// Reads dirty pages that lie in a row on the slab, from `at` on. Returns those that no copy has as they were written.
///
/// # Errors
/// Those of the fast volume.
async fn read(
    fast: &Fast,
    pages: impl Iterator<Item = Dirty>,
    at: u64,
    into: &mut [u8],
    io: Io,
) -> Result<Vec<Dirty>> {
    let read = match fast.slab.read(at, IoBufMut::zeroed(into.len()), io).await {
        Ok(read) => Some(read),
        // Of one page, maybe.
        Err(e) if e.kind().is_damage() => None,
        Err(e) => return Err(e),
    };
    let mut damaged = Vec::new();
    for ((number, page), into) in pages.enumerate().zip(into.chunks_mut(PAGE as usize)) {
        let offset = number * PAGE as usize;
        let found = read.as_ref().map(|read| &read[offset..offset + PAGE as usize]);
        if let Some(found) = found.filter(|found| sums::fits(page.sum, found)) {
            into.copy_from_slice(found);
            continue;
        }
        match fast.slab.read_page(at + offset as u64, page.sum, io).await {
            Ok(good) => into.copy_from_slice(&good),
            Err(e) if e.kind().is_damage() => damaged.push(page),
            Err(e) => return Err(e),
        }
    }
    Ok(damaged)
}

impl Copied {
    /// Makes the pages clean, but those that changed meanwhile; the caller has claimed changes of them. What is damaged is stale then.
    ///
    /// # Errors
    /// Those of either volume.
    async fn end(self, shared: &Shared, fast: &Arc<Fast>, track: &Track) -> Result<()> {
        let Self { pages, _pins, mut damaged } = self;
        {
            // Others were not damaged, but being written.
            let map = fast.map.lock();
            damaged.retain(|of| map.is_flushing(of.entry, of.page));
        }
        if !damaged.is_empty() {
            tracing::warn!(
                "{}: {} pages that were only on the fast volume of a tier are damaged there, the first one at {}",
                track.name,
                damaged.len(),
                damaged[0].byte
            );
            let ranges = damaged.iter().map(|of| of.byte..of.byte + PAGE);
            set_stale(shared, track, ranges.collect()).await?;
            track.lose();
        }
        clean(shared, fast, track, &pages).await?;
        let mut map = fast.map.lock();
        damaged.iter().for_each(|of| map.drop_pages(of.entry, &(of.page..of.page + 1)));
        Ok(())
    }
}

/// Makes pages clean that the slow volume has, durably, and whose changes the caller has claimed.
async fn clean(shared: &Shared, fast: &Arc<Fast>, track: &Track, pages: &[Pages]) -> Result<()> {
    // Reads under way of the slow volume may have older bytes of them: no other reader may take these once the pages can leave.
    for pages in pages {
        let at = u64::from(pages.unit.extent) * fast.unit;
        track.reads.forget(&(at..at + fast.unit));
    }
    let cleaned = fast.journal.clean(pages, &fast.map).await;
    if let Err(e) = &cleaned {
        shared.detach(fast, e);
    }
    cleaned.map(drop)
}

/// Neighbouring pieces as one write, cut at multiples of `most`.
fn writes(
    pieces: impl Iterator<Item = (Range<u64>, u64)>,
    most: u64,
) -> Vec<Vec<(Range<u64>, u64)>> {
    let mut writes: Vec<Vec<(Range<u64>, u64)>> = Vec::new();
    for (mut range, mut at) in pieces {
        while !range.is_empty() {
            let end = range.end.min((range.start / most + 1) * most);
            let piece = (range.start..end, at);
            match writes.last_mut() {
                Some(last)
                    if last[last.len() - 1].0.end == range.start && range.start % most != 0 =>
                {
                    last.push(piece);
                }
                _ => writes.push(vec![piece]),
            }
            at += end - range.start;
            range.start = end;
        }
    }
    writes
}

/// An error of bytes that are lost with a fast volume.
pub(super) fn stale(track: &Track, range: &Range<u64>) -> Error {
    let what = format!(
        "{}: the newest bytes {} to {} were on a fast volume that is lost: write them, or restore the object",
        track.name, range.start, range.end
    );
    Error::new(ErrorKind::Corrupt, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_write_up_to_a_multiple() {
        let pieces = [(0..8, 100), (8..12, 300), (12..40, 500), (44..48, 0)];
        let found = writes(pieces.into_iter(), 16);
        let expected = vec![
            vec![(0..8, 100), (8..12, 300), (12..16, 500)],
            vec![(16..32, 504)],
            vec![(32..40, 520)],
            vec![(44..48, 0)],
        ];
        assert_eq!(found, expected);
    }
}
