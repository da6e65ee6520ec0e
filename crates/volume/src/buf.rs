//! Buffers that O_DIRECT accepts: page-aligned, with room up to a whole page behind their end.
//!
//! This is the only file of the crate with `unsafe`: it allocates with an alignment that `Vec`
//! cannot give.

use std::alloc::{self, Layout};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of every buffer, and the unit direct I/O is done in.
pub const PAGE: usize = 4096;

/// Page-aligned memory of a whole number of pages, all of an allocation or a part of it. Only written bytes are visible.
struct Pages {
    start: NonNull<u8>,
    capacity: usize,
    /// Bytes written, counted from the start.
    written: usize,
    /// Bytes that have any value, counted from the start: those written, now or before the memory was used again.
    initialised: usize,
    /// The allocation that this is a part of; `None` if it is all of one.
    part_of: Option<Arc<Allocation>>,
}

/// Memory that several [`Pages`] are parts of. No two of them overlap.
struct Allocation {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: `Pages` owns its memory alone, also if it is a part of an allocation: parts do not overlap. Sharing follows the
// borrow rules of the types around it.
unsafe impl Send for Pages {}
// SAFETY: as above; `&Pages` gives out shared slices only.
unsafe impl Sync for Pages {}
// SAFETY: it gives out no memory; the last of its parts frees it, on any thread.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, PAGE).expect("a buffer is smaller than the address space")
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: it has a size, was allocated in `Pages::with_capacity` with this very layout, and no part is left.
        unsafe { alloc::dealloc(self.start.as_ptr(), layout(self.capacity)) }
    }
}

impl Pages {
    fn with_capacity(bytes: usize) -> Self {
        let capacity = bytes.next_multiple_of(PAGE);
        let part_of = None;
        if capacity == 0 {
            let start = NonNull::dangling();
            return Self { start, capacity, written: 0, initialised: 0, part_of };
        }
        if let Some(spare) = Spares::take(capacity) {
            return spare;
        }
        // SAFETY: the layout has a non-zero size.
        let start = unsafe { alloc::alloc(layout(capacity)) };
        let Some(start) = NonNull::new(start) else { alloc::handle_alloc_error(layout(capacity)) };
        Self { start, capacity, written: 0, initialised: 0, part_of }
    }

    /// The first `at` bytes, whole pages, and the rest.
    fn split(mut self, at: usize) -> (Self, Self) {
        assert!(at.is_multiple_of(PAGE) && 0 < at && at < self.capacity);
        let (start, capacity) = (self.start, self.capacity);
        let whole = self.part_of.take().unwrap_or_else(|| Arc::new(Allocation { start, capacity }));
        let (written, initialised) = (self.written, self.initialised);
        // The two parts own its memory from here on.
        std::mem::forget(self);
        let front = Self {
            start,
            capacity: at,
            written: written.min(at),
            initialised: initialised.min(at),
            part_of: Some(Arc::clone(&whole)),
        };
        let back = Self {
            // SAFETY: `at` is inside the memory.
            start: unsafe { start.add(at) },
            capacity: capacity - at,
            written: written.saturating_sub(at),
            initialised: initialised.saturating_sub(at),
            part_of: Some(whole),
        };
        (front, back)
    }

    /// The memory of both, if `back` lies right behind in the same allocation.
    fn join(mut self, mut back: Self) -> Result<Self, (Self, Self)> {
        let of = |pages: &Self| pages.part_of.as_ref().map(Arc::as_ptr);
        let is_behind = self.start.addr().get() + self.capacity == back.start.addr().get();
        if of(&self).is_none() || of(&self) != of(&back) || !is_behind {
            return Err((self, back));
        }
        if back.written > 0 {
            self.zero_until(self.capacity);
        }
        self.initialised = match self.initialised == self.capacity {
            true => self.capacity + back.initialised,
            false => self.initialised,
        };
        self.written = if back.written > 0 { self.capacity + back.written } else { self.written };
        self.capacity += back.capacity;
        back.part_of = None;
        std::mem::forget(back);
        self.reunite();
        Ok(self)
    }

