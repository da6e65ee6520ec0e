//! What servers do, what happens to them, and what the master makes of it.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;

use super::super::data::{self, Data};
use super::super::parity::{self, Parity};
use super::super::rebuild::{self, Source};
use super::super::record::{Group, Header, Piece, Version};
use super::super::rules::Rules;
use super::super::view::Entry;
use super::world::{
    BLOCK, Check, DATA, DataIo, GROUPS, Job, JobKind, ParityIo, Pending, STRIP, World,
};
use crate::code;

impl World {
    pub(super) fn rules(&self) -> Rules {
        Rules { off: self.setup.off }
    }

    pub(super) fn step_data(&mut self, g: usize, i: usize, event: data::Event) -> Check {
        let group = g as Group;
        let Some(server) = &mut self.data[g][i] else { return Ok(()) };
        let view = server.view();
        let is_foreign =
            matches!(&event, data::Event::Message { subject, .. } if subject.view != view);
        let effects = server.step(event);
        if is_foreign && !effects.is_empty() {
            return Err(format!("I7: strip {i} of {g} acts on a message of another view"));
        }
        let life = self.data_lives[g][i];
        for effect in effects {
            let io = |event| Pending::OfData(group, i, life, DataIo::Event(event));
            match effect {
                data::Effect::Send { parity, subject, ask } => {
                    let event = parity::Event::Message { subject, ask };
                    self.pending.push(Pending::ToParity(parity, event));
                }
                data::Effect::ReadStrip { version, ranges } => {
                    self.count("reads of a value before");
                    let strip = &self.strips[g][i];
                    let read = |range: &std::ops::Range<u64>| {
                        Piece::new(range.start, &strip[range.start as usize..range.end as usize])
                    };
                    let pieces = ranges.iter().map(read).collect();
                    self.pending.push(io(data::Event::StripRead { version, pieces }));
                }
                data::Effect::WriteStrip { version, piece } => {
                    self.check_order(g, i, &piece)?;
                    self.pending.push(Pending::OfData(
                        group,
                        i,
                        life,
                        DataIo::Write(version, piece),
                    ));
                }
                data::Effect::Redo(kept) => {
                    self.count("redone");
                    let mut is_redone = true;
                    for kept in kept {
                        let bytes = self.value_if_kept(kept.parity, kept.place, &kept.range);
                        let Some(bytes) = bytes else {
                            // The parity server was given up with its journal after its report. The next view asks others.
                            if view == self.views[g] {
                                return Err(format!("no record for {kept:?}"));
                            }
                            self.count("journals lost before a redo");
                            is_redone = false;
                            break;
                        };
                        let (start, end) = (kept.range.start as usize, kept.range.end as usize);
                        self.strips[g][i][start..end].copy_from_slice(&bytes);
                    }
                    if is_redone {
                        self.pending.push(io(data::Event::Redone));
                    }
                }
                data::Effect::Read { request, range } => {
                    let (start, end) = (range.start as usize, range.end as usize);
                    let bytes = self.strips[g][i][start..end].to_vec();
                    self.was_read(request, &bytes)?;
                }
                data::Effect::Answer { request, outcome } => {
                    self.pending.push(Pending::ToClient(request, outcome));
                }
                data::Effect::Locked { token } => self.locked(g, i, token)?,
            }
        }
        Ok(())
    }

    pub(super) fn step_parity(&mut self, j: usize, event: parity::Event) -> Check {
        let Some(server) = &mut self.parity[j] else { return Ok(()) };
        let is_foreign = match &event {
            parity::Event::Message { subject, .. } => server.view(subject.group) != subject.view,
            _ => false,
        };
        let effects = server.step(event);
        let acts = |effect: &parity::Effect| {
            matches!(effect, parity::Effect::Append(_) | parity::Effect::Send { .. })
        };
        if is_foreign && effects.iter().any(acts) {
            return Err(format!("I7: parity server {j} acts on a message of another view"));
        }
        let life = self.parity_lives[j];
        for effect in effects {
            match effect {
                parity::Effect::Send { subject, answer, .. } => {
                    let event = data::Event::Message { parity: j, subject, answer };
                    self.pending.push(Pending::ToData(subject.group, subject.strip, event));
                }
                parity::Effect::Append(record) => self.journals[j].1.push(record),
                parity::Effect::Sync => {
                    self.pending.push(Pending::OfParity(j, life, ParityIo::Sync));
                }
                parity::Effect::Merge(merge) => {
                    self.pending.push(Pending::OfParity(j, life, ParityIo::Merge(merge)));
                }
                parity::Effect::Trim(lsn) => {
                    self.count("trims");
                    self.journals[j].0.retain(|record| record.lsn >= lsn);
                }
            }
        }
        Ok(())
    }

