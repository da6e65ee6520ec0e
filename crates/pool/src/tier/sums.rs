//! Checksums of dirty pages, in memory: a flush writes none to the slow volume that one copy of the fast one has wrong.

use std::num::NonZeroU32;

use super::route::PAGE;

/// The checksum of a page; `None` if it is not known, as while it is written, and after a restart.
pub(super) type Sum = Option<NonZeroU32>;

/// The checksum of a whole page.
pub(super) fn of(page: &[u8]) -> Sum {
    // One of 0 counts as 1.
    NonZeroU32::new(crc32c::crc32c(page).max(1))
}

/// Those of whole pages.
pub(super) fn of_all(pages: &[u8]) -> Vec<Sum> {
    pages.chunks(PAGE as usize).map(of).collect()
}

/// Whether these are the bytes of a page with this checksum, as far as that is known.
pub(super) fn fits(sum: Sum, page: &[u8]) -> bool {
    sum.is_none() || of(page) == sum
}
