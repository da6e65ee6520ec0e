use std::collections::{HashMap, VecDeque};

/// Keys of entries that left not long ago, oldest first, and what is remembered of each. Whoever asks for one
/// of them would have found it in a somewhat larger cache.
#[derive(Debug)]
pub struct Ghosts<T = ()> {
    order: VecDeque<u64>,
    /// How many left `order` so far: the number of its first.
    first: u64,
    /// Those that did not come back, by their numbers.
    kept: HashMap<u64, (u64, T)>,
}

impl<T> Default for Ghosts<T> {
    fn default() -> Self {
        Self { order: VecDeque::new(), first: 0, kept: HashMap::new() }
    }
}

impl<T> Ghosts<T> {
    /// An entry left; at most `most` are remembered, and the last one always.
    pub fn push(&mut self, key: u64, what: T, most: usize) {
        self.kept.insert(key, (self.first + self.order.len() as u64, what));
        self.order.push_back(key);
        while self.order.len() > most.max(1)
            && let Some(oldest) = self.order.pop_front()
        {
            // One that came back and left again has a later number.
            if self.kept.get(&oldest).is_some_and(|(number, _)| *number == self.first) {
                self.kept.remove(&oldest);
            }
            self.first += 1;
        }
    }

    /// What is remembered of the key's entry if it left not long ago; it is forgotten then.
    pub fn take(&mut self, key: u64) -> Option<T> {
        self.kept.remove(&key).map(|(_, what)| what)
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
