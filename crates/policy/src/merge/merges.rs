use std::collections::BTreeMap;

use super::candidates::{Candidates, File};
use super::{FileId, Fill, Rule, Sealed, Triggers};

/// How a store merges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Which file is next.
    pub rule: Rule,
    /// Up to this fill only dead files are removed: U_m. More leaves less room that nobody uses, and
    /// less time until puts wait.
    pub target: f64,
    /// Up to this fill, of all but the reserve, [`Rule::DeathTime`] waits for files that are certain to
    /// die: not above [`super::PutLimits::low`], or puts wait for them too.
    pub wait: f64,
    /// Bytes that puts never use: as in [`super::PutLimits::reserve`].
    pub reserve: u64,
    /// Bytes at which files are sealed: R. With less room than that, merges are an emergency.
    pub file_bytes: u64,
    /// How many merges the memory of what was worth merging reaches back.
    pub memory: u32,
    /// When [`Rule::Static`] merges.
    pub triggers: Triggers,
}

impl Settings {
    /// The usual ones, for files of `file_bytes`.
    #[must_use]
    pub fn new(rule: Rule, file_bytes: u64) -> Self {
        Self {
            rule,
            target: 0.8,
            wait: 0.95,
            reserve: file_bytes,
            file_bytes,
            memory: 16,
            triggers: Triggers::default(),
        }
    }
}

/// A file that is to be merged now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pick {
    /// Which one.
    pub file: FileId,
    /// Why.
    pub why: Why,
    /// What is left alive in it, to be copied. With none, the file is removed without reading it.
    pub live: u64,
    /// For [`crate::purpose::Origin::Merge`].
    pub hunger_percent: u8,
}

/// Why a file is merged.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Why {
    /// All of it is dead.
    Dead,
    /// The rule says so.
    Rule,
    /// The rule has long passed over its partition (PSTA 8(3), 2017).
    Overdue,
    /// There is hardly any room left. Puts should be refused by now.
    Emergency,
}

/// Above this hunger no partition is passed over for ever.
const OVERDUE_HUNGER: f64 = 0.5;
/// For each partition, so many picks go by before one of them is overdue.
const OVERDUE_PICKS: u64 = 8;

/// The files of a store that are written no more, and which of them is merged next.
///
/// Several merges may go on at once; a file that is merged is no candidate until [`Merges::failed`].
#[derive(Clone, Debug)]
pub struct Merges {
    settings: Settings,
    candidates: Candidates,
    /// Of the files that are being merged, what was dead when they were picked, and their live bytes.
    merging: BTreeMap<FileId, (f64, u64)>,
    eaten: f64,
    /// The youngest file of the merge of [`Rule::Static`] that is going on.
    sweep: Option<FileId>,
    picks: u64,
    /// By which pick a partition was last merged, or had its first candidate.
    partitions: BTreeMap<u32, u64>,
}

