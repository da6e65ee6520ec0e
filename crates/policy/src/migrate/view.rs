//! A snapshot during planning: planned steps count as done.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{
    BAND, COPY_SHARE, Copying, FASTER, HOT_DECISIONS, HOT_USED, INITIAL_LOAD, InitialReplicas,
    Plan, Replica, SLACK, Skip, Snapshot, State, Table, Terms, Volume, Why, YOUNG, bytes_per_sec,
    reserve, worth,
};
use crate::placement::{Candidate, VolumeId};
use crate::time::Instant;

pub(super) struct View<'a> {
    pub(super) pool: &'a Snapshot<'a>,
    pub(super) terms: Terms,
    /// In the order of the snapshot.
    pub(super) volumes: Vec<VolumeLoad>,
    positions: HashMap<VolumeId, usize>,
    copied: &'a HashMap<u64, Instant>,
    /// Tables with a planned or running copy, or a planned drop.
    taken: HashSet<u64>,
    /// Bytes that copies move.
    bytes_spent: f64,
}

/// A volume.
pub(super) struct VolumeLoad {
    /// Operations a second: its weight times its line.
    pub(super) ops: f64,
    /// How many of the last [`super::DECISIONS`] found it hot.
    pub(super) hot: u32,
    free: u64,
    /// Operations that copies may still take here.
    ops_left: f64,
    /// Bytes that they may still move here.
    bytes_left: f64,
}

impl<'a> View<'a> {
    pub(super) fn new(
        pool: &'a Snapshot<'a>,
        terms: Terms,
        copied: &'a HashMap<u64, Instant>,
    ) -> Self {
        let seconds = terms.every.as_secs_f64();
        let load = |volume: &Volume| VolumeLoad {
            ops: volume.weight * volume.line,
            hot: 0,
            free: volume.free,
            ops_left: volume.line * COPY_SHARE * seconds,
            bytes_left: volume.line_bytes * COPY_SHARE * seconds,
        };
        let positions = pool.volumes.iter().enumerate().map(|(at, volume)| (volume.id, at));
        let mut view = Self {
            pool,
            terms,
            volumes: pool.volumes.iter().map(load).collect(),
            positions: positions.collect(),
            copied,
            taken: pool.in_flight.iter().map(|flight| flight.object).collect(),
            bytes_spent: 0.0,
        };
        let lens: HashMap<_, _> =
            pool.tables.iter().map(|table| (table.object, (table.blocks(), table.len))).collect();
        for flight in pool.in_flight {
            // A deleted table had at least one block.
            let (blocks, len) = lens.get(&flight.object).copied().unwrap_or((1.0, 0));
            view.spend(flight.from, flight.to, blocks, len);
        }
        view
    }

    /// The index of a volume in [`View::volumes`]; `None` if the snapshot does not have it.
    pub(super) fn at(&self, id: VolumeId) -> Option<usize> {
        self.positions.get(&id).copied()
    }

    pub(super) fn state(&self, id: VolumeId) -> State {
        self.at(id).map_or(State::Away, |at| self.pool.volumes[at].state)
    }

    pub(super) fn line(&self, at: usize) -> f64 {
        self.pool.volumes[at].line
    }

    /// A volume's load relative to its line.
    pub(super) fn weight(&self, at: usize) -> f64 {
        self.volumes[at].ops / self.line(at)
    }

    /// The load of all active volumes relative to their lines.
    pub(super) fn mean(&self) -> f64 {
        let (mut ops, mut lines) = (0.0, 0.0);
        for (at, volume) in self.pool.volumes.iter().enumerate() {
            if volume.state == State::Active {
                ops += self.volumes[at].ops;
                lines += volume.line;
            }
        }
        if lines > 0.0 { ops / lines } else { 0.0 }
    }

    /// Whether users have waited for a volume in several decisions.
    pub(super) fn is_hot(&self, at: usize) -> bool {
        self.volumes[at].hot >= HOT_DECISIONS
    }

    pub(super) fn is_any_hot(&self) -> bool {
        (0..self.volumes.len()).any(|at| self.is_hot(at))
    }

    /// Readable hot volumes, whose reads should move.
    pub(super) fn sources(&self) -> impl Iterator<Item = usize> {
        (0..self.volumes.len())
            .filter(|&at| self.is_hot(at) && self.pool.volumes[at].state.answers())
    }

    /// Whether a volume has spare capacity. It does if it is neither hot nor near its line, or if users wait for it
    /// less than [`SLACK`] of the longest wait. With many operations in flight every volume is near its line; the waits
    /// then show which volumes lack capacity.
    pub(super) fn has_slack(&self, at: usize) -> bool {
        let volumes = self.pool.volumes;
        let longest = volumes.iter().map(|volume| volume.wait).max().unwrap_or_default();
        let idles = !self.is_hot(at) && volumes[at].used < HOT_USED;
        idles || volumes[at].wait < longest.mul_f64(SLACK)
    }

