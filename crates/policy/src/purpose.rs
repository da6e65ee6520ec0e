//! Why an I/O happens, and its class at a gate.
//!
//! Requests carry [`Io`] down from the engine to the device: the *origin* says on whose behalf, the *step* what this
//! I/O is. I/O that a layer makes for a request keeps the origin's class; only a pool's own work (copies, scrub) starts
//! a new origin. [`Io::class`] is the one rule for all. [`Io::class_under`] raises the class when users are about to
//! wait for that work (Calcspar, ATC 2023).

use crate::time::Instant;

/// On whose behalf an I/O happens.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Origin {
    /// A user's read: get, multi-get, iterator.
    UserRead,
    /// A user's write that waits for its acknowledgement.
    UserWrite,
    /// A user's write whose acknowledgement does not promise that it is durable: it does not pass reads.
    UserChange,
    /// Opening a store: recovery, table footers and indexes.
    Open,
    /// A memtable is written out as a table.
    Flush,
    /// Tables of `level` are merged into the next level.
    Compaction {
        /// The input level.
        level: u8,
    },
    /// A log store copies the live records of a file to free the room of the dead ones.
    Merge {
        /// Space pressure in percent: how near puts are to waiting for the merge, see [`crate::merge::Pick`].
        space_pressure_percent: u8,
    },
    /// An operator copies, imports or verifies files, and can wait.
    Bulk,
    /// The pool copies an object from one volume to another.
    Copy,
    /// The pool copies an object whose users wait at its volume: their waits end with the copy.
    Relief,
    /// The pool copies an object of which one copy is left: the next loss would lose it.
    Rebuild,
    /// The pool verifies stored objects.
    Scrub,
    /// The pool reads blocks ahead of requests.
    Prefetch,
    /// A pool brings blocks of its write-ahead log in place, in rows of fragments.
    Recycle {
        /// The part of the log's room that is taken, in percent.
        space_pressure_percent: u8,
    },
    /// A cache tier copies what users read to its fast side.
    Promotion,
    /// A cache tier writes dirty bytes back to its slow side, and no user waits.
    WriteBack,
}

/// What an I/O is done for, as metrics name it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Purpose {
    /// A user reads.
    Read,
    /// A user writes.
    Write,
    /// A log is made durable, or read.
    Log,
    /// A manifest or a header of the pool, whoever changes it.
    Manifest,
    /// See [`Origin::Open`].
    Open,
    /// See [`Origin::Flush`].
    Flush,
    /// See [`Origin::Compaction`].
    Compaction,
    /// See [`Origin::Merge`].
    Merge,
    /// See [`Origin::Recycle`].
    Recycle,
    /// See [`Origin::Bulk`].
    Bulk,
    /// See [`Origin::Copy`].
    Copy,
    /// See [`Origin::Relief`].
    Relief,
    /// See [`Origin::Rebuild`].
    Rebuild,
    /// See [`Origin::Promotion`].
    Promotion,
    /// See [`Origin::WriteBack`].
    WriteBack,
    /// See [`Origin::Scrub`].
    Scrub,
    /// See [`Origin::Prefetch`].
    Prefetch,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 17] = [
        Self::Read,
        Self::Write,
        Self::Log,
        Self::Manifest,
        Self::Open,
        Self::Flush,
        Self::Compaction,
        Self::Merge,
        Self::Recycle,
        Self::Bulk,
        Self::Copy,
        Self::Relief,
        Self::Rebuild,
        Self::Promotion,
        Self::WriteBack,
        Self::Scrub,
        Self::Prefetch,
    ];

    /// The position in [`Purpose::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Log => "log",
            Self::Manifest => "manifest",
            Self::Open => "open",
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::Merge => "merge",
            Self::Recycle => "recycle",
            Self::Bulk => "bulk",
            Self::Copy => "copy",
            Self::Relief => "relief",
            Self::Rebuild => "rebuild",
            Self::Promotion => "promotion",
            Self::WriteBack => "write_back",
            Self::Scrub => "scrub",
            Self::Prefetch => "prefetch",
        }
    }
}

