use std::collections::{HashMap, VecDeque};

/// Keys of entries that left not long ago, oldest first. Whoever asks for one of them would have found
/// it in a somewhat larger cache.
#[derive(Debug, Default)]
pub struct Ghosts {
    order: VecDeque<u64>,
    /// How many left `order` so far: the number of its first.
    first: u64,
    /// Those that did not come back, by their numbers.
    numbers: HashMap<u64, u64>,
}

impl Ghosts {
    /// An entry left; at most `most` are remembered, and the last one always.
    pub fn push(&mut self, key: u64, most: usize) {
        self.numbers.insert(key, self.first + self.order.len() as u64);
        self.order.push_back(key);
        while self.order.len() > most.max(1)
            && let Some(oldest) = self.order.pop_front()
        {
            // One that came back and left again has a later number.
            if self.numbers.get(&oldest) == Some(&self.first) {
                self.numbers.remove(&oldest);
            }
            self.first += 1;
        }
    }

    /// Whether the key's entry left not long ago; it is forgotten then.
    pub fn take(&mut self, key: u64) -> bool {
        self.numbers.remove(&key).is_some()
    }

    /// How many departures are remembered, those that came back included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether nothing left yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
