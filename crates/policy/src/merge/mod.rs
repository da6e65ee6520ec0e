//! What a log store merges, when, and how long puts wait for it.
//!
//! A log store appends, so every overwrite leaves a dead record behind, in a file that is written no more.
//! To have the room again, what still lives in the file is copied to a new one and the file is removed.
//! Copying costs bandwidth and needs room itself: too early, and it copies what would have died; too
//! late, and there is no room to copy to, and neither writes nor merges can go on.
//!
//! ```text
//!   sealed, died, removed ─► Merges ── next(fill) ─► Pick: this file, at that hunger
//!   record, its expected death ─► Groups ─► which of the open files it goes to
//!   bytes of a put, fill ─► PutLimits ─► now | later | refused
//!   partitions, file size, what lives ─► Room ─► feasible? planing? the largest file size
//!   live ranges, device ─► reading ─► the whole file, or only these ranges
//! ```
//!
//! Everything here counts bytes. The clock is [`Written`]: files and records are as old as what was put
//! since, which no clock step, pause or restart changes.
//!
//! The rules are those of Bitcask and of the paper on sensor data in Riak (PSTA 8(3), 2017),
//! and [`Rule::DeathTime`], ours: see docs/adr/0019-merge-control.md.

mod candidates;
mod groups;
mod merges;
mod puts;
mod reading;
mod room;
mod rule;

pub use groups::{Group, Groups, Life, Placed};
pub use merges::{Merges, Pick, Settings, Why};
pub use puts::{Put, PutLimits};
pub use reading::{Device, Reading, reading};
pub use room::{Infeasible, Room};
pub use rule::{Rule, Triggers};

/// How much users have put into a store since it was made, in bytes: the clock of ages and deaths.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Written(pub u64);

impl Written {
    /// Bytes put since `earlier`; zero when that lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// When so many more bytes will have been put.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }
}

/// A file's number. Files made later have larger ones; none is given twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileId(pub u64);

/// A file that is written no more: it may be merged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sealed {
    /// Its number.
    pub id: FileId,
    /// The partition it belongs to.
    pub partition: u32,
    /// Its length, with everything a merge of it gives back.
    pub bytes: u64,
    /// How many of them are dead already: records that were overwritten, deleted or have expired, and
    /// whatever belongs to no record. At most `bytes`.
    pub dead: u64,
    /// When what lives in it dies: the [`Placed::death`] of all its records, [joined](Death::join).
    pub death: Death,
}

/// When something dies.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Death {
    /// Nobody knows.
    #[default]
    Unknown,
    /// By then, for certain: somebody said so, or its likes always did.
    At(Written),
    /// At some time, on average after so many more bytes are put, however long it has lived: its likes did.
    After(u64),
}

impl Death {
    /// When it dies for certain.
    #[must_use]
    pub const fn known(self) -> Option<Written> {
        match self {
            Self::At(when) => Some(when),
            Self::Unknown | Self::After(_) => None,
        }
    }

    /// Of a file that has both: certain if both are, and else the later guess.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(a), Self::At(b)) => Self::At(a.max(b)),
            (Self::After(a), Self::After(b)) => Self::After(a.max(b)),
            (Self::After(a), Self::At(_)) | (Self::At(_), Self::After(a)) => Self::After(a),
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
        }
    }
}

/// How full the volume is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Fill {
    /// Bytes it has.
    pub capacity: u64,
    /// Bytes that are taken, by whomever: the larger of what the store counts itself (files that are
    /// unlinked and still open among them) and what the file system says (PSTA 8(3), 2017).
    pub used: u64,
    /// How much was put so far.
    pub written: Written,
}

impl Fill {
    /// The part that is taken: U.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.used as f64 / self.capacity.max(1) as f64
    }

    /// Bytes that are left.
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    /// How far the fill is above `target` on the way to full: H. Not above 0 there is no hurry, from 1
    /// on there is no room.
    #[must_use]
    pub fn hunger(&self, target: f64) -> f64 {
        (self.share() - target) / (1.0 - target)
    }
}

#[cfg(test)]
mod tests;
