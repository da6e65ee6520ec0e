//! The initial heat of a table, inherited from the tables it replaces (Calcspar, ATC 2023).
//!
//! A block's heat is known by its place in a table, and a compaction changes all places. The keys stay. Each table
//! keeps a few of its keys, its fences. A new block inherits heat from the old blocks with which it shares keys: all of
//! it if it covers all keys of the old block, else in proportion to the part of the keys that it covers. Keys are
//! assumed to be spread evenly inside a block.

use crate::heat::Block;
use crate::intent::KeyRange;
use crate::units::KIB;

/// Where the blocks of a table begin, in keys that compare as bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fences(
    /// The first key of each block, and the last key of the table; two or more, in order.
    Box<[Box<[u8]>]>,
);

impl Fences {
    /// The most bytes of the fences of one table: 64 KiB, for a table of 64 MiB with keys of 240 bytes. A table that
    /// needs more has no fences.
    pub const BYTES_MAX: usize = 64 * KIB as usize;

    /// Bytes of overhead for each key.
    const KEY_OVERHEAD: usize = size_of::<Box<[u8]>>();

    /// The fences of a table whose blocks, from the second on, begin with the keys `starts`. `None` if the keys are out
    /// of order or take too many bytes.
    #[must_use]
    pub fn new(range: &KeyRange, starts: impl IntoIterator<Item = Box<[u8]>>) -> Option<Self> {
        let mut keys = vec![range.first.clone()];
        keys.extend(starts);
        keys.push(range.last.clone());
        let fences = Self(keys.into());
        (fences.0.is_sorted() && fences.bytes() <= Self::BYTES_MAX).then_some(fences)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|key| key.len() + Self::KEY_OVERHEAD).sum()
    }

    /// Blocks with keys, without those of indexes and filters.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.0.len() - 1
    }

    /// Whether the key ranges overlap.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0[0] <= other.0[other.blocks()] && other.0[0] <= self.0[self.blocks()]
    }

    /// The number of blocks before a key, including the part of its own block.
    fn before(&self, key: &[u8]) -> f64 {
        let index = self.0.partition_point(|fence| **fence <= *key).saturating_sub(1);
        let index = index.min(self.blocks() - 1);
        index as f64 + position(key, &self.0[index], &self.0[index + 1])
    }

    /// The blocks with keys from `from` to `to`.
    fn over(&self, from: &[u8], to: &[u8]) -> std::ops::RangeInclusive<usize> {
        let last = self.blocks() - 1;
        let index = |key: &[u8]| self.0.partition_point(|fence| **fence <= *key).saturating_sub(1);
        index(from).min(last)..=index(to).min(last)
    }
}

/// The position of a key between two others, from 0 to 1.
pub(crate) fn position(key: &[u8], from: &[u8], to: &[u8]) -> f64 {
    if key <= from {
        return 0.0;
    }
    if key >= to {
        return 1.0;
    }
    // Every key between two others begins with their common prefix.
    let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(&key[shared..]).for_each(|(byte, &of_key)| *byte = of_key);
        u64::from_be_bytes(bytes)
    };
    let (low, high) = (number(from), number(to));
    if low == high { 0.0 } else { (number(key) - low) as f64 / (high - low) as f64 }
}

/// How a table was made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Made {
    /// From all entries of the old tables between its keys: it replaces them.
    Merged,
    /// From newer entries, between keys of old tables that stay. It takes over their heat for as many entries as it
    /// holds.
    Flushed,
}

