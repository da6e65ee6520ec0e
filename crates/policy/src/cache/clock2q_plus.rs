use super::list::{Links, Queue};
use super::{Eviction, Ghosts, Slot};

/// The small queue may hold 1 / `SMALL` of all bytes before its entries are evicted first.
const SMALL: u64 = 10;

/// Hits on the newest 1 / `WINDOW` of all bytes, half of the small queue, do not count.
const WINDOW: u64 = 2 * SMALL;

/// S3-FIFO for loads that read an entry several times in a row and then never again, as metadata is read ("Clock2Q+: A
/// Simple and Efficient Replacement Algorithm for Metadata Cache in VMware vSAN", VLDB 2026). New entries pass through
/// a small FIFO queue. A hit in the newer half of it is correlated with the insertion and does not count; after one hit
/// in the older half the entry moves on to the main queue, a clock with one bit. Entries whose keys are among the
/// ghosts of the small queue join the main queue at once.
///
/// It remembers as many evictions as it holds entries. The paper's nine tenths do not include ghosts that came back,
/// and [`Ghosts`] does.
#[derive(Debug, Default)]
pub struct Clock2QPlus {
    links: Links,
    small: Queue,
    small_bytes: u64,
    /// The bytes of all entries that ever joined the small queue.
    joined: u64,
    main: Queue,
    bytes: u64,
    len: usize,
    entries: Vec<Entry>,
    ghosts: Ghosts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: u64,
    /// `joined` just after it joined the small queue.
    joined: u64,
    bytes: u32,
    used: bool,
    in_main: bool,
}

impl Clock2QPlus {
    fn set(&mut self, slot: Slot, entry: Entry) {
        let at = slot as usize;
        if self.entries.len() <= at {
            self.entries.resize(at + 1, Entry::default());
        }
        self.entries[at] = entry;
    }

    fn push_main(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot as usize];
        entry.in_main = true;
        entry.used = false;
        self.main.push(&mut self.links, slot);
    }

    fn evict_from_small(&mut self) -> Option<Slot> {
        while let Some(slot) = self.small.oldest() {
            let entry = self.entries[slot as usize];
            if !entry.used {
                self.evict_slot(slot);
                return Some(slot);
            }
            self.small.remove(&mut self.links, slot);
            self.small_bytes -= u64::from(entry.bytes);
            self.push_main(slot);
        }
        None
    }

    fn evict_from_main(&mut self) -> Option<Slot> {
        // Two rounds at most: the first clears every bit.
        loop {
            let slot = self.main.oldest()?;
            if !std::mem::take(&mut self.entries[slot as usize].used) {
                self.evict_slot(slot);
                return Some(slot);
            }
            self.main.remove(&mut self.links, slot);
            self.main.push(&mut self.links, slot);
        }
    }
}

impl Eviction for Clock2QPlus {
    fn insert(&mut self, slot: Slot, key: u64, bytes: u32) {
        self.set(slot, Entry { key, bytes, ..Entry::default() });
        self.bytes += u64::from(bytes);
        self.len += 1;
        if self.ghosts.take(key).is_some() {
            self.push_main(slot);
        } else {
            self.small.push(&mut self.links, slot);
            self.small_bytes += u64::from(bytes);
            self.joined += u64::from(bytes);
            self.entries[slot as usize].joined = self.joined;
        }
    }

    fn hit(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot as usize];
        if entry.in_main || (self.joined - entry.joined) * WINDOW >= self.bytes {
            entry.used = true;
        }
    }

    fn remove(&mut self, slot: Slot) {
        let Entry { bytes, in_main, .. } = self.entries[slot as usize];
        self.bytes -= u64::from(bytes);
        self.len -= 1;
        if in_main {
            self.main.remove(&mut self.links, slot);
        } else {
            self.small.remove(&mut self.links, slot);
            self.small_bytes -= u64::from(bytes);
        }
    }

    fn evict(&mut self) -> Option<Slot> {
        if self.small_bytes * SMALL > self.bytes {
            self.evict_from_small().or_else(|| self.evict_from_main())
        } else {
            self.evict_from_main().or_else(|| self.evict_from_small())
        }
    }

    fn evict_slot(&mut self, slot: Slot) {
        self.remove(slot);
        let entry = self.entries[slot as usize];
        if !entry.in_main {
            self.ghosts.push(entry.key, (), self.len);
        }
    }

    fn keep(&mut self, slot: Slot, key: u64, bytes: u32) {
        self.ghosts.take(key);
        self.set(slot, Entry { key, bytes, ..Entry::default() });
        self.bytes += u64::from(bytes);
        self.len += 1;
        self.push_main(slot);
    }

    fn resize(&mut self, slot: Slot, bytes: u32) {
        let entry = &mut self.entries[slot as usize];
        let old = u64::from(std::mem::replace(&mut entry.bytes, bytes));
        let new = u64::from(bytes);
        self.bytes = self.bytes - old + new;
        if !entry.in_main {
            self.small_bytes = self.small_bytes - old + new;
            // What it grows by joins the small queue now, for all entries but itself.
            let grown = new.saturating_sub(old);
            self.joined += grown;
            entry.joined += grown;
        }
    }

    fn coldest(&self) -> Box<dyn Iterator<Item = Slot> + '_> {
        Box::new(self.small.iter(&self.links).chain(self.main.iter(&self.links)))
    }

    fn remembers(&self, key: u64) -> bool {
        self.ghosts.contains(key)
    }
}
