//! New copies of objects that are overwritten in place: which bytes a new copy has, and which writes go to it, too. And
//! outdated copies: which bytes they lack, until they are made new again.
//!
//! ```text
//!   0                                 position                      length
//!   |   copied   | again |   copied   | piece |     not copied     |
//!   writes here go to the new copy, too       they do not need to
//! ```
//! The copier goes from the first byte to the last. Behind it every write goes to the new copy as well, so one pass is enough
//! at any rate of writes. It copies a piece without a claim on it, as slowly as its class goes, and notes which of its bytes
//! change meanwhile. Then it claims the piece, copies these bytes once more, and moves on. So writers wait for at most
//! one piece, and at most twice the object's bytes are read.
//!
//! Changes that do not go through a write, or whose result is unknown, are noted when they end: those bytes are copied
//! again. These are rare: alignments, repairs, changes of the length, and writes that failed or were given up.
//!
//! A copy that missed a change is *outdated*: the pool dropped it, and notes which pieces change from then on. To make it new,
//! the copier begins with all bytes copied but these.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use policy::units::KIB;
use volume::{Error, Result};

use super::leaves::NewCopy;
use crate::manifest::Placed;

/// The bytes copied at once: one operation of most contracts.
pub(super) const PIECE: u64 = 256 * KIB;

/// The new copies of one object that are being made, and its outdated ones.
#[derive(Default)]
pub(super) struct Resyncs(Mutex<Known>);

#[derive(Default)]
struct Known {
    running: Vec<Arc<Resync>>,
    outdated: Vec<Outdated>,
}

/// A copy that was dropped because it missed a change. Its leaf objects are still there.
struct Outdated {
    placed: Placed,
    /// What it has.
    progress: Progress,
}

/// A new copy that is being made.
pub(super) struct Resync {
    pub(super) target: Arc<NewCopy>,
    progress: Mutex<Progress>,
    failed: Mutex<Option<Error>>,
}

/// Which bytes of the object a new copy has.
#[derive(Default)]
struct Progress {
    /// The end of the bytes that were copied; `u64::MAX` once these are all, which includes bytes behind the end.
    position: u64,
    /// Where pieces before it begin that must be copied again.
    again: BTreeSet<u64>,
    /// The piece that is being copied, and its first and last bytes that changed since this began.
    piece: Range<u64>,
    changed: Option<Range<u64>>,
}

/// Makes writes go to a new copy until it is dropped.
pub(super) struct Mirroring<'a> {
    resyncs: &'a Resyncs,
    resync: Arc<Resync>,
}

/// A change of bytes that does not go through a write. Dropping it makes new copies copy the bytes again.
pub(super) struct Unmirrored<'a> {
    resyncs: &'a Resyncs,
    range: Range<u64>,
}

