use super::{ByKey, Eviction, Ghosts, Kind, Slot};

/// The policies it chooses among, the first one at the start.
const CANDIDATES: [Kind; 3] = [Kind::Clock2QPlus, Kind::S3Fifo, Kind::Arc];

/// A miniature has at most twice as many entries.
const ENTRIES: usize = 2048;

/// Accesses of a miniature from one decision to the next, for each of its entries.
const LOOK_EVERY: usize = 4;

/// What the accesses before a decision count for, to those after it. So about 64 accesses for each entry of a miniature count:
/// a change for a phase of the load that ends before costs more than it brings.
const KEPT: f64 = 1.0 - 1.0 / 16.0;

/// Accesses for each entry of a miniature before the first decision.
const FIRST: usize = 16;

/// The part of all accesses by which another policy has to lead. A change costs some hits.
const MARGIN: f64 = 0.0025;

/// By how many standard deviations it has to lead (McNemar's test).
const DEVIATIONS: f64 = 3.0;

/// The part of its misses below which a cache is taken to install few of them.
const LAZY: f64 = 0.75;

/// The part of the room that newcomers may have while the former policy has entries: 1 / `FRESH`, as in queues of probation.
const FRESH: u64 = 10;

/// The policy that would have had the most hits lately, of [`Clock2QPlus`](super::Clock2QPlus), [`S3Fifo`](super::S3Fifo) and
/// [`AdaptiveReplacement`](super::AdaptiveReplacement): which one that is differs from load to load, and with the share of it
/// that fits.
///
/// Each of them runs all the time in a *miniature*, without bytes: a cache of a sample of the keys, and of the same part of the
/// room (Waldspurger et al., "Cache Modeling and Optimization using Miniature Simulations", ATC'17). The miniatures together
/// take some hundred KiB for a cache of any size.
///
/// ```text
///   accesses ──┬─────────────── all ──▶ the policy that acts ──▶ victims
///              │                            ▲ the best of the last looks
///              └─ one key of 2^n ──▶ clock2q+ │ s3-fifo │ arc
/// ```
///
/// After a change the former policy keeps its entries: one that is used moves to the new policy, and victims come from the
/// others until none is left. So a change takes no longer than any access.
pub struct Auto {
    /// Of [`CANDIDATES`].
    acts: usize,
    policy: Box<dyn Eviction>,
    former: Option<Box<dyn Eviction>>,
    /// Differs from one change to the next.
    turn: bool,
    entries: Vec<Entry>,
    len: usize,
    bytes: u64,
    /// Bytes that came since the latest change, but for those that the new policy evicted.
    fresh: u64,
    /// Bytes held at the latest eviction.
    room: Option<u64>,
    /// The sample has the keys whose hash begins with so many zero bits.
    zeros: u32,
    miniatures: [Miniature; CANDIDATES.len()],
    /// Sampled misses, and those of them that were installed; those before each decision counting less.
    misses: f64,
    installs: f64,
    /// Sampled accesses since the latest decision.
    accesses: usize,
    /// Sampled accesses, those before each decision counting less.
    counted: f64,
    /// Those that were a hit for the first of two policies alone.
    wins: [[f64; CANDIDATES.len()]; CANDIDATES.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: u64,
    bytes: u32,
    /// That of [`Auto`] when its policy took the entry.
    turn: bool,
}

/// What a policy would hold of the sample.
struct Miniature {
    policy: Box<dyn Eviction>,
    slots: ByKey<Slot>,
    /// Of each slot that was ever used.
    held: Vec<(u64, u32)>,
    free: Vec<Slot>,
    bytes: u64,
    /// Keys that were missed once.
    once: Ghosts,
}

impl Miniature {
    fn new(kind: Kind) -> Self {
        let (slots, held, free, once) = Default::default();
        Self { policy: kind.policy(), slots, held, free, bytes: 0, once }
    }

    fn hit(&mut self, key: u64) -> bool {
        let Some(&slot) = self.slots.get(&key) else { return false };
        self.policy.hit(slot);
        true
    }

    /// A hit of the cache that is none here. A cache that installs few of its misses would wait for the second one.
    fn missed(&mut self, key: u64, bytes: u32, room: Option<u64>, is_lazy: bool) {
        if is_lazy && !self.policy.remembers(key) && self.once.take(key).is_none() {
            self.once.push(key, (), 2 * self.slots.len());
        } else {
            self.insert(key, bytes, room);
        }
    }