    /// Owns the memory of its allocation again, if it is all of it: only then can a later buffer have it.
    fn reunite(&mut self) {
        let capacity = self.capacity;
        let Some(whole) = self.part_of.take_if(|whole| whole.capacity == capacity) else { return };
        match Arc::try_unwrap(whole) {
            // These pages free it.
            Ok(allocation) => std::mem::forget(allocation),
            Err(shared) => self.part_of = Some(shared),
        }
    }

    /// The written bytes.
    fn as_slice(&self) -> &[u8] {
        // SAFETY: `start` is valid for `capacity` bytes while `self` lives; the first `written` of
        // them are initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.written) }
    }

    /// The written bytes.
    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.written) }
    }

    /// Extends the written bytes to `end` with zeros.
    fn zero_until(&mut self, end: usize) {
        assert!(end <= self.capacity);
        if let Some(missing) = end.checked_sub(self.written) {
            // SAFETY: from `written` on, `missing` bytes lie within the memory.
            unsafe { self.start.add(self.written).write_bytes(0, missing) };
            self.set_written(end);
        }
    }

    /// Extends the written bytes to `end` with bytes of any value.
    fn show_until(&mut self, end: usize) {
        assert!(end <= self.capacity);
        self.written = self.written.max(end.min(self.initialised));
        self.zero_until(end);
    }

    /// Writes `bytes` at `at`, which is at most the number of written bytes.
    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.written && bytes.len() <= self.capacity - at);
        let bytes_start = NonNull::from(bytes).cast();
        // SAFETY: the target lies within the memory; `bytes` lies outside it, because `self` is borrowed exclusively.
        unsafe { self.start.add(at).copy_from_nonoverlapping(bytes_start, bytes.len()) };
        self.set_written(at + bytes.len());
    }

    fn set_written(&mut self, end: usize) {
        self.written = self.written.max(end);
        self.initialised = self.initialised.max(self.written);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // A part leaves its memory to the allocation.
        if self.capacity > 0 && self.part_of.is_none() && !Spares::keep(self) {
            // SAFETY: allocated in `with_capacity` with this very layout.
            unsafe { alloc::dealloc(self.start.as_ptr(), layout(self.capacity)) }
        }
    }
}

/// A buffer to fill: a reader reads into it, a writer builds its data in it.
pub struct IoBufMut {
    pages: Pages,
    len: usize,
}

impl IoBufMut {
    /// `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::with_capacity(len);
        buf.resize(len);
        buf
    }

    /// `len` bytes of any value, for a reader that overwrites them or cuts the rest off: memory that a thread used
    /// before need not be cleared. Use it only where no byte that was not read can get out.
    #[must_use]
    pub fn unread(len: usize) -> Self {
        let mut pages = Pages::with_capacity(len);
        pages.show_until(len);
        Self { pages, len }
    }

    /// An empty buffer with room for `capacity` bytes. The system commits the memory of a large one as it is filled.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { pages: Pages::with_capacity(capacity), len: 0 }
    }

    /// Bytes it can hold without moving: a whole number of pages.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.pages.capacity
    }

    /// Makes the buffer `len` bytes long; bytes that were never written are zero.
    pub fn resize(&mut self, len: usize) {
        if len > self.capacity() {
            self.grow(len);
        }
        self.pages.zero_until(len);
        self.len = len;
    }

    /// Appends `bytes`, moving to a larger allocation (at least doubled) if they do not fit.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let start = self.len;
        let end = start + bytes.len();
        if end > self.capacity() {
            self.grow(end.max(2 * self.capacity()));
        }
        self.pages.write(start, bytes);
        self.len = end;
    }

    /// The whole allocation, beyond the length too: direct I/O reads whole pages into it.
    pub fn whole_pages_mut(&mut self) -> &mut [u8] {
        self.pages.zero_until(self.pages.capacity);
        self.pages.as_mut_slice()
    }

    /// Divides the buffer, without a copy: the first `at` bytes, which must be whole pages, and the rest.
    ///
    /// # Panics
    /// When `at` is not a whole number of pages inside the buffer.
    #[must_use]
    pub fn split(self, at: usize) -> (Self, Self) {
        let Self { pages, len } = self;
        assert!(at < len);
        let (front, back) = pages.split(at);
        (Self { pages: front, len: at }, Self { pages: back, len: len - at })
    }

    /// Appends a buffer. Without a copy if it was the next part of the same buffer before a [`split`](Self::split).
    pub fn join(&mut self, next: Self) {
        let Self { pages, len } = std::mem::replace(self, Self::with_capacity(0));
        let joined = match len == pages.capacity {
            true => pages.join(next.pages),
            false => Err((pages, next.pages)),
        };
        match joined {
            Ok(pages) => *self = Self { pages, len: len + next.len },
            Err((pages, behind)) => {
                *self = Self { pages, len };
                self.extend_from_slice(&behind.as_slice()[..next.len]);
            }
        }
    }

    /// Makes the bytes read-only and cheap to share.
    #[must_use]
    pub fn freeze(self) -> IoBuf {
        IoBuf { range: 0..self.len, pages: Arc::new(self.pages) }
    }

    fn grow(&mut self, capacity: usize) {
        let mut pages = Pages::with_capacity(capacity);
        pages.write(0, self);
        self.pages = pages;
    }
}

