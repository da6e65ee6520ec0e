//! On whose behalf RocksDB reads or writes: one rule for all of its I/O (Calcspar, ATC 2023).
//!
//! RocksDB says with most calls which activity they belong to, and its listener says which
//! compaction the thread is at. Logs need no rule: whoever causes a record, everyone waits for it.

use policy::purpose::{Io, Origin, Step};

/// A compaction, as far as its I/O shows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Job {
    /// The smallest level it reads from. It decides how urgent the whole job is: where levels are
    /// sized dynamically, level 0 is merged into the last one.
    pub(crate) input_level: u8,
}

/// Appending to a log, or syncing one. The class is that of the step, whoever asks.
pub(crate) const LOG: Io = Io::new(Origin::UserWrite, Step::Log);

/// Reading a log: recovery, and tools that tail it.
pub(crate) const LOG_READ: Io = Io::new(Origin::Open, Step::Data);

/// RocksDB's `Env::IOActivity`, sorted by who waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Activity {
    /// A memtable is written out.
    Flush,
    /// Tables are merged.
    Compaction,
    /// The database is being opened.
    Open,
    /// Stored bytes are verified because somebody asked for it.
    Verify,
    /// A user waits: get, multi-get, iterator, entity, lazy column.
    User,
    /// RocksDB does not say. Reads are a user's until proven otherwise; tables are written without an
    /// activity only outside of the database's own work: copies, and files made for ingestion.
    Unsaid,
}

impl Activity {
    /// From the value of `Env::IOActivity` in RocksDB 11.12. Values it reserves, and those it leaves
    /// to users (0x80 and up), are users' own.
    pub(crate) const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Flush,
            1 => Self::Compaction,
            2 => Self::Open,
            // Get, MultiGet, iterator; GetEntity, MultiGetEntity; lazy columns.
            3..=5 | 8 | 9 | 11 => Self::User,
            // Checksums of blocks, of files, and as the manifest has them.
            6 | 7 | 10 => Self::Verify,
            0xff => Self::Unsaid,
            _ => Self::User,
        }
    }

    /// Whether RocksDB does it by itself, and again by itself after an error that may pass.
    pub(crate) const fn is_background(self) -> bool {
        matches!(self, Self::Flush | Self::Compaction)
    }
}

/// On whose behalf a table or blob file is read, by a thread that is at `job`.
pub(crate) fn of_read(activity: Activity, job: Option<Job>) -> Origin {
    match activity {
        Activity::Flush => Origin::Flush,
        Activity::Compaction => compaction(job),
        Activity::Open => Origin::Open,
        Activity::Verify => Origin::Bulk,
        Activity::User | Activity::Unsaid => Origin::UserRead,
    }
}

/// On whose behalf a table or blob file is written, by a thread that is at `job`.
pub(crate) fn of_write(activity: Activity, job: Option<Job>) -> Origin {
    match activity {
        Activity::Flush => Origin::Flush,
        Activity::Compaction => compaction(job),
        Activity::Open => Origin::Open,
        Activity::Verify | Activity::User | Activity::Unsaid => Origin::Bulk,
    }
}

/// Threads RocksDB starts to verify what a compaction wrote are told of no job. They look at tables
/// that are still in memory; if they must read after all, nobody knows who waits for them.
fn compaction(job: Option<Job>) -> Origin {
    Origin::Compaction { level: job.map_or(0, |job| job.input_level) }
}

#[cfg(test)]
mod tests {
    use policy::purpose::Class;

    use super::*;

    fn class(origin: Origin) -> Class {
        Io::new(origin, Step::Data).class()
    }

    #[test]
    fn whatever_a_user_waits_for_is_foreground() {
        // Get, MultiGet, iterator, GetEntity, MultiGetEntity, lazy columns; reserved and custom
        // values; unknown.
        for code in [3, 4, 5, 8, 9, 11, 12, 0x7f, 0x80, 0xfe, 0xff] {
            let origin = of_read(Activity::from_code(code), None);
            assert_eq!(class(origin), Class::Foreground, "activity {code}");
        }
    }

    #[test]
    fn opening_and_flushing_are_urgent() {
        for code in [0, 2] {
            let activity = Activity::from_code(code);
            assert_eq!(class(of_read(activity, None)), Class::Urgent);
            assert_eq!(class(of_write(activity, None)), Class::Urgent);
        }
    }

    #[test]
    fn a_compaction_is_as_urgent_as_its_input_level() {
        let at = |input_level| Some(Job { input_level });
        for (level, expected) in
            [(0, Class::Urgent), (1, Class::Background), (2, Class::Background), (5, Class::Idle)]
        {
            assert_eq!(class(of_read(Activity::Compaction, at(level))), expected, "level {level}");
            assert_eq!(class(of_write(Activity::Compaction, at(level))), expected, "level {level}");
        }
    }

    #[test]
    fn a_compaction_without_a_job_holds_nobody_up() {
        assert_eq!(class(of_read(Activity::Compaction, None)), Class::Urgent);
    }

    #[test]
    fn the_job_of_a_thread_counts_for_compactions_only() {
        let stale = Some(Job { input_level: 5 });
        assert_eq!(of_read(Activity::User, stale), Origin::UserRead);
        assert_eq!(of_write(Activity::Flush, stale), Origin::Flush);
    }

    #[test]
    fn verifying_and_copying_wait_for_spare_capacity_but_are_not_turned_away() {
        let reads = [6, 7, 10].map(|code| of_read(Activity::from_code(code), None));
        for origin in reads.into_iter().chain([of_write(Activity::Unsaid, None)]) {
            assert_eq!(class(origin), Class::Idle);
            assert!(!Io::new(origin, Step::Data).refusable());
        }
    }

    #[test]
    fn logs_go_before_everything() {
        assert_eq!(LOG.class(), Class::Commit);
        assert_eq!(LOG_READ.class(), Class::Urgent);
    }
}