impl Merges {
    /// Merges of a store that has no files yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let triggers = (settings.rule == Rule::Static).then_some(settings.triggers);
        Self {
            settings,
            candidates: Candidates::new(settings.rule == Rule::DeathTime, triggers),
            merging: BTreeMap::new(),
            eaten: 1.0,
            sweep: None,
            picks: 0,
            partitions: BTreeMap::new(),
        }
    }

    /// A file is written no more.
    ///
    /// # Panics
    /// When there is one of that number.
    pub fn sealed(&mut self, file: Sealed) {
        assert!(file.dead <= file.bytes, "{:?}: more is dead than there is", file.id);
        self.candidates.insert(file);
        self.watch(file.partition);
    }

    /// So many bytes of a file died: a record was overwritten, deleted or expired. Files that are not
    /// sealed yet are the store's to count; false for those.
    pub fn died(&mut self, file: FileId, bytes: u64) -> bool {
        let found = self.candidates.died(file, bytes);
        if let Some(&File { sealed, .. }) = self.candidates.get(file) {
            self.watch(sealed.partition);
        }
        found
    }

    /// The file to merge now, if any; it is no candidate from now on. Ask again after every merge and
    /// every few puts: what is right depends on the fill.
    pub fn next(&mut self, fill: &Fill) -> Option<Pick> {
        let (file, why) = self.choose(fill)?;
        let found = self.candidates.get(file).copied().expect("candidates are there");
        self.candidates.take(file);
        self.merging.insert(file, (found.dead_share(), found.live()));
        if why != Why::Dead {
            self.picks += 1;
            self.partitions.remove(&found.sealed.partition);
            self.watch(found.sealed.partition);
        }
        let hunger_percent = (self.hunger(fill) * 100.0).clamp(0.0, 100.0) as u8;
        Some(Pick { file, why, live: found.live(), hunger_percent })
    }

    /// A picked file was merged: what lived in it is elsewhere, and it is gone.
    pub fn merged(&mut self, file: FileId) {
        self.candidates.remove(file);
        if let Some((share, _)) = self.merging.remove(&file) {
            self.eaten += (share - self.eaten) / f64::from(self.settings.memory.max(1));
        }
    }

    /// A picked file was not merged, and is a candidate again.
    pub fn failed(&mut self, file: FileId) {
        if self.merging.remove(&file).is_some() {
            self.candidates.put_back(file);
        }
    }

    /// A file is gone without having been merged.
    pub fn removed(&mut self, file: FileId) {
        self.candidates.remove(file);
        self.merging.remove(&file);
    }

    /// How far the fill is above the target on the way to full, from minus infinity to 1 and, with no
    /// room left, above: H.
    #[must_use]
    pub fn hunger(&self, fill: &Fill) -> f64 {
        fill.hunger(self.settings.target)
    }

    /// The part of a file that has to be dead for it to be merged now: D_T.
    #[must_use]
    pub fn threshold(&self, fill: &Fill) -> f64 {
        self.settings.rule.threshold(self.hunger(fill), self.eaten)
    }

    /// What was dead in the files merged lately, on average: the fisherman's memory.
    #[must_use]
    pub const fn eaten(&self) -> f64 {
        self.eaten
    }

    /// Files that are sealed, those being merged among them.
    #[must_use]
    pub fn files(&self) -> usize {
        self.candidates.len()
    }

    /// Files that are dead and not removed yet.
    #[must_use]
    pub fn dead_files(&self) -> usize {
        self.candidates.dead_len()
    }

    /// What is known of a sealed file.
    #[must_use]
    pub fn file(&self, file: FileId) -> Option<Sealed> {
        self.candidates.get(file).map(|file| file.sealed)
    }

    /// How the store merges.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the target and the fill up to which certain deaths are waited for.
    pub fn set_target(&mut self, target: f64, wait: f64) {
        (self.settings.target, self.settings.wait) = (target, wait);
    }

    fn choose(&mut self, fill: &Fill) -> Option<(FileId, Why)> {
        if let Some(dead) = self.candidates.dead() {
            return Some((dead, Why::Dead));
        }
        let hunger = self.hunger(fill);
        let emergency = hunger >= 1.0 || fill.free() < self.settings.file_bytes;
        let chosen = if emergency {
            self.candidates.smallest().map(|file| (file, Why::Emergency))
        } else if let Some(overdue) = self.overdue(hunger) {
            Some((overdue, Why::Overdue))
        } else {
            // A rule with thresholds may want nothing where puts are refused already: then nothing would
            // ever die.
            let reserve = self.settings.reserve;
            let by_rule = self.by_rule(fill, hunger).map(|file| (file, Why::Rule));
            by_rule.or_else(|| {
                let smallest = self.candidates.smallest().filter(|_| fill.free() <= reserve);
                smallest.map(|file| (file, Why::Emergency))
            })
        };
        // A merge that ends with a full disk has used up the room of all others.
        let promised: u64 = self.merging.values().map(|&(_, live)| live).sum();
        let room = fill.free().saturating_sub(promised);
        let fits = |file: FileId| self.candidates.get(file).is_some_and(|file| file.live() <= room);
        let (file, why) = chosen?;
        if fits(file) {
            return Some((file, why));
        }
        let smallest = self.candidates.smallest().filter(|&file| fits(file))?;
        Some((smallest, Why::Emergency))
    }

    fn by_rule(&mut self, fill: &Fill, hunger: f64) -> Option<FileId> {
        match self.settings.rule {
            Rule::Static => {
                if self.sweep.and_then(|last| self.candidates.taker(last)).is_none() {
                    let start = self.candidates.any_starter();
                    self.sweep = self.candidates.last_taker().filter(|_| start);
                }
                self.candidates.taker(self.sweep?)
            }
            Rule::DeathTime => {
                if hunger <= 0.0 || self.dies_in_time(fill) {
                    return None;
                }
                self.candidates.most_lasting(fill.written, fill.capacity)
            }
            Rule::Greedy | Rule::FishermanProduct | Rule::Fisherman => {
                let bar = self.settings.rule.threshold(hunger, self.eaten);
                let richest = self.candidates.richest()?;
                let share = self.candidates.get(richest)?.dead_share();
                (hunger > 0.0 && share >= bar).then_some(richest)
            }
        }
    }

    /// Whether a file dies by itself before there is less room than is waited for.
    fn dies_in_time(&self, fill: &Fill) -> bool {
        let usable = fill.capacity.saturating_sub(self.settings.reserve);
        let until = (self.settings.wait * usable as f64) as u64;
        let room = until.saturating_sub(fill.used);
        let next = self.candidates.next_death(fill.written);
        next.is_some_and(|dies| dies.since(fill.written) <= room)
    }

    fn overdue(&self, hunger: f64) -> Option<FileId> {
        if hunger <= OVERDUE_HUNGER || self.settings.rule == Rule::Static {
            return None;
        }
        let patience = OVERDUE_PICKS * self.partitions.len() as u64;
        let waiting = self.partitions.iter().filter(|&(&p, _)| self.candidates.has_candidates(p));
        let (&partition, &since) = waiting.min_by_key(|&(_, &since)| since)?;
        (self.picks - since > patience).then(|| self.candidates.richest_of(partition))?
    }

    /// Starts to count how long a partition is passed over, once it has candidates.
    fn watch(&mut self, partition: u32) {
        if self.candidates.has_candidates(partition) {
            self.partitions.entry(partition).or_insert(self.picks);
        }
    }
}