    // --- Crashes ---

    /// The server of a strip stops: writes of it that are under way reach some blocks, and those in its cache leave some.
    pub(super) fn crash_data(&mut self, g: usize, i: usize) {
        self.count("crashed data servers");
        self.note(|| format!("crash of strip {i} of {g}"));
        let life = self.data_lives[g][i];
        // Without a parity server nothing could write again what a cache loses: one failure more than the code survives.
        let keeps_cache = self.members[g].is_empty();
        let writes: Vec<(&str, Piece)> = self
            .pending
            .iter()
            .filter_map(|pending| match pending {
                Pending::OfData(group, strip, of, io)
                    if (*group as usize, *strip, *of) == (g, i, life) =>
                {
                    match io {
                        DataIo::Write(_, piece) => Some(("torn writes", piece.clone())),
                        DataIo::Flush(..) if keeps_cache => None,
                        DataIo::Flush(_, before) => Some(("unflushed writes", before.clone())),
                        DataIo::Event(_) => None,
                    }
                }
                _ => None,
            })
            .collect();
        for (what, piece) in writes {
            self.count(what);
            for (n, block) in piece.bytes.chunks(BLOCK).enumerate() {
                if self.chance(50) {
                    let at = piece.start as usize + n * BLOCK;
                    self.strips[g][i][at..at + BLOCK].copy_from_slice(block);
                }
            }
        }
        self.data_lives[g][i] += 1;
        self.data[g][i] = None;
    }

    /// A parity server stops: some of the records that were not synced are there.
    pub(super) fn crash_parity(&mut self, j: usize) {
        self.count("crashed parity servers");
        self.note(|| format!("crash of parity server {j}"));
        let life = self.parity_lives[j];
        let merges: Vec<_> = self
            .pending
            .iter()
            .filter_map(|pending| match pending {
                Pending::OfParity(of, alive, ParityIo::Merge(merge))
                    if (*of, *alive) == (j, life) =>
                {
                    Some(merge.clone())
                }
                _ => None,
            })
            .collect();
        for mut merge in merges {
            if self.chance(50) {
                self.count("merges before a crash");
                if self.setup.torn_merges {
                    merge.header = self.parity_strips[merge.group as usize][j].1.clone();
                }
                self.merge(j, merge);
            }
        }
        let tail = std::mem::take(&mut self.journals[j].1);
        let stays = self.random.random_range(0..=tail.len());
        self.journals[j].0.extend(tail.into_iter().take(stays));
        self.parity_lives[j] += 1;
        self.parity[j] = None;
    }

    // --- The master ---

    pub(super) fn start_data(&mut self, g: usize, i: usize) {
        if self.data[g][i].is_none() && !self.lost[g].contains(&i) {
            self.data[g][i] = Some(Data::with_rules(g as Group, i, self.rules()));
            self.new_view(g, &BTreeMap::from([(i, Entry::Restarted)]));
        }
    }

    pub(super) fn start_parity(&mut self, j: usize) {
        if self.parity[j].is_some() {
            return;
        }
        let header = |g: usize| (g as Group, (DATA, self.parity_strips[g][j].1.clone()));
        let groups: BTreeMap<Group, (usize, Header)> = (0..GROUPS).map(header).collect();
        let rules = self.rules();
        let opened = Parity::with_rules(self.options, &groups, &self.journals[j].0, rules);
        self.parity[j] = Some(opened);
        for g in 0..GROUPS {
            if self.members[g].contains(&j) {
                self.new_view(g, &BTreeMap::new());
            }
        }
    }

    /// Servers that a group can lose beside those that it lost.
    fn spare(&self, g: usize) -> usize {
        self.members[g].len().saturating_sub(self.lost[g].len())
    }

    /// Gives a data server up. Its bytes may be gone.
    pub(super) fn give_up_data(&mut self, g: usize, i: usize) {
        if self.lost[g].contains(&i) || self.spare(g) == 0 {
            return;
        }
        if self.data[g][i].is_some() {
            self.crash_data(g, i);
        }
        self.count("lost strips");
        self.strips[g][i].fill(0xee);
        self.lost[g].insert(i);
        self.data[g][i] = Some(Data::with_rules(g as Group, i, self.rules()));
        self.new_view(g, &BTreeMap::from([(i, Entry::Lost)]));
    }

