//! The load of a pool since the last decision.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use policy::contract::Cost;
use policy::migrate::{Line, Lines, Replica, State, Table, Volume};
use policy::placement::VolumeId;
use policy::purpose::Class;
use policy::time::Instant;
use policy::weight::PAID_UNKNOWN;
use volume::layer::gate::Meter;

use crate::leaf::ObjectId;
use crate::spread::{Spread, VolumeState};

/// What the gate of a volume has granted so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateLoad {
    /// The volume.
    pub volume: VolumeId,
    /// Operations a second that its contract or its mechanics allow, as far as the volume delivers them; none without a
    /// limit.
    pub line: Option<f64>,
    /// Bytes a second, likewise.
    pub line_bytes: Option<f64>,
    /// What the device usually takes for a read or write, the slower of the two; none before enough were measured.
    pub answer: Option<Duration>,
    /// Granted to users: reads, and what commits.
    pub granted: Cost,
    /// Reads of users that were granted.
    pub reads: u64,
    /// The total wait of these reads.
    pub waited: Duration,
    /// Operations of all kinds in the last second.
    pub last_second: u64,
}

impl GateLoad {
    /// What `meter` says of a volume.
    #[must_use]
    pub fn of(volume: VolumeId, meter: &Meter) -> Self {
        let [commits, users] =
            [Class::Commit, Class::Foreground].map(|class| &meter.classes[class.index()]);
        let gives = meter.available.unwrap_or(1.0);
        // Copies for relief and rebuilds run as users do, and are none.
        let copies = meter.copies();
        Self {
            volume,
            line: meter.contract.line_iops().map(|ops| ops * gives),
            line_bytes: meter.contract.paid_bytes_per_sec().map(|bytes| bytes as f64 * gives),
            answer: meter.usual_io,
            granted: commits.spent.plus(users.spent).less(copies.spent),
            reads: users.granted.saturating_sub(copies.granted),
            waited: users.waits.total.saturating_sub(copies.waited),
            last_second: meter.last_second.ops,
        }
    }
}

/// Rates and weights of the pool, summed up each second, and the figures of the gates at the last decision.
#[derive(Default)]
pub(super) struct LoadHistory {
    since: Instant,
    before: HashMap<VolumeId, GateLoad>,
    /// Sums of rates of reads, over `seconds`.
    rates: HashMap<(ObjectId, VolumeId), f64>,
    weights: HashMap<VolumeId, f64>,
    seconds: f64,
    /// When tables were first seen; those that were there at the first look count as old.
    seen: HashMap<ObjectId, Instant>,
    /// Whether tables were looked at before.
    looked: bool,
    /// Since when tables are leaving.
    leaving: HashMap<ObjectId, Instant>,
    /// Since when volumes do not answer.
    silent: HashMap<VolumeId, Instant>,
}

impl LoadHistory {
    /// Begins a new period after a decision, or before the first.
    pub(super) fn begin(&mut self, loads: &[GateLoad], now: Instant) {
        self.since = now;
        self.before = loads.iter().map(|load| (load.volume, *load)).collect();
        self.rates.clear();
        self.weights.clear();
        self.seconds = 0.0;
    }

    pub(super) fn on_second(&mut self, pool: &Spread) {
        self.seconds += 1.0;
        for (copy, rate) in pool.rates() {
            *self.rates.entry(copy).or_default() += f64::from(rate);
        }
        for (volume, weight) in pool.weights() {
            *self.weights.entry(volume).or_default() += weight;
        }
    }

    /// The volumes, with means since the last decision. One that does not report its space is silent; after
    /// `silence_max`, or while it drains, it is away.
    pub(super) async fn volumes(
        &mut self,
        pool: &Spread,
        loads: &[GateLoad],
        silence_max: Duration,
        now: Instant,
    ) -> Vec<Volume> {
        let volumes = self.look_at(pool, loads, now).await;
        self.silent.retain(|id, _| {
            volumes.iter().any(|volume| volume.id == *id && !volume.state.answers())
        });
        let states = volumes.into_iter().map(|volume| match volume.state {
            State::Active | State::Draining => volume,
            State::Silent | State::Away => {
                let since = *self.silent.entry(volume.id).or_insert(now);
                let lost = now.since(since) >= silence_max || pool.is_draining(volume.id);
                let state = if lost { State::Away } else { State::Silent };
                Volume { state, ..volume }
            }
        });
        states.collect()
    }

    async fn look_at(&self, pool: &Spread, loads: &[GateLoad], now: Instant) -> Vec<Volume> {
        let passed = now.since(self.since).as_secs_f64().max(f64::MIN_POSITIVE);
        let held = pool.held();
        let volumes = pool.volumes();
        let volumes = volumes.iter().map(async |stat| {
            let space = pool.space_of(stat.id).await;
            let state = match (stat.state, &space) {
                (VolumeState::Away, _) | (_, Err(_)) => State::Away,
                (VolumeState::Draining, _) => State::Draining,
                (VolumeState::Active, _) => State::Active,
            };
            let (free, total) = space.map_or((0, 0), |space| (space.free, space.total));
            let id = stat.id;
            // Without a gate there are no waits, and no known limit.
            let load = loads.iter().find(|load| load.volume == id).copied().unwrap_or(GateLoad {
                volume: id,
                line: None,
                line_bytes: None,
                answer: None,
                granted: Cost::default(),
                reads: 0,
                waited: Duration::ZERO,
                last_second: 0,
            });
            let before = self.before.get(&id).copied().unwrap_or(load);
            let reads = load.reads.saturating_sub(before.reads);
            let waited = load.waited.saturating_sub(before.waited);
            let users = load.granted.less(before.granted);
            let line = users_line(&load, users);
            // The pool's weights relate to the rate in the contract, even if the volume delivers less.
            let weight = self.weights.get(&id).map_or(0.0, |sum| sum / self.seconds.max(1.0));
            Volume {
                id,
                state,
                line,
                line_bytes: load.line_bytes.unwrap_or(f64::INFINITY),
                used: users.ops as f64 / passed / line,
                used_now: load.last_second as f64 / line,
                wait: waited
                    .checked_div(u32::try_from(reads).unwrap_or(u32::MAX))
                    .unwrap_or_default(),
                weight: weight * pool.placing().paid(id) / line,
                free,
                total,
                held: held.get(&id).map_or(0, |held| held.bytes),
                answer: pool.placing().answer(id),
            }
        });
        join_all(volumes).await
    }

