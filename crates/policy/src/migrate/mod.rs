//! Which tables get a second copy, and which copies go again.
//!
//! Placement spreads tables before anybody knows how much they will be read. Later some volume is at its
//! line while others are not, and everything waits for that one. Then the tables that are read most there
//! are copied to where there is room; reads go to whichever copy waits least, and the original stays, so
//! that nothing has to be moved back (TANGO).
//!
//! ```text
//!   Snapshot: volumes, tables ──▶ Planner::decide, every 10 s ──▶ Plan: drop these, copy those
//!                                     ▲                              │
//!                                     └── Planner::copied ◀── shell ◀┘ as Pace allows
//! ```
//! A volume is *hot* if its users wait, or take nearly all of it. Its I/Os alone do not tell: behind a gate
//! no volume takes more than its line, and work for spare capacity takes all of what users leave.
//!
//! Three ways to spread heat share everything else, that is whom to leave alone, what may be spent, and what
//! goes again: [`Policy::Tango`] is the published one, [`Policy::Iops`] what it was compared with, and
//! [`Policy::Level`] ours. What was lost or is to be emptied comes before heat, whatever the policy, and with
//! none at all.

mod iops;
mod jobs;
mod level;
mod pace;
mod plan;
mod tango;
mod view;

use std::collections::HashMap;
use std::time::Duration;

pub use self::pace::Pace;
pub use self::plan::{Births, Copying, Dropping, Plan, Skip, Skipped, Whence, Why};
use self::view::View;
use crate::heat::Block;
use crate::placement::VolumeId;
use crate::time::Instant;

/// How reads are spread over volumes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Policy {
    /// Not at all.
    Off,
    /// The hottest table of the volume with the most I/Os goes to the one with the fewest: what TANGO
    /// was compared with.
    Iops,
    /// Volumes are compared by weight; a copy takes half of the reads (TANGO).
    Tango,
    /// By weight too, and reads are taken to settle where they wait least. A copy is worth the reads it
    /// can take off a hot volume before both are level, so fewer do.
    #[default]
    Level,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Off, Self::Iops, Self::Tango, Self::Level];

    /// The word for it in settings and reports.
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

/// How often decisions are made, and how many copies a table may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terms {
    /// How long from one decision to the next. Not zero.
    pub every: Duration,
    /// Copies of one table, all counted: 1 for no more than the table itself.
    pub copies_max: usize,
    /// Copies that every table shall have, as the pool promises: 1, or 2 against the loss of a volume.
    pub copies_min: usize,
    /// How long a volume may not answer before what it holds is taken for lost and copied anew. Sooner:
    /// less time in which one more loss is one too many; later: nothing is copied for a volume that was
    /// only mounted late, or whose machine was started again.
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

/// What a decision is made from.
#[derive(Clone, Copy)]
pub struct Snapshot<'a> {
    /// The pool's volumes.
    pub volumes: &'a [Volume],
    /// Its tables, each on whole volumes.
    pub tables: &'a [Table],
    /// Copies that are being made.
    pub in_flight: &'a [Flight],
    /// How many tables that are read together with this one a volume has (TANGO); breaks ties.
    pub overlap: &'a dyn Fn(u64, VolumeId) -> f64,
}

/// A volume since the last decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// Which one.
    pub id: VolumeId,
    /// What may become of it.
    pub state: State,
    /// The line: operations a second that it may be loaded with. Above zero.
    pub line: f64,
    /// What users were granted of it, as a part of the line.
    pub used: f64,
    /// The same in the last second alone, all classes taken together.
    pub used_now: f64,
    /// How long users' requests waited for their tokens, in the mean.
    pub wait: Duration,
    /// Reads of its tables, commits and flushes, as a part of the line.
    pub weight: f64,
    /// Bytes that can still be written.
    pub free: u64,
    /// Bytes it has in all.
    pub total: u64,
    /// Bytes of the pool there.
    pub held: u64,
}

/// What may become of a volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// It is read and takes copies.
    Active,
    /// It is read, and everything on it has to go elsewhere.
    Draining,
    /// It does not answer, and may again soon: what it holds counts, and is not read.
    Silent,
    /// It does not answer any more: what it holds counts for nothing.
    Away,
}

impl State {
    /// Whether it is read.
    #[must_use]
    pub const fn answers(self) -> bool {
        matches!(self, Self::Active | Self::Draining)
    }
}

/// A table since the last decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its number.
    pub object: u64,
    /// Its bytes.
    pub len: u64,
    /// Reads a second that reached a volume.
    pub rate: f64,
    /// Where it is: one or more, no volume twice.
    pub copies: Vec<Replica>,
    /// How long it has been there.
    pub age: Duration,
    /// For how long it has been compacted, if it is. It goes when that is done: nobody knows when, and what has
    /// taken long is expected to take as long again.
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
    /// Of which table.
    pub object: u64,
    /// Where it is read.
    pub from: VolumeId,
    /// Where it is written.
    pub to: VolumeId,
}

impl Table {
    /// Operations that writing it takes.
    fn blocks(&self) -> f64 {
        f64::from(Block::count(self.len).max(1))
    }

    /// Heat as a density: reads a second for each operation that copying it takes (TANGO).
    fn heat(&self) -> f64 {
        self.rate / self.blocks()
    }

