//! Cuts a write at page boundaries, so that its whole pages can go to the device directly.

use std::ops::Range;

use crate::buf::PAGE;

/// The parts of a write, as ranges of its data, in the order of their offsets. Any may be empty.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Parts {
    /// The end of a page that begins before the write, or a whole write that lies within one page.
    pub(super) head: Range<usize>,
    /// Whole pages.
    pub(super) pages: Range<usize>,
    /// The beginning of a page that ends behind the write.
    pub(super) tail: Range<usize>,
}

impl Parts {
    /// Cuts a write of `len` bytes at `offset`.
    pub(super) fn of(offset: u64, len: usize) -> Self {
        let first = to_boundary(offset).min(len);
        let last = len - (len - first) % PAGE;
        Self { head: 0..first, pages: first..last, tail: last..len }
    }

    /// Whether the write is made of whole pages only.
    pub(super) fn are_whole(&self) -> bool {
        self.head.is_empty() && self.tail.is_empty()
    }
}

/// Bytes from the beginning of its page to `offset`.
pub(super) fn within_page(offset: u64) -> usize {
    (offset % PAGE as u64) as usize
}

/// Bytes from `offset` to the next page boundary; 0 at a boundary.
fn to_boundary(offset: u64) -> usize {
    (PAGE - within_page(offset)) % PAGE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn writes_are_cut_at_page_boundaries() {
        let cut = |offset, len| {
            let Parts { head, pages, tail } = Parts::of(offset, len);
            [head.len(), pages.len(), tail.len()]
        };
        assert_eq!(cut(0, 8192), [0, 8192, 0]);
        assert_eq!(cut(0, 5000), [0, 4096, 904]);
        assert_eq!(cut(0, 10), [0, 0, 10]);
        assert_eq!(cut(10, 10), [10, 0, 0]);
        assert_eq!(cut(4000, 96), [96, 0, 0]);
        assert_eq!(cut(4000, 5000), [96, 4096, 808]);
        assert_eq!(cut(4000, 200), [96, 0, 104]);
    }

    proptest! {
        #[test]
        fn parts_join_and_only_the_middle_is_whole_pages(
            offset in 0u64..20_000, len in 0usize..20_000,
        ) {
            let Parts { head, pages, tail } = Parts::of(offset, len);
            prop_assert_eq!((head.start, pages.start, tail.start, tail.end),
                (0, head.end, pages.end, len));
            prop_assert_eq!(pages.len() % PAGE, 0);
            prop_assert!(head.len() < PAGE && tail.len() < PAGE);
            if !pages.is_empty() || !tail.is_empty() {
                prop_assert_eq!(within_page(offset + pages.start as u64), 0);
            }
        }
    }
}
