//! Where the bytes of a lost strip come from.
//!
//! The caller makes sure that nothing changes meanwhile: the writes of all lost strips are decided in the present view
//! ([`Data::is_lost`](super::data::Data::is_lost)), and the range is locked on all strips that are left. Then all parity servers
//! of the view count the same value of each strip, though each has merged as far as it has.

use std::collections::BTreeMap;
use std::ops::Range;

use super::index::{Delta, Index, Place};
use super::intervals::Intervals;

/// Bytes of a lost strip.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Part {
    /// Which.
    pub range: Range<u64>,
    /// Where they come from.
    pub source: Source,
}

/// Where bytes of a lost strip come from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// A journal has them as they are.
    Journal {
        /// The parity server.
        parity: usize,
        /// Where its journal has them.
        place: Place,
    },
    /// To be decoded from this range of as many fragments as there are data strips.
    Decode {
        /// Data strips.
        strips: Vec<usize>,
        /// Parity strips, each with what its journal adds to it in this range.
        parities: Vec<(usize, Vec<Delta>)>,
    },
}

/// More strips are lost than the code has of parity.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{present} fragments are present, {needed} are needed")]
pub struct TooFew {
    /// Fragments that are present.
    pub present: usize,
    /// Data strips of the group.
    pub needed: usize,
}

/// How to get the bytes of a range of the strip `lost`, in a group of `data` data strips, of which `strips` are left. The
/// parity servers of the view have their indexes in `parities`, one for each data strip.
///
/// Values that a journal has are taken from it, also where too few fragments are left.
///
/// # Errors
/// [`TooFew`]: a part of the range is lost until a server comes back.
pub fn plan(
    lost: usize,
    range: &Range<u64>,
    data: usize,
    strips: &[usize],
    parities: &BTreeMap<usize, Vec<&Index>>,
) -> Result<Vec<Part>, TooFew> {
    let mut plain = Intervals::default();
    for (&parity, indexes) in parities {
        for (part, place) in indexes[lost].current(range.clone()) {
            for gap in plain.gaps(part) {
                plain.insert(gap, (parity, place));
            }
        }
    }
    let mut parts: Vec<Part> = plain
        .iter()
        .map(|(range, (parity, place))| Part { range, source: Source::Journal { parity, place } })
        .collect();
    for gap in plain.gaps(range.clone()) {
        let strips: Vec<usize> =
            strips.iter().copied().filter(|&strip| strip != lost).take(data).collect();
        let missing = data - strips.len();
        if parities.len() < missing {
            return Err(TooFew { present: strips.len() + parities.len(), needed: data });
        }
        let changed = |indexes: &Vec<&Index>| {
            let each = indexes.iter().enumerate();
            each.flat_map(|(strip, index)| index.changes(strip, gap.clone())).collect()
        };
        let parities =
            parities.iter().take(missing).map(|(&it, indexes)| (it, changed(indexes))).collect();
        parts.push(Part { range: gap, source: Source::Decode { strips, parities } });
    }
    parts.sort_by_key(|part| part.range.start);
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::super::record::{Request, Version};
    use super::super::rules::Rules;
    use super::*;

    /// A strip whose journal has bytes 4..8: a complete value and its base.
    fn indexes() -> Vec<Index> {
        let mut indexes: Vec<Index> = (0..3).map(|_| Index::new(Rules::default())).collect();
        let (version, below) = (Version { view: 1, number: 1 }, Version { view: 1, number: 2 });
        let request = Request { client: 1, number: 1 };
        indexes[0].add_data(1, version, Version::default(), request, &(4..8));
        indexes[0].add_original(2, version, &(4..8));
        indexes[0].settle(below);
        indexes
    }

    #[test]
    fn too_few_fragments_are_an_error_but_for_values_of_a_journal() {
        let indexes = indexes();
        let one: BTreeMap<usize, Vec<&Index>> = [(0, indexes.iter().collect())].into();
        // Two of three data strips are lost, and there is one parity server.
        assert_eq!(plan(0, &(0..8), 3, &[2], &one), Err(TooFew { present: 2, needed: 3 }));
        let parts = plan(0, &(4..8), 3, &[2], &one).unwrap();
        assert_eq!(parts.len(), 1);
        assert!(matches!(parts[0].source, Source::Journal { parity: 0, place } if place.lsn == 1));
        assert_eq!(
            plan(0, &(0..8), 3, &[1, 2], &BTreeMap::new()),
            Err(TooFew { present: 2, needed: 3 })
        );
    }

    #[test]
    fn parity_strips_are_decoded_with_what_their_journals_add() {
        let indexes = indexes();
        let one: BTreeMap<usize, Vec<&Index>> = [(0, indexes.iter().collect())].into();
        let parts = plan(1, &(0..8), 3, &[0, 2], &one).unwrap();
        let [Part { range, source: Source::Decode { strips, parities } }] = &parts[..] else {
            panic!("{parts:?}");
        };
        assert_eq!((range, &strips[..]), (&(0..8), &[0, 2][..]));
        let [(0, deltas)] = &parities[..] else { panic!("{parities:?}") };
        assert_eq!(deltas.len(), 1);
        assert_eq!((deltas[0].new.lsn, deltas[0].old.lsn), (1, 2));
    }
}
