//! What was decided.

use crate::placement::VolumeId;

/// What should be done until the next decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Copies that should go, first: that costs nothing and makes room.
    pub drops: Vec<Dropping>,
    /// Copies that should be made, those that matter most first.
    pub copies: Vec<Copying>,
    /// How many copies tables get at once, while their bytes are in memory. None: one, as no volume is hot and
    /// none has copies of hot tables.
    pub births: Option<Births>,
    /// Why more is not planned.
    pub skipped: Skipped,
}

/// How many copies new tables begin with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Births {
    /// Reads a second from which they are two.
    pub two_from: f64,
    /// Reads a second that one copy shall answer; more copies are made for more.
    pub each: f64,
    /// But no more than these.
    pub most: usize,
}

impl Births {
    /// Copies of a table of which `rate` reads a second are expected.
    #[must_use]
    pub fn copies(&self, rate: f64) -> usize {
        if rate < self.two_from {
            return 1;
        }
        (rate / self.each).ceil().max(2.0).min(self.most as f64) as usize
    }
}

/// A copy that should be made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Copying {
    /// Of which table.
    pub object: u64,
    /// Its bytes.
    pub len: u64,
    /// The volume with the copy that should be read: the one with the least load.
    pub from: VolumeId,
    /// The volume that should get it.
    pub to: VolumeId,
    /// What for.
    pub why: Why,
}

/// What a copy is for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Why {
    /// The table has fewer copies than the pool promises.
    Repair,
    /// It is on a volume that is being emptied.
    Drain,
    /// Its reads are too many for the volume.
    Heat,
}

impl Why {
    /// All of them, the most important first.
    pub const ALL: [Self; 3] = [Self::Repair, Self::Drain, Self::Heat];

    /// The word for it in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Repair => "repair",
            Self::Drain => "drain",
            Self::Heat => "heat",
        }
    }
}

/// A copy that should go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Dropping {
    /// Of which table.
    pub object: u64,
    /// Its bytes.
    pub len: u64,
    /// On which volume.
    pub volume: VolumeId,
    /// Why.
    pub whence: Whence,
}

/// Why a copy goes.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Whence {
    /// Its volume is being emptied, and the table is elsewhere.
    Drain,
    /// Its volume is nearly full.
    Room,
    /// The table is not read enough any more.
    Cold,
}

impl Whence {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Drain, Self::Room, Self::Cold];

    /// The word for it in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Room => "room",
            Self::Cold => "cold",
        }
    }
}

/// Why something was not planned.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Skip {
    /// Too soon after the start: caches are cold.
    Early,
    /// No volume is hot.
    Calm,
    /// A hot volume is no hotter than the mean: all are busy.
    Even,
    /// A table is too new for its heat to be believed.
    Young,
    /// It is being compacted and expected to go before a copy would pay, or it is being copied.
    Busy,
    /// It was copied lately.
    Settling,
    /// It has as many copies as it may have.
    Copies,
    /// It is read so little that a copy would cost more than it brings.
    Cold,
    /// No volume without it is less loaded.
    Target,
    /// Volumes without it that are less loaded are too full.
    Room,
    /// The target would be hotter than the source.
    Overshoot,
    /// What copies may take until the next decision is planned already.
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

    /// The word for it in metrics and logs.
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

/// How often something was not planned, by why.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Skipped([u64; Skip::ALL.len()]);

impl Skipped {
    /// Once more.
    pub fn count(&mut self, why: Skip) {
        self.0[why as usize] += 1;
    }

    /// Those of another plan too.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    /// How often for this reason.
    #[must_use]
    pub const fn of(&self, why: Skip) -> u64 {
        self.0[why as usize]
    }

    /// All of them, with zeros.
    pub fn iter(&self) -> impl Iterator<Item = (Skip, u64)> {
        Skip::ALL.into_iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hotter_tables_begin_with_more_copies() {
        let births = Births { two_from: 10.0, each: 50.0, most: 4 };
        let rates = [0.0, 9.9, 10.0, 100.0, 101.0, 200.0, 1e9];
        assert_eq!(rates.map(|rate| births.copies(rate)), [1, 1, 2, 2, 3, 4, 4]);
        assert_eq!(Births { most: 1, ..births }.copies(100.0), 1);
    }
}
