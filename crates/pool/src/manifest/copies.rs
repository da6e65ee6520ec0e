//! The copies of an object, or the fragments that an erasure code cuts it into, and their volumes.
//!
//! A fragment is kept like a copy: it has a number, a place, and leaf objects, and is made and dropped by itself. What
//! differs is how many of them hold the object. One copy does; of fragments, as many different ones as the code has data
//! fragments.

use std::collections::BTreeMap;

use policy::placement::{Code, Layout, VolumeId};

/// One copy of an object or one fragment of it, and its volumes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Placed {
    /// Unique among the copies of an object, for ever. The copy that an object was created with has 0.
    pub number: u64,
    /// The volumes that hold it.
    pub layout: Layout,
}

impl Placed {
    /// Whether a part of it is on this volume.
    pub(crate) fn is_on(&self, volume: VolumeId) -> bool {
        self.layout.volumes().contains(&volume)
    }

    /// The code of the fragment, if it is one.
    pub(crate) fn code(&self) -> Option<Code> {
        self.layout.fragment().map(|fragment| fragment.code)
    }

    /// The number of the fragment, if it is one.
    pub(crate) fn index(&self) -> Option<u8> {
        self.layout.fragment().map(|fragment| fragment.index)
    }
}

/// The copies of one object: at least one, with the same bytes. Or its fragments, all of the same code.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Copies {
    first: Placed,
    /// Empty for most objects.
    others: Vec<Placed>,
}

impl Copies {
    /// The one copy of a new object.
    pub(crate) const fn one(layout: Layout) -> Self {
        Self { first: Placed { number: 0, layout }, others: Vec::new() }
    }

    /// One copy of an object.
    pub(crate) const fn only(placed: Placed) -> Self {
        Self { first: placed, others: Vec::new() }
    }

    /// The copies of `placed`; `None` if it is empty.
    pub(crate) fn of(placed: impl IntoIterator<Item = Placed>) -> Option<Self> {
        let mut placed = placed.into_iter();
        Some(Self { first: placed.next()?, others: placed.collect() })
    }

    pub(crate) const fn first(&self) -> &Placed {
        &self.first
    }

    pub(crate) const fn count(&self) -> usize {
        1 + self.others.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Placed> {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Placed> {
        self.iter().find(|placed| placed.number == number)
    }

    /// Every volume that holds a part of the object.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = VolumeId> {
        self.iter().flat_map(|placed| placed.layout.volumes()).copied()
    }

    /// The code of the fragments, if they are fragments.
    pub(crate) fn code(&self) -> Option<Code> {
        self.first.code()
    }

    /// How many copies, or different fragments, hold the object.
    pub(crate) fn needs(&self) -> usize {
        self.code().map_or(1, Code::data)
    }

    /// How many copies there are, or different fragments, of those for which `counts` is true.
    pub(crate) fn held(&self, counts: impl Fn(&Placed) -> bool) -> usize {
        held(self.iter().filter(|placed| counts(placed)).map(Placed::index))
    }

    /// Whether the object can be read from the copies for which `counts` is true.
    pub(crate) fn suffice(&self, counts: impl Fn(&Placed) -> bool) -> bool {
        self.held(counts) >= self.needs()
    }

    /// Bytes that all copies together have of an object of `len` bytes.
    pub(crate) fn stored_len(&self, len: u64) -> u64 {
        self.iter().map(|placed| placed.layout.len(len)).sum()
    }

    pub(crate) fn places(&self) -> Places {
        let code = self.code();
        let mut groups: BTreeMap<Option<u8>, Vec<Vec<VolumeId>>> = BTreeMap::new();
        for placed in self.iter() {
            groups.entry(placed.index()).or_default().push(placed.layout.volumes().to_vec());
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.iter_mut().for_each(|group| group.sort());
        groups.sort();
        Places { code, groups }
    }

    pub(crate) fn add(&mut self, placed: Placed) {
        self.others.push(placed);
    }

    /// Removes a copy, unless it is the last.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Placed> {
        if let Some(at) = self.others.iter().position(|placed| placed.number == number) {
            return Some(self.others.remove(at));
        }
        if self.first.number != number || self.others.is_empty() {
            return None;
        }
        Some(std::mem::replace(&mut self.first, self.others.remove(0)))
    }
}

/// How many copies these are, or how many different fragments.
pub(crate) fn held(indexes: impl IntoIterator<Item = Option<u8>>) -> usize {
    let (mut copies, mut fragments) = (0, 0u32);
    for index in indexes {
        match index {
            None => copies += 1,
            Some(index) => fragments |= 1 << index,
        }
    }
    copies + fragments.count_ones() as usize
}

/// The volumes of the copies of an object. Objects whose copies have the same volumes have equal places, whichever copy or
/// fragment lies on which of them.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Places {
    /// The code of the fragments, if they are fragments.
    code: Option<Code>,
    /// The copies, or those of each fragment, and the volumes of each.
    groups: Vec<Vec<Vec<VolumeId>>>,
}

