use super::list::{Links, Queue};
use super::{Eviction, Slot};

/// A hand goes from the oldest entry to the newest. It passes over entries used since its last pass and evicts the
/// first other one (Zhang et al., "SIEVE is Simpler than LRU", NSDI'24).
#[derive(Debug, Default)]
pub struct Sieve {
    links: Links,
    queue: Queue,
    visited: Vec<bool>,
    /// The next entry for the hand; the oldest if `None`.
    hand: Option<Slot>,
}

impl Eviction for Sieve {
    fn insert(&mut self, slot: Slot, _: u64, _: u32) {
        self.queue.push(&mut self.links, slot);
        let at = slot as usize;
        if self.visited.len() <= at {
            self.visited.resize(at + 1, false);
        }
        self.visited[at] = false;
    }

    fn hit(&mut self, slot: Slot) {
        self.visited[slot as usize] = true;
    }

    fn remove(&mut self, slot: Slot) {
        if self.hand == Some(slot) {
            self.hand = self.links.newer(slot);
        }
        self.queue.remove(&mut self.links, slot);
    }

    fn evict(&mut self) -> Option<Slot> {
        // Two rounds at most: the first clears every bit.
        loop {
            let slot = self.hand.or_else(|| self.queue.oldest())?;
            self.hand = self.links.newer(slot);
            if !std::mem::take(&mut self.visited[slot as usize]) {
                self.queue.remove(&mut self.links, slot);
                return Some(slot);
            }
        }
    }

    fn coldest(&self) -> Box<dyn Iterator<Item = Slot> + '_> {
        Box::new(self.queue.iter(&self.links))
    }
}
