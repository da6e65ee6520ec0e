//! Sizes.
//!
//! In profile `short` volumes have all of gp3's rates. A store on six of them can ask for more than two processors carry, so
//! schemes run in turn, and the offered rate follows from what the slowest of them did. In `smoke` rates are divided, and the
//! schemes of a case run at the same time.

use std::time::Duration;

use bench::Profile;
use bench::ycsb::Shape;
use policy::contract::Contract;
use policy::units::MIB;

use super::super::fixture::{Sizes, gp3};

/// How much each profile measures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) records: u64,
    /// Runs of a case, each with its own seed.
    pub(super) runs: u64,
    /// The time of all runs of a case together: half of it in the closed loop.
    pub(super) time: Duration,
    /// The lead before each run: the same load, which does not count. Volumes spend saved tokens.
    pub(super) lead: Duration,
    pub(super) sizes: Sizes,
    /// Threads of a store.
    pub(super) threads: usize,
    /// The divisor of a volume's rates.
    pub(super) volume_divisor: u64,
    /// The longest that a rebuild may take.
    pub(super) rebuild_max: Duration,
}

/// The records of the papers, as in the other benches.
pub(super) const SHAPE: Shape = Shape { key_bytes: 16, value_bytes: 256 };

/// Volumes of a pool: as many as 4 + 2 has fragments.
pub(super) const VOLUMES: usize = 6;

impl Scale {
    /// The scale of a profile, with `runs` if the user asked for a number.
    pub(super) fn of(profile: Profile, runs: Option<u64>, time: Duration) -> Self {
        let sizes = |memtable, table, level_base| Sizes { memtable, table, level_base };
        let (records, lead_ms, threads, volume_divisor, rebuild_secs, sizes) = match profile {
            // Tables of several strips: shorter ones would not be cut into fragments.
            Profile::Smoke => (30_000, 200, 32, 15, 60, sizes(2 * MIB, 2 * MIB, 4 * MIB)),
            Profile::Short => (1_000_000, 5_000, 128, 1, 300, sizes(8 * MIB, 8 * MIB, 32 * MIB)),
            Profile::Paper => (10_000_000, 30_000, 128, 1, 3600, sizes(8 * MIB, 8 * MIB, 64 * MIB)),
        };
        let (runs, lead) = (runs.unwrap_or(profile.runs()), Duration::from_millis(lead_ms));
        let rebuild_max = Duration::from_secs(rebuild_secs);
        Self { records, runs, time, lead, sizes, threads, volume_divisor, rebuild_max }
    }

    /// Bytes of all keys and values.
    pub(super) const fn data(&self) -> u64 {
        self.records * (SHAPE.key_bytes + SHAPE.value_bytes) as u64
    }

    /// The contract of a measured volume.
    pub(super) fn contract(&self) -> anyhow::Result<Contract> {
        gp3(1, self.volume_divisor)
    }

    /// The duration of one loop of one run.
    pub(super) fn run_time(&self) -> Duration {
        self.time / u32::try_from(2 * self.runs).unwrap_or(u32::MAX)
    }

    /// About how long a rebuild takes: what three copies have on a volume, at a tenth of a volume's bytes a second.
    pub(super) fn rebuild_takes(&self) -> anyhow::Result<Duration> {
        const COPIES: u64 = 3;
        const PART: u64 = 10;
        let bytes_per_sec = self.contract()?.paid_bytes_per_sec().unwrap_or(u64::MAX);
        let lost = self.data() * COPIES / VOLUMES as u64;
        Ok(Duration::from_secs(lost * PART / bytes_per_sec.max(1)))
    }
}
