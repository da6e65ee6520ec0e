//! A log store without bytes: files, and their live records.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use policy::merge::{
    Death, FileId, Fill, Group, Groups, Life, Merges, Pick, Placed, Put, PutLimits, Rule, Sealed,
    Settings, Why, Written,
};
use policy::units::MIB;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Lifetimes;
use super::load::Load;

/// Bytes of an object; no result depends on it.
const OBJECT: u64 = MIB;
/// No file.
const NONE: u32 = u32::MAX;
/// The place of a record under rules without death times.
const PLAIN: Placed = Placed { group: Group(0), death: Death::Unknown };
/// Writes between two searches for a merge.
const LOOK_EVERY: u64 = 8;
/// Above this fill every write searches for a merge.
const FULL: f64 = 0.97;
/// The most merges of one search.
const MERGES_MAX: u32 = 20;

/// A store and its load.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How long records live.
    pub lifetimes: Lifetimes,
    /// n.
    pub partitions: u32,
    /// C, in objects.
    pub capacity: u32,
    /// R, in objects.
    pub file: u32,
    /// V.
    pub live: f64,
    /// The most groups.
    pub groups: u8,
    /// How it merges; `file_bytes` is set from `file`, unless it is 0: then there are no emergencies.
    pub settings: Settings,
    /// Objects that merges read and write for each put; none if merges take no time.
    pub pace: Option<f64>,
    /// Whether puts are delayed and refused; meanwhile merges move [`PUTS_PER_SEC`] times `pace` objects a
    /// second.
    pub polite: bool,
}

/// Puts a second without delays.
pub const PUTS_PER_SEC: f64 = 100.0;

impl Shape {
    /// A store whose merges take no time.
    #[must_use]
    pub fn new(lifetimes: Lifetimes, live: f64, rule: Rule) -> Self {
        Self {
            lifetimes,
            partitions: 4,
            capacity: 6400,
            file: 16,
            live,
            groups: 8,
            settings: Settings::new(rule, 1),
            pace: None,
            polite: false,
        }
    }

    pub(super) fn keys(&self) -> u32 {
        (self.live * f64::from(self.capacity)) as u32
    }
}

/// The results over the measured writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Bytes written, with copies, for each byte put.
    pub write_amplification: f64,
    /// Bytes that merges read, for each byte put.
    pub read: f64,
    /// The part of the files that were removed without being read.
    pub whole: f64,
    /// The largest fill.
    pub peak: f64,
    /// The mean fill.
    pub mean: f64,
    /// The mean number of groups of puts.
    pub groups: f64,
    /// Picks in an emergency.
    pub emergencies: u64,
    /// The number of writes after which the store was full, and no merge was possible.
    pub out_of_space: Option<u64>,
    /// The longest a put was delayed.
    pub delay_max: Duration,
    /// Refusals of puts.
    pub refused: u64,
}

struct File {
    partition: u32,
    len: u32,
    live: u32,
    sealed: bool,
    keys: Vec<u32>,
    death: Death,
}

struct Key {
    file: u32,
    partition: u32,
    dies: Option<Written>,
    since: Written,
    hash: u64,
}

/// An open file: its partition, its group, and whether merges write it.
type Open = (u32, Group, bool);

pub(super) struct Store {
    shape: Shape,
    pub(super) merges: Merges,
    /// Only with death times.
    groups: Option<Groups>,
    files: Vec<File>,
    open: BTreeMap<Open, u32>,
    keys: Vec<Key>,
    used: u64,
    put: u64,
    copied: u64,
    read: u64,
    gone: u64,
    whole: u64,
    emergencies: u64,
    limits: PutLimits,
    /// Objects that merges may still read and write.
    time: f64,
}

impl Store {
    pub(super) fn new(shape: Shape, random: &mut Xoshiro256PlusPlus) -> Self {
        let mut settings = shape.settings;
        if settings.file_bytes > 0 {
            settings.file_bytes = u64::from(shape.file) * OBJECT;
            settings.reserve = settings.file_bytes;
        }
        let file_bytes = u64::from(shape.file) * OBJECT;
        let capacity = u64::from(shape.capacity) * OBJECT;
        let key = |_| Key {
            file: NONE,
            partition: random.random_range(0..shape.partitions),
            dies: None,
            since: Written(0),
            hash: random.random(),
        };
        Self {
            merges: Merges::new(settings),
            groups: (settings.rule == Rule::DeathTime)
                .then(|| Groups::new(shape.groups, shape.partitions, file_bytes, capacity)),
            files: Vec::new(),
            open: BTreeMap::new(),
            keys: (0..shape.keys()).map(key).collect(),
            used: 0,
            put: 0,
            copied: 0,
            read: 0,
            gone: 0,
            whole: 0,
            emergencies: 0,
            limits: PutLimits::new(file_bytes),
            time: 0.0,
            shape,
        }
    }