impl Places {
    /// How many copies, or different fragments, there should be, if the pool wants `copies` of what has no fragments.
    pub(crate) fn wanted(&self, copies: usize) -> usize {
        self.code.map_or(copies, Code::fragments)
    }

    /// How many copies, or different fragments, hold the object.
    pub(crate) fn needs(&self) -> usize {
        self.code.map_or(1, Code::data)
    }

    /// How many copies there are, or different fragments, of those whose volumes all `count`.
    pub(crate) fn held(&self, counts: impl Fn(VolumeId) -> bool) -> usize {
        let all_count = |copy: &&Vec<VolumeId>| copy.iter().all(|&volume| counts(volume));
        let groups = self.groups.iter().map(|group| group.iter().filter(all_count).count());
        match self.code {
            None => groups.sum(),
            Some(_) => groups.filter(|&count| count > 0).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::placement::Fragment;

    use super::*;

    fn fragment(number: u64, volume: u16, index: u8) -> Placed {
        let code = Code::new(2, 1, 4096).unwrap();
        let fragment = Fragment { volume: VolumeId(volume), index, code, checksum: 0 };
        Placed { number, layout: Layout::Fragment(fragment) }
    }

    fn whole(number: u64, volume: u16) -> Placed {
        Placed { number, layout: Layout::Whole { volume: VolumeId(volume) } }
    }

    #[test]
    fn a_fragment_in_two_places_counts_once_and_a_copy_twice() {
        let fragments = [fragment(0, 1, 0), fragment(7, 2, 1), fragment(8, 3, 1)];
        let fragments = Copies::of(fragments).unwrap();
        assert_eq!((fragments.held(|_| true), fragments.needs(), fragments.count()), (2, 2, 3));
        assert!(fragments.suffice(|placed| placed.number != 7));
        assert!(!fragments.suffice(|placed| placed.number != 0));
        let copies = Copies::of([whole(0, 1), whole(7, 2)]).unwrap();
        assert_eq!((copies.held(|_| true), copies.needs()), (2, 1));
        assert!(copies.suffice(|placed| placed.number == 7));
    }

    #[test]
    fn places_do_not_say_which_fragment_lies_where_but_which_are_the_same() {
        let places = |placed: &[Placed]| Copies::of(placed.to_vec()).unwrap().places();
        let one = places(&[fragment(0, 1, 0), fragment(7, 2, 1), fragment(8, 3, 2)]);
        assert_eq!(one, places(&[fragment(0, 3, 0), fragment(9, 1, 1), fragment(8, 2, 2)]));
        assert_eq!((one.needs(), one.wanted(9)), (2, 3));
        assert_eq!((one.held(|_| true), one.held(|volume| volume.0 != 2)), (3, 2));
        let doubled = places(&[fragment(0, 1, 0), fragment(7, 2, 1), fragment(8, 3, 1)]);
        assert_ne!(one, doubled);
        assert_eq!((doubled.held(|_| true), doubled.held(|volume| volume.0 != 2)), (2, 2));
        let copies = places(&[whole(0, 2), whole(5, 1)]);
        assert_eq!(copies, places(&[whole(0, 1), whole(5, 2)]));
        assert_eq!((copies.needs(), copies.wanted(3), copies.held(|_| true)), (1, 3, 2));
    }
}
