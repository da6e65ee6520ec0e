use super::list::{Links, Queue};
use super::{Eviction, Slot};

/// Evicts the least recently used entry: the reference for the others.
#[derive(Debug, Default)]
pub struct Lru {
    links: Links,
    queue: Queue,
}

impl Eviction for Lru {
    fn insert(&mut self, slot: Slot, _: u64, _: u32) {
        self.queue.push(&mut self.links, slot);
    }

    fn hit(&mut self, slot: Slot) {
        self.queue.remove(&mut self.links, slot);
        self.queue.push(&mut self.links, slot);
    }

    fn remove(&mut self, slot: Slot) {
        self.queue.remove(&mut self.links, slot);
    }

    fn evict(&mut self) -> Option<Slot> {
        let slot = self.queue.oldest()?;
        self.remove(slot);
        Some(slot)
    }

    fn coldest(&self) -> Box<dyn Iterator<Item = Slot> + '_> {
        Box::new(self.queue.iter(&self.links))
    }
}
