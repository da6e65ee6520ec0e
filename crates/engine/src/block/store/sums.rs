//! The checksums of a region, and the page that keeps them on a volume.

use std::ops::Range;

use volume::{BlockSum, IoBuf, IoBufMut};

use super::shape::{BLOCK, BLOCKS, SLOT};

/// What is known of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Known {
    /// It was never written, or was discarded: all zeros, which need not be read.
    Zeros,
    /// It has bytes, and no checksum: a crash, or a write that failed, left it in doubt.
    Unverified,
    /// It has bytes with this checksum.
    Sum(BlockSum),
}

/// What is known of each block of a region. In a page, 0 stands for zeros and 1 for unverified.
pub(super) struct Sums(Box<[u32; BLOCKS]>);

const ZEROS: u32 = 0;
const UNVERIFIED: u32 = 1;

const MAGIC: [u8; 8] = *b"plimsums";
const VERSION: u32 = 1;
/// Magic, version, checksum of what follows, device, region.
const HEADER: usize = 32;
const ENTRIES: Range<usize> = HEADER..HEADER + 4 * BLOCKS;

/// The checksum of a block.
pub(super) fn sum(block: &[u8]) -> Known {
    Known::Sum(BlockSum::of(block))
}

impl Sums {
    /// Every block is the same.
    pub(super) fn all(known: Known) -> Self {
        let entries = vec![entry(known); BLOCKS].into_boxed_slice();
        Self(entries.try_into().expect("it has one entry for each block"))
    }

    pub(super) fn get(&self, block: usize) -> Known {
        match self.0[block] {
            ZEROS => Known::Zeros,
            UNVERIFIED => Known::Unverified,
            sum => Known::Sum(BlockSum::from_crc(sum)),
        }
    }

    pub(super) fn set(&mut self, block: usize, known: Known) {
        self.0[block] = entry(known);
    }

    /// Sets the checksums of whole blocks from their bytes, beginning with block `first`.
    pub(super) fn set_written(&mut self, first: usize, bytes: &[u8]) {
        for (entry_of, block) in self.0[first..].iter_mut().zip(bytes.chunks_exact(BLOCK as usize))
        {
            *entry_of = entry(sum(block));
        }
    }

    /// The first block of `blocks` that is unverified.
    pub(super) fn first_unverified(&self, blocks: Range<usize>) -> Option<usize> {
        let start = blocks.start;
        self.0[blocks].iter().position(|&entry| entry == UNVERIFIED).map(|at| start + at)
    }

    /// The page of this region of this device.
    pub(super) fn encode(&self, device: u32, region: u64) -> IoBuf {
        let mut page = IoBufMut::zeroed(SLOT as usize);
        page[..8].copy_from_slice(&MAGIC);
        page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        page[16..20].copy_from_slice(&device.to_le_bytes());
        page[24..32].copy_from_slice(&region.to_le_bytes());
        for (into, entry) in page[ENTRIES].chunks_exact_mut(4).zip(self.0.iter()) {
            into.copy_from_slice(&entry.to_le_bytes());
        }
        let sum = crc32c::crc32c(&page[16..ENTRIES.end]);
        page[12..16].copy_from_slice(&sum.to_le_bytes());
        page.freeze()
    }

    /// What a page says of this region of this device; `None` if it is not the page that was written there.
    pub(super) fn decode(page: &[u8], device: u32, region: u64) -> Option<Self> {
        let known = page.len() == SLOT as usize
            && page[..8] == MAGIC
            && page[8..12] == VERSION.to_le_bytes()
            && page[16..20] == device.to_le_bytes()
            && page[24..32] == region.to_le_bytes()
            && page[12..16] == crc32c::crc32c(&page[16..ENTRIES.end]).to_le_bytes();
        known.then(|| {
            let mut sums = Self::all(Known::Zeros);
            for (entry, bytes) in sums.0.iter_mut().zip(page[ENTRIES].as_chunks::<4>().0) {
                *entry = u32::from_le_bytes(*bytes);
            }
            sums
        })
    }
}

const fn entry(known: Known) -> u32 {
    match known {
        Known::Zeros => ZEROS,
        Known::Unverified => UNVERIFIED,
        Known::Sum(sum) => sum.get(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> Sums {
        let mut sums = Sums::all(Known::Zeros);
        sums.set(3, Known::Unverified);
        sums.set_written(1022, &[7; 2 * BLOCK as usize]);
        sums
    }

    #[test]
    fn a_page_says_what_was_known() {
        let page = some().encode(9, 12);
        let sums = Sums::decode(&page, 9, 12).unwrap();
        for block in 0..BLOCKS {
            assert_eq!(sums.get(block), some().get(block), "{block}");
        }
        assert_eq!(sums.get(1023), sum(&[7; BLOCK as usize]));
        assert_eq!(sums.first_unverified(0..BLOCKS), Some(3));
        assert_eq!(sums.first_unverified(4..BLOCKS), None);
    }

    #[test]
    fn a_page_of_another_region_or_device_is_refused() {
        let page = some().encode(9, 12);
        assert!(Sums::decode(&page, 9, 13).is_none());
        assert!(Sums::decode(&page, 8, 12).is_none());
        assert!(
            Sums::decode(&[0; SLOT as usize], 0, 0).is_none(),
            "a lost page is not one of zeros"
        );
    }

    proptest! {
        #[test]
        fn a_page_with_a_flipped_bit_is_refused(at in 0..ENTRIES.end * 8) {
            let mut page = some().encode(9, 12).to_vec();
            page[at / 8] ^= 1 << (at % 8);
            prop_assert!(Sums::decode(&page, 9, 12).is_none());
        }
    }
}
