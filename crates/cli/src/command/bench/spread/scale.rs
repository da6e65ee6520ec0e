//! Sizes: the paper's, and our divisors.
//!
//! TANGO was measured on six gp3 volumes with 50 million records in tables of 8 MiB (TANGO). Two processors cannot
//! carry eighteen thousand operations a second of several stores at once, so rates of volumes are divided by
//! [`VOLUME_DIVISOR`]: six of them have 1200 together, far below the machine's limit. Tables are divided by about as
//! much, so that writing one takes the same share of a volume's second as in the paper. Data are divided by more, which
//! leaves a third of the paper's tables.

use std::time::Duration;

use bench::Profile;
use bench::ycsb::Shape;
use policy::units::{KIB, MIB};

/// How much each profile measures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) records: u64,
    /// Runs of a case, each with its own seed.
    pub(super) runs: u64,
    /// The time of all runs of a case together.
    pub(super) time: Duration,
    /// The lead before each run: the same load, which does not count. Volumes spend saved credits, and migration finds
    /// its balance.
    pub(super) lead: Duration,
    pub(super) memtable: u64,
    pub(super) table: u64,
    pub(super) level_base: u64,
    /// Threads of a store on six volumes.
    pub(super) threads: usize,
}

/// The paper's records.
pub(super) const SHAPE: Shape = Shape { key_bytes: 16, value_bytes: 256 };

/// The divisor of a gp3 volume's rates: leaves 200 operations per second.
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

    /// The duration of a load, estimated from the least rate of records.
    pub(super) const fn load_takes(&self) -> Duration {
        Duration::from_secs(self.records.div_ceil(50_000))
    }
}