/// A store on a pool, by its number there. [`Tenant::POOL`] is the pool itself, and everything that is on no pool.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Tenant(pub u32);

impl Tenant {
    /// The pool's own work.
    pub const POOL: Self = Self(0);
}

/// What an I/O is, within the work of its origin.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Step {
    /// Bytes of an object that holds data.
    Data,
    /// A log others wait on: write-ahead log, RocksDB's MANIFEST and CURRENT.
    Log,
    /// A record of the pool's own manifest, or a volume's header.
    Manifest,
}

/// The class of an I/O at a gate, most urgent first: C, H, H-, M, L after Calcspar.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Class {
    /// A user, or every writer, waits for durability.
    Commit,
    /// A user waits for data.
    Foreground,
    /// Work that makes users wait soon if it is late.
    Urgent,
    /// Work that must keep pace on average.
    Background,
    /// Work for spare capacity.
    Idle,
}

impl Class {
    /// Every class, most urgent first.
    pub const ALL: [Self; 5] =
        [Self::Commit, Self::Foreground, Self::Urgent, Self::Background, Self::Idle];

    /// The position in [`Class::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics, logs and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Foreground => "foreground",
            Self::Urgent => "urgent",
            Self::Background => "background",
            Self::Idle => "idle",
        }
    }
}

/// How near users are to waiting for background work, by kind of work: from 0, far away, to 1, waiting. See
/// [`crate::pressure`] for its source.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// For flushes and compactions of level 0, from the number of memtables and of level-0 tables.
    pub flush: f32,
    /// For compactions, from the bytes that they owe.
    pub compaction: f32,
}

impl Pressure {
    /// From here on, the work goes one class up.
    pub const HIGH: f32 = 0.75;

    /// The larger value of each field.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            flush: self.flush.max(other.flush),
            compaction: self.compaction.max(other.compaction),
        }
    }
}

/// Why one I/O happens, and until when it is worth doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Io {
    /// On whose behalf.
    pub origin: Origin,
    /// What this I/O is.
    pub step: Step,
    /// When the caller loses interest; only user reads set one (Calcspar, ATC 2023).
    pub deadline: Option<Instant>,
    /// The store it is for. A pool sets it where the store's call enters.
    pub tenant: Tenant,
}

impl Io {
    /// An I/O without a deadline, for no store in particular.
    #[must_use]
    pub const fn new(origin: Origin, step: Step) -> Self {
        Self { origin, step, deadline: None, tenant: Tenant::POOL }
    }

    /// The same for a store.
    #[must_use]
    pub const fn for_tenant(self, tenant: Tenant) -> Self {
        Self { tenant, ..self }
    }

    /// Whether it may have the last of the room that a volume sets aside. The others find the volume full before that: a compaction or
    /// a copy that fails is repeated, while no writer of a store goes on, not even with deletes, after its log failed.
    #[must_use]
    pub const fn may_take_last_room(&self) -> bool {
        !matches!(
            (self.step, self.origin),
            (Step::Data, Origin::Compaction { .. } | Origin::Copy | Origin::Relief)
        )
    }

    /// The class this I/O waits in.
    ///
    /// A log or manifest record is `Commit` for every origin: RocksDB holds the lock that every write needs while it
    /// appends to its MANIFEST, so such a record must never queue behind reads.
    #[must_use]
    pub const fn class(&self) -> Class {
        match (self.step, self.origin) {
            (Step::Log | Step::Manifest, _) | (_, Origin::UserWrite) => Class::Commit,
            // Users wait for an opening. As urgent work it would leave them more than half of the tokens that a gate saves up,
            // and a gate starts with none.
            (
                _,
                Origin::UserRead
                | Origin::UserChange
                | Origin::Open
                | Origin::Relief
                | Origin::Rebuild,
            ) => Class::Foreground,
            (_, Origin::Flush | Origin::Compaction { level: 0 }) => Class::Urgent,
            (
                _,
                Origin::Merge { space_pressure_percent: 81.. }
                | Origin::Recycle { space_pressure_percent: 87.. },
            ) => Class::Urgent,
            (
                _,
                Origin::Compaction { level: 1 | 2 }
                | Origin::Merge { space_pressure_percent: 30.. }
                | Origin::Recycle { space_pressure_percent: 50.. },
            ) => Class::Background,
            (
                _,
                Origin::Compaction { .. }
                | Origin::Merge { .. }
                | Origin::Recycle { .. }
                | Origin::Bulk
                | Origin::Copy
                | Origin::Promotion
                | Origin::WriteBack
                | Origin::Scrub
                | Origin::Prefetch,
            ) => Class::Idle,
        }
    }

