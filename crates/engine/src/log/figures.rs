//! The figures that a log store shows.

use std::time::Duration;

/// The state of a store, volume by volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Keys that have a value.
    pub keys: u64,
    /// Memory the index takes, in bytes.
    pub index_bytes: u64,
    /// Bytes at which files are sealed.
    pub file_bytes: u64,
    /// Each volume, in the order they were given.
    pub volumes: Vec<VolumeFigures>,
}

/// The state of a store on one volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeFigures {
    /// The volume's name for people.
    pub label: String,
    /// Bytes the store may use there.
    pub capacity: u64,
    /// The used part of them, whether the store or another user fills it: U.
    pub fill: f64,
    /// How far the fill is above the target on the way to full: H. At 0 or below there is no space pressure.
    pub space_pressure: f64,
    /// The part of a file that has to be dead for the file to be merged: D_T.
    pub release_threshold: f64,
    /// The average dead part of the files merged lately.
    pub dead_fraction_eaten: f64,
    /// The delay of a put now, because the volume is nearly full.
    pub put_delay: Duration,
    /// Files, open ones included.
    pub files: u64,
    /// Bytes of live records.
    pub live_bytes: u64,
    /// Bytes of dead files that a reader still holds: 0 soon after.
    pub dying_bytes: u64,
    /// Events since the store was opened.
    pub counts: Counts,
}

/// Events on one volume since the store was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Bytes of records that users put.
    pub put_bytes: u64,
    /// Bytes of records that merges copied.
    pub copied_bytes: u64,
    /// Bytes that merges read.
    pub read_bytes: u64,
    /// Files removed without reading them: all of their records were dead.
    pub died_whole: u64,
    /// Files merged: their live records were copied.
    pub merged: u64,
    /// Merges that failed, for lack of room or of a volume.
    pub failed: u64,
    /// Damaged records that merges and reads found, each counted once.
    pub damaged: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Groups of puts that were written together.
    pub groups: u64,
    /// Puts delayed because the volume was nearly full, and the sum of their delays.
    pub delayed: u64,
    /// See `delayed`.
    pub delay: Duration,
    /// Puts refused because only the reserve was left.
    pub refused: u64,
}

impl Counts {
    /// Bytes written for each byte put: 1 is the least.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        1.0 + self.copied_bytes as f64 / self.put_bytes.max(1) as f64
    }
}
