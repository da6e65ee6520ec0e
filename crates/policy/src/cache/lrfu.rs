use super::{Eviction, Ghosts, Slot};

/// Half of an entry's heat is gone after this many accesses for each entry that is kept.
const HALF_LIFE: f64 = 8.0;

/// Entries that are looked at for the coldest of all: more find a colder one, hardly.
const SAMPLES: usize = 8;

/// Looks at the coldest that are taken together.
const LOOKS: f32 = 64.0;

/// The coldest were asked for less than they will be: it is chance that makes some of many the coldest. By
/// how much depends on the load; this is what serves those of `pool::cache::tests::hits` best.
const UNLUCKY: f32 = 1.5;

/// Who left is remembered, as many as are kept times this.
const GHOSTS: usize = 2;

/// Who was asked for most, of late, stays: every access adds one to its entry's heat, and all heat halves
/// with time (Lee et al., "LRFU: a spectrum of policies that subsumes the least recently used and least
/// frequently used policies", IEEE ToC 2001). What goes is the entry with the least heat for its bytes, of
/// some that are drawn and the newest, so that one who is asked for once drives out nobody who is warm. Who
/// leaves is remembered with its heat, and goes on from there if it comes back.
#[derive(Debug, Default)]
pub struct Lrfu {
    entries: Vec<Entry>,
    /// The slots of all entries, in no order: to draw from.
    held: Vec<Slot>,
    /// Half-lives that have passed.
    now: f64,
    newest: Option<Slot>,
    /// How much the coldest had been asked for, of those that were looked at of late.
    coldest: f32,
    ghosts: Ghosts<Heat>,
    random: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: u64,
    heat: Heat,
    bytes: u32,
    /// Where it is in `held`.
    position: u32,
}

/// Accesses, those of a half-life ago for half: the time at which one access would be as much. Who is
/// hotter now is so for ever, if nobody is asked for.
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
    /// Time is what happens: in a cache nobody reads nothing cools.
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

    /// Remembers how warm one of the coldest was.
    fn look(&mut self, slot: Slot) {
        let degree = (self.entries[slot as usize].heat.0 - self.now).exp2() as f32;
        self.coldest += (degree - self.coldest) / LOOKS;
    }

    /// What a byte of the entry is worth, as the logarithm of it.
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
        let position = u32::try_from(self.held.len()).expect("as many as there are slots");
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
            // Of few, all.
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
        let Entry { key, heat, .. } = self.entries[slot as usize];
        self.remove(slot);
        self.ghosts.push(key, heat, GHOSTS * self.held.len());
        Some(slot)
    }

    fn least_share(&self) -> Option<f32> {
        // At a rate of r an access, heat is r times the sum of what all accesses of the past are worth.
        let worth_of_all = HALF_LIFE * self.held.len().max(1) as f64 / std::f64::consts::LN_2;
        Some(UNLUCKY * self.coldest / worth_of_all as f32)
    }
}
