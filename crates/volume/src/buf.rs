//! Buffers that O_DIRECT accepts: page-aligned, with room up to a whole page behind their end.
//!
//! This is the only file of the crate with `unsafe`: it allocates with an alignment that `Vec`
//! cannot give.

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of every buffer, and the unit direct I/O is done in.
pub const PAGE: usize = 4096;

/// Page-aligned memory of a whole number of pages. Only written bytes are visible.
struct Pages {
    start: NonNull<u8>,
    capacity: usize,
    /// Bytes written, counted from the start.
    written: usize,
}

// SAFETY: `Pages` owns its memory alone; sharing follows the borrow rules of the types around it.
unsafe impl Send for Pages {}
// SAFETY: as above; `&Pages` gives out shared slices only.
unsafe impl Sync for Pages {}

impl Pages {
    fn with_capacity(bytes: usize) -> Self {
        let capacity = bytes.next_multiple_of(PAGE);
        if capacity == 0 {
            return Self { start: NonNull::dangling(), capacity, written: 0 };
        }
        let layout = Self::layout(capacity);
        // SAFETY: the layout has a non-zero size.
        let start = unsafe { alloc::alloc(layout) };
        let Some(start) = NonNull::new(start) else { alloc::handle_alloc_error(layout) };
        Self { start, capacity, written: 0 }
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, PAGE).expect("a buffer is smaller than the address space")
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
            // SAFETY: from `written` on, `missing` bytes lie within the allocation.
            unsafe { self.start.add(self.written).write_bytes(0, missing) };
            self.written = end;
        }
    }

    /// Writes `bytes` at `at`, which is at most the number of written bytes.
    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.written && bytes.len() <= self.capacity - at);
        let bytes_start = NonNull::from(bytes).cast();
        // SAFETY: the target lies within the allocation; `bytes` lies outside it, because `self` is borrowed
        // exclusively.
        unsafe { self.start.add(at).copy_from_nonoverlapping(bytes_start, bytes.len()) };
        self.written = self.written.max(at + bytes.len());
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: allocated in `with_capacity` with this very layout.
            unsafe { alloc::dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
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

/// The most bytes a thread keeps for [`with_scratch`].
const SCRATCH_MAX: usize = 64 * 1024;

thread_local! {
    static SCRATCH: Cell<Option<IoBufMut>> = const { Cell::new(None) };
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
