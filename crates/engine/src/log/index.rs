//! The place of each key's newest record, in memory.
//!
//! The index holds every key of a log store in memory, so its cost for a key decides how small values may be. A map of
//! boxed keys takes about 100 bytes for a key of 16. Here leaves of up to 2 KiB hold packed keys in order, and a map
//! holds only the first key of each leaf:
//!
//! ```text
//!   first keys ──▶ leaf: len key file offset len sequence | len key … | …
//! ```
//! A look-up searches the map and walks half a leaf. A leaf that is too long is halved, one that is too short joins a
//! neighbour, so leaves are at least a quarter full and two thirds on average. The order makes a walk by prefix as
//! cheap as the keys it yields.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::FileId;

/// Leaves are halved above this.
const LEAF_MAX: usize = 2048;
/// Leaves join a neighbour below this.
const LEAF_MIN: usize = LEAF_MAX / 4;
/// A leaf grows by this much at a time.
const LEAF_STEP: usize = 128;
/// The cost of a leaf besides its bytes: key and value in the map, the map's slack, and the allocator's overhead for
/// both allocations.
const LEAF_COST: usize = 2 * (size_of::<Box<[u8]>>() + size_of::<Vec<u8>>()) + 32;

/// The length of an encoded place.
const PLACE_LEN: usize = 21;
const FILE_BYTES: usize = 5;

/// The place of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) file: FileId,
    pub(super) offset: u32,
    /// The length of the whole record; 0 for a tombstone.
    pub(super) len: u32,
    pub(super) sequence: u64,
}

impl Place {
    /// A tombstone.
    pub(super) const fn deleted(sequence: u64) -> Self {
        Self { file: FileId(0), offset: 0, len: 0, sequence }
    }

    pub(super) const fn is_deleted(&self) -> bool {
        self.len == 0
    }

    fn encode(self) -> [u8; PLACE_LEN] {
        let mut bytes = [0; PLACE_LEN];
        let file = self.file.0.to_le_bytes();
        assert!(file[FILE_BYTES..].iter().all(|&b| b == 0), "ids of files fit five bytes");
        bytes[..5].copy_from_slice(&file[..FILE_BYTES]);
        bytes[5..9].copy_from_slice(&self.offset.to_le_bytes());
        bytes[9..13].copy_from_slice(&self.len.to_le_bytes());
        bytes[13..].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let mut file = [0; 8];
        file[..FILE_BYTES].copy_from_slice(&bytes[..FILE_BYTES]);
        Self {
            file: FileId(u64::from_le_bytes(file)),
            offset: u32::from_le_bytes(bytes[5..9].try_into().expect("4 bytes")),
            len: u32::from_le_bytes(bytes[9..13].try_into().expect("4 bytes")),
            sequence: u64::from_le_bytes(bytes[13..21].try_into().expect("8 bytes")),
        }
    }
}

/// All keys with their places, in the order of the keys.
#[derive(Default)]
pub(super) struct Index {
    leaves: BTreeMap<Box<[u8]>, Leaf>,
    keys: usize,
    bytes: usize,
}

/// Entries in order: length of the key, key, place.
#[derive(Default)]
struct Leaf(Vec<u8>);

/// Where a key is in a leaf, or would be.
enum Spot {
    At(usize),
    Before(usize),
}