impl Resyncs {
    /// Adds a new copy, which has no byte yet. The caller excludes writes.
    pub(super) fn begin(&self, target: &Arc<NewCopy>) -> Mirroring<'_> {
        self.start(&mut self.0.lock(), target, Progress::default())
    }

    /// Adds an outdated copy again, which lacks what was noted; none if it is not outdated any more. The caller excludes writes.
    pub(super) fn begin_again(&self, target: &Arc<NewCopy>) -> Option<Mirroring<'_>> {
        let mut known = self.0.lock();
        let Outdated { progress, .. } = known.take_outdated(target.placed.number)?;
        Some(self.start(&mut known, target, progress))
    }

    fn start(&self, known: &mut Known, target: &Arc<NewCopy>, has: Progress) -> Mirroring<'_> {
        let resync = Arc::new(Resync {
            target: Arc::clone(target),
            progress: Mutex::new(has),
            failed: Mutex::default(),
        });
        known.running.push(Arc::clone(&resync));
        Mirroring { resyncs: self, resync }
    }

    /// Notes a change of a range, which the caller has claimed, for the outdated copies; gives the new ones, which get it too.
    pub(super) fn changing(&self, range: &Range<u64>) -> Vec<Arc<Resync>> {
        let mut known = self.0.lock();
        known.outdated.iter_mut().for_each(|copy| copy.progress.redo(range));
        known.running.clone()
    }

    /// The new copies.
    pub(super) fn all(&self) -> Vec<Arc<Resync>> {
        self.0.lock().running.clone()
    }

    /// Whether there is no new copy, and no outdated one. That stays so while the caller has the lock of writers.
    pub(super) fn is_empty(&self) -> bool {
        let known = self.0.lock();
        known.running.is_empty() && known.outdated.is_empty()
    }

    /// Makes the copiers copy these bytes again: a change of them ended, or was given up. The caller excludes other changes of
    /// them.
    pub(super) fn redo(&self, range: &Range<u64>) {
        let mut known = self.0.lock();
        known.outdated.iter_mut().for_each(|copy| copy.progress.redo(range));
        known.running.iter().for_each(|resync| resync.redo(range));
    }

    /// The same for outdated copies only.
    pub(super) fn redo_outdated(&self, range: &Range<u64>) {
        self.0.lock().outdated.iter_mut().for_each(|copy| copy.progress.redo(range));
    }

    /// [`Resyncs::redo`] once the returned value is dropped.
    pub(super) const fn redo_at_end(&self, range: Range<u64>) -> Unmirrored<'_> {
        Unmirrored { resyncs: self, range }
    }

    /// Adds a copy that is about to be dropped to the outdated ones, unless it is one of them. It may lack these ranges.
    pub(super) fn outdate(&self, placed: Placed, lacks: impl IntoIterator<Item = Range<u64>>) {
        let mut known = self.0.lock();
        if known.outdated.iter().any(|copy| copy.placed.number == placed.number) {
            return;
        }
        let mut progress = Progress { position: u64::MAX, ..Progress::default() };
        lacks.into_iter().for_each(|range| progress.redo(&range));
        known.outdated.push(Outdated { placed, progress });
    }

    /// The outdated copies.
    pub(super) fn outdated(&self) -> Vec<Placed> {
        self.0.lock().outdated.iter().map(|copy| copy.placed.clone()).collect()
    }

    /// Whether a copy is among them.
    pub(super) fn has_outdated(&self, number: u64) -> bool {
        self.0.lock().outdated.iter().any(|copy| copy.placed.number == number)
    }

    /// Removes one of the outdated copies; false if it is not among them.
    pub(super) fn forget_outdated(&self, number: u64) -> bool {
        self.0.lock().take_outdated(number).is_some()
    }
}

impl Known {
    fn take_outdated(&mut self, number: u64) -> Option<Outdated> {
        let at = self.outdated.iter().position(|copy| copy.placed.number == number)?;
        Some(self.outdated.remove(at))
    }
}

impl Drop for Unmirrored<'_> {
    fn drop(&mut self) {
        self.resyncs.redo(&self.range);
    }
}

impl Drop for Mirroring<'_> {
    fn drop(&mut self) {
        self.resyncs.0.lock().running.retain(|resync| !Arc::ptr_eq(resync, &self.resync));
    }
}

impl std::ops::Deref for Mirroring<'_> {
    type Target = Resync;

    fn deref(&self) -> &Resync {
        &self.resync
    }
}

impl Resync {
    /// Notes a change of a range that the caller has claimed. Returns the number of its first bytes that the caller must change
    /// in the new copy, too.
    pub(super) fn begin_change(&self, range: &Range<u64>) -> u64 {
        let mut progress = self.progress.lock();
        progress.note(range);
        progress.position.clamp(range.start, range.end) - range.start
    }

    /// Notes that bytes from which the piece may be computed change. The caller has claimed them.
    pub(super) fn note(&self, range: &Range<u64>) {
        self.progress.lock().note(range);
    }

    /// [`Resyncs::redo`] of one new copy.
    pub(super) fn redo(&self, range: &Range<u64>) {
        self.progress.lock().redo(range);
    }

    /// Ends the new copy: it cannot be written.
    pub(super) fn fail(&self, e: Error) {
        *self.failed.lock() = Some(e);
    }

    /// The next piece to copy of an object of `len` bytes; none if all bytes were copied. A piece may end behind the object:
    /// these bytes must be zeros.
    ///
    /// # Errors
    /// That of [`Resync::fail`].
    pub(super) fn next(&self, len: impl FnOnce() -> u64) -> Result<Option<Range<u64>>> {
        if let Some(e) = self.failed.lock().take() {
            return Err(e);
        }
        let mut progress = self.progress.lock();
        // Under the lock: an earlier change of the length is seen here, a later one is noted as a change of the piece.
        let len = len();
        Ok(progress.next(len))
    }

