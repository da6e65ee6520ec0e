//! A map from disjoint ranges of bytes to values: what a journal has of a strip, and where.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint, not empty ranges, each with a value. Neighbours with equal values stay apart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Intervals<T> {
    /// The end and the value, by the beginning.
    parts: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Intervals<T> {
    fn default() -> Self {
        Self { parts: BTreeMap::new() }
    }
}

impl<T: Copy> Intervals<T> {
    /// The number of ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether no byte has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// All ranges and their values, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, T)> + '_ {
        self.parts.iter().map(|(&start, &(end, value))| (start..end, value))
    }

    /// The parts of `range` that have a value, ascending, each cut to `range`.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, T)> + '_ {
        let before = self.parts.range(..range.start).next_back();
        before
            .into_iter()
            .chain(self.parts.range(range.start..range.end.max(range.start)))
            .map(move |(&start, &(end, value))| (start.max(range.start)..end.min(range.end), value))
            .filter(|(part, _)| part.start < part.end)
    }

    /// The parts of `range` without a value, ascending.
    #[must_use]
    pub fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for (part, _) in self.within(range.clone()) {
            if at < part.start {
                gaps.push(at..part.start);
            }
            at = part.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Gives each byte of `range` this value.
    pub fn insert(&mut self, range: Range<u64>, value: T) {
        if range.start < range.end {
            self.remove(range.clone());
            self.parts.insert(range.start, (range.end, value));
        }
    }

    /// Takes the values of `range` away.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        if let Some((_, part)) = self.parts.range_mut(..range.start).next_back()
            && part.0 > range.start
        {
            let (end, value) = *part;
            part.0 = range.start;
            if end > range.end {
                self.parts.insert(range.end, (end, value));
            }
        }
        let inside: Vec<u64> = self.parts.range(range.clone()).map(|(&start, _)| start).collect();
        for start in inside {
            let (end, value) = self.parts.remove(&start).expect("listed above");
            if end > range.end {
                self.parts.insert(range.end, (end, value));
            }
        }
    }

    /// Takes away each range whose value `keep` refuses.
    pub fn retain(&mut self, mut keep: impl FnMut(Range<u64>, T) -> bool) {
        self.parts.retain(|&start, &mut (end, value)| keep(start..end, value));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: u64 = 40;

    fn bytes(map: &Intervals<u8>) -> Vec<Option<u8>> {
        let mut bytes = vec![None; BYTES as usize];
        for (range, value) in map.iter() {
            assert!(range.start < range.end, "an empty range");
            for at in range {
                assert_eq!(bytes[at as usize].replace(value), None, "two values for byte {at}");
            }
        }
        bytes
    }

    fn ranges() -> impl Strategy<Value = Range<u64>> {
        (0..BYTES, 0..=BYTES).prop_map(|(a, b)| a.min(b)..b.max(a))
    }

    proptest! {
        #[test]
        fn is_a_value_for_each_byte(
            steps in prop::collection::vec((ranges(), prop::option::of(0_u8..4), ranges()), 0..40)
        ) {
            let mut map = Intervals::default();
            let mut model: Vec<Option<u8>> = vec![None; BYTES as usize];
            for (range, value, asked) in steps {
                match value {
                    Some(value) => map.insert(range.clone(), value),
                    None => map.remove(range.clone()),
                }
                for at in range {
                    model[at as usize] = value;
                }
                prop_assert_eq!(&bytes(&map), &model);
                let mut seen = vec![false; BYTES as usize];
                for (part, value) in map.within(asked.clone()) {
                    for at in part {
                        prop_assert!(asked.contains(&at) && model[at as usize] == Some(value));
                        seen[at as usize] = true;
                    }
                }
                for gap in map.gaps(asked.clone()) {
                    prop_assert!(gap.start < gap.end);
                    for at in gap {
                        prop_assert!(asked.contains(&at) && model[at as usize].is_none());
                        seen[at as usize] = true;
                    }
                }
                for at in 0..BYTES {
                    prop_assert_eq!(seen[at as usize], asked.contains(&at));
                }
            }
        }
    }

    #[test]
    fn retain_takes_whole_ranges() {
        let mut map = Intervals::default();
        map.insert(0..8, 'a');
        map.insert(2..4, 'b');
        map.retain(|range, value| value == 'b' || range.start == 4);
        assert_eq!(map.iter().collect::<Vec<_>>(), [(2..4, 'b'), (4..8, 'a')]);
        assert!(!map.is_empty() && map.len() == 2);
    }
}
