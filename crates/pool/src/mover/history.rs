//! The load of a pool since the last decision.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use policy::migrate::{Replica, State, Table, Volume};
use policy::placement::VolumeId;
use policy::time::Instant;
use policy::weight::PAID_UNKNOWN;

use crate::leaf::ObjectId;
use crate::spread::{Spread, VolumeState};

/// What the gate of a volume has granted so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateLoad {
    /// The volume.
    pub volume: VolumeId,
    /// Paid operations a second, as far as the volume delivers them; none without a limit.
    pub line: Option<f64>,
    /// Operations granted to users: reads, and what commits.
    pub granted: u64,
    /// Reads of users that were granted.
    pub reads: u64,
    /// The total wait of these reads.
    pub waited: Duration,
    /// Operations of all kinds in the last second.
    pub last_second: u64,
}

/// Rates and weights of the pool, summed up each second, and the figures of the gates at the last decision.
#[derive(Default)]
pub(super) struct LoadHistory {
    since: Instant,
    before: HashMap<VolumeId, GateLoad>,
    lines: HashMap<VolumeId, f64>,
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
        self.lines = loads.iter().map(|load| (load.volume, line(load))).collect();
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

    /// The paid rate of a volume, in operations a second.
    pub(super) fn line(&self, volume: VolumeId) -> f64 {
        self.lines.get(&volume).copied().unwrap_or(PAID_UNKNOWN)
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
                granted: 0,
                reads: 0,
                waited: Duration::ZERO,
                last_second: 0,
            });
            let before = self.before.get(&id).copied().unwrap_or(load);
            let reads = load.reads.saturating_sub(before.reads);
            let waited = load.waited.saturating_sub(before.waited);
            let line = line(&load);
            // The pool's weights relate to the rate in the contract, even if the volume delivers less.
            let weight = self.weights.get(&id).map_or(0.0, |sum| sum / self.seconds.max(1.0));
            Volume {
                id,
                state,
                line,
                used: load.granted.saturating_sub(before.granted) as f64 / passed / line,
                used_now: load.last_second as f64 / line,
                wait: waited
                    .checked_div(u32::try_from(reads).unwrap_or(u32::MAX))
                    .unwrap_or_default(),
                weight: weight * pool.placing().paid(id) / line,
                free,
                total,
                held: held.get(&id).map_or(0, |held| held.bytes),
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

fn line(load: &GateLoad) -> f64 {
    load.line.map_or(PAID_UNKNOWN, |line| line.max(1.0))
}
