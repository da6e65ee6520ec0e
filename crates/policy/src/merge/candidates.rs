//! The sealed files, indexed by the orders of the rules.
//!
//! Nearly every put kills a record, so [`Candidates::died`] is a hot path, and picks must not scan all files. Files are
//! sorted in steps of 1/1024 of their bytes, so most deaths leave their file in place.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Death, FileId, Sealed, Triggers, Written};
use crate::units::MIB;

/// Steps of the dead part of a file.
const STEPS: u64 = 1024;
/// With more bins of deaths than this, their width doubles: a pick looks at the best file of each bin. A third of the
/// bins is left for guesses.
const BINS_MAX: usize = 192;

#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    pub(super) sealed: Sealed,
    /// Its keys in the indexes; `None` while it has no dead bytes, is dead, or is being merged.
    keys: Option<Keys>,
    pub(super) merging: bool,
}

#[derive(Clone, Copy, Debug)]
struct Keys {
    step: u64,
    bin: Bin,
    live: u64,
}

/// Bins of times of death.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Bin {
    Unknown,
    /// By the power of two of the guess.
    After(u32),
    /// By multiples of the bin width.
    At(u64),
}

impl File {
    pub(super) const fn live(&self) -> u64 {
        self.sealed.bytes - self.sealed.dead
    }

    pub(super) fn dead_share(&self) -> f64 {
        self.sealed.dead as f64 / self.sealed.bytes.max(1) as f64
    }

    const fn is_dead(&self) -> bool {
        self.sealed.dead == self.sealed.bytes
    }

    fn step(&self) -> u64 {
        (u128::from(self.sealed.dead) * u128::from(STEPS) / u128::from(self.sealed.bytes.max(1)))
            as u64
    }
}

#[derive(Clone, Debug)]
pub(super) struct Candidates {
    files: HashMap<FileId, File>,
    /// Files that are dead in all their bytes.
    dead: BTreeSet<FileId>,
    by_dead: BTreeMap<Bin, BTreeSet<(u64, Reverse<FileId>)>>,
    by_live: BTreeSet<(u64, FileId)>,
    by_partition: BTreeMap<u32, BTreeSet<FileId>>,
    /// Files with a certain death that are not being merged.
    by_death: BTreeSet<(Written, FileId)>,
    /// Bytes put in one bin of deaths; `None` if the rule ignores deaths.
    bin_width: Option<u64>,
    triggers: Option<Triggers>,
    starters: BTreeSet<FileId>,
    takers: BTreeSet<FileId>,
}

impl Candidates {
    pub(super) fn new(deaths: bool, triggers: Option<Triggers>) -> Self {
        Self {
            files: HashMap::new(),
            dead: BTreeSet::new(),
            by_dead: BTreeMap::new(),
            by_live: BTreeSet::new(),
            by_partition: BTreeMap::new(),
            by_death: BTreeSet::new(),
            bin_width: deaths.then_some(16 * MIB),
            triggers,
            starters: BTreeSet::new(),
            takers: BTreeSet::new(),
        }
    }

    pub(super) fn insert(&mut self, sealed: Sealed) {
        let file = File { sealed, keys: None, merging: false };
        let before = self.files.insert(sealed.id, file);
        assert!(before.is_none(), "{:?} is sealed twice", sealed.id);
        self.enter(sealed.id);
    }

    /// Counts bytes of a file as dead. Returns false if the file is not one of these.
    pub(super) fn died(&mut self, id: FileId, bytes: u64) -> bool {
        let Some(file) = self.files.get_mut(&id) else { return false };
        let dead = file.sealed.dead.saturating_add(bytes);
        debug_assert!(dead <= file.sealed.bytes, "{id:?}: more died than there is");
        file.sealed.dead = dead.min(file.sealed.bytes);
        let settled = match file.keys {
            Some(keys) => keys.step == file.step() && !file.is_dead(),
            None => file.merging || file.sealed.dead == 0,
        };
        if settled {
            // A file may pass a threshold in bytes between two steps.
            let sealed = file.sealed;
            if !file.merging {
                self.trigger(&sealed);
            }
        } else {
            self.leave(id);
            self.enter(id);
        }
        true
    }

    /// Makes it no candidate: it is being merged.
    pub(super) fn take(&mut self, id: FileId) {
        self.leave(id);
        self.file_mut(id).merging = true;
    }

    /// Makes it a candidate again.
    pub(super) fn put_back(&mut self, id: FileId) {
        self.file_mut(id).merging = false;
        self.enter(id);
    }

    pub(super) fn remove(&mut self, id: FileId) -> Option<File> {
        self.files.contains_key(&id).then(|| self.leave(id));
        self.files.remove(&id)
    }

