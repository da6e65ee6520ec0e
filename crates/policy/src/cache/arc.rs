use super::list::{Links, Queue};
use super::{ByKey, Eviction, Slot};

/// The adaptive replacement cache (Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST'03) in
/// bytes. Entries used once are in a *recent* queue, entries used again in a *frequent* one; both are LRU queues with
/// ghosts. An entry whose key is a ghost joins the frequent queue, and the queue it was evicted from is allowed more
/// room.
///
/// It takes the bytes held before the latest eviction for the room of the cache.
#[derive(Debug, Default)]
pub struct AdaptiveReplacement {
    held: Lists,
    ghosts: Lists,
    /// The slots of ghosts, by key.
    ghost_slots: ByKey<Slot>,
    free: Vec<Slot>,
    /// The bytes that the recent queue should have; known from the first eviction on, then half of the room.
    target: Option<u64>,
    room: u64,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum List {
    #[default]
    Recent,
    Frequent,
}

/// Two queues of records.
#[derive(Debug, Default)]
struct Lists {
    links: Links,
    queues: [Queue; 2],
    bytes: [u64; 2],
    records: Vec<Record>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    key: u64,
    bytes: u32,
    list: List,
}

impl Lists {
    fn push(&mut self, slot: Slot, record: Record) {
        let at = slot as usize;
        if self.records.len() <= at {
            self.records.resize(at + 1, Record::default());
        }
        self.records[at] = record;
        self.queues[record.list as usize].push(&mut self.links, slot);
        self.bytes[record.list as usize] += u64::from(record.bytes);
    }

    fn remove(&mut self, slot: Slot) -> Record {
        let record = self.records[slot as usize];
        self.queues[record.list as usize].remove(&mut self.links, slot);
        self.bytes[record.list as usize] -= u64::from(record.bytes);
        record
    }

    fn oldest(&self, list: List) -> Option<Slot> {
        self.queues[list as usize].oldest()
    }

    fn bytes(&self, list: List) -> u64 {
        self.bytes[list as usize]
    }

    fn bytes_of_both(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

impl AdaptiveReplacement {
    fn remember(&mut self, record: Record) {
        // Two entries of the same hash may have been held.
        self.forget(record.key);
        let slot = self.free.pop().unwrap_or_else(|| {
            Slot::try_from(self.ghosts.records.len()).expect("fewer ghosts than slots")
        });
        self.ghosts.push(slot, record);
        self.ghost_slots.insert(record.key, slot);
    }

    fn forget(&mut self, key: u64) -> Option<Record> {
        let slot = self.ghost_slots.remove(&key)?;
        self.free.push(slot);
        Some(self.ghosts.remove(slot))
    }

    fn forget_oldest(&mut self, list: List) -> bool {
        let oldest = self.ghosts.oldest(list).map(|slot| self.ghosts.records[slot as usize].key);
        oldest.and_then(|key| self.forget(key)).is_some()
    }

    /// Drops the oldest ghosts until the recent queue and its ghosts are as much as the room, and all are at most twice
    /// as much.
    fn trim(&mut self) {
        while self.held.bytes(List::Recent) + self.ghosts.bytes(List::Recent) > self.room
            && self.forget_oldest(List::Recent)
        {}
        while self.held.bytes_of_both() + self.ghosts.bytes_of_both() > 2 * self.room
            && (self.forget_oldest(List::Frequent) || self.forget_oldest(List::Recent))
        {}
    }

    /// Moves the target towards the queue that a ghost was evicted from: by the bytes that came back, and by more if
    /// that queue has fewer ghosts than the other.
    fn adapt(&mut self, list: List, bytes: u32) {
        let other = if list == List::Recent { List::Frequent } else { List::Recent };
        let bytes = u128::from(bytes);
        let (these, others) = (self.ghosts.bytes(list).max(1), self.ghosts.bytes(other));
        let step = bytes.max(bytes * u128::from(others) / u128::from(these));
        let step = u64::try_from(step).unwrap_or(u64::MAX);
        let target = self.target.unwrap_or(self.room / 2);
        self.target = Some(match list {
            List::Recent => target.saturating_add(step).min(self.room),
            List::Frequent => target.saturating_sub(step),
        });
    }
}

impl Eviction for AdaptiveReplacement {
    fn insert(&mut self, slot: Slot, key: u64, bytes: u32) {
        let ghost = self.ghost_slots.get(&key).map(|&slot| self.ghosts.records[slot as usize]);
        let list = if let Some(ghost) = ghost {
            self.adapt(ghost.list, ghost.bytes);
            self.forget(key);
            List::Frequent
        } else {
            List::Recent
        };
        self.held.push(slot, Record { key, bytes, list });
        self.room = self.room.max(self.held.bytes_of_both());
        self.trim();
    }

    fn hit(&mut self, slot: Slot) {
        let record = self.held.remove(slot);
        self.held.push(slot, Record { list: List::Frequent, ..record });
    }

    fn remove(&mut self, slot: Slot) {
        self.held.remove(slot);
    }

    fn evict(&mut self) -> Option<Slot> {
        let target = self.target.unwrap_or(self.held.bytes_of_both() / 2);
        let recent = self.held.oldest(List::Recent);
        let frequent = self.held.oldest(List::Frequent);
        let slot = match (recent, frequent) {
            (Some(recent), Some(frequent)) => {
                // The only recent entry stays: it was hardly there.
                let least = u64::from(self.held.records[recent as usize].bytes);
                let is_over = self.held.bytes(List::Recent) > target.max(least);
                if is_over { recent } else { frequent }
            }
            (recent, frequent) => recent.or(frequent)?,
        };
        self.evict_slot(slot);
        Some(slot)
    }

    fn evict_slot(&mut self, slot: Slot) {
        self.room = self.held.bytes_of_both();
        self.target = Some(self.target.unwrap_or(self.room / 2).min(self.room));
        let record = self.held.remove(slot);
        self.remember(record);
        self.trim();
    }

    fn keep(&mut self, slot: Slot, key: u64, bytes: u32) {
        // It was no ghost in earnest: the target stays.
        self.forget(key);
        self.held.push(slot, Record { key, bytes, list: List::Frequent });
        self.room = self.room.max(self.held.bytes_of_both());
        self.trim();
    }

    fn resize(&mut self, slot: Slot, bytes: u32) {
        let record = &mut self.held.records[slot as usize];
        let old = u64::from(std::mem::replace(&mut record.bytes, bytes));
        let list = record.list as usize;
        self.held.bytes[list] = self.held.bytes[list] - old + u64::from(bytes);
        self.room = self.room.max(self.held.bytes_of_both());
        self.trim();
    }

    fn coldest(&self) -> Box<dyn Iterator<Item = Slot> + '_> {
        let [recent, frequent] = &self.held.queues;
        Box::new(recent.iter(&self.held.links).chain(frequent.iter(&self.held.links)))
    }

    fn remembers(&self, key: u64) -> bool {
        self.ghost_slots.contains_key(&key)
    }
}
