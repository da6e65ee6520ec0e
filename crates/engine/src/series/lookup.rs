//! A hash table of numbers.

/// A hash table of numbers whose keys are stored elsewhere: eight bytes a place, at most three quarters of them used.
///
/// Half of a place holds bits of the hash. So growing reads no key, and a search hardly ever reads a wrong one: with
/// millions of keys each read is a cache miss.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookup {
    /// Numbers and their hashes.
    places: Vec<(u32, u32)>,
    len: usize,
}

const FREE: (u32, u32) = (u32::MAX, 0);

/// The bits of a hash that are kept.
fn kept(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}

impl Lookup {
    /// The number with this hash for which `is` holds.
    pub(crate) fn get(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        let (mask, hash) = (self.places.len() - 1, kept(hash));
        let mut at = hash as usize & mask;
        loop {
            match self.places[at] {
                FREE => return None,
                (number, of) if of == hash && is(number) => return Some(number),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Adds a number that is not there yet.
    pub(crate) fn insert(&mut self, number: u32, hash: u64) {
        if (self.len + 1) * 4 > self.places.len() * 3 {
            let grown = vec![FREE; (self.places.len() * 2).max(16)];
            let old = std::mem::replace(&mut self.places, grown);
            old.into_iter().filter(|&place| place != FREE).for_each(|place| self.place(place));
        }
        self.place((number, kept(hash)));
        self.len += 1;
    }

    /// Removes the number with this hash, if it is there.
    pub(crate) fn remove(&mut self, number: u32, hash: u64) {
        let (mask, wanted) = (self.places.len() - 1, (number, kept(hash)));
        let mut free = wanted.1 as usize & mask;
        while self.places[free] != wanted {
            if self.places[free] == FREE {
                return;
            }
            free = (free + 1) & mask;
        }
        self.places[free] = FREE;
        self.len -= 1;
        // Close the gap: later entries that a search would not reach any more move up.
        let mut at = free;
        loop {
            at = (at + 1) & mask;
            let place = self.places[at];
            if place == FREE {
                break;
            }
            let home = place.1 as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(free) & mask) {
                self.places[free] = place;
                self.places[at] = FREE;
                free = at;
            }
        }
        if self.len * 8 < self.places.len() && self.places.len() > 16 {
            let fewer = vec![FREE; self.places.len() / 4];
            let old = std::mem::replace(&mut self.places, fewer);
            old.into_iter().filter(|&place| place != FREE).for_each(|place| self.place(place));
        }
    }

    fn place(&mut self, place: (u32, u32)) {
        let mask = self.places.len() - 1;
        let mut at = place.1 as usize & mask;
        while self.places[at] != FREE {
            at = (at + 1) & mask;
        }
        self.places[at] = place;
    }

    /// Bytes in use.
    pub(crate) fn memory(&self) -> usize {
        self.places.capacity() * size_of::<(u32, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_again_whatever_their_hashes_are() {
        // All different, all equal, and equal in the bits that are kept.
        let hashes: [fn(u32) -> u64; 3] = [
            |n| u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            |_| 7,
            |n| u64::from(n) << 32 | u64::from(n),
        ];
        for hash in hashes {
            let mut lookup = Lookup::default();
            for number in 0..500 {
                assert_eq!(lookup.get(hash(number), |found| found == number), None);
                lookup.insert(number, hash(number));
            }
            for number in 0..500 {
                assert_eq!(lookup.get(hash(number), |found| found == number), Some(number));
            }
            assert_eq!(lookup.get(hash(500), |found| found == 500), None);
            let memory = lookup.memory();
            for gone in (0..500).filter(|gone| gone % 50 != 7) {
                lookup.remove(gone, hash(gone));
                lookup.remove(gone, hash(gone));
            }
            for number in 0..500 {
                let is_there = number % 50 == 7;
                let found = lookup.get(hash(number), |found| found == number);
                assert_eq!(found, is_there.then_some(number));
            }
            assert!(lookup.len == 10 && lookup.memory() * 4 <= memory);
        }
    }
}
