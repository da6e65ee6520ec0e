//! Which tables get additional copies, and which copies are removed again.
//!
//! Placement spreads tables before their reads are known. Later some volume is at its line while others are not, and it
//! holds up everything. Then its most read tables are copied to volumes with room. Reads go to the copy with the
//! shortest wait, and the original stays, so that no table has to be moved back (TANGO).
//!
//! ```text
//!   Snapshot: volumes, tables ──▶ Planner::decide, every 10 s ──▶ Plan: drop these, copy those
//!                                     ▲                              │
//!                                     └── Planner::copied ◀── shell ◀┘ as Pace allows
//! ```
//! A volume is *hot* if its users wait, or take nearly all of it. Its I/Os alone do not tell: behind a gate no volume
//! exceeds its line, and idle-class work takes all that users leave.
//!
//! The ways to spread heat share the rest: which tables to leave alone, what copies may cost, and which copies to
//! remove. [`Policy::Tango`] is the published way, [`Policy::Iops`] its baseline, and [`Policy::Level`] is new here.
//! Where devices differ, [`Policy::Level`] also copies tables that are read on slow ones to faster ones.
//! Repairs and drains come before heat under every policy, and also with [`Policy::Off`].

mod hasten;
mod iops;
mod jobs;
mod level;
mod pace;
mod plan;
mod tango;
mod view;

use std::collections::HashMap;
use std::time::Duration;

pub use self::pace::{Line, Lines, Pace, Steps, Ticket, bytes_per_sec};
pub use self::plan::{Copying, Dropping, InitialReplicas, Plan, Skip, Skipped, Whence, Why};
use self::view::View;
use crate::heat::Block;
use crate::placement::VolumeId;
use crate::time::Instant;

/// How reads are spread over volumes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Policy {
    /// Not at all.
    Off,
    /// Copies the hottest table of the volume with the most I/Os to the one with the fewest: TANGO's baseline.
    Iops,
    /// Volumes are compared by weight; a copy takes half of the reads (TANGO).
    Tango,
    /// Also by weight, on the assumption that reads settle where they wait least. A copy is worth the reads that it can
    /// take off a hot volume before both are level, so fewer copies suffice.
    #[default]
    Level,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Off, Self::Iops, Self::Tango, Self::Level];

    /// Its name in settings and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Iops => "iops",
            Self::Tango => "tango",
            Self::Level => "level",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    fn build(self) -> Option<Box<dyn Balance>> {
        match self {
            Self::Off => None,
            Self::Iops => Some(Box::new(iops::Iops)),
            Self::Tango => Some(Box::new(tango::Tango)),
            Self::Level => Some(Box::new(level::Level)),
        }
    }
}

/// The interval of decisions, and the numbers of copies of a table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terms {
    /// The time from one decision to the next. Not zero.
    pub every: Duration,
    /// The most copies of one table, the original included: 1 for no additional copies.
    pub copies_max: usize,
    /// The fewest copies of every table, the pool's replication target: 1, or 2 to survive the loss of a volume.
    pub copies_min: usize,
    /// How long a volume may be silent before its content is taken for lost and copied again. Shorter: less time in
    /// which a further loss destroys data. Longer: no copies for a volume that is only mounted late, or whose machine
    /// restarts.
    pub silence_max: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(10),
            copies_max: 4,
            copies_min: 1,
            silence_max: Duration::from_secs(600),
        }
    }
}

/// The input of a decision.
#[derive(Clone, Copy)]
pub struct Snapshot<'a> {
    /// The pool's volumes.
    pub volumes: &'a [Volume],
    /// Its tables, each on whole volumes.
    pub tables: &'a [Table],
    /// Copies that are being made.
    pub in_flight: &'a [Flight],
    /// The number of tables on a volume that are read together with a table (TANGO); breaks ties.
    pub overlap: &'a dyn Fn(u64, VolumeId) -> f64,
}

/// A volume's state since the last decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// Which one.
    pub id: VolumeId,
    /// Its state.
    pub state: State,
    /// The line: the most operations a second it should carry, of the size that its users' have. Above zero.
    pub line: f64,
    /// The most bytes a second it should carry; infinite if they are not limited.
    pub line_bytes: f64,
    /// The users' part of the line.
    pub used: f64,
    /// The same in the last second alone, with all classes.
    pub used_now: f64,
    /// The mean wait of users' requests for their tokens.
    pub wait: Duration,
    /// Reads of its tables, commits and flushes, as a part of the line.
    pub weight: f64,
    /// Bytes that can still be written.
    pub free: u64,
    /// Its size in bytes.
    pub total: u64,
    /// Bytes of the pool there.
    pub held: u64,
    /// What its device usually takes for a read; zero if unknown.
    pub answer: Duration,
}

/// The state of a volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// It serves reads and takes copies.
    Active,
    /// It serves reads, and everything on it must go elsewhere.
    Draining,
    /// It does not answer, but may soon: its copies count, and are not read.
    Silent,
    /// It is gone: its copies do not count.
    Away,
}

