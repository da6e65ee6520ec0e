//! Separates tables that are read together, and spreads the load.
//!
//! For the same money several small volumes do many times the operations of a large one, but each is throttled by
//! itself: a pool is as fast as its busiest volume allows. Tables of neighbouring levels with the same keys are read
//! together. So a new table goes to the volume with the fewest tables of the next level that share its keys, and among
//! those to the least loaded (TANGO).

use std::collections::VecDeque;
use std::time::Duration;

use super::streams::Streams;
use super::{Candidate, Keys, Layout, New, Placement, Table, Tables, VolumeId, mix, whole};
use crate::intent::{Family, Kind};

/// Two weights are equal if the larger exceeds the smaller by at most this fraction.
const TIE: f64 = 0.05;

/// A hundredth of what is paid for makes no difference either: it is an occasional read.
const TIE_MIN: f64 = 0.01;

/// Choices remembered, for each volume.
const REMEMBERED: usize = 8;

/// No volume gets more than this multiple of its share of the new tables.
const SHARE_MAX: f64 = 2.0;

/// A device is slower than another if it takes more than this many times as long for a read. Below that the difference is noise.
const SLOWER: u32 = 2;

/// Reads that take at most this many times as long as the shortest are equal.
const SOON: f64 = 1.25;

/// At a greater part of what is paid for, waits are taken for as long as at this one.
const USED_MAX: f64 = 0.99;

/// Streams remembered, for each volume.
const STREAMS: usize = 32;

/// A volume is much busier than another if its weight is greater by this much: half of what is paid for.
const BUSIER: f64 = 0.5;

/// Of the room of a volume with a faster device, this part is for logs, and tables that are read: 1/4.
const FAST_SPARE: u64 = 4;

/// Places each table on a volume with the fewest overlapping tables.
///
/// | a new table at | is compared with |
/// |---|---|
/// | level 0 | the other tables of level 0, and those of the next existing level |
/// | a level in between | those of the next existing level |
/// | the deepest level | those of the level before it |
///
/// Inputs of compactions do not count: they are leaving. A table with n copies counts as 1/n on each of their volumes.
/// Ties go to the least loaded volume (weights within 5 % are equal), then to the one with the fewest bytes in flight,
/// then to the one that got the fewest of the last tables, then by the seed. Objects other than tables overlap nothing.
///
/// A part of a [stream](crate::intent::Stream), or a log, goes to the volume that the fewest other streams are written to now, for its
/// share, of those that are not much busier than the least loaded: else two streams share a device while another one has nothing to
/// write.
///
/// A volume that writes as many bytes as it can gets nothing while there is another. No volume gets more than twice its
/// share of the last tables: otherwise an idle new volume, as the lightest, would get them all.
///
/// Where devices differ, a log, or a table that will be read, goes where a read is expected to end soonest: on one of the fastest, until
/// reads wait there for their turn. Other objects leave the last quarter of the room of faster devices.
#[derive(Clone, Debug)]
pub struct LeastOverlap {
    seed: u64,
    by_heat: bool,
    by_device: bool,
    /// Logs are counted separately: they may have other candidates, and are far fewer.
    last: Last,
    last_logs: Last,
    streams: Streams,
}

/// With a fixed seed, so that a pool's choices can be reproduced.
impl Default for LeastOverlap {
    fn default() -> Self {
        Self::new(0)
    }
}

impl LeastOverlap {
    /// Places by counts. The same seed and the same events give the same choices.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let (last, last_logs, streams) = Default::default();
        Self { seed, by_heat: false, by_device: true, last, last_logs, streams }
    }

    /// Weighs a table by the reads a second of its overlapping part, where there are any.
    #[must_use]
    pub const fn by_heat(mut self) -> Self {
        self.by_heat = true;
        self
    }

    /// Takes all devices for equally fast: a baseline.
    #[must_use]
    pub const fn of_equal_devices(mut self) -> Self {
        self.by_device = false;
        self
    }
}