    /// What this I/O is done for.
    #[must_use]
    pub const fn purpose(&self) -> Purpose {
        match (self.step, self.origin) {
            (Step::Log, _) => Purpose::Log,
            (Step::Manifest, _) => Purpose::Manifest,
            (Step::Data, Origin::UserRead) => Purpose::Read,
            (Step::Data, Origin::UserWrite | Origin::UserChange) => Purpose::Write,
            (Step::Data, Origin::Open) => Purpose::Open,
            (Step::Data, Origin::Flush) => Purpose::Flush,
            (Step::Data, Origin::Compaction { .. }) => Purpose::Compaction,
            (Step::Data, Origin::Merge { .. }) => Purpose::Merge,
            (Step::Data, Origin::Recycle { .. }) => Purpose::Recycle,
            (Step::Data, Origin::Bulk) => Purpose::Bulk,
            (Step::Data, Origin::Copy) => Purpose::Copy,
            (Step::Data, Origin::Relief) => Purpose::Relief,
            (Step::Data, Origin::Rebuild) => Purpose::Rebuild,
            (Step::Data, Origin::Promotion) => Purpose::Promotion,
            (Step::Data, Origin::WriteBack) => Purpose::WriteBack,
            (Step::Data, Origin::Scrub) => Purpose::Scrub,
            (Step::Data, Origin::Prefetch) => Purpose::Prefetch,
        }
    }

    /// The class this I/O waits in under `pressure`. From [`Pressure::HIGH`] on it rises by one class, but not above
    /// [`Class::Foreground`]; at 1 it is at least [`Class::Foreground`]: a user waits for the work, so it runs in the
    /// user's class.
    #[must_use]
    pub fn class_under(&self, pressure: Pressure) -> Class {
        let class = self.class();
        let pressure = match self.origin {
            Origin::Flush => pressure.flush,
            Origin::Compaction { level: 0 } => pressure.flush.max(pressure.compaction),
            Origin::Compaction { .. } => pressure.compaction,
            _ => 0.0,
        };
        if pressure >= 1.0 {
            class.min(Class::Foreground)
        } else if pressure >= Pressure::HIGH && class > Class::Foreground {
            Class::ALL[class.index() - 1]
        } else {
            class
        }
    }