    /// Whether some active volume has spare capacity.
    pub(super) fn someone_idles(&self) -> bool {
        let mut volumes = self.pool.volumes.iter().enumerate();
        volumes.any(|(at, volume)| volume.state == State::Active && self.has_slack(at))
    }

    /// How many copies new tables begin with. While a volume is hot, two if their reads exceed what placement can
    /// balance. At any time, two if they are read as much as the median of the tables with copies for heat: the balance
    /// rests on those, and compactions remove them.
    pub(super) fn initial_replicas(&self) -> Option<InitialReplicas> {
        let needed = self.terms.copies_min.max(1);
        let active = self.pool.volumes.iter().filter(|volume| volume.state == State::Active);
        let lines: Vec<_> = active.map(|volume| volume.line).collect();
        if self.terms.copies_max <= needed || lines.is_empty() {
            return None;
        }
        let line = lines.iter().sum::<f64>() / lines.len() as f64;
        let cold = worth(self.terms.every);
        let copied = self.pool.tables.iter().filter(|table| {
            // A copy on a slower device than another one balances nothing.
            let fastest = self.answer_of(table).unwrap_or(Duration::MAX);
            let stays = |copy: &&Replica| {
                let answer = self.at(copy.volume).map_or(Duration::ZERO, |at| self.answer(at));
                self.state(copy.volume) == State::Active && answer <= fastest.saturating_mul(FASTER)
            };
            table.copies.iter().filter(stays).count() > needed && table.heat() >= cold
        });
        let mut copied: Vec<_> = copied.map(|table| table.rate).collect();
        copied.sort_by(f64::total_cmp);
        let usual = copied.get(copied.len() / 2).copied();
        let alone = self.is_any_hot().then_some(BAND * line);
        let two_from = usual.into_iter().chain(alone).min_by(f64::total_cmp)?;
        let most = self.terms.copies_max.min(lines.len());
        Some(InitialReplicas { two_from, each: INITIAL_LOAD * line, most })
    }

    /// Whether the plan has a step for a table already, or a copy of it is running.
    pub(super) fn is_taken(&self, table: &Table) -> bool {
        self.taken.contains(&table.object)
    }

    pub(super) fn take(&mut self, table: &Table) {
        self.taken.insert(table.object);
    }

    /// Whether a table was copied so recently that its reads may not have settled.
    pub(super) fn is_settling(&self, table: &Table) -> bool {
        self.copied.contains_key(&table.object)
    }

    /// Whether a table may be copied for its heat.
    pub(super) fn may_be_spread(&self, table: &Table) -> Result<(), Skip> {
        let every = self.terms.every;
        if table.heat() < worth(every) {
            Err(Skip::Cold)
        } else if table.is_busy(every)
            || !table.pays(table.rate / 2.0, every)
            || self.is_taken(table)
        {
            Err(Skip::Busy)
        } else if table.age < self.terms.every * YOUNG {
            Err(Skip::Young)
        } else if self.is_settling(table) {
            Err(Skip::Settling)
        } else if table.copies.len() >= self.terms.copies_max {
            Err(Skip::Copies)
        } else {
            Ok(())
        }
    }