    /// How long it is expected to be there, as far as that matters.
    fn stays(&self, every: Duration) -> Duration {
        let payback = every * PAYBACK;
        self.leaving.map_or(payback, |passed| passed.min(payback))
    }

    /// Whether it goes before anything can be done about it. A compaction that takes longer than a decision is
    /// held up, perhaps by the very volume that should be relieved; and tables stay when theirs is done, as
    /// long as a reader needs them.
    fn is_busy(&self, every: Duration) -> bool {
        self.leaving.is_some_and(|passed| passed < every)
    }

    /// Whether `reads` a second less on a volume pay, while it is there, for what copying it costs.
    fn pays(&self, reads: f64, every: Duration) -> bool {
        reads * self.stays(every).as_secs_f64() >= 2.0 * self.blocks()
    }

    fn is_on(&self, volume: VolumeId) -> bool {
        self.copies.iter().any(|copy| copy.volume == volume)
    }

    /// The part of its reads that the copy on `volume` answers.
    fn share(&self, volume: VolumeId) -> f64 {
        self.copies.iter().filter(|copy| copy.volume == volume).map(|copy| copy.share).sum()
    }
}

/// A volume is hot from here on: what users take of the line.
const HOT_USED: f64 = 0.95;
/// And from here on: their mean wait.
const HOT_WAIT: Duration = Duration::from_millis(2);
/// But no less than the time of so many operations, which it is on a volume of 3000 a second: where one takes
/// 5 ms, whoever comes second waits for longer than that on any volume.
const HOT_AHEAD: f64 = 6.0;
/// Users wait for a volume next to never: the part of the mean wait for the volume they wait for most.
const SLACK: f64 = 0.1;
/// In so many of the last [`DECISIONS`] for its tables to be copied.
const HOT_DECISIONS: u32 = 2;
const DECISIONS: usize = 3;
/// No copies for heat in so many first decisions: with cold caches all tables look hot.
const EARLY: u64 = 3;
/// A volume this far above the mean is worth copies; below it all are busy, and moving does not help.
const BAND: f64 = 0.05;
/// What one copy of a new table shall answer, as a part of a line: two that are this hot find room on a volume
/// beside everything else.
const BIRTH: f64 = 0.25;
/// How many decisions a table has to be there before its heat is believed.
const YOUNG: u32 = 2;
/// A table that was copied is not copied again for so many decisions: its reads have to settle first.
const SETTLING: u32 = 6;
/// A copy is made if in so many decisions it takes as many reads off a volume as making it costs
/// operations, and goes again after so many in which it does not take half of that.
const PAYBACK: u32 = 30;
/// A volume is full from here on for copies for heat.
const FULL: f64 = 0.8;
/// What copies may take of a volume's line.
const COPY_SHARE: f64 = 0.05;
/// What all of them together may move, in bytes a second.
const COPY_BYTES_PER_SEC: f64 = 64.0 * 1024.0 * 1024.0;

/// Decides, and remembers of earlier decisions what the next ones need.
pub struct Planner {
    terms: Terms,
    policy: Policy,
    balance: Option<Box<dyn Balance>>,
    decisions: u64,
    /// Whether volumes were hot in the last decisions, the latest first.
    heats: HashMap<VolumeId, [bool; DECISIONS]>,
    /// For how many decisions in a row tables with several copies were cold.
    cold: HashMap<u64, u32>,
    /// When tables were copied last, as long as that matters.
    copied: HashMap<u64, Instant>,
}

/// A way to spread heat.
trait Balance: Send {
    /// Plans copies of tables of hot volumes.
    fn balance(&self, view: &mut View<'_>, plan: &mut Plan);
}

impl Planner {
    /// One that has seen nothing.
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

    /// How it spreads heat.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// What it goes by.
    #[must_use]
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// A copy of a table was finished.
    pub fn copied(&mut self, object: u64, now: Instant) {
        self.copied.insert(object, now);
    }

    /// What should be done until the next decision, in this order. What is not done by then is planned
    /// again if it is still worth it.
    pub fn decide(&mut self, pool: &Snapshot<'_>, now: Instant) -> Plan {
        let mut plan = Plan::default();
        self.remember(pool, now);
        let mut view = View::new(pool, self.terms, &self.copied);
        for index in 0..pool.volumes.len() {
            let heats = self.heats.get(&pool.volumes[index].id);
            let hot = heats.map_or(0, |heats| heats.iter().filter(|&&hot| hot).count());
            view.volumes[index].hot = hot as u32;
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
            plan.births = view.births();
        }
        plan
    }

    /// As [`Planner::decide`], but only for what the pool promises: copies that are missing, and volumes that
    /// are being emptied. For in between, when something was lost, or what was planned for it is done.
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

/// Bytes that copies for heat leave free on a volume of `total` bytes of which the pool has `held`. Where
/// fewer are free they are the first to go. A volume that others fill, not the pool, is not full for it: as much
/// again as it has there is enough.
#[must_use]
pub fn reserve(total: u64, held: u64) -> u64 {
    ((total as f64 * (1.0 - FULL)) as u64).min(held)
}

/// The heat from which a copy pays. It takes half of the reads, and costs a read and a write of each block.
fn worth(every: Duration) -> f64 {
    4.0 / (every.as_secs_f64() * f64::from(PAYBACK))
}

#[cfg(test)]
mod tests;
