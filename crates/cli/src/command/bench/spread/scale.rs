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
use policy::contract::Contract;
use policy::units::{KIB, MIB};

use super::super::fixture::{Sizes, gp3};

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
    pub(super) sizes: Sizes,
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

/// The contract of a measured volume.
pub(super) fn contract() -> anyhow::Result<Contract> {
    gp3(1, VOLUME_DIVISOR)
}

impl Scale {
    /// The scale of a profile, with `runs` if the user asked for a number.
    pub(super) fn of(profile: Profile, runs: Option<u64>, time: Duration) -> Self {
        let sizes = |memtable, table, level_base| Sizes { memtable, table, level_base };
        let (records, lead_ms, threads, sizes) = match profile {
            Profile::Smoke => (30_000, 200, 32, sizes(MIB, 256 * KIB, MIB)),
            Profile::Short => (1_000_000, 30_000, 128, sizes(MIB, 512 * KIB, 5 * MIB)),
            Profile::Paper => (10_000_000, 60_000, 128, sizes(8 * MIB, 512 * KIB, 50 * MIB)),
        };
        let (runs, lead) = (runs.unwrap_or(profile.runs()), Duration::from_millis(lead_ms));
        Self { records, runs, time, lead, sizes, threads }
    }

    /// Bytes of all keys and values.
    pub(super) const fn data(&self) -> u64 {
        self.records * (SHAPE.key_bytes + SHAPE.value_bytes) as u64
    }
}