impl Deref for IoBufMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages.as_slice()[..self.len]
    }
}

impl DerefMut for IoBufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_slice()[..self.len]
    }
}

impl From<&[u8]> for IoBufMut {
    fn from(bytes: &[u8]) -> Self {
        let mut buf = Self::with_capacity(bytes.len());
        buf.extend_from_slice(bytes);
        buf
    }
}

impl fmt::Debug for IoBufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBufMut({} bytes)", self.len)
    }
}

/// Bytes to write. Clones and slices share the memory.
#[derive(Clone)]
pub struct IoBuf {
    pages: Arc<Pages>,
    range: Range<usize>,
}

impl IoBuf {
    /// The part `range` of these bytes.
    ///
    /// # Panics
    /// When the range is not inside the buffer.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len());
        let start = self.range.start + range.start;
        Self { pages: Arc::clone(&self.pages), range: start..start + range.len() }
    }
}

impl IoBuf {
    /// Returns the buffer, emptied but with its capacity, if this is the only handle to its memory.
    #[must_use]
    pub fn reclaim(self) -> Option<IoBufMut> {
        Some(IoBufMut { pages: Arc::into_inner(self.pages)?, len: 0 })
    }
}

impl Deref for IoBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages.as_slice()[self.range.clone()]
    }
}

impl From<&[u8]> for IoBuf {
    fn from(bytes: &[u8]) -> Self {
        IoBufMut::from(bytes).freeze()
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len())
    }
}

/// Memory of buffers that a thread dropped, for its next ones: fresh memory of this size costs a fault for each page, more
/// than a read copies it.
struct Spares {
    all: Vec<Pages>,
    bytes: usize,
}

impl Spares {
    /// The capacities that are kept: smaller ones the allocator keeps itself.
    const SIZES: std::ops::RangeInclusive<usize> = 64 * 1024..=1024 * 1024;
    /// The most bytes that a thread keeps.
    const BYTES_MAX: usize = 16 * 1024 * 1024;

    /// Memory of exactly this capacity, with nothing written.
    fn take(capacity: usize) -> Option<Pages> {
        if !Self::SIZES.contains(&capacity) {
            return None;
        }
        let taken = SPARES.try_with(|spares| {
            let mut spares = spares.try_borrow_mut().ok()?;
            let at = spares.all.iter().rposition(|spare| spare.capacity == capacity)?;
            spares.bytes -= capacity;
            Some(spares.all.swap_remove(at))
        });
        let mut pages = taken.ok().flatten()?;
        pages.written = 0;
        Some(pages)
    }

    /// Takes over the memory of a buffer that is dropped, if there is room for it.
    fn keep(pages: &Pages) -> bool {
        let Pages { start, capacity, initialised, .. } = *pages;
        if !Self::SIZES.contains(&capacity) {
            return false;
        }
        let kept = SPARES.try_with(|spares| {
            let Ok(mut spares) = spares.try_borrow_mut() else { return false };
            if spares.bytes + capacity > Self::BYTES_MAX {
                return false;
            }
            spares.bytes += capacity;
            spares.all.push(Pages { start, capacity, written: 0, initialised, part_of: None });
            true
        });
        // At the end of a thread there are no spares.
        kept.unwrap_or(false)
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        // They must not come back here.
        for spare in std::mem::take(&mut self.all) {
            let (start, capacity) = (spare.start, spare.capacity);
            std::mem::forget(spare);
            drop(Allocation { start, capacity });
        }
    }
}

