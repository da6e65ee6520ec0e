use std::collections::VecDeque;

use super::ByKey;

/// Keys of recently evicted entries, oldest first, with a value for each. A request for one of them would have been a
/// hit in a somewhat larger cache.
#[derive(Debug)]
pub struct Ghosts<T = ()> {
    order: VecDeque<u64>,
    /// How many keys left `order` so far: the number of its first.
    first: u64,
    /// The entries that did not come back, by key, with their numbers.
    kept: ByKey<(u64, T)>,
}

impl<T> Default for Ghosts<T> {
    fn default() -> Self {
        Self { order: VecDeque::new(), first: 0, kept: ByKey::default() }
    }
}

impl<T> Ghosts<T> {
    /// Adds an evicted entry. Keeps at most `most` entries, but always the last one.
    pub fn push(&mut self, key: u64, what: T, most: usize) {
        self.kept.insert(key, (self.first + self.order.len() as u64, what));
        self.order.push_back(key);
        while self.order.len() > most.max(1)
            && let Some(oldest) = self.order.pop_front()
        {
            // An entry that came back and was evicted again has a later number.
            if self.kept.get(&oldest).is_some_and(|(number, _)| *number == self.first) {
                self.kept.remove(&oldest);
            }
            self.first += 1;
        }
    }

    /// Removes and returns the value of a key, if it is remembered.
    pub fn take(&mut self, key: u64) -> Option<T> {
        self.kept.remove(&key).map(|(_, what)| what)
    }

    /// Whether a key is remembered.
    #[must_use]
    pub fn contains(&self, key: u64) -> bool {
        self.kept.contains_key(&key)
    }

    /// How many evictions are remembered, including those of entries that came back.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there was no eviction yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
