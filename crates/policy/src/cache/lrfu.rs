use super::{Eviction, Ghosts, Slot};

/// An entry loses half of its heat after this many accesses for each entry in the cache.
const HALF_LIFE: f64 = 8.0;

/// Entries sampled to find the coldest of all; more would hardly find a colder one.
const SAMPLES: usize = 8;

/// Looks over which the heat of the coldest entries is averaged.
const LOOKS: f32 = 64.0;

/// The coldest entries were used less than they will be: by chance some of many are the coldest. The factor depends on
/// the load; this one serves the loads of `pool::cache::tests::hits` best.
const UNLUCKY: f32 = 1.5;

/// Evicted entries that are remembered, as a multiple of the entries in the cache.
const GHOSTS: usize = 2;

/// Keeps the entries used most, of late: every access adds one to its entry's heat, and all heat halves with time (Lee
/// et al., "LRFU: a spectrum of policies that subsumes the least recently used and least frequently used policies",
/// IEEE ToC 2001). It evicts the entry with the least heat for its bytes among a sample and the newest, so an entry
/// used once evicts no warm one. An evicted entry is remembered with its heat, and continues from there if it comes
/// back.
#[derive(Debug, Default)]
pub struct Lrfu {
    entries: Vec<Entry>,
    /// The slots of all entries, in no order, to sample from.
    held: Vec<Slot>,
    /// Half-lives so far.
    now: f64,
    newest: Option<Slot>,
    /// The average heat of the coldest entries that were recently looked at.
    coldest: f32,
    ghosts: Ghosts<Heat>,
    random: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: u64,
    heat: Heat,
    bytes: u32,
    /// Its index in `held`.
    position: u32,
}

/// Accesses, with those of a half-life ago counting half, as the time at which one access would be worth as much. The
/// order of two entries stays the same while neither is used.
#[derive(Clone, Copy, Debug)]
struct Heat(f64);

impl Default for Heat {
    fn default() -> Self {
        Self(f64::NEG_INFINITY)
    }
}

impl Heat {
    fn count(&mut self, now: f64) {
        self.0 = now + ((self.0 - now).exp2() + 1.0).log2();
    }
}

impl Lrfu {
    /// Accesses are the clock: in an idle cache nothing cools.
    fn pass(&mut self) {
        self.now += 1.0 / (HALF_LIFE * self.held.len().max(1) as f64);
    }

    /// The next of a fixed sequence of numbers below `below` (Steele et al., SplitMix64).
    fn draw(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((mixed >> 32) * below as u64) >> 32) as usize
    }

    /// Adds one of the coldest entries to the average.
    fn look(&mut self, slot: Slot) {
        let degree = (self.entries[slot as usize].heat.0 - self.now).exp2() as f32;
        self.coldest += (degree - self.coldest) / LOOKS;
    }

    /// The logarithm of the entry's heat per byte.
    fn worth(&self, slot: Slot) -> f64 {
        let entry = &self.entries[slot as usize];
        entry.heat.0 - f64::from(entry.bytes.max(1)).log2()
    }
}

impl Eviction for Lrfu {
    fn insert(&mut self, slot: Slot, key: u64, bytes: u32) {
        let at = slot as usize;
        if self.entries.len() <= at {
            self.entries.resize(at + 1, Entry::default());
        }
        let mut heat = self.ghosts.take(key).unwrap_or_default();
        heat.count(self.now);
        let position = u32::try_from(self.held.len()).expect("at most one for each slot");
        self.entries[at] = Entry { key, heat, bytes, position };
        self.held.push(slot);
        self.newest = Some(slot);
        self.pass();
    }

    fn hit(&mut self, slot: Slot) {
        self.entries[slot as usize].heat.count(self.now);
        self.pass();
    }

    fn remove(&mut self, slot: Slot) {
        let position = self.entries[slot as usize].position;
        self.held.swap_remove(position as usize);
        if let Some(&moved) = self.held.get(position as usize) {
            self.entries[moved as usize].position = position;
        }
        self.newest = self.newest.filter(|&newest| newest != slot);
    }

    fn evict(&mut self) -> Option<Slot> {
        let count = self.held.len();
        let newest = self.newest.or_else(|| self.held.first().copied())?;
        let mut coldest = (None, f64::INFINITY);
        for drawn in 0..count.min(SAMPLES) {
            // If there are few, all of them.
            let at = if count <= SAMPLES { drawn } else { self.draw(count) };
            let slot = self.held[at];
            let worth = self.worth(slot);
            if worth < coldest.1 && slot != newest {
                coldest = (Some(slot), worth);
            }
        }
        let slot = match coldest {
            (Some(coldest), worth) => {
                self.look(coldest);
                if worth < self.worth(newest) { coldest } else { newest }
            }
            (None, _) => newest,
        };
        self.evict_slot(slot);
        Some(slot)
    }

    fn evict_slot(&mut self, slot: Slot) {
        let Entry { key, heat, .. } = self.entries[slot as usize];
        self.remove(slot);
        self.ghosts.push(key, heat, GHOSTS * self.held.len());
    }

    fn resize(&mut self, slot: Slot, bytes: u32) {
        self.entries[slot as usize].bytes = bytes;
    }

    fn coldest(&self) -> Box<dyn Iterator<Item = Slot> + '_> {
        let mut slots = self.held.clone();
        slots.sort_by(|&one, &other| self.worth(one).total_cmp(&self.worth(other)));
        Box::new(slots.into_iter())
    }

    fn remembers(&self, key: u64) -> bool {
        self.ghosts.contains(key)
    }

    fn least_share(&self) -> Option<f32> {
        // At a rate of r per access, heat is r times the sum of the weights of all past accesses.
        let worth_of_all = HALF_LIFE * self.held.len().max(1) as f64 / std::f64::consts::LN_2;
        Some(UNLUCKY * self.coldest / worth_of_all as f32)
    }
}