    pub(super) fn fill(&self) -> Fill {
        Fill {
            capacity: u64::from(self.shape.capacity) * OBJECT,
            used: self.used * OBJECT,
            written: self.now(),
        }
    }

    fn now(&self) -> Written {
        Written(self.put * OBJECT)
    }

    pub(super) fn put(&mut self, key: u32, again: Option<u64>) {
        let now = self.now();
        let Key { file, partition, hash, since, .. } = self.keys[key as usize];
        let life = match (again, file) {
            (Some(writes), _) => Life::Until(now.plus(writes * OBJECT)),
            (None, NONE) => Life::First,
            (None, _) => Life::Replaces(since),
        };
        let groups = self.groups.as_mut();
        let placed = groups.map_or(PLAIN, |groups| groups.put(hash, life, OBJECT, now));
        self.put += 1;
        self.append(key, (partition, placed.group, false), placed, now);
        if self.put.is_multiple_of(u64::from(self.shape.file)) {
            self.seal_idle();
        }
    }

    fn append(&mut self, key: u32, open: Open, placed: Placed, since: Written) {
        let id = match self.open.get(&open) {
            Some(&id) => id,
            None => self.create(open),
        };
        let file = &mut self.files[id as usize];
        file.death = match file.len {
            0 => placed.death,
            _ => file.death.join(placed.death),
        };
        file.len += 1;
        file.live += 1;
        file.keys.push(key);
        let full = file.len == self.shape.file;
        self.used += 1;
        let entry = &mut self.keys[key as usize];
        let before = std::mem::replace(&mut entry.file, id);
        (entry.dies, entry.since) = (placed.death.known(), since);
        if full {
            self.seal(open);
        }
        self.died(before);
    }

    fn died(&mut self, file: u32) {
        let Some(found) = self.files.get_mut(file as usize) else { return };
        found.live -= 1;
        if found.sealed {
            self.merges.died(FileId(file.into()), OBJECT);
        }
    }

    fn create(&mut self, open: Open) -> u32 {
        let id = self.files.len() as u32;
        self.files.push(File {
            partition: open.0,
            len: 0,
            live: 0,
            sealed: false,
            keys: Vec::new(),
            death: Death::Unknown,
        });
        self.open.insert(open, id);
        id
    }

    fn seal(&mut self, open: Open) {
        let Some(id) = self.open.remove(&open) else { return };
        let file = &mut self.files[id as usize];
        file.sealed = true;
        self.merges.sealed(Sealed {
            id: FileId(id.into()),
            partition: file.partition,
            bytes: u64::from(file.len) * OBJECT,
            dead: u64::from(file.len - file.live) * OBJECT,
            death: file.death,
        });
    }

    fn seal_idle(&mut self) {
        let Some(groups) = &self.groups else { return };
        let idle: Vec<Open> =
            self.open.keys().filter(|open| !groups.is_open(open.1)).copied().collect();
        idle.into_iter().for_each(|open| self.seal(open));
    }

    /// Admits a put, and gives merges the time that it waits.
    pub(super) fn admit(&mut self) -> Put {
        let put = match self.shape.polite {
            true => self.limits.admit(OBJECT, &self.fill()),
            false => Put::Now,
        };
        let waits = match put {
            Put::Now => Duration::ZERO,
            Put::After(waits) | Put::Refused { retry_after: waits } => waits,
        };
        let writes = waits.as_secs_f64() * PUTS_PER_SEC
            + if matches!(put, Put::Refused { .. }) { 0.0 } else { 1.0 };
        // Unused time does not accumulate.
        self.time =
            self.time.min(0.0) + self.shape.pace.map_or(f64::INFINITY, |pace| pace * writes);
        put
    }

    /// Searches for merges and does them. False if the store is full.
    pub(super) fn look(&mut self, mut before: impl FnMut(&Self, &Pick)) -> bool {
        let paced = self.shape.pace.is_some();
        if paced || self.put.is_multiple_of(LOOK_EVERY) || self.fill().share() > FULL {
            for _ in 0..MERGES_MAX {
                if self.time <= 0.0 {
                    break;
                }
                let Some(pick) = self.merges.next(&self.fill()) else { break };
                before(self, &pick);
                let done = self.read + self.copied;
                self.merge(&pick);
                self.time -= (self.read + self.copied - done) as f64;
            }
        }
        self.used <= u64::from(self.shape.capacity)
    }

