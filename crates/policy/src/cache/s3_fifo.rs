use super::list::{Links, Queue};
use super::{Eviction, Ghosts, Slot};

/// Entries on probation may hold 1 / `PROBATION` of all bytes before they are evicted first.
const PROBATION: u64 = 10;

/// The most hits that are counted, so an entry of the main queue is passed over at most this often.
const HITS_MAX: u8 = 3;

/// Hits on probation after which an entry stays.
const HITS_TO_STAY: u8 = 2;

/// Three queues (Yang et al., "FIFO queues are all you need for cache eviction", SOSP'23). New entries are on probation
/// in a tenth of the room, and leave soon unless they are used. Entries that stay are in the main queue, whose oldest
/// gets another round for each hit it had. Entries whose keys are among the ghosts of recent evictions join the main
/// queue at once.
#[derive(Debug, Default)]
pub struct S3Fifo {
    links: Links,
    probation: Queue,
    probation_bytes: u64,
    main: Queue,
    main_len: usize,
    bytes: u64,
    entries: Vec<Entry>,
    ghosts: Ghosts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: u64,
    bytes: u32,
    hits: u8,
    in_main: bool,
}

impl S3Fifo {
    fn set(&mut self, slot: Slot, entry: Entry) {
        let at = slot as usize;
        if self.entries.len() <= at {
            self.entries.resize(at + 1, Entry::default());
        }
        self.entries[at] = entry;
    }

    fn push_main(&mut self, slot: Slot) {
        self.entries[slot as usize].in_main = true;
        self.main.push(&mut self.links, slot);
        self.main_len += 1;
    }

    fn evict_from_probation(&mut self) -> Option<Slot> {
        while let Some(slot) = self.probation.oldest() {
            let entry = &mut self.entries[slot as usize];
            self.probation.remove(&mut self.links, slot);
            self.probation_bytes -= u64::from(entry.bytes);
            if entry.hits < HITS_TO_STAY {
                self.bytes -= u64::from(entry.bytes);
                self.ghosts.push(entry.key, (), self.main_len);
                return Some(slot);
            }
            entry.hits = 0;
            self.push_main(slot);
        }
        None
    }

    fn evict_from_main(&mut self) -> Option<Slot> {
        loop {
            let slot = self.main.oldest()?;
            self.main.remove(&mut self.links, slot);
            let entry = &mut self.entries[slot as usize];
            if entry.hits == 0 {
                self.main_len -= 1;
                self.bytes -= u64::from(entry.bytes);
                return Some(slot);
            }
            entry.hits -= 1;
            self.main.push(&mut self.links, slot);
        }
    }
}

impl Eviction for S3Fifo {
    fn insert(&mut self, slot: Slot, key: u64, bytes: u32) {
        self.set(slot, Entry { key, bytes, hits: 0, in_main: false });
        self.bytes += u64::from(bytes);
        if self.ghosts.take(key).is_some() {
            self.push_main(slot);
        } else {
            self.probation.push(&mut self.links, slot);
            self.probation_bytes += u64::from(bytes);
        }
    }

    fn hit(&mut self, slot: Slot) {
        let hits = &mut self.entries[slot as usize].hits;
        *hits = (*hits + 1).min(HITS_MAX);
    }

    fn remove(&mut self, slot: Slot) {
        let Entry { bytes, in_main, .. } = self.entries[slot as usize];
        self.bytes -= u64::from(bytes);
        if in_main {
            self.main.remove(&mut self.links, slot);
            self.main_len -= 1;
        } else {
            self.probation.remove(&mut self.links, slot);
            self.probation_bytes -= u64::from(bytes);
        }
    }

    fn evict(&mut self) -> Option<Slot> {
        if self.probation_bytes * PROBATION > self.bytes {
            self.evict_from_probation().or_else(|| self.evict_from_main())
        } else {
            self.evict_from_main().or_else(|| self.evict_from_probation())
        }
    }

    fn evict_slot(&mut self, slot: Slot) {
        self.remove(slot);
        let Entry { key, in_main, .. } = self.entries[slot as usize];
        if !in_main {
            self.ghosts.push(key, (), self.main_len);
        }
    }

    fn keep(&mut self, slot: Slot, key: u64, bytes: u32) {
        self.ghosts.take(key);
        self.set(slot, Entry { key, bytes, hits: 0, in_main: false });
        self.bytes += u64::from(bytes);
        self.push_main(slot);
    }

    fn resize(&mut self, slot: Slot, bytes: u32) {
        let entry = &mut self.entries[slot as usize];
        let old = u64::from(std::mem::replace(&mut entry.bytes, bytes));
        let new = u64::from(bytes);
        self.bytes = self.bytes - old + new;
        if !entry.in_main {
            self.probation_bytes = self.probation_bytes - old + new;
        }
    }

    fn coldest(&self) -> Box<dyn Iterator<Item = Slot> + '_> {
        Box::new(self.probation.iter(&self.links).chain(self.main.iter(&self.links)))
    }

    fn remembers(&self, key: u64) -> bool {
        self.ghosts.contains(key)
    }
}