    pub(super) fn get(&self, id: FileId) -> Option<&File> {
        self.files.get(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// The oldest dead file.
    pub(super) fn dead(&self) -> Option<FileId> {
        self.dead.first().copied()
    }

    pub(super) fn dead_len(&self) -> usize {
        self.dead.len()
    }

    /// The file with the largest dead part, to a step; the oldest of them.
    pub(super) fn richest(&self) -> Option<FileId> {
        let tops = self.by_dead.values().filter_map(BTreeSet::last);
        tops.max().map(|&(_, Reverse(id))| id)
    }

    /// The file that frees the most room for the longest time: the bytes freed for each byte copied, times the time
    /// until the copies would have died by themselves. `unknown` stands for that time where it is unknown or already
    /// past.
    pub(super) fn most_lasting(&self, now: Written, unknown: u64) -> Option<FileId> {
        let tops = self.by_dead.values().filter_map(BTreeSet::last);
        let scored = tops.map(|&(_, Reverse(id))| {
            let file = &self.files[&id];
            let lasts = match file.sealed.death {
                Death::At(dies) if dies > now => dies.since(now),
                Death::After(lasts) => lasts,
                Death::At(_) | Death::Unknown => unknown,
            };
            let score = file.sealed.dead as f64 / file.live().max(1) as f64 * lasts as f64;
            (score, Reverse(id))
        });
        scored.max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map(|(_, Reverse(id))| id)
    }

    /// The file with the fewest live bytes.
    pub(super) fn smallest(&self) -> Option<FileId> {
        self.by_live.first().map(|&(_, id)| id)
    }

    /// The file of a partition with the largest dead part.
    pub(super) fn richest_of(&self, partition: u32) -> Option<FileId> {
        let files = self.by_partition.get(&partition)?.iter();
        files.copied().max_by_key(|id| (self.files[id].step(), Reverse(*id)))
    }

    /// Whether a partition has candidates.
    pub(super) fn has_candidates(&self, partition: u32) -> bool {
        self.by_partition.contains_key(&partition)
    }

    /// The time of the next certain death that is still to come.
    pub(super) fn next_death(&self, now: Written) -> Option<Written> {
        let after = (now.plus(1), FileId(0));
        self.by_death.range(after..).next().map(|&(dies, _)| dies)
    }

    /// Whether a file starts a merge by the triggers.
    pub(super) fn any_starter(&self) -> bool {
        !self.starters.is_empty()
    }

    /// The oldest file that a merge takes by the triggers, up to `last`.
    pub(super) fn taker(&self, last: FileId) -> Option<FileId> {
        self.takers.first().copied().filter(|&id| id <= last)
    }

    /// The youngest file that a merge takes by the triggers.
    pub(super) fn last_taker(&self) -> Option<FileId> {
        self.takers.last().copied()
    }

    fn file_mut(&mut self, id: FileId) -> &mut File {
        self.files.get_mut(&id).expect("the caller has looked it up")
    }

    fn enter(&mut self, id: FileId) {
        let file = self.files[&id];
        let Sealed { partition, bytes, dead, death, .. } = file.sealed;
        if file.is_dead() {
            self.dead.insert(id);
            return;
        }
        if let Death::At(dies) = death {
            self.by_death.insert((dies, id));
        }
        if dead == 0 {
            return;
        }
        let bin = match (death, self.bin_width) {
            (Death::At(dies), Some(width)) => Bin::At(dies.0 / width),
            (Death::After(lasts), Some(_)) => Bin::After(lasts.max(1).ilog2()),
            (Death::Unknown, _) | (_, None) => Bin::Unknown,
        };
        let keys = Keys { step: file.step(), bin, live: bytes - dead };
        self.file_mut(id).keys = Some(keys);
        self.by_dead.entry(bin).or_default().insert((keys.step, Reverse(id)));
        self.by_live.insert((keys.live, id));
        self.by_partition.entry(partition).or_default().insert(id);
        self.trigger(&file.sealed);
        if self.by_dead.len() > BINS_MAX {
            self.widen_bins();
        }
    }

    fn leave(&mut self, id: FileId) {
        let file = self.file_mut(id);
        let (sealed, keys) = (file.sealed, file.keys.take());
        self.dead.remove(&id);
        if let Death::At(dies) = sealed.death {
            self.by_death.remove(&(dies, id));
        }
        self.starters.remove(&id);
        self.takers.remove(&id);
        let Some(Keys { step, bin, live }) = keys else { return };
        self.by_live.remove(&(live, id));
        remove_of(&mut self.by_dead, &bin, &(step, Reverse(id)));
        remove_of(&mut self.by_partition, &sealed.partition, &id);
    }

    fn trigger(&mut self, sealed: &Sealed) {
        let Some(triggers) = self.triggers else { return };
        let &Sealed { id, bytes, dead, .. } = sealed;
        if dead > 0 && triggers.take(dead, bytes) {
            self.takers.insert(id);
        }
        if triggers.start(dead, bytes) {
            self.starters.insert(id);
        }
    }

    fn widen_bins(&mut self) {
        let Some(width) = &mut self.bin_width else { return };
        *width = width.saturating_mul(2);
        let narrow = std::mem::take(&mut self.by_dead);
        for (bin, files) in narrow {
            let bin = if let Bin::At(bin) = bin { Bin::At(bin / 2) } else { bin };
            for &(_, Reverse(id)) in &files {
                let keys = self.files.get_mut(&id).and_then(|file| file.keys.as_mut());
                keys.expect("it is found by its keys").bin = bin;
            }
            self.by_dead.entry(bin).or_default().extend(files);
        }
    }
}

/// Removes an entry from one of several sets, and the set once it is empty.
fn remove_of<K: Ord, T: Ord>(sets: &mut BTreeMap<K, BTreeSet<T>>, of: &K, entry: &T) {
    if let Some(set) = sets.get_mut(of) {
        set.remove(entry);
        if set.is_empty() {
            sets.remove(of);
        }
    }
}