impl Index {
    /// The place of the newest record of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Option<Place> {
        let (_, leaf) = self.leaf_of(key)?;
        match leaf.find(key) {
            Spot::At(at) => Some(leaf.place(at)),
            Spot::Before(_) => None,
        }
    }

    /// Sets the place of `key`; gives the old one.
    pub(super) fn insert(&mut self, key: &[u8], place: Place) -> Option<Place> {
        let Some(name) = self.leaf_of(key).map(|(name, _)| Box::<[u8]>::from(name)) else {
            // The first leaf has the empty name, which is before every key.
            let mut leaf = Leaf::default();
            leaf.insert(0, key, place);
            self.add([].into(), leaf);
            self.keys += 1;
            return None;
        };
        let leaf = self.leaves.get_mut(&name).expect("it was found");
        match leaf.find(key) {
            Spot::At(at) => return Some(leaf.replace(at, place)),
            Spot::Before(at) => {
                self.bytes -= leaf.0.capacity();
                leaf.insert(at, key, place);
                self.bytes += leaf.0.capacity();
            }
        }
        self.keys += 1;
        if leaf.0.len() > LEAF_MAX {
            self.bytes -= leaf.0.capacity();
            let upper = leaf.halve();
            self.bytes += leaf.0.capacity();
            self.add(upper.first().into(), upper);
        }
        None
    }

    /// Removes `key`; gives its place.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Place> {
        let name = Box::<[u8]>::from(self.leaf_of(key)?.0);
        let leaf = self.leaves.get_mut(&name).expect("it was found");
        let Spot::At(at) = leaf.find(key) else { return None };
        let place = leaf.remove(at);
        self.keys -= 1;
        if leaf.0.len() < LEAF_MIN {
            self.join(&name);
        }
        Some(place)
    }

    /// How many keys there are.
    pub(super) const fn len(&self) -> usize {
        self.keys
    }

    /// Memory in use, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.bytes + self.leaves.len() * LEAF_COST
    }

    /// Calls `each` with keys from `from` on, in order, until it returns false.
    pub(super) fn walk(&self, from: Bound<&[u8]>, mut each: impl FnMut(&[u8], Place) -> bool) {
        let (Bound::Included(start) | Bound::Excluded(start)) = from else {
            self.leaves.values().all(|leaf| leaf.entries().all(|(key, place)| each(key, place)));
            return;
        };
        let is_in = |key: &[u8]| match from {
            Bound::Excluded(_) => key > start,
            _ => key >= start,
        };
        let leaf = self.leaf_of(start).map_or(start, |(name, _)| name);
        let mut leaves = self.leaves.range::<[u8], _>((Bound::Included(leaf), Bound::Unbounded));
        leaves.all(|(_, leaf)| {
            leaf.entries().filter(|(key, _)| is_in(key)).all(|(key, place)| each(key, place))
        });
    }

    /// Removes the keys that `keep` rejects.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&[u8], Place) -> bool) {
        let old = std::mem::take(self);
        for leaf in old.leaves.values() {
            for (key, place) in leaf.entries().filter(|(key, place)| keep(key, *place)) {
                self.insert(key, place);
            }
        }
    }

    /// The leaf that has `key` or would have it: the last one whose name is not above it.
    fn leaf_of(&self, key: &[u8]) -> Option<(&[u8], &Leaf)> {
        let upto = (Bound::Unbounded, Bound::Included(key));
        self.leaves.range::<[u8], _>(upto).next_back().map(|(name, leaf)| (&**name, leaf))
    }

    fn add(&mut self, name: Box<[u8]>, leaf: Leaf) {
        self.bytes += name.len() + leaf.0.capacity();
        self.leaves.insert(name, leaf);
    }

    fn take(&mut self, name: &[u8]) -> Leaf {
        let leaf = self.leaves.remove(name).expect("a leaf of this name");
        self.bytes -= name.len() + leaf.0.capacity();
        leaf
    }

    /// The leaf `name` is short. Removes it if it is empty, and merges it with a neighbour if both fit in one. The
    /// first leaf stays.
    fn join(&mut self, name: &[u8]) {
        if self.leaves[name].0.is_empty() && !name.is_empty() {
            self.take(name);
            return;
        }
        let before = (Bound::Unbounded, Bound::Excluded(name));
        let before = self.leaves.range::<[u8], _>(before).next_back();
        let after = (Bound::Excluded(name), Bound::Unbounded);
        let after = self.leaves.range::<[u8], _>(after).next();
        let len = self.leaves[name].0.len();
        let fits = |other: &Leaf| len + other.0.len() < LEAF_MAX * 3 / 4;
        let (low, high): (Box<[u8]>, Box<[u8]>) = match (before, after) {
            (Some((before, leaf)), _) if fits(leaf) => (before.clone(), name.into()),
            (_, Some((after, leaf))) if fits(leaf) => (name.into(), after.clone()),
            _ => return,
        };
        let upper = self.take(&high);
        let leaf = self.leaves.get_mut(&low).expect("it was found");
        self.bytes -= leaf.0.capacity();
        leaf.reserve(upper.0.len());
        leaf.0.extend_from_slice(&upper.0);
        self.bytes += leaf.0.capacity();
    }
}

impl Leaf {
    fn find(&self, key: &[u8]) -> Spot {
        let mut at = 0;
        while at < self.0.len() {
            let next = self.key_end(at);
            match self.0[at + 1..next].cmp(key) {
                std::cmp::Ordering::Less => at = next + PLACE_LEN,
                std::cmp::Ordering::Equal => return Spot::At(at),
                std::cmp::Ordering::Greater => return Spot::Before(at),
            }
        }
        Spot::Before(at)
    }

    fn first(&self) -> &[u8] {
        &self.0[1..self.key_end(0)]
    }

    fn key_end(&self, at: usize) -> usize {
        at + 1 + usize::from(self.0[at])
    }

    fn place(&self, at: usize) -> Place {
        let start = self.key_end(at);
        Place::decode(&self.0[start..start + PLACE_LEN])
    }

    fn replace(&mut self, at: usize, place: Place) -> Place {
        let old = self.place(at);
        let start = self.key_end(at);
        self.0[start..start + PLACE_LEN].copy_from_slice(&place.encode());
        old
    }

    fn insert(&mut self, at: usize, key: &[u8], place: Place) {
        let len = 1 + key.len() + PLACE_LEN;
        self.reserve(len);
        let old_end = self.0.len();
        self.0.resize(old_end + len, 0);
        self.0.copy_within(at..old_end, at + len);
        self.0[at] = u8::try_from(key.len()).expect("keys are at most 255 bytes long");
        self.0[at + 1..at + 1 + key.len()].copy_from_slice(key);
        self.0[at + 1 + key.len()..at + len].copy_from_slice(&place.encode());
    }

    fn remove(&mut self, at: usize) -> Place {
        let place = self.place(at);
        self.0.drain(at..self.key_end(at) + PLACE_LEN);
        place
    }

    /// Splits off the upper half.
    fn halve(&mut self) -> Self {
        let mut at = 0;
        while at < self.0.len() / 2 {
            at = self.key_end(at) + PLACE_LEN;
        }
        let upper = Self(self.0[at..].to_vec());
        self.0.truncate(at);
        self.0.shrink_to_fit();
        upper
    }

    fn reserve(&mut self, more: usize) {
        if self.0.capacity() - self.0.len() < more {
            self.0.reserve_exact(more.next_multiple_of(LEAF_STEP));
        }
    }

    fn entries(&self) -> impl Iterator<Item = (&[u8], Place)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            (at < self.0.len()).then(|| {
                let end = self.key_end(at);
                let entry = (&self.0[at + 1..end], self.place(at));
                at = end + PLACE_LEN;
                entry
            })
        })
    }
}

#[cfg(test)]
mod tests;