    fn merge(&mut self, pick: &Pick) {
        let id = pick.file.0 as u32;
        self.gone += 1;
        self.emergencies += u64::from(pick.why == Why::Emergency);
        let file = &mut self.files[id as usize];
        assert_eq!(pick.live, u64::from(file.live) * OBJECT, "the policy counts as the store does");
        let (len, partition) = (u64::from(file.len), file.partition);
        let keys = std::mem::take(&mut file.keys);
        if pick.live == 0 {
            self.whole += 1;
        } else {
            self.read += len;
        }
        let now = self.now();
        for key in keys {
            let entry = &self.keys[key as usize];
            if entry.file == id && pick.live > 0 {
                let (hash, dies, since) = (entry.hash, entry.dies, entry.since);
                let groups = self.groups.as_mut();
                let placed =
                    groups.map_or(PLAIN, |groups| groups.copy(hash, dies, since, OBJECT, now));
                self.append(key, (partition, placed.group, true), placed, since);
                self.copied += 1;
            }
        }
        self.merges.merged(pick.file);
        self.used -= len;
    }

    /// The current number of groups of puts.
    fn groups(&self) -> usize {
        self.groups.as_ref().map_or(1, Groups::count)
    }

    /// Panics if the store's counters are wrong.
    pub(super) fn audit(&self) {
        let mut live = vec![0u32; self.files.len()];
        for key in self.keys.iter().filter(|key| key.file != NONE) {
            live[key.file as usize] += 1;
        }
        let mut used = 0;
        for (id, file) in self.files.iter().enumerate() {
            assert_eq!(live[id], file.live, "file {id}");
            let known = self.merges.file(FileId(id as u64));
            if let Some(known) = known {
                assert_eq!(known.bytes - known.dead, u64::from(file.live) * OBJECT, "file {id}");
            }
            if known.is_some() || !file.sealed {
                used += u64::from(file.len);
            }
        }
        assert_eq!(used, self.used);
    }
}

/// Writes to a store until equilibrium, and as much again, which it measures.
#[must_use]
pub fn play(shape: Shape, seed: u64) -> Figures {
    // The longest period is about the same for any seed.
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
    let longest = Load::new(shape.lifetimes, shape.keys(), random).longest();
    let writes = 8 * u64::from(shape.keys()) + 4 * u64::from(shape.capacity);
    let writes = writes.max(4 * longest);
    play_between(shape, seed, writes / 2..writes)
}

/// Writes to an empty store, and measures the writes `told`.
#[must_use]
pub(super) fn play_between(shape: Shape, seed: u64, told: Range<u64>) -> Figures {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut store = Store::new(shape, &mut random);
    let mut load = Load::new(shape.lifetimes, shape.keys(), &mut random);
    let mut figures = Figures::default();
    let (mut fills, mut groups) = (0.0, 0);
    let mut before = (0, 0, 0, 0);
    for write in 0..told.end {
        if write == told.start {
            before = (store.copied, store.read, store.gone, store.whole);
            (figures.peak, fills, groups, store.emergencies) = (0.0, 0.0, 0, 0);
        }
        let (key, again) = load.next(&mut random);
        while let waits @ (Put::After(_) | Put::Refused { .. }) = store.admit() {
            if let Put::After(delay) = waits {
                figures.delay_max = figures.delay_max.max(delay);
                break;
            }
            figures.refused += 1;
            store.look(|_, _| ());
        }
        store.put(key, again);
        let share = store.fill().share();
        figures.peak = figures.peak.max(share);
        fills += share;
        groups += store.groups();
        if !store.look(|_, _| ()) {
            figures.out_of_space = Some(write);
            break;
        }
    }
    let put = (told.end - told.start) as f64;
    let since = |now: u64, then: u64| (now - then) as f64;
    figures.write_amplification = 1.0 + since(store.copied, before.0) / put;
    figures.read = since(store.read, before.1) / put;
    figures.whole = since(store.whole, before.3) / since(store.gone, before.2).max(1.0);
    figures.mean = fills / put;
    figures.groups = groups as f64 / put;
    figures.emergencies = store.emergencies;
    figures
}
