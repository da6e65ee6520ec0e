//! Coalesces reads into operations of a volume.

use std::ops::Range;

use policy::contract::OP_BYTES_MAX;
use policy::units::KIB;
use volume::buf::PAGE;

/// The unit of readahead and coalescing: what a volume counts as one operation.
pub(crate) const WINDOW: u64 = OP_BYTES_MAX;

// A prefetched block is a window.
const _: () = assert!(WINDOW == policy::heat::Block::BYTES);

/// The most unused bytes that one operation reads between two requested ranges. Contracts limit
/// bandwidth too, some 40 KiB for each operation: reading a wider gap costs more than an operation.
const GAP_MAX: u64 = 32 * KIB;

/// Whole pages of a file that cover some of the reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Extent {
    /// The pages, as a range of bytes; the last page may reach past the end of the file.
    pub(crate) bytes: Range<u64>,
    /// The reads it covers, as positions in the order planned.
    pub(crate) reads: Range<usize>,
}

/// Plans `reads`, byte ranges in ascending order of their start, as operations.
///
/// Reads that lie close together share an operation of up to a [`WINDOW`]. A larger read stays
/// whole: the gate divides it.
pub(crate) fn plan(reads: &[Range<u64>]) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::with_capacity(reads.len());
    for (position, read) in reads.iter().enumerate() {
        let bytes = whole_pages(read);
        match extents.last_mut() {
            Some(last) if fits(&last.bytes, &bytes) => {
                last.bytes.end = last.bytes.end.max(bytes.end);
                last.reads.end = position + 1;
            }
            _ => extents.push(Extent { bytes, reads: position..position + 1 }),
        }
    }
    extents
}

/// The pages `range` touches.
pub(crate) fn whole_pages(range: &Range<u64>) -> Range<u64> {
    let page = PAGE as u64;
    range.start / page * page..range.end.next_multiple_of(page)
}

fn fits(extent: &Range<u64>, next: &Range<u64>) -> bool {
    let together = next.end.max(extent.end) - extent.start;
    together <= WINDOW && next.start <= extent.end + GAP_MAX
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spans(reads: &[Range<u64>]) -> Vec<Range<u64>> {
        plan(reads).into_iter().map(|extent| extent.bytes).collect()
    }

    #[test]
    fn neighbours_share_an_operation() {
        let reads = [100..4000, 4000..8100, 9000..9001];
        let extent = Extent { bytes: 0..12288, reads: 0..3 };
        assert_eq!(plan(&reads), [extent]);
    }

    #[test]
    fn reads_far_apart_do_not() {
        let far = 4096 + GAP_MAX + 4096;
        assert_eq!(spans(&[0..10, far..far + 10]), [0..4096, far..far + 4096]);
        let near = far - 4096;
        assert_eq!(spans(&[0..10, near..near + 10]).len(), 1);
    }

    #[test]
    fn no_operation_grows_over_a_window() {
        let blocks: Vec<_> = (0..100).map(|i| i * 4096..(i + 1) * 4096).collect();
        assert_eq!(spans(&blocks), [0..WINDOW, WINDOW..100 * 4096]);
        let huge = 0..3 * WINDOW;
        assert_eq!(spans(std::slice::from_ref(&huge)), [huge]);
    }

    proptest! {
        #[test]
        fn every_read_is_covered_by_its_extent_and_by_no_other(
            mut reads in prop::collection::vec((0u64..2_000_000, 1u64..300_000), 0..40),
        ) {
            reads.sort_unstable();
            let reads: Vec<_> = reads.into_iter().map(|(start, len)| start..start + len).collect();
            let extents = plan(&reads);
            let mut next = 0;
            for extent in &extents {
                prop_assert_eq!(extent.reads.start, next);
                next = extent.reads.end;
                prop_assert_eq!((extent.bytes.start % 4096, extent.bytes.end % 4096), (0, 0));
                prop_assert!(extent.reads.len() == 1 || extent.bytes.end - extent.bytes.start <= WINDOW);
                for read in &reads[extent.reads.clone()] {
                    prop_assert!(extent.bytes.start <= read.start && read.end <= extent.bytes.end);
                }
            }
            prop_assert_eq!(next, reads.len());
        }
    }
}
