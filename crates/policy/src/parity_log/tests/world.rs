//! Servers, disks, messages in any order, and a master: what a seed does to them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::data::{self, Data};
use super::super::index::{Delta, Place};
use super::super::journal::Options;
use super::super::parity::{self, Merge, Parity};
use super::super::record::{Group, Header, Piece, Record, Request, Version};
use super::super::rules::{Rule, Rules};
use super::super::view::Entry;
use super::client::Client;
use crate::code;

pub(super) const DATA: usize = 3;
pub(super) const GROUPS: usize = 2;
/// Bytes of a block: the number of its write.
pub(super) const BLOCK: usize = 4;
pub(super) const BLOCKS: usize = 8;
pub(super) const STRIP: usize = BLOCK * BLOCKS;

/// Something that is on its way.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    /// A message, which may be lost and repeated.
    ToData(Group, usize, data::Event),
    ToParity(usize, parity::Event),
    ToClient(Request, data::Outcome),
    /// What only this life of the server does or gets.
    OfData(Group, usize, u64, DataIo),
    OfParity(usize, u64, ParityIo),
}

#[derive(Clone, Debug)]
pub(super) enum DataIo {
    Event(data::Event),
    Write(Version, Piece),
    /// The strip has the bytes in a cache. Before them it had these.
    Flush(Version, Piece),
}

#[derive(Clone, Debug)]
pub(super) enum ParityIo {
    Event(parity::Event),
    Sync,
    Merge(Merge),
}

/// What takes locks of a group's strips, in one view.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) group: Group,
    pub(super) token: u64,
    pub(super) locked: BTreeSet<usize>,
    pub(super) kind: JobKind,
}

#[derive(Clone, Debug)]
pub(super) enum JobKind {
    Join(usize),
    Rebuild(usize),
    Read(Request, usize, Range<u64>),
}

/// What may go wrong besides, beyond [`Rule`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup {
    pub(super) off: Option<Rule>,
    /// A crash in a merge leaves the new strip with the old header.
    pub(super) torn_merges: bool,
    /// A parity server that joins does not learn which versions are complete.
    pub(super) join_without_below: bool,
}

pub(super) struct World {
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) setup: Setup,
    pub(super) parity_count: usize,
    pub(super) options: Options,
    pub(super) tables: Vec<Vec<[u8; 256]>>,
    /// By group and strip.
    pub(super) strips: Vec<Vec<Vec<u8>>>,
    /// By group and parity server.
    pub(super) parity_strips: Vec<Vec<(Vec<u8>, Header)>>,
    /// By parity server: durable records, and those that a crash may cut off.
    pub(super) journals: Vec<(Vec<Record>, Vec<Record>)>,
    /// By group and strip; `None` is down.
    pub(super) data: Vec<Vec<Option<Data>>>,
    pub(super) data_lives: Vec<Vec<u64>>,
    pub(super) parity: Vec<Option<Parity>>,
    pub(super) parity_lives: Vec<u64>,
    /// By group, as the master has it.
    pub(super) views: Vec<u64>,
    pub(super) members: Vec<BTreeSet<usize>>,
    pub(super) lost: Vec<BTreeSet<usize>>,
    pub(super) pending: Vec<Pending>,
    pub(super) jobs: Vec<Job>,
    pub(super) tokens: u64,
    pub(super) client: Client,
    pub(super) is_healing: bool,
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) log: Option<Vec<String>>,
}

pub(super) type Check = Result<(), String>;