/// The most bytes a thread keeps for [`with_scratch`].
const SCRATCH_MAX: usize = 64 * 1024;

thread_local! {
    static SCRATCH: Cell<Option<IoBufMut>> = const { Cell::new(None) };
    static SPARES: RefCell<Spares> = const { RefCell::new(Spares { all: Vec::new(), bytes: 0 }) };
}

/// Lends `work` page-aligned memory of `len` bytes, with arbitrary content. Up to 64 KiB, the thread keeps the memory
/// and reuses it.
pub fn with_scratch<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut scratch = SCRATCH.take().unwrap_or_else(|| IoBufMut::with_capacity(0));
    if scratch.capacity() < len {
        scratch = IoBufMut::with_capacity(len);
    }
    scratch.resize(len);
    let done = work(&mut scratch);
    if scratch.capacity() <= SCRATCH_MAX {
        SCRATCH.set(Some(scratch));
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_written_is_zero() {
        let mut buf = IoBufMut::with_capacity(2 * PAGE);
        buf.extend_from_slice(&[7; 100]);
        buf.resize(10);
        buf.resize(PAGE);
        assert!(buf[..100] == [7; 100] && buf[100..].iter().all(|&b| b == 0));
        assert!(buf.whole_pages_mut()[100..].iter().all(|&b| b == 0));
        buf.resize(3 * PAGE);
        assert!(buf[..100] == [7; 100] && buf[100..].iter().all(|&b| b == 0));
        assert_eq!(&*IoBufMut::from(&b"ab"[..]), b"ab");
    }

    /// Every read of a megabyte once got fresh memory, since a gate divides it: the faults cost as much as the read.
    #[test]
    fn the_memory_of_a_divided_buffer_is_used_again_once_it_is_whole() {
        let len = 256 * 1024;
        let parts = |byte: u8| {
            let (mut front, rest) = IoBufMut::from(&vec![byte; len][..]).split(PAGE);
            let (middle, back) = rest.split(10 * PAGE);
            front.join(middle);
            (front, back)
        };
        let (mut whole, back) = parts(7);
        whole.join(back);
        drop(whole);
        assert!(IoBufMut::unread(len).iter().all(|&b| b == 7), "it was not used again");
        // The spare of before is taken by `parts`, and none comes back while a part lives.
        let (front, back) = parts(9);
        drop(front);
        assert!(back.iter().all(|&b| b == 9));
        assert!(IoBufMut::unread(len).iter().all(|&b| b == 0), "a part is in use");
        drop(back);
    }

    #[test]
    fn memory_that_is_used_again_is_zero_unless_that_is_not_wanted() {
        let len = 128 * 1024;
        drop(IoBufMut::from(&vec![7; len][..]));
        let again = IoBufMut::unread(len);
        assert!(again.iter().all(|&b| b == 7), "it was not used again");
        drop(again);
        let mut buf = IoBufMut::with_capacity(len);
        assert!(buf.is_empty());
        buf.extend_from_slice(b"ab");
        buf.resize(len);
        assert!(buf[..2] == *b"ab" && buf[2..].iter().all(|&b| b == 0));
        drop(buf);
        assert!(IoBufMut::zeroed(len).iter().all(|&b| b == 0));
        // What was never written is zero here, too.
        assert!(
            std::thread::spawn(move || IoBufMut::unread(len).iter().all(|&b| b == 0))
                .join()
                .unwrap()
        );
    }

    #[test]
    fn a_thread_keeps_a_bounded_number_of_bytes() {
        let many: Vec<_> = (0..80).map(|_| IoBufMut::zeroed(256 * 1024)).collect();
        drop(many);
        let (count, bytes) = SPARES.with_borrow(|spares| (spares.all.len(), spares.bytes));
        assert_eq!((count, bytes), (64, Spares::BYTES_MAX));
        drop(IoBufMut::zeroed(2 * 1024 * 1024));
        assert_eq!(SPARES.with_borrow(|spares| spares.all.len()), 64);
    }

    #[test]
    fn parts_are_joined_without_a_copy_and_their_memory_lives_as_long_as_any() {
        let mut buf = IoBufMut::zeroed(5 * PAGE + 100);
        let start = buf.as_ptr();
        for (number, page) in buf.chunks_mut(PAGE).enumerate() {
            page.fill(number as u8);
        }
        let (mut first, rest) = buf.split(2 * PAGE);
        let (second, third) = rest.split(PAGE);
        assert_eq!((first.len(), second.len(), third.len()), (2 * PAGE, PAGE, 2 * PAGE + 100));
        first.join(second);
        first.join(third);
        assert_eq!((first.as_ptr(), first.len()), (start, 5 * PAGE + 100));
        assert!(first.chunks(PAGE).enumerate().all(|(n, page)| page.iter().all(|&b| b == n as u8)));
        let (front, back) = first.split(PAGE);
        drop(front);
        assert!(back[..PAGE].iter().all(|&b| b == 1));
    }

    #[test]
    fn parts_that_do_not_fit_are_copied() {
        let (mut front, back) = IoBufMut::from(&[1; 3 * PAGE][..]).split(PAGE);
        front.resize(10);
        front.join(back);
        assert_eq!(&front[..], &[1; 2 * PAGE + 10][..]);
        let (mut front, _) = IoBufMut::from(&[1; 2 * PAGE][..]).split(PAGE);
        let (_, stranger) = IoBufMut::from(&[2; 2 * PAGE][..]).split(PAGE);
        front.join(stranger);
        assert!(front[..PAGE] == [1; PAGE] && front[PAGE..] == [2; PAGE]);
        // A part that was read short and comes last.
        let (mut front, mut back) = IoBufMut::from(&[3; 3 * PAGE][..]).split(2 * PAGE);
        back.resize(5);
        front.join(back);
        assert_eq!(&front[..], &[3; 2 * PAGE + 5][..]);
    }

    #[test]
    fn scratch_is_aligned_whatever_its_size_and_depth() {
        for len in [0, 1, PAGE, SCRATCH_MAX, SCRATCH_MAX + 1] {
            with_scratch(len, |outer| {
                outer.fill(1);
                with_scratch(PAGE, |inner| inner.fill(2));
                assert!(outer.len() == len && outer.iter().all(|&b| b == 1));
                assert!(len == 0 || outer.as_ptr().align_offset(PAGE) == 0);
            });
        }
    }

    #[test]
    fn buffers_are_page_aligned_and_whole_pages_long() {
        let mut buf = IoBufMut::zeroed(5000);
        assert_eq!(buf.as_ptr().align_offset(PAGE), 0);
        assert_eq!((buf.len(), buf.capacity()), (5000, 8192));
        assert_eq!(buf.whole_pages_mut().len(), 8192);
    }

    #[test]
    fn growing_keeps_the_bytes() {
        let mut buf = IoBufMut::with_capacity(0);
        let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        for chunk in bytes.chunks(777) {
            buf.extend_from_slice(chunk);
        }
        assert_eq!(&*buf, &bytes[..]);
        buf.resize(20_000);
        assert_eq!(&buf[..10_000], &bytes[..]);
        assert!(buf[10_000..].iter().all(|&b| b == 0));
    }

    #[test]
    fn only_the_last_holder_gets_a_buffer_back() {
        let mut buf = IoBufMut::with_capacity(3 * PAGE);
        buf.extend_from_slice(b"0123456789");
        let buf = buf.freeze();
        assert!(buf.clone().reclaim().is_none());
        let part = buf.slice(2..4);
        assert!(buf.reclaim().is_none());
        let again = part.reclaim().expect("it is the last");
        assert_eq!((again.len(), again.capacity()), (0, 3 * PAGE));
    }

    #[test]
    fn slices_share_and_nest() {
        let buf = IoBuf::from(&b"0123456789"[..]);
        assert_eq!(&*buf.slice(2..8).slice(1..3), b"34");
    }
}
