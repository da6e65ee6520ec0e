use std::collections::BTreeMap;

use super::candidates::{Candidates, File};
use super::{FileId, Fill, Rule, Sealed, Triggers};

/// How a store merges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The rule that chooses the next file.
    pub rule: Rule,
    /// Up to this fill only dead files are removed: U_m. A higher value leaves less dead room, and less time until puts
    /// wait.
    pub target: f64,
    /// Up to this fill, of all but the reserve, [`Rule::DeathTime`] waits for files that are certain to die. Not above
    /// [`super::PutLimits::low`], or puts wait for them too.
    pub wait: f64,
    /// Bytes that puts never use: as in [`super::PutLimits::reserve`].
    pub reserve: u64,
    /// The size at which files are sealed: R. With less free space than that, merges are an emergency.
    pub file_bytes: u64,
    /// The number of merges over which the average of dead parts reaches back.
    pub memory: u32,
    /// When [`Rule::Static`] merges.
    pub triggers: Triggers,
}

impl Settings {
    /// The defaults, for files of `file_bytes`.
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

/// A file to merge now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pick {
    /// Which one.
    pub file: FileId,
    /// Why.
    pub why: Why,
    /// Its live bytes, to be copied. With none, the file is removed without reading it.
    pub live: u64,
    /// The space pressure in percent, for [`crate::purpose::Origin::Merge`].
    pub space_pressure_percent: u8,
}

/// Why a file is merged.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Why {
    /// All of it is dead.
    Dead,
    /// The rule says so.
    Rule,
    /// The rule has passed over its partition for long (PSTA 8(3), 2017).
    Overdue,
    /// There is hardly any room left. Puts should be refused by now.
    Emergency,
}

/// Above this space pressure no partition is passed over for ever.
const OVERDUE_SPACE_PRESSURE: f64 = 0.5;
/// Picks before a partition is overdue, for each partition.
const OVERDUE_PICKS: u64 = 8;

/// The sealed files of a store, and which of them is merged next.
///
/// Several merges may run at once; a file being merged is no candidate until [`Merges::failed`].
#[derive(Clone, Debug)]
pub struct Merges {
    settings: Settings,
    candidates: Candidates,
    /// For files being merged: their dead part when they were picked, and their live bytes.
    merging: BTreeMap<FileId, (f64, u64)>,
    eaten: f64,
    /// The youngest file of the current merge of [`Rule::Static`].
    sweep: Option<FileId>,
    picks: u64,
    /// The number of the pick at which a partition was last merged, or had its first candidate.
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

    /// Adds a file that was sealed.
    ///
    /// # Panics
    /// When there is a file of that number, or more bytes are dead than it has.
    pub fn sealed(&mut self, file: Sealed) {
        assert!(file.dead <= file.bytes, "{:?}: more is dead than there is", file.id);
        self.candidates.insert(file);
        self.watch(file.partition);
    }

    /// Counts bytes of a file as dead: a record was overwritten, deleted or expired. Returns false for files that are
    /// not sealed, which the store counts itself.
    pub fn died(&mut self, file: FileId, bytes: u64) -> bool {
        let found = self.candidates.died(file, bytes);
        if let Some(&File { sealed, .. }) = self.candidates.get(file) {
            self.watch(sealed.partition);
        }
        found
    }

    /// The file to merge now, if any; it is no candidate from now on. To be called after every merge and every few
    /// puts, because the choice depends on the fill.
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
        let space_pressure_percent = (self.space_pressure(fill) * 100.0).clamp(0.0, 100.0) as u8;
        Some(Pick { file, why, live: found.live(), space_pressure_percent })
    }

    /// A picked file was merged: its live records are elsewhere, and it is gone.
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

    /// Space pressure: how far the fill is above the target on the way to full; negative below the target, above 1
    /// without any room: H.
    #[must_use]
    pub fn space_pressure(&self, fill: &Fill) -> f64 {
        fill.space_pressure(self.settings.target)
    }

    /// The part of a file that must be dead to merge it now: D_T.
    #[must_use]
    pub fn threshold(&self, fill: &Fill) -> f64 {
        self.settings.rule.threshold(self.space_pressure(fill), self.eaten)
    }

    /// The average dead part of recently merged files: the fisherman's memory.
    #[must_use]
    pub const fn eaten(&self) -> f64 {
        self.eaten
    }

    /// The number of sealed files, including those being merged.
    #[must_use]
    pub fn files(&self) -> usize {
        self.candidates.len()
    }

    /// The number of dead files not yet removed.
    #[must_use]
    pub fn dead_files(&self) -> usize {
        self.candidates.dead_len()
    }

    /// The state of a sealed file.
    #[must_use]
    pub fn file(&self, file: FileId) -> Option<Sealed> {
        self.candidates.get(file).map(|file| file.sealed)
    }

    /// The settings in force.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the target, and the fill up to which merges wait for certain deaths.
    pub fn set_target(&mut self, target: f64, wait: f64) {
        (self.settings.target, self.settings.wait) = (target, wait);
    }

    fn choose(&mut self, fill: &Fill) -> Option<(FileId, Why)> {
        if let Some(dead) = self.candidates.dead() {
            return Some((dead, Why::Dead));
        }
        let space_pressure = self.space_pressure(fill);
        let emergency = space_pressure >= 1.0 || fill.free() < self.settings.file_bytes;
        let chosen = if emergency {
            self.candidates.smallest().map(|file| (file, Why::Emergency))
        } else if let Some(overdue) = self.overdue(space_pressure) {
            Some((overdue, Why::Overdue))
        } else {
            // A rule with thresholds may choose nothing when puts are refused already; then no record would ever die.
            let reserve = self.settings.reserve;
            let by_rule = self.by_rule(fill, space_pressure).map(|file| (file, Why::Rule));
            by_rule.or_else(|| {
                let smallest = self.candidates.smallest().filter(|_| fill.free() <= reserve);
                smallest.map(|file| (file, Why::Emergency))
            })
        };
        // Running merges will use this room; a merge that fills the disk would stop them all.
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

    fn by_rule(&mut self, fill: &Fill, space_pressure: f64) -> Option<FileId> {
        match self.settings.rule {
            Rule::Static => {
                if self.sweep.and_then(|last| self.candidates.taker(last)).is_none() {
                    let start = self.candidates.any_starter();
                    self.sweep = self.candidates.last_taker().filter(|_| start);
                }
                self.candidates.taker(self.sweep?)
            }
            Rule::DeathTime => {
                if space_pressure <= 0.0 || self.dies_in_time(fill) {
                    return None;
                }
                self.candidates.most_lasting(fill.written, fill.capacity)
            }
            Rule::Greedy | Rule::FishermanProduct | Rule::Fisherman => {
                let bar = self.settings.rule.threshold(space_pressure, self.eaten);
                let richest = self.candidates.richest()?;
                let share = self.candidates.get(richest)?.dead_share();
                (space_pressure > 0.0 && share >= bar).then_some(richest)
            }
        }
    }

    /// Whether a file dies by itself before the fill exceeds the one up to which merges wait.
    fn dies_in_time(&self, fill: &Fill) -> bool {
        let usable = fill.capacity.saturating_sub(self.settings.reserve);
        let until = (self.settings.wait * usable as f64) as u64;
        let room = until.saturating_sub(fill.used);
        let next = self.candidates.next_death(fill.written);
        next.is_some_and(|dies| dies.since(fill.written) <= room)
    }

    fn overdue(&self, space_pressure: f64) -> Option<FileId> {
        if space_pressure <= OVERDUE_SPACE_PRESSURE || self.settings.rule == Rule::Static {
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