impl World {
    pub(super) fn new(seed: u64, setup: Setup) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let parity_count = random.random_range(1..=3);
        let capacity = random.random_range(200..1500);
        let options =
            Options { capacity, header: 4, align: 4, extents_max: random.random_range(2..20) };
        let table = |j: usize, i: usize| {
            let factor = code::coefficient(DATA, DATA + j, i);
            std::array::from_fn(|byte| code::product(factor, byte as u8))
        };
        let tables = (0..parity_count).map(|j| (0..DATA).map(|i| table(j, i)).collect()).collect();
        let groups: BTreeMap<Group, (usize, Header)> =
            (0..GROUPS as Group).map(|group| (group, (DATA, Header::default()))).collect();
        let rules = Rules { off: setup.off };
        let mut world = Self {
            random,
            setup,
            parity_count,
            options,
            tables,
            strips: vec![vec![vec![0; STRIP]; DATA]; GROUPS],
            parity_strips: vec![vec![(vec![0; STRIP], Header::default()); parity_count]; GROUPS],
            journals: vec![(Vec::new(), Vec::new()); parity_count],
            data: (0..GROUPS)
                .map(|g| (0..DATA).map(|i| Some(Data::with_rules(g as Group, i, rules))).collect())
                .collect(),
            data_lives: vec![vec![0; DATA]; GROUPS],
            parity: (0..parity_count)
                .map(|_| Some(Parity::with_rules(options, &groups, [], rules)))
                .collect(),
            parity_lives: vec![0; parity_count],
            views: vec![0; GROUPS],
            members: vec![(0..parity_count).collect(); GROUPS],
            lost: vec![BTreeSet::new(); GROUPS],
            pending: Vec::new(),
            jobs: Vec::new(),
            tokens: 0,
            client: Client::default(),
            is_healing: false,
            counts: BTreeMap::new(),
            log: None,
        };
        for group in 0..GROUPS {
            world.new_view(group, &(0..DATA).map(|i| (i, Entry::Restarted)).collect());
        }
        world
    }

    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(what());
        }
    }

    /// The master makes a view.
    pub(super) fn new_view(&mut self, group: usize, entries: &BTreeMap<usize, Entry>) {
        self.views[group] += 1;
        let view = self.views[group];
        self.jobs.retain(|job| job.group != group as Group);
        let parities = self.members[group].clone();
        self.note(|| format!("view {view} of {group}: {parities:?} {entries:?}"));
        for i in 0..DATA {
            let is_lost = self.lost[group].contains(&i);
            let otherwise = if is_lost { Entry::Lost } else { Entry::Continued };
            let entry = entries.get(&i).copied().unwrap_or(otherwise);
            let event = data::Event::Install { view, parities: parities.clone(), entry };
            let life = self.data_lives[group][i];
            self.pending.push(Pending::OfData(group as Group, i, life, DataIo::Event(event)));
        }
        for j in parities {
            let event = parity::Event::Install { group: group as Group, view, is_member: true };
            let life = self.parity_lives[j];
            self.pending.push(Pending::OfParity(j, life, ParityIo::Event(event)));
        }
    }

    /// The bytes that a journal has.
    pub(super) fn value(&self, j: usize, place: Place, range: &Range<u64>) -> Vec<u8> {
        let value = self.value_if_kept(j, place, range);
        value.unwrap_or_else(|| panic!("record {} of {j} is trimmed", place.lsn))
    }

    /// The same; `None`: the record was trimmed, or lost with its journal.
    pub(super) fn value_if_kept(
        &self,
        j: usize,
        place: Place,
        range: &Range<u64>,
    ) -> Option<Vec<u8>> {
        let (durable, tail) = &self.journals[j];
        let record = durable.iter().chain(tail).find(|record| record.lsn == place.lsn)?;
        Some(record.body.value(range).expect("the record has the range").to_vec())
    }

    /// Adds deltas to a parity strip.
    pub(super) fn add(&self, j: usize, deltas: &[Delta], strip: &mut [u8]) {
        for delta in deltas {
            let new = self.value(j, delta.new, &delta.range);
            let old = self.value(j, delta.old, &delta.range);
            let table = &self.tables[j][delta.strip];
            for (at, (new, old)) in (delta.range.start as usize..).zip(new.iter().zip(old)) {
                strip[at] ^= table[usize::from(new ^ old)];
            }
        }
    }

    pub(super) fn encode(&self, j: usize, strips: &[Vec<u8>]) -> Vec<u8> {
        let mut parity = vec![0; STRIP];
        for (i, strip) in strips.iter().enumerate() {
            for (sum, &byte) in parity.iter_mut().zip(strip) {
                *sum ^= self.tables[j][i][usize::from(byte)];
            }
        }
        parity
    }

    /// Carries out something that is on its way.
    pub(super) fn deliver(&mut self) -> Check {
        if self.pending.is_empty() {
            return Ok(());
        }
        let next = self.random.random_range(0..self.pending.len());
        let is_message = matches!(
            self.pending[next],
            Pending::ToData(..) | Pending::ToParity(..) | Pending::ToClient(..)
        );
        let pending = if is_message && !self.is_healing && self.chance(5) {
            self.count("repeated messages");
            self.pending[next].clone()
        } else {
            self.pending.swap_remove(next)
        };
        if is_message && !self.is_healing && self.chance(3) {
            self.count("lost messages");
            return Ok(());
        }
        self.note(|| format!("{pending:?}"));
        match pending {
            Pending::ToData(group, i, event) => self.step_data(group as usize, i, event),
            Pending::ToParity(j, event) => self.step_parity(j, event),
            Pending::ToClient(request, outcome) => self.answered(request, outcome),
            Pending::OfData(group, i, life, io) => {
                let g = group as usize;
                if self.data_lives[g][i] != life {
                    return Ok(());
                }
                match io {
                    DataIo::Event(event) => self.step_data(g, i, event),
                    DataIo::Write(version, piece) => {
                        let at = piece.start as usize..piece.range().end as usize;
                        let before = Piece::new(piece.start, &self.strips[g][i][at.clone()]);
                        self.strips[g][i][at].copy_from_slice(&piece.bytes);
                        self.check_written(g, i, &piece)?;
                        if self.chance(50) {
                            return self.step_data(g, i, data::Event::StripWritten { version });
                        }
                        self.count("answered before a flush");
                        let flush = DataIo::Flush(version, before);
                        self.pending.push(Pending::OfData(group, i, life, flush));
                        self.step_data(g, i, data::Event::StripCached { version })
                    }
                    DataIo::Flush(version, _) => {
                        self.step_data(g, i, data::Event::StripWritten { version })
                    }
                }
            }
            Pending::OfParity(j, life, io) => {
                if self.parity_lives[j] != life {
                    return Ok(());
                }
                match io {
                    ParityIo::Event(event) => self.step_parity(j, event),
                    ParityIo::Sync => {
                        let (durable, tail) = &mut self.journals[j];
                        durable.append(tail);
                        let Some(last) = durable.last().map(|record| record.lsn) else {
                            return Ok(());
                        };
                        self.step_parity(j, parity::Event::Synced(last))
                    }
                    ParityIo::Merge(merge) => {
                        let group = merge.group;
                        self.merge(j, merge);
                        self.step_parity(j, parity::Event::Merged(group))
                    }
                }
            }
        }
    }

    pub(super) fn merge(&mut self, j: usize, merge: Merge) {
        self.count("merges");
        let g = merge.group as usize;
        let (mut strip, _) = self.parity_strips[g][j].clone();
        self.add(j, &merge.deltas, &mut strip);
        self.parity_strips[g][j] = (strip, merge.header);
    }
}