impl Placement for LeastOverlap {
    fn choose(
        &mut self,
        new: New<'_>,
        candidates: &[Candidate],
        tables: &Tables,
    ) -> Option<Layout> {
        let last = if new.intent.is_log() { &mut self.last_logs } else { &mut self.last };
        let mut best: Vec<_> = candidates.iter().filter(|c| c.takes(new.len())).collect();
        keep_if_any(&mut best, |c| !c.saturated);
        let share = Share::among(&best);
        keep_if_any(&mut best, |c| last.has_room(c.volume, share.of(c)));
        if self.by_device {
            keep_by_device(&mut best, new);
        }
        let stream = new.intent.stream;
        if stream.is_some() || new.intent.is_log() {
            keep_least(&mut best, |c| c.weight, |least| least + BUSIER);
            let streams = |c: &Candidate| (self.streams.others(stream, c.volume) + 1) as f64;
            keep_least(&mut best, |c| streams(c) / share.of(c), |least| least);
        }
        if best.len() > 1 {
            let overlaps = Overlaps::of_new(new, tables, self.by_heat);
            keep_least(&mut best, |c| overlaps.on(c.volume), |least| least + 1e-6);
            keep_least(
                &mut best,
                |c| weight_with(c, f64::from(new.rate)),
                |least| (least * (1.0 + TIE)).max(least + TIE_MIN),
            );
            keep_least(&mut best, |c| c.in_flight as f64, |least| least);
            keep_least(&mut best, |c| last.count(c.volume) as f64 / share.of(c), |least| least);
        }
        let at = mix(self.seed ^ mix(new.object)).checked_rem(best.len() as u64)?;
        let chosen = best[at as usize];
        last.remember(chosen.volume, candidates.len() * REMEMBERED);
        if let Some(stream) = stream {
            self.streams.goes_on(stream, new.object, chosen.volume, candidates.len() * STREAMS);
        }
        Some(whole(chosen))
    }
}

/// The overlap of one table with others, on each volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overlaps {
    on: Vec<(VolumeId, f64)>,
}

impl Overlaps {
    /// The overlaps of an existing or a new table, which [`LeastOverlap`] minimises: by number of tables, or by the
    /// reads a second of their overlapping parts. Without such reads, by number.
    #[must_use]
    pub fn of(
        object: u64,
        family: &Family,
        level: u8,
        keys: Keys<'_>,
        tables: &Tables,
        by_heat: bool,
    ) -> Self {
        let next = tables.next_level(family, level);
        let compared = match (level, next) {
            (0, next) => [Some(0), next],
            (_, Some(next)) => [Some(next), None],
            (_, None) => [tables.previous_level(family, level), None],
        };
        let (mut count, mut heat) = (Self::default(), Self::default());
        for level in compared.into_iter().flatten() {
            tables.overlapping(family, level, keys, |table| {
                if table.object == object || table.leaving {
                    return;
                }
                count.add(&table, 1.0);
                if by_heat && let Some(of) = table.keys {
                    heat.add(&table, f64::from(table.rate) * keys.share_of(of));
                }
            });
        }
        if heat.on.iter().any(|&(_, reads)| reads > 0.0) { heat } else { count }
    }

    fn of_new(new: New<'_>, tables: &Tables, by_heat: bool) -> Self {
        match &new.intent.kind {
            Kind::Table { family, level: Some(level), range: Some(range) } => {
                Self::of(new.object, family, *level, range.into(), tables, by_heat)
            }
            _ => Self::default(),
        }
    }

    /// The overlaps on a volume.
    #[must_use]
    pub fn on(&self, volume: VolumeId) -> f64 {
        self.on.iter().find(|(other, _)| *other == volume).map_or(0.0, |&(_, sum)| sum)
    }

    fn add(&mut self, table: &Table<'_>, amount: f64) {
        for &volume in table.on {
            let part = amount / table.on.len() as f64;
            match self.on.iter_mut().find(|(other, _)| *other == volume) {
                Some((_, sum)) => *sum += part,
                None => self.on.push((volume, part)),
            }
        }
    }
}