impl State {
    /// Whether it serves reads.
    #[must_use]
    pub const fn answers(self) -> bool {
        matches!(self, Self::Active | Self::Draining)
    }
}

/// A table's state since the last decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its number.
    pub object: u64,
    /// Its bytes.
    pub len: u64,
    /// Reads a second that reached a volume.
    pub rate: f64,
    /// Its copies: one or more, on different volumes.
    pub copies: Vec<Replica>,
    /// How long it has existed.
    pub age: Duration,
    /// How long it has been an input of a compaction, if it is one. It goes when that ends, at an unknown time: a
    /// compaction is expected to take as long again as it has taken so far.
    pub leaving: Option<Duration>,
}

/// A copy of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replica {
    /// The volume it is on.
    pub volume: VolumeId,
    /// The part of the table's reads that it answered; all together are 1.
    pub share: f64,
}

/// A copy that is being made.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Flight {
    /// The table.
    pub object: u64,
    /// The volume it is read from.
    pub from: VolumeId,
    /// The volume it is written to.
    pub to: VolumeId,
}

impl Table {
    /// The operations to write it.
    fn blocks(&self) -> f64 {
        f64::from(Block::count(self.len).max(1))
    }

    /// Heat as a density: reads a second for each operation that a copy costs (TANGO).
    fn heat(&self) -> f64 {
        self.rate / self.blocks()
    }

    /// How long it is expected to stay, up to the payback time.
    fn stays(&self, every: Duration) -> Duration {
        let payback = every * PAYBACK;
        self.leaving.map_or(payback, |passed| passed.min(payback))
    }

    /// Whether it is expected to go too soon to act on. A compaction that takes longer than the interval of decisions
    /// is held up, perhaps by the very volume to relieve; and tables outlive their compaction while a reader needs
    /// them.
    fn is_busy(&self, every: Duration) -> bool {
        self.leaving.is_some_and(|passed| passed < every)
    }

    /// Whether `reads` a second fewer on a volume repay the cost of the copy while the table stays.
    fn pays(&self, reads: f64, every: Duration) -> bool {
        reads * self.stays(every).as_secs_f64() >= 2.0 * self.blocks()
    }

    fn is_on(&self, volume: VolumeId) -> bool {
        self.copies.iter().any(|copy| copy.volume == volume)
    }

    /// The part of its reads that the copy on `volume` serves.
    fn share(&self, volume: VolumeId) -> f64 {
        self.copies.iter().filter(|copy| copy.volume == volume).map(|copy| copy.share).sum()
    }
}

/// A device is faster than another if a read of that one takes more than this many times as long. Below that the difference is noise.
const FASTER: u32 = 2;
/// A volume is hot when users take this part of its line,
const HOT_USED: f64 = 0.95;
/// or when their mean wait exceeds this,
const HOT_WAIT: Duration = Duration::from_millis(2);
/// and the time of this many operations, which equals 2 ms on a volume of 3000 a second. Where one operation takes 5
/// ms, a second request waits for longer than 2 ms on any volume.
const HOT_AHEAD: f64 = 6.0;
/// A volume has slack below this part of the longest mean wait of users.
const SLACK: f64 = 0.1;
/// The number of the last [`DECISIONS`] in which a volume must be hot before its tables are copied,
const HOT_DECISIONS: u32 = 2;
const DECISIONS: usize = 3;
/// or one, if users take so much less of another volume: then it is not a burst on all of them.
const APART: f64 = 0.25;
/// So far apart, a volume is as good as hot when users take this part of its line.
const NEARLY_HOT: f64 = 0.85;
/// No copies for heat in this many first decisions: with cold caches all tables look hot.
const EARLY: u64 = 1;
/// A volume this far above the mean is worth copies. Below it all volumes are busy, and copies do not help.
const BAND: f64 = 0.05;
/// The load that one copy of a new table should get, as a part of a line: two such tables fit on a volume beside
/// everything else.
const INITIAL_LOAD: f64 = 0.25;
/// The age in decisions from which the heat of a table counts.
const YOUNG: u32 = 2;
/// A copied table is not copied again for this many decisions, until its reads have settled.
const SETTLING: u32 = 6;
/// A copy must repay its cost within this many decisions: take as many reads off a volume as it costs operations. It is
/// removed after as many in which it does not take half of that.
const PAYBACK: u32 = 30;
/// Copies for heat may fill a volume up to this part.
const FULL: f64 = 0.8;
/// The part of a volume's line that copies may take: users who wait lose it for some seconds, and gain more.
const COPY_SHARE: f64 = 0.15;
/// The part of a volume's line that rebuilds get while users wait: their p99 grows by as much, and the time in which one
/// loss more would lose data is bounded.
const REBUILD_SHARE: f64 = 0.1;
/// Bytes a second that all copies together may move, unless redundancy is at risk.
const COPY_BYTES_PER_SEC: f64 = 64.0 * 1024.0 * 1024.0;

