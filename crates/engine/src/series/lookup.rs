//! Lookups by hash.

/// A hash table of numbers whose keys are elsewhere: 4 bytes a place, at most three quarters of them taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookup {
    places: Vec<u32>,
    len: usize,
}

const FREE: u32 = u32::MAX;

impl Lookup {
    /// The number with this hash that `is` the wanted one.
    pub(crate) fn get(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        let mask = self.places.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            match self.places[at] {
                FREE => return None,
                number if is(number) => return Some(number),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Adds a number that is not there; `hash` gives that of any number.
    pub(crate) fn insert(&mut self, number: u32, mut hash: impl FnMut(u32) -> u64) {
        if (self.len + 1) * 4 > self.places.len() * 3 {
            let grown = vec![FREE; (self.places.len() * 2).max(16)];
            let old = std::mem::replace(&mut self.places, grown);
            for number in old.into_iter().filter(|&number| number != FREE) {
                self.place(number, hash(number));
            }
        }
        self.place(number, hash(number));
        self.len += 1;
    }

    fn place(&mut self, number: u32, hash: u64) {
        let mask = self.places.len() - 1;
        let mut at = hash as usize & mask;
        while self.places[at] != FREE {
            at = (at + 1) & mask;
        }
        self.places[at] = number;
    }

    /// Bytes it takes.
    pub(crate) fn memory(&self) -> usize {
        self.places.capacity() * 4
    }
}