    /// Whether a table was leaving already in the last snapshot.
    pub(super) fn knew_leaving(&self, id: ObjectId) -> bool {
        self.leaving.contains_key(&id)
    }

    /// The tables that can be copied, with means since the last decision.
    pub(super) fn tables(&mut self, pool: &Spread, now: Instant) -> Vec<Table> {
        self.leaving = pool.with_tables(|tables| {
            let leaving = tables.iter().filter(|table| table.leaving);
            let leaving = leaving.map(|table| ObjectId(table.object));
            leaving.map(|id| (id, self.leaving.get(&id).copied().unwrap_or(now))).collect()
        });
        let before = std::mem::take(&mut self.seen);
        let new = if std::mem::replace(&mut self.looked, true) { now } else { Instant::ZERO };
        let mut tables = Vec::new();
        for (id, len, volumes) in pool.tables() {
            let since = before.get(&id).copied().unwrap_or(new);
            self.seen.insert(id, since);
            let rate = |volume: VolumeId| self.rates.get(&(id, volume)).copied().unwrap_or(0.0);
            let sum: f64 = volumes.iter().map(|&volume| rate(volume)).sum();
            let even = 1.0 / volumes.len() as f64;
            let copies = volumes.iter().map(|&volume| Replica {
                volume,
                share: if sum > 0.0 { rate(volume) / sum } else { even },
            });
            tables.push(Table {
                object: id.0,
                len,
                rate: sum / self.seconds.max(1.0),
                copies: copies.collect(),
                age: now.since(since),
                leaving: self.leaving.get(&id).map(|&since| now.since(since)),
            });
        }
        tables
    }
}

/// Operations a second of the size that `users` had: fewer than the paid ones where the paid bytes run out first.
fn users_line(load: &GateLoad, users: Cost) -> f64 {
    let ops = load.line.unwrap_or(PAID_UNKNOWN);
    let mean_bytes = users.bytes as f64 / users.ops.max(1) as f64;
    let by_bytes = load.line_bytes.map_or(f64::INFINITY, |bytes| bytes / mean_bytes.max(1.0));
    ops.min(by_bytes).max(1.0)
}

/// The lines of the volumes, for copies.
pub(super) fn copy_lines(loads: &[GateLoad]) -> Lines {
    loads.iter().map(|load| (load.volume, copy_line(load))).collect()
}

/// A disk takes no longer for an I/O of a block. Longer answers are those of its queue: with them as the pace, users who load
/// the disk would delay its repair without limit.
const DEVICE_MAX: Duration = Duration::from_millis(20);

/// The line of a volume for copies. A volume without limits carries at least one operation after the other, so copies
/// are paced by how long it takes for one: a rebuild on a disk leaves the arm to users.
fn copy_line(load: &GateLoad) -> Line {
    let measured = || {
        let answer = load.answer.filter(|answer| !answer.is_zero())?.min(DEVICE_MAX);
        Some((1.0 / answer.as_secs_f64()).min(PAID_UNKNOWN))
    };
    let ops = load.line.or_else(measured).unwrap_or(PAID_UNKNOWN).max(1.0);
    Line { ops, bytes: load.line_bytes.map_or(f64::INFINITY, |bytes| bytes.max(1.0)) }
}

#[cfg(test)]
mod tests {
    use policy::units::{KIB, MIB};

    use super::*;

    fn load() -> GateLoad {
        GateLoad {
            volume: VolumeId(0),
            line: None,
            line_bytes: None,
            answer: None,
            granted: Cost::default(),
            reads: 0,
            waited: Duration::ZERO,
            last_second: 0,
        }
    }

    /// A volume whose bytes ran out was hot, and seemed to have five sixths of its operations left.
    #[test]
    fn the_line_is_what_users_can_do_with_ios_of_their_size() {
        let gp3 = GateLoad { line: Some(3000.0), line_bytes: Some(125.0 * MIB as f64), ..load() };
        let users = |bytes| Cost::reads(10, 10 * bytes);
        assert_eq!(users_line(&gp3, users(4 * KIB)), 3000.0);
        assert_eq!(users_line(&gp3, users(256 * KIB)), 500.0);
        assert_eq!(users_line(&gp3, Cost::default()), 3000.0);
        assert_eq!(users_line(&load(), users(256 * KIB)), PAID_UNKNOWN);
    }

    /// A disk without limits once counted as one of 10,000 operations a second, and a rebuild took the whole arm.
    #[test]
    fn copies_on_a_volume_without_limits_are_paced_by_its_answers() {
        let answers = |ms| GateLoad { answer: Some(Duration::from_millis(ms)), ..load() };
        assert_eq!(copy_line(&answers(10)).ops, 100.0);
        // With answers of a second, a repair once made one I/O in seven seconds.
        assert_eq!(copy_line(&answers(1000)).ops, 50.0);
        assert_eq!(copy_line(&load()).ops, PAID_UNKNOWN);
        assert_eq!(copy_line(&GateLoad { line: Some(3000.0), ..answers(10) }).ops, 3000.0);
    }
}