    /// Tables on a volume that may be copied for their heat, the hottest first.
    pub(super) fn hottest_on(&self, id: VolumeId, plan: &mut Plan) -> Vec<&'a Table> {
        let mut tables = Vec::new();
        for table in self.pool.tables {
            // Skip cold tables first: most tables are cold.
            if table.heat() > 0.0 && table.is_on(id) {
                match self.may_be_spread(table) {
                    Ok(()) => tables.push(table),
                    Err(why) => plan.skipped.count(why),
                }
            }
        }
        tables.sort_by(|a, b| b.heat().total_cmp(&a.heat()).then(a.object.cmp(&b.object)));
        tables
    }

    /// What the device of a volume usually takes for a read; zero if unknown.
    pub(super) fn answer(&self, at: usize) -> Duration {
        self.pool.volumes[at].answer
    }

    /// The same of the fastest copy of a table that can be read; `None` if that is not known of all of them.
    pub(super) fn answer_of(&self, table: &Table) -> Option<Duration> {
        let readable = table.copies.iter().filter_map(|copy| self.at(copy.volume));
        let readable = readable.filter(|&at| self.pool.volumes[at].state.answers());
        readable.map(|at| self.answer(at)).min().filter(|answer| !answer.is_zero())
    }

    /// Whether reads of a volume would go to a copy on the volume `to`: its device does not take far longer than they take
    /// now, wait included.
    pub(super) fn relieves(&self, from: usize, to: usize) -> bool {
        let (answer, wait) = (self.answer(from), self.pool.volumes[from].wait);
        answer.is_zero() || self.answer(to) <= (answer + wait) * FASTER
    }

    /// Whether a volume that is not hot has room for a copy that it would not soon drop again.
    pub(super) fn is_target(&self, at: usize, table: &Table) -> bool {
        !self.is_hot(at) && self.has_room(at, table)
    }

    /// Whether a volume has room for a copy that it would not soon drop again.
    pub(super) fn has_room(&self, at: usize, table: &Table) -> bool {
        self.takes(at, table) && self.free(at).saturating_sub(table.len) >= self.reserve(at)
    }

    /// Bytes on a volume that copies for heat leave free.
    pub(super) fn reserve(&self, at: usize) -> u64 {
        let Volume { total, held, .. } = self.pool.volumes[at];
        reserve(total, held)
    }

    /// Why no volume is a target for a copy of a table.
    pub(super) fn no_target(&self, table: &Table) -> Skip {
        let is_short = |at: usize| {
            let volume = &self.pool.volumes[at];
            let takes = volume.state == State::Active && !table.is_on(volume.id);
            takes && !self.is_hot(at) && !self.has_room(at, table)
        };
        if (0..self.volumes.len()).any(is_short) { Skip::Room } else { Skip::Target }
    }

    /// Whether an active volume without the table has room for it.
    pub(super) fn takes(&self, at: usize, table: &Table) -> bool {
        let volume = &self.pool.volumes[at];
        let candidate = Candidate::new(volume.id, self.volumes[at].free, volume.total);
        volume.state == State::Active && candidate.takes(table.len) && !table.is_on(volume.id)
    }

    /// The volume of `targets` with the least weight after `ops` more a second; overlaps break ties.
    pub(super) fn lightest(
        &self,
        table: &Table,
        ops: f64,
        targets: impl Iterator<Item = usize>,
    ) -> Option<usize> {
        /// Weights that differ by less are equal.
        const TIE: f64 = 0.01;
        let after = |at: usize| (self.volumes[at].ops + ops) / self.line(at);
        let targets: Vec<_> = targets.collect();
        let least = targets.iter().map(|&at| after(at)).min_by(f64::total_cmp)?;
        let mut tied: Vec<_> = targets.into_iter().filter(|&at| after(at) <= least + TIE).collect();
        if tied.len() > 1 {
            let overlap = |at: usize| (self.pool.overlap)(table.object, self.pool.volumes[at].id);
            tied.sort_by(|&a, &b| {
                overlap(a).total_cmp(&overlap(b)).then(after(a).total_cmp(&after(b)))
            });
        }
        tied.first().copied()
    }

    /// Plans a copy to the volume at `to`, if the budgets allow it.
    pub(super) fn copy(
        &mut self,
        table: &Table,
        to: usize,
        why: Why,
        plan: &mut Plan,
    ) -> Result<(), Skip> {
        assert!(!self.is_taken(table), "a table is copied once in a plan");
        let readable = table.copies.iter().filter_map(|copy| self.at(copy.volume));
        let readable: Vec<_> =
            readable.filter(|&at| self.pool.volumes[at].state.answers()).collect();
        let is_last = readable.len() == 1 && why.is_for_target() && self.terms.copies_min > 1;
        let from = readable.into_iter().min_by(|&a, &b| self.weight(a).total_cmp(&self.weight(b)));
        let from = from.ok_or(Skip::Target)?;
        let (blocks, bytes) = (table.blocks(), table.len as f64);
        let seconds = self.terms.every.as_secs_f64();
        // A table that is larger than a budget is copied alone.
        let enough = |at: usize| {
            let part = COPY_SHARE * seconds;
            let (load, volume) = (&self.volumes[at], &self.pool.volumes[at]);
            load.ops_left >= blocks.min(volume.line * part)
                && load.bytes_left >= bytes.min(volume.line_bytes * part)
        };
        let active = self.pool.volumes.iter().filter(|volume| volume.state == State::Active);
        let all = bytes_per_sec(active.count(), is_last) * seconds;
        if !enough(from) || !enough(to) || all - self.bytes_spent < bytes.min(all) {
            return Err(Skip::Budget);
        }
        let (from, to) = (self.pool.volumes[from].id, self.pool.volumes[to].id);
        self.spend(from, to, blocks, table.len);
        self.take(table);
        plan.copies.push(Copying { object: table.object, len: table.len, from, to, why, is_last });
        Ok(())
    }

    fn spend(&mut self, from: VolumeId, to: VolumeId, blocks: f64, len: u64) {
        for id in [from, to] {
            if let Some(at) = self.at(id) {
                self.volumes[at].ops_left -= blocks;
                self.volumes[at].bytes_left -= len as f64;
            }
        }
        if let Some(to) = self.at(to) {
            self.volumes[to].free = self.volumes[to].free.saturating_sub(len);
        }
        self.bytes_spent += len as f64;
    }

    /// A copy on a volume is dropped.
    pub(super) fn freed(&mut self, id: VolumeId, len: u64) {
        if let Some(at) = self.at(id) {
            self.volumes[at].free = self.volumes[at].free.saturating_add(len);
        }
    }

    pub(super) fn free(&self, at: usize) -> u64 {
        self.volumes[at].free
    }
}
