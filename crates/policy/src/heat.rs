//! How often something is read, as an average that fades.
//!
//! Once a second the count joins the average: `heat = (heat + n) / 2` (Calcspar's exponential
//! smoothing, ATC 2023). No timer does that: each heat is brought up to date when it is looked at.

use std::collections::HashMap;

use crate::contract::OP_BYTES_MAX;

/// Whole seconds since the start.
pub type Second = u32;

/// Heats below this are forgotten.
pub const COLD: f32 = 0.01;

/// How hot something is, in reads a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heat {
    /// The average up to the second before `second`.
    settled: f32,
    /// The count in `second`.
    count: f32,
    second: Second,
}

impl Heat {
    /// A heat of this size up to now.
    #[must_use]
    pub const fn of(heat: f32, now: Second) -> Self {
        Self { settled: heat, count: 0.0, second: now }
    }

    /// Counts one read.
    pub fn count(&mut self, now: Second) {
        if self.second != now {
            *self = Self::of(self.at(now), now);
        }
        self.count += 1.0;
    }

    /// The average over the seconds before `now`.
    #[must_use]
    pub fn at(&self, now: Second) -> f32 {
        match now.saturating_sub(self.second) {
            0 => self.settled,
            // After some hundred halvings every number is 0.
            passed => (self.settled + self.count) * 0.5_f32.powi(passed.min(200) as i32),
        }
    }
}

/// A piece of an object that costs one operation, aligned to its size.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Block {
    /// The object's number.
    pub object: u64,
    /// The position of the piece.
    pub index: u32,
}

impl Block {
    /// Bytes of a block; the last one of an object may have fewer.
    pub const BYTES: u64 = OP_BYTES_MAX;

    /// The block of an object that has the byte at `offset`.
    #[must_use]
    pub fn at(object: u64, offset: u64) -> Self {
        // Blocks past 2^32, a pebibyte into the object, share the last one's heat.
        Self { object, index: u32::try_from(offset / Self::BYTES).unwrap_or(u32::MAX) }
    }

    /// Its first byte in the object.
    #[must_use]
    pub const fn start(self) -> u64 {
        self.index as u64 * Self::BYTES
    }

    /// How many blocks an object of `len` bytes has.
    #[must_use]
    pub fn count(len: u64) -> u32 {
        u32::try_from(len.div_ceil(Self::BYTES)).unwrap_or(u32::MAX)
    }

    /// The blocks that a read of `len` bytes counts for. A read that touches the end of a block
    /// counts for the next one too.
    pub fn touched(object: u64, offset: u64, len: u64) -> impl Iterator<Item = Self> {
        let (first, last) =
            (Self::at(object, offset).index, Self::at(object, offset.saturating_add(len)).index);
        (first..=last).map(move |index| Self { object, index })
    }
}

/// The heats of blocks. Blocks that are missing are cold.
#[derive(Debug, Default)]
pub struct Heats(HashMap<Block, Heat>);

impl Heats {
    /// Counts one read of a block.
    pub fn count(&mut self, block: Block, now: Second) {
        self.0.entry(block).or_insert(Heat::of(0.0, now)).count(now);
    }

    /// A new block, as hot as the blocks it replaces.
    pub fn begin(&mut self, block: Block, heat: f32, now: Second) {
        if heat >= COLD {
            self.0.insert(block, Heat::of(heat, now));
        }
    }

    /// Forgets cold blocks, and passes all others to `visit`.
    pub fn sweep(&mut self, now: Second, mut visit: impl FnMut(Block, f32)) {
        self.0.retain(|&block, heat| {
            let degree = heat.at(now);
            // A block first read in this second has no average yet, so it is not cold.
            if degree < COLD && heat.second != now {
                return false;
            }
            visit(block, degree);
            true
        });
    }

    /// The block is gone.
    pub fn forget(&mut self, block: Block) {
        self.0.remove(&block);
    }

    /// Keeps only the blocks for which `keep` is true.
    pub fn retain(&mut self, keep: impl Fn(Block) -> bool) {
        self.0.retain(|&block, _| keep(block));
    }

    /// How many blocks are not cold.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether all are cold.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_of_it_is_the_last_second() {
        let mut heat = Heat::default();
        (0..4).for_each(|_| heat.count(0));
        assert_eq!([0, 1, 2, 3].map(|now| heat.at(now)), [0.0, 2.0, 1.0, 0.5]);
        heat.count(2);
        assert_eq!((heat.at(2), heat.at(3)), (1.0, 1.0));
        assert_eq!(Heat::of(8.0, 5).at(5), 8.0);
    }

    #[test]
    fn a_single_read_leaves_some_heat() {
        // Calcspar's released code divides integers: one read a second never warms anything.
        let mut heat = Heat::default();
        heat.count(7);
        assert_eq!(heat.at(8), 0.5);
    }

    #[test]
    fn a_read_that_touches_the_end_of_a_block_warms_the_next() {
        let touched = |offset, len| {
            Block::touched(9, offset, len).map(|block| block.index).collect::<Vec<_>>()
        };
        assert_eq!(touched(0, 4096), [0]);
        assert_eq!(touched(Block::BYTES - 4096, 4095), [0]);
        assert_eq!(touched(Block::BYTES - 4096, 4096), [0, 1]);
        assert_eq!(touched(Block::BYTES - 1, 2), [0, 1]);
        assert_eq!(touched(Block::BYTES, 1), [1]);
    }

    #[test]
    fn what_is_cold_is_forgotten() {
        let (mut heats, block) = (Heats::default(), Block { object: 1, index: 2 });
        heats.count(block, 0);
        heats.sweep(0, |_, _| {});
        assert_eq!(heats.len(), 1, "it may be asked for again before the second is over");
        // One read: 0.5, and below 0.01 after six more halvings.
        heats.sweep(6, |_, _| {});
        assert_eq!(heats.len(), 1);
        heats.sweep(7, |_, _| {});
        assert!(heats.is_empty());
    }

    #[test]
    fn nothing_is_left_of_a_block_that_is_gone() {
        let mut heats = Heats::default();
        let [gone, other] = [1, 2].map(|object| Block { object, index: 0 });
        heats.count(gone, 0);
        heats.count(other, 0);
        heats.forget(gone);
        let mut left = Vec::new();
        heats.sweep(1, |block, heat| left.push((block, heat)));
        assert_eq!(left, [(other, 0.5)]);
    }

    proptest! {
        #[test]
        fn lazily_is_the_same_as_every_second(counts in prop::collection::vec(0u8..5, 1..60)) {
            let (mut lazy, mut eager) = (Heat::default(), 0.0);
            for (now, &count) in (0..).zip(&counts) {
                (0..count).for_each(|_| lazy.count(now));
                eager = (eager + f32::from(count)) / 2.0;
                prop_assert!((lazy.at(now + 1) - eager).abs() < 1e-4);
            }
        }
    }
}
