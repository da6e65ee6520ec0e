//! Sizes: the paper's, and what we divide them by.
//!
//! TANGO was measured on six gp3 volumes with 50 million records in tables of 8 MiB (TANGO). Two
//! processors cannot carry eighteen thousand operations a second of several stores at once, so volumes are
//! divided by [`VOLUME_DIVISOR`]: six of them are paid for 1200, and the machine is far from being the limit.
//! Tables are divided by about as much, so that writing one takes as large a part of a volume's second as the
//! paper's, and data by more: there are a third of the paper's tables.

use std::time::Duration;

use bench::Profile;
use bench::ycsb::Shape;
use policy::units::{KIB, MIB};

/// How much each profile measures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) records: u64,
    /// Runs of a case, each with a seed of its own.
    pub(super) runs: u64,
    /// How long all runs of a case take together.
    pub(super) time: Duration,
    /// Before each, the same load, which does not count: volumes use up what they saved, and migration
    /// finds its balance.
    pub(super) lead: Duration,
    pub(super) memtable: u64,
    pub(super) table: u64,
    pub(super) level_base: u64,
    /// Threads of a store on six volumes.
    pub(super) threads: usize,
}

/// Records as the paper's.
pub(super) const SHAPE: Shape = Shape { key_bytes: 16, value_bytes: 256 };

/// What operations and bytes a second of a gp3 volume are divided by: 200 a second are left.
pub(super) const VOLUME_DIVISOR: u64 = 15;

/// Volumes of a pool, as in the paper.
pub(super) const VOLUMES: usize = 6;

/// Volumes of the paper's random writes.
pub(super) const VOLUMES_WRITTEN: usize = 3;

impl Scale {
    pub(super) const fn of(profile: Profile) -> Self {
        match profile {
            Profile::Smoke => Self {
                records: 30_000,
                runs: 1,
                time: Duration::from_millis(1000),
                lead: Duration::from_millis(200),
                memtable: MIB,
                table: 256 * KIB,
                level_base: MIB,
                threads: 32,
            },
            Profile::Short => Self {
                records: 1_000_000,
                runs: 3,
                time: Duration::from_secs(60),
                lead: Duration::from_secs(30),
                memtable: MIB,
                table: 512 * KIB,
                level_base: 5 * MIB,
                threads: 128,
            },
            Profile::Paper => Self {
                records: 10_000_000,
                runs: 5,
                time: Duration::from_secs(900),
                lead: Duration::from_secs(60),
                memtable: 8 * MIB,
                table: 512 * KIB,
                level_base: 50 * MIB,
                threads: 128,
            },
        }
    }

    /// Bytes of all keys and values.
    pub(super) const fn data(&self) -> u64 {
        self.records * (SHAPE.key_bytes + SHAPE.value_bytes) as u64
    }

    /// Records a second that a load takes at least, for telling how long it will take.
    pub(super) const fn load_takes(&self) -> Duration {
        Duration::from_secs(self.records.div_ceil(50_000))
    }
}