/// A volume's share of all new tables: in proportion to what is paid for it, or equal shares if that is unknown.
struct Share {
    count: f64,
    paid: f64,
}

impl Share {
    fn among(volumes: &[&Candidate]) -> Self {
        let paid = match volumes.iter().all(|c| c.paid > 0.0) {
            true => volumes.iter().map(|c| c.paid).sum(),
            false => 0.0,
        };
        Self { count: volumes.len() as f64, paid }
    }

    fn of(&self, volume: &Candidate) -> f64 {
        if self.paid > 0.0 { volume.paid / self.paid } else { 1.0 / self.count }
    }
}

/// The volumes of the last objects.
#[derive(Clone, Debug, Default)]
struct Last(VecDeque<VolumeId>);

impl Last {
    fn count(&self, volume: VolumeId) -> usize {
        self.0.iter().filter(|other| **other == volume).count()
    }

    /// Whether a volume with this `share` may get one more.
    fn has_room(&self, volume: VolumeId, share: f64) -> bool {
        // Counts the new one too. The first few choices say nothing about shares.
        let all = (self.0.len() + 1).max(REMEMBERED);
        (self.count(volume) + 1) as f64 <= (SHARE_MAX * share * all as f64).max(1.0)
    }

    fn remember(&mut self, volume: VolumeId, most: usize) {
        self.0.push_back(volume);
        let surplus = self.0.len().saturating_sub(most.max(1));
        self.0.drain(..surplus);
    }
}

/// Keeps the volumes that will do, if any do.
fn keep_if_any(volumes: &mut Vec<&Candidate>, will_do: impl Fn(&Candidate) -> bool) {
    if volumes.iter().any(|c| will_do(c)) {
        volumes.retain(|c| will_do(c));
    }
}

/// Keeps the volumes within the tolerance of the least.
fn keep_least(
    volumes: &mut Vec<&Candidate>,
    of: impl Fn(&Candidate) -> f64,
    most: impl Fn(f64) -> f64,
) {
    let least = volumes.iter().map(|c| of(c)).fold(f64::INFINITY, f64::min);
    volumes.retain(|c| of(c) <= most(least));
}

/// Keeps the volumes whose devices suit an object, where all of them are known and some are slower than others.
fn keep_by_device(volumes: &mut Vec<&Candidate>, new: New<'_>) {
    let answers = || volumes.iter().map(|c| c.answer);
    let (Some(fastest), Some(slowest)) = (answers().min(), answers().max()) else { return };
    if fastest.is_zero() || !is_slower(slowest, fastest) {
        return;
    }
    let rate = f64::from(new.rate);
    if rate > 0.0 || new.intent.is_log() {
        let times = volumes.iter().map(|c| read_time(c, rate));
        let Some(least) = times.min() else { return };
        volumes.retain(|c| read_time(c, rate) <= least.mul_f64(SOON));
    } else {
        let has_spare = |c: &Candidate| c.free >= c.total / FAST_SPARE;
        keep_if_any(volumes, |c| !is_slower(slowest, c.answer) || has_spare(c));
    }
}

/// How long a read would take if `rate` more came each second: the device's time, and the mean wait for a turn. The formula of
/// Pollaczek and Khinchine gives the wait of requests that come at random and take equally long.
fn read_time(volume: &Candidate, rate: f64) -> Duration {
    if volume.paid <= 0.0 {
        return volume.answer;
    }
    let used = weight_with(volume, rate).min(USED_MAX);
    volume.answer + Duration::from_secs_f64(used / (2.0 * (1.0 - used)) / volume.paid)
}

fn is_slower(time: Duration, than: Duration) -> bool {
    time > than.saturating_mul(SLOWER)
}

/// The weight that a volume would have if `rate` more reads came each second.
fn weight_with(volume: &Candidate, rate: f64) -> f64 {
    volume.weight + if volume.paid > 0.0 { rate / volume.paid } else { 0.0 }
}