    /// Gives a parity server up in all groups. It may be running, without knowing.
    pub(super) fn give_up_parity(&mut self, j: usize) {
        let groups: Vec<usize> = (0..GROUPS).filter(|&g| self.members[g].contains(&j)).collect();
        if groups.is_empty() || groups.iter().any(|&g| self.spare(g) == 0) {
            return;
        }
        // The last one has what data servers that stopped are to write again.
        let is_needed = |&g: &usize| {
            let stopped = |it: &Option<Data>| it.as_ref().is_none_or(|it| !it.is_serving());
            self.members[g].len() == 1 && self.data[g].iter().any(stopped)
        };
        if groups.iter().any(is_needed) {
            return;
        }
        self.count("lost parity servers");
        if self.chance(50) {
            if self.parity[j].is_some() {
                self.crash_parity(j);
            }
            self.journals[j] = (Vec::new(), Vec::new());
            for g in 0..GROUPS {
                self.parity_strips[g][j] = (vec![0xdd; STRIP], Header::default());
            }
        }
        for g in groups {
            self.members[g].remove(&j);
            self.new_view(g, &BTreeMap::new());
        }
    }

    // --- Jobs that lock strips ---

    pub(super) fn start_job(&mut self, g: usize, kind: JobKind) {
        self.tokens += 1;
        let (token, group) = (self.tokens, g as Group);
        self.jobs.push(Job { group, token, locked: BTreeSet::new(), kind });
        self.lock(token);
    }

    /// Asks for the locks that a job lacks.
    fn lock(&mut self, token: u64) {
        let Some(job) = self.jobs.iter().find(|job| job.token == token).cloned() else { return };
        let g = job.group as usize;
        let view = self.views[g];
        let range = match &job.kind {
            JobKind::Read(_, _, range) => range.clone(),
            _ => 0..STRIP as u64,
        };
        let next = (0..DATA).find(|i| !self.lost[g].contains(i) && !job.locked.contains(i));
        if let Some(i) = next {
            let io = DataIo::Event(data::Event::Lock { view, token, range });
            self.pending.push(Pending::OfData(job.group, i, self.data_lives[g][i], io));
        }
        // All strips may be lost.
        if self.lost[g].len() == DATA {
            let _ = self.finish(token);
        }
    }

    fn locked(&mut self, g: usize, i: usize, token: u64) -> Check {
        let Some(at) = self.jobs.iter().position(|job| job.token == token) else {
            // A repetition of the request came after the end.
            let io = DataIo::Event(data::Event::Unlock { token });
            self.pending.push(Pending::OfData(g as Group, i, self.data_lives[g][i], io));
            return Ok(());
        };
        let g = self.jobs[at].group as usize;
        self.jobs[at].locked.insert(i);
        if self.jobs[at].locked.len() + self.lost[g].len() == DATA {
            self.finish(token)?;
        } else {
            self.lock(token);
        }
        Ok(())
    }

    fn finish(&mut self, token: u64) -> Check {
        let at = self.jobs.iter().position(|job| job.token == token).expect("it locks");
        let job = self.jobs.remove(at);
        let g = job.group as usize;
        // A server that stopped lost its lock. What it had complete is not known before it is back.
        if job.locked.iter().any(|&i| self.data[g][i].is_none()) {
            self.count("jobs that lost a lock");
            self.unlock(&job);
            return Ok(());
        }
        self.note(|| format!("finish {job:?}"));
        match job.kind.clone() {
            JobKind::Join(j) => {
                self.count("joined parity servers");
                let view = self.views[g];
                let install = parity::Event::Install { group: job.group, view, is_member: false };
                self.step_parity(j, install)?;
                let below = |server: &Option<Data>| {
                    server.as_ref().map_or(Version::default(), |server| server.below())
                };
                let mut below: Vec<Version> = self.data[g].iter().map(below).collect();
                if self.setup.join_without_below {
                    below.clear();
                }
                let Some(server) = &mut self.parity[j] else {
                    self.unlock(&job);
                    return Ok(());
                };
                let header = server.encode(job.group, below).expect("not in the group");
                self.pending.retain(|pending| !matches!(pending,
                    Pending::OfParity(of, _, ParityIo::Merge(merge)) if *of == j && merge.group == job.group));
                self.parity_strips[g][j] = (self.encode(j, &self.strips[g]), header);
                self.members[g].insert(j);
                self.new_view(g, &BTreeMap::new());
            }
            JobKind::Rebuild(i) => {
                self.count("rebuilt strips");
                let Some(bytes) = self.compute(g, i, 0..STRIP as u64)? else {
                    self.unlock(&job);
                    return Ok(());
                };
                self.strips[g][i] = bytes;
                self.lost[g].remove(&i);
                self.data_lives[g][i] += 1;
                self.data[g][i] = Some(Data::with_rules(job.group, i, self.rules()));
                self.new_view(g, &BTreeMap::from([(i, Entry::Restarted)]));
            }
            JobKind::Read(request, i, range) => {
                self.count("degraded reads");
                if let Some(bytes) = self.compute(g, i, range)? {
                    self.was_read(request, &bytes)?;
                }
                self.unlock(&job);
            }
        }
        Ok(())
    }