    /// Ends the copy of the piece, which the caller has claimed; or returns its bytes that must be copied once more.
    pub(super) fn end_piece(&self) -> Option<Range<u64>> {
        self.progress.lock().end_piece()
    }

    /// The end of the bytes that were copied; none once these are all.
    pub(super) fn position(&self) -> Option<u64> {
        Some(self.progress.lock().position).filter(|&position| position < u64::MAX)
    }

    /// Makes changes behind the end go to the new copy, too, unless the position is no longer this one. The caller has claimed
    /// all behind the end.
    pub(super) fn follow_end(&self, position: u64) {
        let mut progress = self.progress.lock();
        if progress.position == position {
            progress.position = u64::MAX;
        }
    }

    /// Whether it has all bytes, while the caller excludes writes.
    pub(super) fn is_complete(&self) -> bool {
        let progress = self.progress.lock();
        progress.position == u64::MAX && progress.again.is_empty() && self.failed.lock().is_none()
    }
}

impl Progress {
    fn next(&mut self, len: u64) -> Option<Range<u64>> {
        let again = self.again.pop_first().map(|at| at..self.position.min(at + PIECE));
        let fresh = || self.position..len.min(self.position.saturating_add(PIECE));
        self.piece = again.unwrap_or_else(fresh);
        self.changed = None;
        (!self.piece.is_empty()).then(|| self.piece.clone())
    }

    /// Notes that bytes of the piece change.
    fn note(&mut self, range: &Range<u64>) {
        let (start, end) = (range.start.max(self.piece.start), range.end.min(self.piece.end));
        if start < end {
            let before = self.changed.take().unwrap_or(start..end);
            self.changed = Some(before.start.min(start)..before.end.max(end));
        }
    }

    fn end_piece(&mut self) -> Option<Range<u64>> {
        if let Some(changed) = self.changed.take() {
            return Some(changed);
        }
        let piece = std::mem::take(&mut self.piece);
        // It may have been set back to a byte before the piece.
        if piece.contains(&self.position) {
            self.position = piece.end;
        }
        None
    }

    fn redo(&mut self, range: &Range<u64>) {
        self.note(range);
        if range.end == u64::MAX {
            self.position = self.position.min(range.start);
            self.again.retain(|&at| at < self.position);
        } else {
            let end = range.end.min(self.position);
            self.again.extend((range.start / PIECE * PIECE..end).step_by(PIECE as usize));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 4 * PIECE;

    /// Copies the next piece.
    fn step(progress: &mut Progress) -> Option<Range<u64>> {
        let piece = progress.next(LEN)?;
        assert_eq!(progress.end_piece(), None);
        Some(piece)
    }

    #[test]
    fn bytes_that_change_while_their_piece_is_copied_are_copied_once_more() {
        let mut progress = Progress::default();
        assert_eq!(progress.next(LEN), Some(0..PIECE));
        progress.note(&(30..40));
        progress.note(&(PIECE - 5..PIECE + 5));
        progress.note(&(PIECE..LEN));
        assert_eq!(progress.end_piece(), Some(30..PIECE));
        assert_eq!((progress.end_piece(), progress.position), (None, PIECE));
    }

    #[test]
    fn bytes_behind_the_position_are_copied_again_before_others() {
        let mut progress = Progress::default();
        step(&mut progress);
        step(&mut progress);
        progress.redo(&(PIECE - 1..3 * PIECE));
        assert_eq!(step(&mut progress), Some(0..PIECE));
        assert_eq!(step(&mut progress), Some(PIECE..2 * PIECE));
        assert_eq!(step(&mut progress), Some(2 * PIECE..3 * PIECE));
    }

    #[test]
    fn a_change_without_an_end_sets_the_position_back() {
        let mut progress = Progress::default();
        while step(&mut progress).is_some() {}
        progress.redo(&(0..1));
        progress.redo(&(2 * PIECE..2 * PIECE + 1));
        progress.redo(&(PIECE + 7..u64::MAX));
        assert_eq!(step(&mut progress), Some(0..PIECE));
        assert_eq!(progress.next(LEN), Some(PIECE + 7..2 * PIECE + 7));
        // The same while a piece is copied.
        progress.redo(&(PIECE..u64::MAX));
        assert_eq!(progress.end_piece(), Some(PIECE + 7..2 * PIECE + 7));
        assert_eq!(progress.end_piece(), None);
        assert_eq!(step(&mut progress), Some(PIECE..2 * PIECE));
    }
}