    fn insert(&mut self, key: u64, bytes: u32, room: Option<u64>) {
        if self.slots.contains_key(&key) {
            return;
        }
        while room.is_some_and(|room| self.bytes + u64::from(bytes) > room)
            && let Some(slot) = self.policy.evict()
        {
            self.forget(slot);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.held.push((key, bytes));
            Slot::try_from(self.held.len() - 1)
                .expect("a miniature has fewer entries than slots have numbers")
        });
        self.held[slot as usize] = (key, bytes);
        self.slots.insert(key, slot);
        self.bytes += u64::from(bytes);
        self.policy.insert(slot, key, bytes);
    }

    fn resize(&mut self, key: u64, bytes: u32) {
        if let Some(&slot) = self.slots.get(&key) {
            let old = std::mem::replace(&mut self.held[slot as usize].1, bytes);
            self.bytes = self.bytes - u64::from(old) + u64::from(bytes);
            self.policy.resize(slot, bytes);
        }
    }

    fn remove(&mut self, key: u64) {
        if let Some(&slot) = self.slots.get(&key) {
            self.policy.remove(slot);
            self.forget(slot);
        }
    }

    /// The policy has an entry no more.
    fn forget(&mut self, slot: Slot) {
        let (key, bytes) = self.held[slot as usize];
        self.slots.remove(&key);
        self.bytes -= u64::from(bytes);
        self.free.push(slot);
    }
}

impl Default for Auto {
    fn default() -> Self {
        Self {
            acts: 0,
            policy: CANDIDATES[0].policy(),
            former: None,
            turn: false,
            entries: Vec::new(),
            len: 0,
            bytes: 0,
            fresh: 0,
            room: None,
            zeros: 0,
            miniatures: CANDIDATES.map(Miniature::new),
            misses: 0.0,
            installs: 0.0,
            accesses: 0,
            counted: 0.0,
            wins: Default::default(),
        }
    }
}

impl Auto {
    /// Entries of the largest miniature.
    #[cfg(test)]
    pub(super) fn largest_miniature(&self) -> usize {
        self.miniatures.iter().map(|small| small.slots.len()).max().unwrap_or(0)
    }

    /// Whether a key is in the sample.
    const fn has(&self, key: u64) -> bool {
        begins_with(key) >= self.zeros
    }

    /// Whether the cache installs few of its misses.
    fn is_lazy(&self) -> bool {
        self.installs < LAZY * self.misses
    }

    /// The room of a miniature.
    fn small_room(&self) -> Option<u64> {
        self.room.map(|room| room >> self.zeros)
    }

    /// Counts an access of the sample, with the policies for which it was a hit.
    fn count(&mut self, hits: [bool; CANDIDATES.len()]) {
        // Before the first eviction all are the same.
        if self.room.is_none() {
            return;
        }
        self.accesses += 1;
        self.counted += 1.0;
        for (one, wins) in self.wins.iter_mut().enumerate() {
            for (other, won) in wins.iter_mut().enumerate() {
                *won += f64::from(u8::from(hits[one] && !hits[other]));
            }
        }
        let entries = (self.len >> self.zeros).max(ENTRIES / 2);
        if self.accesses < LOOK_EVERY * entries {
            return;
        }
        self.accesses = 0;
        if self.counted >= (FIRST * entries) as f64 * KEPT.powi(4) {
            self.look();
        }
        for count in [&mut self.counted, &mut self.misses, &mut self.installs] {
            *count *= KEPT;
        }
        self.wins.iter_mut().flatten().for_each(|won| *won *= KEPT);
    }

    /// By how many hits a policy leads before the one that acts.
    fn lead(&self, at: usize) -> f64 {
        self.wins[at][self.acts] - self.wins[self.acts][at]
    }

    /// Has the best policy act.
    fn look(&mut self) {
        if self.former.is_some() {
            return;
        }
        let best = (0..CANDIDATES.len())
            .fold(self.acts, |best, at| if self.lead(at) > self.lead(best) { at } else { best });
        let differ = self.wins[best][self.acts] + self.wins[self.acts][best];
        if self.lead(best) > (MARGIN * self.counted).max(DEVIATIONS * differ.sqrt()) {
            self.acts = best;
            let policy = CANDIDATES[best].policy();
            self.former = Some(std::mem::replace(&mut self.policy, policy));
            self.turn = !self.turn;
            self.fresh = 0;
        }
    }

    /// Halves the sample once it is too large.
    fn narrow(&mut self) {
        while self.len >> self.zeros > 2 * ENTRIES {
            self.zeros += 1;
            let zeros = self.zeros;
            for small in &mut self.miniatures {
                let keys = small.slots.keys().copied();
                let others: Vec<_> = keys.filter(|&key| begins_with(key) < zeros).collect();
                others.into_iter().for_each(|key| small.remove(key));
            }
        }
    }

    /// The entry is in neither policy any more.
    fn left(&mut self, slot: Slot) {
        self.len -= 1;
        self.bytes -= u64::from(self.entries[slot as usize].bytes);
    }