    /// Whether a full queue may refuse this I/O: only the pool's own work, which the pool takes up again later. Relief
    /// copies exist to drain full queues, so they are never refused, and a rebuild is never put off. A refused compaction, at any level, would make
    /// RocksDB read-only (Calcspar, ATC 2023).
    #[must_use]
    pub const fn refusable(&self) -> bool {
        let is_own = matches!(
            self.origin,
            Origin::Copy | Origin::Promotion | Origin::WriteBack | Origin::Scrub | Origin::Prefetch
        );
        is_own && !matches!(self.step, Step::Log | Step::Manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_of_a_compaction_decides_its_class() {
        let class = |level| Io::new(Origin::Compaction { level }, Step::Data).class();
        assert_eq!(
            [0, 1, 2, 3, 6].map(class),
            [Class::Urgent, Class::Background, Class::Background, Class::Idle, Class::Idle]
        );
    }

    #[test]
    fn the_space_pressure_of_a_merge_decides_its_class() {
        let class = |space_pressure_percent| {
            Io::new(Origin::Merge { space_pressure_percent }, Step::Data).class()
        };
        assert_eq!(
            [0, 29, 30, 80, 81, 100].map(class),
            [
                Class::Idle,
                Class::Idle,
                Class::Background,
                Class::Background,
                Class::Urgent,
                Class::Urgent
            ]
        );
    }

    #[test]
    fn the_fill_of_a_write_log_decides_the_class_of_emptying_it() {
        let class = |space_pressure_percent| {
            Io::new(Origin::Recycle { space_pressure_percent }, Step::Data).class()
        };
        assert_eq!(
            [25, 49, 50, 86, 87, 100].map(class),
            [
                Class::Idle,
                Class::Idle,
                Class::Background,
                Class::Background,
                Class::Urgent,
                Class::Urgent
            ]
        );
    }

    #[test]
    fn pressure_raises_the_work_it_is_about() {
        let class = |origin, flush, compaction| {
            Io::new(origin, Step::Data).class_under(Pressure { flush, compaction })
        };
        let deep = |level| Origin::Compaction { level };
        for (origin, expected) in [
            (Origin::Flush, [Class::Urgent, Class::Foreground, Class::Foreground, Class::Urgent]),
            (deep(0), [Class::Urgent, Class::Foreground, Class::Foreground, Class::Foreground]),
            (deep(1), [Class::Background, Class::Background, Class::Background, Class::Foreground]),
            (deep(5), [Class::Idle, Class::Idle, Class::Idle, Class::Foreground]),
            (Origin::UserRead, [Class::Foreground; 4]),
            (Origin::Scrub, [Class::Idle; 4]),
        ] {
            let found = [
                class(origin, 0.74, 0.0),
                class(origin, 0.75, 0.0),
                class(origin, 1.0, 0.5),
                class(origin, 0.0, 1.0),
            ];
            assert_eq!(found, expected, "{origin:?}");
        }
        assert_eq!(class(deep(1), 0.0, 0.8), Class::Urgent);
        assert_eq!(class(deep(5), 0.0, 0.8), Class::Background);
        let record = Io::new(deep(5), Step::Log);
        assert_eq!(record.class_under(Pressure { flush: 1.0, compaction: 1.0 }), Class::Commit);
    }

    #[test]
    fn a_record_others_wait_for_never_queues_behind_reads() {
        for step in [Step::Log, Step::Manifest] {
            assert_eq!(Io::new(Origin::Compaction { level: 6 }, step).class(), Class::Commit);
        }
        assert!(Class::Commit < Class::Foreground);
    }

    #[test]
    fn only_the_pools_own_work_may_be_refused() {
        let refusable = |origin, step| Io::new(origin, step).refusable();
        assert!(refusable(Origin::Copy, Step::Data) && refusable(Origin::Scrub, Step::Data));
        assert!(refusable(Origin::Prefetch, Step::Data));
        assert!(!refusable(Origin::Copy, Step::Manifest));
        for origin in
            [Origin::UserRead, Origin::Flush, Origin::Compaction { level: 6 }, Origin::Bulk]
        {
            assert!(!refusable(origin, Step::Data));
        }
    }

    #[test]
    fn index_is_the_position_in_all() {
        for (position, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), position);
        }
        for (position, purpose) in Purpose::ALL.into_iter().enumerate() {
            assert_eq!(purpose.index(), position);
        }
    }

    #[test]
    fn a_step_that_is_not_data_names_the_purpose() {
        let purpose = |origin, step| Io::new(origin, step).purpose();
        assert_eq!(purpose(Origin::UserChange, Step::Data), Purpose::Write);
        assert_eq!(purpose(Origin::UserChange, Step::Log), Purpose::Log);
        assert_eq!(purpose(Origin::Rebuild, Step::Manifest), Purpose::Manifest);
        assert_eq!(purpose(Origin::WriteBack, Step::Data).name(), "write_back");
    }
}