    fn unlock(&mut self, job: &Job) {
        let (g, token) = (job.group as usize, job.token);
        for &i in &job.locked {
            let io = DataIo::Event(data::Event::Unlock { token });
            self.pending.push(Pending::OfData(job.group, i, self.data_lives[g][i], io));
        }
    }

    /// The bytes of a lost strip, by the plan. `None`: a server is not in the view yet.
    fn compute(
        &self,
        g: usize,
        lost: usize,
        range: std::ops::Range<u64>,
    ) -> Result<Option<Vec<u8>>, String> {
        let group = g as Group;
        // The writes of all lost strips are decided, in this view.
        let is_decided = |i: &usize| {
            self.data[g][*i].as_ref().is_some_and(|it| it.is_lost() && it.view() == self.views[g])
        };
        if !self.lost[g].iter().all(is_decided) {
            return Ok(None);
        }
        let mut parities = BTreeMap::new();
        for &j in &self.members[g] {
            match &self.parity[j] {
                Some(server) if server.view(group) == self.views[g] => {
                    let index = |i| server.index(group, i).expect("a strip of the group");
                    parities.insert(j, (0..DATA).map(index).collect());
                }
                _ => return Ok(None),
            }
        }
        let strips: Vec<usize> = (0..DATA).filter(|i| !self.lost[g].contains(i)).collect();
        let plan = rebuild::plan(lost, &range, DATA, &strips, &parities);
        let plan = plan.map_err(|error| format!("strip {lost} of {g}: {error}"))?;
        let mut bytes = Vec::new();
        for part in plan {
            let (start, end) = (part.range.start as usize, part.range.end as usize);
            assert_eq!(range.start as usize + bytes.len(), start, "parts in order");
            match part.source {
                Source::Journal { parity, place } => {
                    bytes.extend(self.value(parity, place, &part.range));
                }
                Source::Decode { strips, parities } => {
                    let mut have: Vec<(usize, Vec<u8>)> = strips
                        .iter()
                        .map(|&i| (i, self.strips[g][i][start..end].to_vec()))
                        .collect();
                    for (j, deltas) in parities {
                        let mut strip = self.parity_strips[g][j].0.clone();
                        self.add(j, &deltas, &mut strip);
                        have.push((DATA + j, strip[start..end].to_vec()));
                    }
                    let have: Vec<(usize, &[u8])> =
                        have.iter().map(|(index, bytes)| (*index, &bytes[..])).collect();
                    bytes.extend(code::recover(DATA, &have, lost));
                }
            }
        }
        Ok(Some(bytes))
    }

    /// What the master mends next in a group, if nothing is under way.
    pub(super) fn mend(&mut self, g: usize) {
        let ours = self.jobs.iter().filter(|job| job.group as usize == g);
        let tokens: Vec<u64> = ours.map(|job| job.token).collect();
        for &token in &tokens {
            if self.is_healing || self.chance(10) {
                self.lock(token);
            }
        }
        if !tokens.is_empty() {
            return;
        }
        if self.data[g].iter().any(Option::is_none) {
            return;
        }
        let lost = self.lost[g].first().copied();
        if let Some(i) = lost {
            let is_decided =
                |i: &usize| self.data[g][*i].as_ref().is_some_and(|server| server.is_lost());
            if self.lost[g].iter().all(is_decided) {
                self.start_job(g, JobKind::Rebuild(i));
            }
            return;
        }
        let away = (0..self.parity_count).find(|j| !self.members[g].contains(j));
        if let Some(j) = away {
            self.start_parity(j);
            self.start_job(g, JobKind::Join(j));
        }
    }
}