    fn enter(&mut self, slot: Slot, key: u64, bytes: u32) {
        let at = slot as usize;
        if self.entries.len() <= at {
            self.entries.resize(at + 1, Entry::default());
        }
        self.entries[at] = Entry { key, bytes, turn: self.turn };
        self.len += 1;
        self.bytes += u64::from(bytes);
    }

    /// Takes the entry that is worth least from its policy.
    fn victim(&mut self) -> Option<Slot> {
        let Some(former) = &mut self.former else { return self.policy.evict() };
        if self.fresh * FRESH > self.bytes
            && let Some(slot) = self.policy.evict()
        {
            let bytes = self.entries[slot as usize].bytes;
            self.fresh = self.fresh.saturating_sub(bytes.into());
            return Some(slot);
        }
        let slot = former.evict();
        slot.or_else(|| {
            self.former = None;
            self.policy.evict()
        })
    }

    /// The policy that has an entry.
    fn of(&mut self, slot: Slot) -> &mut dyn Eviction {
        match &mut self.former {
            Some(former) if self.entries[slot as usize].turn != self.turn => &mut **former,
            _ => &mut *self.policy,
        }
    }
}

/// The number of zero bits that the hash of a key begins with.
const fn begins_with(key: u64) -> u32 {
    // Keys may be no good hashes.
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15).leading_zeros()
}

impl Eviction for Auto {
    fn acts(&self) -> Option<Kind> {
        Some(CANDIDATES[self.acts])
    }

    fn insert(&mut self, slot: Slot, key: u64, bytes: u32) {
        self.enter(slot, key, bytes);
        if self.former.as_ref().is_some_and(|former| former.remembers(key)) {
            self.policy.keep(slot, key, bytes);
        } else {
            self.policy.insert(slot, key, bytes);
            self.fresh += u64::from(bytes);
        }
        self.narrow();
        if self.has(key) {
            self.installs += 1.0;
            let room = self.small_room();
            self.miniatures.iter_mut().for_each(|small| small.insert(key, bytes, room));
        }
    }

    fn hit(&mut self, slot: Slot) {
        let Entry { key, bytes, turn } = self.entries[slot as usize];
        match &mut self.former {
            Some(former) if turn != self.turn => {
                former.remove(slot);
                self.entries[slot as usize].turn = self.turn;
                self.policy.keep(slot, key, bytes);
            }
            _ => self.policy.hit(slot),
        }
        if self.has(key) {
            let (room, is_lazy) = (self.small_room(), self.is_lazy());
            let hits = self.miniatures.each_mut().map(|small| {
                let is_hit = small.hit(key);
                if !is_hit {
                    small.missed(key, bytes, room, is_lazy);
                }
                is_hit
            });
            self.count(hits);
        }
    }

    fn missed(&mut self, key: u64) -> bool {
        if self.has(key) {
            self.misses += 1.0;
            let hits = self.miniatures.each_mut().map(|small| small.hit(key));
            self.count(hits);
        }
        self.remembers(key)
    }

    fn remove(&mut self, slot: Slot) {
        self.of(slot).remove(slot);
        self.left(slot);
        let key = self.entries[slot as usize].key;
        if self.has(key) {
            self.miniatures.iter_mut().for_each(|small| small.remove(key));
        }
    }

    fn evict(&mut self) -> Option<Slot> {
        let slot = self.victim()?;
        self.room = Some(self.bytes);
        self.left(slot);
        Some(slot)
    }

    fn evict_slot(&mut self, slot: Slot) {
        self.room = Some(self.bytes);
        self.of(slot).evict_slot(slot);
        self.left(slot);
    }

    fn keep(&mut self, slot: Slot, key: u64, bytes: u32) {
        self.enter(slot, key, bytes);
        self.policy.keep(slot, key, bytes);
    }

    fn resize(&mut self, slot: Slot, bytes: u32) {
        self.of(slot).resize(slot, bytes);
        let entry = &mut self.entries[slot as usize];
        let old = std::mem::replace(&mut entry.bytes, bytes);
        let key = entry.key;
        self.bytes = self.bytes - u64::from(old) + u64::from(bytes);
        if self.has(key) {
            self.miniatures.iter_mut().for_each(|small| small.resize(key, bytes));
        }
    }

    fn coldest(&self) -> Box<dyn Iterator<Item = Slot> + '_> {
        let former = self.former.iter().flat_map(|former| former.coldest());
        Box::new(former.chain(self.policy.coldest()))
    }

    fn remembers(&self, key: u64) -> bool {
        let former = self.former.as_ref().is_some_and(|former| former.remembers(key));
        former || self.policy.remembers(key)
    }
}
