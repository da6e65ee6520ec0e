//! What heat a table begins with: that of the tables it takes the place of (Calcspar, ATC 2023).
//!
//! A block's heat is known by its place in a table, and a compaction leaves nothing in its place. What
//! stays are the keys. A few of each table's are kept, its fences, so that a new block gets the heat of
//! the old ones whose keys it has: all of it from one whose keys it has all of, and as large a part as
//! it has of the keys of others. Inside a block the keys are taken to be spread evenly.

use crate::heat::Block;
use crate::intent::KeyRange;
use crate::units::KIB;

/// Where the blocks of a table begin, in keys that compare as bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fences(
    /// The first key of each block, and the last one of all; two or more, in their order.
    Box<[Box<[u8]>]>,
);

impl Fences {
    /// Bytes that the fences of one table take at most: 64 KiB, for a table of 64 MiB whose keys have
    /// 240. One that would take more has none.
    pub const BYTES_MAX: usize = 64 * KIB as usize;

    /// Bytes of a key beside its own.
    const KEY_OVERHEAD: usize = size_of::<Box<[u8]>>();

    /// The fences of a table whose blocks begin with the keys `starts`, from its second on. None if they
    /// are not in order, or too many.
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

    /// Blocks with keys; those of indexes and filters have none.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.0.len() - 1
    }

    /// Whether both have room for the same key.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0[0] <= other.0[other.blocks()] && other.0[0] <= self.0[self.blocks()]
    }

    /// How many blocks are before a key, the part of its own among them.
    fn before(&self, key: &[u8]) -> f64 {
        let index = self.0.partition_point(|fence| **fence <= *key).saturating_sub(1);
        let index = index.min(self.blocks() - 1);
        index as f64 + position(key, &self.0[index], &self.0[index + 1])
    }

    /// The blocks that have keys from `from` to `to`.
    fn over(&self, from: &[u8], to: &[u8]) -> std::ops::RangeInclusive<usize> {
        let last = self.blocks() - 1;
        let index = |key: &[u8]| self.0.partition_point(|fence| **fence <= *key).saturating_sub(1);
        index(from).min(last)..=index(to).min(last)
    }
}

/// Where a key is between two others, from 0 to 1.
pub(crate) fn position(key: &[u8], from: &[u8], to: &[u8]) -> f64 {
    if key <= from {
        return 0.0;
    }
    if key >= to {
        return 1.0;
    }
    // What is between two keys begins with what both begin with.
    let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(&key[shared..]).for_each(|(byte, &of_key)| *byte = of_key);
        u64::from_be_bytes(bytes)
    };
    let (low, high) = (number(from), number(to));
    if low == high { 0.0 } else { (number(key) - low) as f64 / (high - low) as f64 }
}

/// What a table was made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Made {
    /// Of all entries the old tables have between its keys: it takes their place.
    Merged,
    /// Of entries that were written since, some between the keys of the old tables, which stay. Of
    /// those it takes over as many as it has room for.
    Flushed,
}

/// The heats that the blocks of a table of `new` fences begin with, from the fences of `old` tables and
/// the heats of their blocks, by index; what is not named is cold.
#[must_use]
pub fn inherit<'a>(
    new: &Fences,
    old: impl IntoIterator<Item = (&'a Fences, &'a [(u32, f32)])>,
    made: Made,
) -> Vec<f32> {
    let mut heats = vec![0.0; new.blocks()];
    // Old blocks between the keys of each new one.
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
            // A block with one key is where that is.
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

/// How much of what is between `from` and `to` is between `first` and `last`.
fn share(first: &[u8], last: &[u8], from: &[u8], to: &[u8]) -> f64 {
    if from == to { 0.0 } else { position(last, from, to) - position(first, from, to) }
}

/// The inherited heats, with the blocks of `object` that have them.
pub fn blocks(object: u64, heats: Vec<f32>) -> impl Iterator<Item = (Block, f32)> {
    (0..).zip(heats).map(move |(index, heat)| (Block { object, index }, heat))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Fences of one byte each, or of what is said.
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
        // Its one block has keys between those of four: a fourth of theirs, at most.
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
