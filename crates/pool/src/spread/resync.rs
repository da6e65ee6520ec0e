//! New copies of objects that are overwritten in place: which bytes a new copy has, and which writes go to it, too.
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

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use policy::units::KIB;
use volume::{Error, Result};

use super::leaves::NewCopy;

/// The bytes copied at once: one operation of most contracts.
pub(super) const PIECE: u64 = 256 * KIB;

/// The new copies of one object that are being made.
#[derive(Default)]
pub(super) struct Resyncs(Mutex<Vec<Arc<Resync>>>);

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
        let resync = Arc::new(Resync {
            target: Arc::clone(target),
            progress: Mutex::default(),
            failed: Mutex::default(),
        });
        self.0.lock().push(Arc::clone(&resync));
        Mirroring { resyncs: self, resync }
    }

    /// The new copies.
    pub(super) fn all(&self) -> Vec<Arc<Resync>> {
        self.0.lock().clone()
    }

    /// Whether there is no new copy. That stays so while the caller has the lock of writers.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Makes the copiers copy these bytes again: a change of them ended, or was given up. The caller excludes other changes of
    /// them.
    pub(super) fn redo(&self, range: &Range<u64>) {
        self.0.lock().iter().for_each(|resync| resync.redo(range));
    }

    /// The same once the returned value is dropped.
    pub(super) const fn redo_at_end(&self, range: Range<u64>) -> Unmirrored<'_> {
        Unmirrored { resyncs: self, range }
    }
}

impl Drop for Unmirrored<'_> {
    fn drop(&mut self) {
        self.resyncs.redo(&self.range);
    }
}

impl Drop for Mirroring<'_> {
    fn drop(&mut self) {
        self.resyncs.0.lock().retain(|resync| !Arc::ptr_eq(resync, &self.resync));
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