/// The initial heats of the blocks of a table with `new` fences, from the fences of `old` tables and the heats of their
/// blocks, by index. Blocks without a heat are cold.
#[must_use]
pub fn inherit<'a>(
    new: &Fences,
    old: impl IntoIterator<Item = (&'a Fences, &'a [(u32, f32)])>,
    made: Made,
) -> Vec<f32> {
    let mut heats = vec![0.0; new.blocks()];
    // The number of old blocks between the keys of each new one.
    let mut covered = vec![0.0; new.blocks()];
    for (fences, hot) in old {
        if !new.overlaps(fences) {
            continue;
        }
        for index in new.over(&fences.0[0], &fences.0[fences.blocks()]) {
            covered[index] += fences.before(&new.0[index + 1]) - fences.before(&new.0[index]);
        }
        for &(index, heat) in hot {
            let Some([from, to]) =
                fences.0.get(index as usize..).and_then(|keys| keys.first_chunk())
            else {
                continue;
            };
            for index in new.over(from, to) {
                heats[index] += heat * share(&new.0[index], &new.0[index + 1], from, to) as f32;
            }
            // The heat of a block with a single key goes to the block that holds the key.
            if from == to && new.0[0] <= *from && *from <= new.0[new.blocks()] {
                heats[*new.over(from, to).start()] += heat;
            }
        }
    }
    if made == Made::Flushed {
        for (heat, covered) in heats.iter_mut().zip(covered) {
            *heat /= covered.max(1.0) as f32;
        }
    }
    heats
}

/// The part of the range `from` to `to` that lies between `first` and `last`.
fn share(first: &[u8], last: &[u8], from: &[u8], to: &[u8]) -> f64 {
    if from == to { 0.0 } else { position(last, from, to) - position(first, from, to) }
}

