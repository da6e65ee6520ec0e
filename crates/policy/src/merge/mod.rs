//! Which files a log store merges, when, and how long puts wait for it.
//!
//! A log store appends, so every overwrite leaves a dead record in a sealed file. To free its room, a merge copies the
//! live records of the file to a new one and removes the file. Copying costs bandwidth and needs room itself. A merge
//! that comes too early copies records that would have died; one that comes too late finds no room, and then neither
//! writes nor merges can go on.
//!
//! ```text
//!   sealed, died, removed ─► Merges ── next(fill) ─► Pick: this file, at that space pressure
//!   record, its expected death ─► Groups ─► which of the open files it goes to
//!   bytes of a put, fill ─► PutLimits ─► now | later | refused
//!   partitions, file size, live bytes ─► Room ─► feasible? planing? the largest file size
//!   live ranges, device ─► reading ─► the whole file, or only these ranges
//! ```
//!
//! Everything here counts bytes. The clock is [`Written`]: the age of a file or record is what was put since, which no
//! clock step, pause or restart changes.
//!
//! The rules are those of Bitcask and of the paper on sensor data in Riak (PSTA 8(3), 2017), and the new
//! [`Rule::DeathTime`]: see docs/adr/0019-merge-control.md.

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

/// Bytes that users have put into a store since it was made: the clock of ages and deaths.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Written(pub u64);

impl Written {
    /// Bytes put since `earlier`; zero when that lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time after `bytes` more are put.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }
}

/// A file's number. Files made later have larger ones; numbers are not reused.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileId(pub u64);

/// A sealed file: it may be merged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sealed {
    /// Its number.
    pub id: FileId,
    /// The partition it belongs to.
    pub partition: u32,
    /// Its length: the bytes that removing it frees.
    pub bytes: u64,
    /// How many of them are dead already: records that were overwritten, deleted or have expired, and bytes outside of
    /// records. At most `bytes`.
    pub dead: u64,
    /// When the rest of it dies: the [`Placed::death`] of all its records, [joined](Death::join).
    pub death: Death,
}

/// The expected death of a record or file.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Death {
    /// Unknown.
    #[default]
    Unknown,
    /// By this time, for certain: the caller said so, or similar records always did.
    At(Written),
    /// On average after this many more bytes are put, at any age: as similar records did.
    After(u64),
}

impl Death {
    /// The certain time of death.
    #[must_use]
    pub const fn known(self) -> Option<Written> {
        match self {
            Self::At(when) => Some(when),
            Self::Unknown | Self::After(_) => None,
        }
    }

    /// The death of a file with both: certain if both are, otherwise the later guess.
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

/// How full the store's part of the volume is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Fill {
    /// Bytes that the store has there or can still write.
    pub capacity: u64,
    /// Bytes that it has there, including unlinked files that are still open (PSTA 8(3), 2017).
    pub used: u64,
    /// Bytes put so far.
    pub written: Written,
}

impl Fill {
    /// The taken part: U.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.used as f64 / self.capacity.max(1) as f64
    }

    /// Free bytes.
    #[must_use]
    pub const fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    /// Space pressure: how far the fill is above `target` on the way to full: H. At 0 and below there is no hurry; from
    /// 1 on there is no room.
    #[must_use]
    pub fn space_pressure(&self, target: f64) -> f64 {
        (self.share() - target) / (1.0 - target)
    }
}

#[cfg(test)]
mod tests;