/// Makes decisions, and remembers what the next ones need of earlier ones.
pub struct Planner {
    terms: Terms,
    policy: Policy,
    balance: Option<Box<dyn Balance>>,
    decisions: u64,
    /// Whether volumes were hot in the last decisions, the latest first.
    heats: HashMap<VolumeId, [bool; DECISIONS]>,
    /// The number of decisions in a row in which tables with several copies were cold.
    cold: HashMap<u64, u32>,
    /// The times of recent copies of tables.
    copied: HashMap<u64, Instant>,
}

/// A way to spread heat.
trait Balance: Send {
    /// Plans copies of tables of hot volumes.
    fn balance(&self, view: &mut View<'_>, plan: &mut Plan);
}

impl Planner {
    /// A planner without history.
    #[must_use]
    pub fn new(policy: Policy, terms: Terms) -> Self {
        Self {
            terms,
            policy,
            balance: policy.build(),
            decisions: 0,
            heats: HashMap::new(),
            cold: HashMap::new(),
            copied: HashMap::new(),
        }
    }

    /// The way it spreads heat.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// The terms in force.
    #[must_use]
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// Records that a copy of a table is complete.
    pub fn copied(&mut self, object: u64, now: Instant) {
        self.copied.insert(object, now);
    }

    /// The steps until the next decision, in this order. Steps that are not done by then are planned again if they
    /// still pay.
    pub fn decide(&mut self, pool: &Snapshot<'_>, now: Instant) -> Plan {
        let mut plan = Plan::default();
        self.remember(pool, now);
        let mut view = View::new(pool, self.terms, &self.copied);
        let active = pool.volumes.iter().filter(|volume| volume.state == State::Active);
        let least = active.map(|volume| volume.used).fold(f64::INFINITY, f64::min);
        for (volume, load) in pool.volumes.iter().zip(&mut view.volumes) {
            let heats = self.heats.get(&volume.id).copied().unwrap_or_default();
            let hot = heats.into_iter().filter(|hot| *hot).count() as u32;
            let is_hot_now = heats[0] || volume.used >= NEARLY_HOT;
            let is_apart = volume.used - least >= APART;
            load.hot = if is_hot_now && is_apart { hot.max(HOT_DECISIONS) } else { hot };
        }
        jobs::keep(&mut view, &mut plan);
        jobs::make_room(&mut view, &mut plan);
        jobs::reclaim(&mut view, &self.cold, &mut plan);
        if let Some(balance) = &self.balance {
            if self.decisions <= EARLY {
                plan.skipped.count(Skip::Early);
                return plan;
            }
            if view.is_any_hot() {
                balance.balance(&mut view, &mut plan);
            } else {
                plan.skipped.count(Skip::Calm);
            }
            if self.policy == Policy::Level {
                hasten::hasten(&mut view, &mut plan);
            }
            plan.initial_replicas = view.initial_replicas();
        }
        plan
    }

    /// Like [`Planner::decide`], but only for the replication target: missing copies, and volumes to drain. Called
    /// between decisions, after a loss or when the steps planned for one are done.
    pub fn mend(&self, pool: &Snapshot<'_>) -> Plan {
        let mut plan = Plan::default();
        jobs::keep(&mut View::new(pool, self.terms, &self.copied), &mut plan);
        plan
    }

    fn remember(&mut self, pool: &Snapshot<'_>, now: Instant) {
        self.decisions += 1;
        self.copied.retain(|_, at| now.since(*at) < self.terms.every * SETTLING);
        self.heats.retain(|&id, _| pool.volumes.iter().any(|volume| volume.id == id));
        for volume in pool.volumes {
            let heats = self.heats.entry(volume.id).or_default();
            heats.rotate_right(1);
            let ahead = Duration::try_from_secs_f64(HOT_AHEAD / volume.line);
            let wait = HOT_WAIT.max(ahead.unwrap_or(Duration::MAX));
            heats[0] = volume.used >= HOT_USED || volume.wait > wait;
        }
        let before = std::mem::take(&mut self.cold);
        let several = pool.tables.iter().filter(|table| table.copies.len() > 1);
        let cold = several.filter(|table| table.heat() * 2.0 < worth(self.terms.every));
        self.cold =
            cold.map(|table| (table.object, before.get(&table.object).unwrap_or(&0) + 1)).collect();
    }
}

/// Bytes that copies for heat leave free on a volume of `total` bytes, of which the pool holds `held`. With less free
/// space, such copies are removed first. On a volume that others fill, as much free space as the pool holds is enough.
#[must_use]
pub fn reserve(total: u64, held: u64) -> u64 {
    ((total as f64 * (1.0 - FULL)) as u64).min(held)
}

/// The heat from which a copy pays: it takes half of the reads, and costs a read and a write of each block.
fn worth(every: Duration) -> f64 {
    4.0 / (every.as_secs_f64() * f64::from(PAYBACK))
}

#[cfg(test)]
mod tests;
