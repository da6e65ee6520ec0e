//! Whether a store fits on its volume, and the file sizes with which it fits well (PSTA 8(3), 2017).
//!
//! Open files cannot be merged, and a merge needs room for its output. So a store with many partitions and large files
//! can run out of space under any rule. With smaller files it may never have to copy: if all records live equally long,
//! all but the oldest file of a partition hold the live records, and the oldest dies whole by the time its room is
//! needed. The paper calls that planing.

use std::fmt;

use crate::units::Bytes;

/// How a store divides a volume. (The letters are those of the paper, PSTA 8(3), 2017.)
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    /// The volume's size in bytes: C.
    pub capacity: u64,
    /// The part of it for live records: V.
    pub live: f64,
    /// Files open at the same time: n, one for each partition and group of records.
    pub open: u64,
    /// The size at which they are sealed: R.
    pub file_bytes: u64,
    /// The fill above which merges copy: U_m.
    pub target: f64,
    /// Bytes that the store must not use: those of others on the file system, and what it needs to work well.
    pub reserve: u64,
}

impl Room {
    /// Files for each open one when the fill is at the target: F of (2).
    #[must_use]
    pub fn files(&self) -> f64 {
        self.share() * self.target / self.file_bytes.max(1) as f64
    }

    /// Whether files die whole before their room is needed, if all records live equally long: (3) and (4).
    #[must_use]
    pub fn planes(&self) -> bool {
        self.live * self.share() < (self.files() - 1.0) * self.file_bytes as f64
    }

    /// The largest file with which the store [planes](Self::planes): R_max. `None` if the live records alone fill the
    /// volume to the target.
    #[must_use]
    pub fn file_bytes_max(&self) -> Option<u64> {
        // (4) is strict.
        let max = (self.share() * (self.target - self.live)).ceil() - 1.0;
        (max >= 1.0).then_some(max as u64)
    }

    /// Whether it can go on for ever: the live records, the open files and the output of one merge fit.
    ///
    /// # Errors
    /// By how much it does not fit, and what would.
    pub fn check(&self) -> Result<(), Infeasible> {
        let needed = self.needed();
        if needed <= self.capacity {
            return Ok(());
        }
        let spare = self.capacity.saturating_sub(self.reserve).saturating_sub(self.live_bytes());
        Err(Infeasible {
            room: *self,
            needed,
            file_bytes_max: spare / (self.open + 1),
            open_max: (spare / self.file_bytes.max(1)).saturating_sub(1),
        })
    }

    fn needed(&self) -> u64 {
        let files = self.file_bytes.saturating_mul(self.open.saturating_add(1));
        self.live_bytes().saturating_add(files).saturating_add(self.reserve)
    }

    fn live_bytes(&self) -> u64 {
        (self.live * self.capacity as f64).ceil() as u64
    }

    fn share(&self) -> f64 {
        self.capacity as f64 / self.open.max(1) as f64
    }
}

/// A store that would run out of space under any rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Infeasible {
    /// The store's parameters.
    pub room: Room,
    /// The fewest bytes it needs.
    pub needed: u64,
    /// The largest files with which it fits; 0 if the live records alone are too much.
    pub file_bytes_max: u64,
    /// The most such files open at the same time; 0 if none.
    pub open_max: u64,
}

impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { room, needed, file_bytes_max, open_max } = *self;
        write!(
            f,
            "{:.0} % of {} alive, {} files of {} open at once and one to merge into need {}: ",
            room.live * 100.0,
            Bytes(room.capacity),
            room.open,
            Bytes(room.file_bytes),
            Bytes(needed),
        )?;
        if file_bytes_max == 0 {
            return f.write_str("keep less, or take a larger volume");
        }
        write!(f, "seal files at {} or less", Bytes(file_bytes_max))?;
        if open_max > 0 {
            write!(f, ", have at most {open_max} open")?;
        }
        f.write_str(", keep less, or take a larger volume")
    }
}

impl std::error::Error for Infeasible {}