/// The inherited heats with their blocks of `object`.
pub fn blocks(object: u64, heats: Vec<f32>) -> impl Iterator<Item = (Block, f32)> {
    (0..).zip(heats).map(move |(index, heat)| (Block { object, index }, heat))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Fences with these keys.
    fn fences<K: AsRef<[u8]>>(keys: &[K]) -> Fences {
        let mut keys: Vec<Box<[u8]>> = keys.iter().map(|key| key.as_ref().into()).collect();
        let last = keys.pop().expect("two keys");
        let range = KeyRange { first: keys.remove(0), last };
        Fences::new(&range, keys).expect("in order")
    }

    fn merged(new: &Fences, old: &[(&Fences, &[(u32, f32)])]) -> Vec<f32> {
        inherit(new, old.iter().copied(), Made::Merged)
    }

    #[test]
    fn a_block_with_all_keys_of_another_has_all_its_heat() {
        let old = fences(&["b", "d", "f"]);
        assert_eq!(merged(&fences(&["a", "z"]), &[(&old, &[(0, 3.0), (1, 4.0)])]), [7.0]);
        let same = merged(&old, &[(&old, &[(0, 3.0), (1, 4.0)])]);
        assert_eq!(same, [3.0, 4.0]);
    }

    #[test]
    fn a_block_with_some_keys_has_a_part() {
        let old = fences(&[[0], [100]]);
        let new = fences(&[[0], [25], [75]]);
        assert_eq!(merged(&new, &[(&old, &[(0, 8.0)])]), [2.0, 4.0]);
        let other = fences(&[[100], [200]]);
        assert_eq!(merged(&other, &[(&old, &[(0, 8.0)])]), [0.0], "one key is no part");
        assert_eq!(merged(&fences(&[[101], [200]]), &[(&old, &[(0, 8.0)])]), [0.0]);
    }

    #[test]
    fn what_all_keys_begin_with_is_no_matter() {
        let old = fences(&["a long word 100", "a long word 900"]);
        let new = fences(&["a long word 100", "a long word 500", "a long word 900"]);
        let heats = merged(&new, &[(&old, &[(0, 8.0)])]);
        assert!((3.9..4.1).contains(&heats[0]) && heats[0] + heats[1] == 8.0, "{heats:?}");
    }

    #[test]
    fn a_value_larger_than_a_block_keeps_its_heat() {
        let old = fences(&["a", "k", "k", "z"]);
        assert_eq!(merged(&fences(&["a", "j", "z"]), &[(&old, &[(1, 8.0)])]), [0.0, 8.0]);
        assert_eq!(merged(&old, &[(&old, &[(1, 8.0)])]).iter().sum::<f32>(), 8.0);
    }

    #[test]
    fn what_is_flushed_takes_over_what_it_has_room_for() {
        // The one new block has keys between those of four: at most a fourth of their heat.
        let old = fences(&[[0], [20], [40], [60], [80]]);
        let heats = |new| inherit(&new, [(&old, &[(1, 8.0)][..])], Made::Flushed);
        assert_eq!(heats(fences(&[[0], [80]])), [2.0]);
        assert_eq!(heats(fences(&[[20], [40]])), [8.0]);
        assert_eq!(heats(fences(&[[30], [40]])), [4.0]);
    }

    #[test]
    fn indexes_have_no_keys_to_be_hot() {
        let old = fences(&["a", "b"]);
        assert_eq!(merged(&old, &[(&old, &[(1, 5.0), (u32::MAX, 5.0)])]), [0.0]);
    }

    #[test]
    fn fences_are_few_and_in_order() {
        let range = KeyRange { first: (*b"a").into(), last: (*b"z").into() };
        assert_eq!(Fences::new(&range, [(*b"zz").into()]), None);
        let long = |count| Fences::new(&range, (0..count).map(|_| [b'b'; 240].into()));
        assert_eq!(long(255).map(|fences| fences.blocks()), Some(256));
        assert_eq!(long(256), None);
    }

    fn any_fences(keys: std::ops::Range<u16>) -> impl Strategy<Value = Fences> {
        prop::collection::vec(keys, 2..12).prop_map(|mut keys| {
            keys.sort_unstable();
            fences(&keys.iter().map(|key| key.to_be_bytes()).collect::<Vec<_>>())
        })
    }

    proptest! {
        #[test]
        fn no_heat_is_lost_or_made_where_all_keys_are_covered(
            old in prop::collection::vec(
                (any_fences(1000..60_000), prop::collection::vec(0.0f32..9.0, 1..11)), 1..5,
            ),
            mut cuts in prop::collection::vec(1000u16..60_000, 0..20),
            table_cut in 1000u16..60_000,
        ) {
            let heats: Vec<Vec<_>> = old
                .iter()
                .map(|(fences, heats)| (0..).zip(heats.iter().copied()).take(fences.blocks()).collect())
                .collect();
            let all: f32 = heats.iter().flatten().map(|&(_, heat)| heat).sum();
            let sources: Vec<_> =
                old.iter().zip(&heats).map(|((fences, _), heats)| (fences, &heats[..])).collect();
            // One new table, and two of which the second begins after the first.
            cuts.extend([0, u16::MAX]);
            cuts.sort_unstable();
            let whole = fences(&cuts.iter().map(|key| key.to_be_bytes()).collect::<Vec<_>>());
            let sum = merged(&whole, &sources).iter().sum::<f32>();
            prop_assert!((sum - all).abs() < 1e-3 * all.max(1.0), "{sum} of {all}");
            let key = |key: u16| key.to_be_bytes();
            let first = merged(&fences(&[key(0), key(table_cut)]), &sources);
            let second = merged(&fences(&[key(table_cut), key(u16::MAX)]), &sources);
            let sum = first[0] + second[0];
            let on_the_cut = sources.iter().flat_map(|(fences, _)| fences.0.windows(2));
            if on_the_cut.clone().all(|keys| keys[0] != keys[1]) {
                prop_assert!((sum - all).abs() < 1e-3 * all.max(1.0), "{sum} of {all}");
            }
            let flushed = inherit(&whole, sources.iter().copied(), Made::Flushed);
            let merged = merged(&whole, &sources);
            prop_assert!(flushed.iter().zip(&merged).all(|(flushed, merged)| flushed <= merged));
            prop_assert!(merged.iter().all(|&heat| heat >= 0.0));
        }
    }
}
