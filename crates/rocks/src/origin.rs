//! The origin of RocksDB's reads and writes (Calcspar, ATC 2023).
//!
//! Most calls carry RocksDB's activity, and a listener records the thread's compaction. Logs need no
//! rule: every writer waits for them.

use policy::purpose::{Io, Origin, Step};

/// The compaction that a thread works on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Job {
    /// The smallest level it reads from. It decides the class of the whole job, not the output level:
    /// with dynamic level sizes, level 0 may be merged into the last level.
    pub(crate) input_level: u8,
}

/// Appending to a log, or syncing one. The class follows from the step, not from the origin.
pub(crate) const LOG: Io = Io::new(Origin::UserWrite, Step::Log);

/// Reading a log: recovery, and tools that tail it.
pub(crate) const LOG_READ: Io = Io::new(Origin::Open, Step::Data);

/// RocksDB's `Env::IOActivity`, grouped by the origin it leads to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Activity {
    /// A memtable is written out.
    Flush,
    /// Tables are merged.
    Compaction,
    /// The database is being opened.
    Open,
    /// Stored bytes are verified on request.
    Verify,
    /// A user waits: get, multi-get, iterator, entity, lazy column.
    User,
    /// Unknown. A read is then taken for a user's. A write is not the database's own work: only copies,
    /// and files made for ingestion, are written without an activity.
    Unsaid,
}

impl Activity {
    /// From the value of `Env::IOActivity` in RocksDB 11.12. Reserved and custom values (0x80 and up)
    /// count as a user's.
    pub(crate) const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Flush,
            1 => Self::Compaction,
            2 => Self::Open,
            // Get, MultiGet, iterator; GetEntity, MultiGetEntity; lazy columns.
            3..=5 | 8 | 9 | 11 => Self::User,
            // VerifyChecksum, VerifyFileChecksums, GetFileChecksumsFromCurrentManifest.
            6 | 7 | 10 => Self::Verify,
            0xff => Self::Unsaid,
            _ => Self::User,
        }
    }

    /// Whether RocksDB starts it, and repeats it after a retryable error.
    pub(crate) const fn is_background(self) -> bool {
        matches!(self, Self::Flush | Self::Compaction)
    }
}

/// The origin of a read of a table or blob file, by a thread that works on `job`.
pub(crate) fn of_read(activity: Activity, job: Option<Job>) -> Origin {
    match activity {
        Activity::Flush => Origin::Flush,
        Activity::Compaction => compaction(job),
        Activity::Open => Origin::Open,
        Activity::Verify => Origin::Bulk,
        Activity::User | Activity::Unsaid => Origin::UserRead,
    }
}

/// The origin of a write of a table or blob file, by a thread that works on `job`.
pub(crate) fn of_write(activity: Activity, job: Option<Job>) -> Origin {
    match activity {
        Activity::Flush => Origin::Flush,
        Activity::Compaction => compaction(job),
        Activity::Open => Origin::Open,
        Activity::Verify | Activity::User | Activity::Unsaid => Origin::Bulk,
    }
}

/// The threads that verify a compaction's output have no job. They mostly read tables that are still in
/// memory; a read that reaches a volume counts as level 0, the most urgent.
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
    fn an_opening_waits_as_users_do_and_a_flush_is_urgent() {
        for (activity, expected) in
            [(Activity::Open, Class::Foreground), (Activity::Flush, Class::Urgent)]
        {
            assert_eq!(class(of_read(activity, None)), expected);
            assert_eq!(class(of_write(activity, None)), expected);
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
        assert_eq!(LOG_READ.class(), Class::Foreground, "an opening waits for it");
    }
}
