//! The result of a decision.

use crate::placement::VolumeId;

/// The steps until the next decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Copies to drop, first: that costs nothing and frees space.
    pub drops: Vec<Dropping>,
    /// Copies to make, the most important first.
    pub copies: Vec<Copying>,
    /// How many copies new tables get at once, while their bytes are in memory. `None` for one copy: no volume is hot
    /// and no table has copies for heat.
    pub initial_replicas: Option<InitialReplicas>,
    /// Why no more is planned.
    pub skipped: Skipped,
}

/// How many copies new tables begin with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InitialReplicas {
    /// Reads a second from which a table gets two copies.
    pub two_from: f64,
    /// Reads a second that one copy should serve; more reads get more copies.
    pub each: f64,
    /// The most copies.
    pub most: usize,
}

impl InitialReplicas {
    /// The number of copies of a table with `rate` expected reads a second.
    #[must_use]
    pub fn copies(&self, rate: f64) -> usize {
        if rate < self.two_from {
            return 1;
        }
        (rate / self.each).ceil().max(2.0).min(self.most as f64) as usize
    }
}

/// A copy to make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Copying {
    /// The table.
    pub object: u64,
    /// Its bytes.
    pub len: u64,
    /// The volume to read from: the least loaded one with a copy.
    pub from: VolumeId,
    /// The volume to write to.
    pub to: VolumeId,
    /// Its purpose.
    pub why: Why,
    /// Whether it has one readable copy: the loss of that volume would lose it.
    pub is_last: bool,
}

/// The purpose of a copy.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Why {
    /// The table has fewer copies than the replication target.
    Repair,
    /// It is on a volume that is being emptied.
    Drain,
    /// Its reads are too many for the volume.
    Heat,
    /// It is read on slower devices than it could be.
    Speed,
}

impl Why {
    /// All of them, the most important first.
    pub const ALL: [Self; 4] = [Self::Repair, Self::Drain, Self::Heat, Self::Speed];

    /// Its name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Repair => "repair",
            Self::Drain => "drain",
            Self::Heat => "heat",
            Self::Speed => "speed",
        }
    }

    /// Whether it is made for the replication target, and not for the sake of reads.
    #[must_use]
    pub const fn is_for_target(self) -> bool {
        matches!(self, Self::Repair | Self::Drain)
    }
}

/// A copy to drop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Dropping {
    /// The table.
    pub object: u64,
    /// Its bytes.
    pub len: u64,
    /// The volume.
    pub volume: VolumeId,
    /// Why.
    pub whence: Whence,
}

/// Why a copy is dropped.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Whence {
    /// Its volume is being emptied, and the table is elsewhere.
    Drain,
    /// Its volume is nearly full.
    Room,
    /// The table is too cold for it now.
    Cold,
}

impl Whence {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Drain, Self::Room, Self::Cold];

    /// Its name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Room => "room",
            Self::Cold => "cold",
        }
    }
}

/// Why a copy was not planned.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Skip {
    /// Too soon after the start: caches are cold.
    Early,
    /// No volume is hot.
    Calm,
    /// A hot volume is no hotter than the mean: all are busy.
    Even,
    /// A table is too new for its heat to count.
    Young,
    /// It is a compaction input expected to go before a copy would pay, or it is being copied.
    Busy,
    /// It was copied recently.
    Settling,
    /// It has the most copies allowed.
    Copies,
    /// It is too cold: a copy would cost more than it brings.
    Cold,
    /// No volume without it is less loaded.
    Target,
    /// Volumes without it that are less loaded are too full.
    Room,
    /// The target would be hotter than the source.
    Overshoot,
    /// The budget of copies until the next decision is used up.
    Budget,
}

impl Skip {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Early,
        Self::Calm,
        Self::Even,
        Self::Young,
        Self::Busy,
        Self::Settling,
        Self::Copies,
        Self::Cold,
        Self::Target,
        Self::Room,
        Self::Overshoot,
        Self::Budget,
    ];

    /// Its name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Early => "early",
            Self::Calm => "calm",
            Self::Even => "even",
            Self::Young => "young",
            Self::Busy => "busy",
            Self::Settling => "settling",
            Self::Copies => "copies",
            Self::Cold => "cold",
            Self::Target => "target",
            Self::Room => "room",
            Self::Overshoot => "overshoot",
            Self::Budget => "budget",
        }
    }
}

/// How often copies were not planned, by reason.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Skipped([u64; Skip::ALL.len()]);

impl Skipped {
    /// Counts one.
    pub fn count(&mut self, why: Skip) {
        self.0[why as usize] += 1;
    }

    /// Adds the counts of another plan.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    /// The count for this reason.
    #[must_use]
    pub const fn of(&self, why: Skip) -> u64 {
        self.0[why as usize]
    }

    /// All counts, including zeros.
    pub fn iter(&self) -> impl Iterator<Item = (Skip, u64)> {
        Skip::ALL.into_iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hotter_tables_begin_with_more_copies() {
        let initial = InitialReplicas { two_from: 10.0, each: 50.0, most: 4 };
        let rates = [0.0, 9.9, 10.0, 100.0, 101.0, 200.0, 1e9];
        assert_eq!(rates.map(|rate| initial.copies(rate)), [1, 1, 2, 2, 3, 4, 4]);
        assert_eq!(InitialReplicas { most: 1, ..initial }.copies(100.0), 1);
    }
}
