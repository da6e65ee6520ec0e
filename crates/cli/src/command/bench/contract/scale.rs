//! Sizes: the papers', and our divisors.
//!
//! Ratios are kept (data to cache, offered to paid, files to levels), and sizes are divided by 20 to 100. Rates are
//! unchanged where the volume's rate is.

use std::time::Duration;

use bench::Profile;
use policy::units::MIB;

use super::super::fixture::Sizes;

/// How much each profile measures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// The divisor of 100 million records.
    pub(super) divisor: u64,
    /// Runs of a cell, each with its own seed.
    pub(super) runs: u64,
    /// The time of all runs of a case together: of each run where they run at the same time, divided among them where
    /// they run in turn.
    pub(super) time: Duration,
    /// The lead before it: the same load, which does not count.
    pub(super) lead: Duration,
    /// Reads before the lead, without the contract, that fill the caches.
    pub(super) warm_reads: u64,
    pub(super) sizes: Sizes,
}

/// Records in the papers' tests.
const RECORDS: u64 = 100_000_000;
pub(super) const KEY_BYTES: u64 = 16;
pub(super) const VALUE_BYTES: u64 = 256;

impl Scale {
    /// The scale of a profile, with `runs` if the user asked for a number.
    pub(super) fn of(profile: Profile, runs: Option<u64>, time: Duration) -> Self {
        let sizes = |table, level_base| Sizes { memtable: table, table, level_base };
        let (divisor, lead_ms, warm_reads, sizes) = match profile {
            Profile::Smoke => (2500, 200, 2000, sizes(MIB, MIB)),
            Profile::Short => (50, 2000, 20_000, sizes(MIB, 8 * MIB)),
            Profile::Paper => (20, 10_000, 100_000, sizes(2 * MIB, 16 * MIB)),
        };
        let (runs, lead) = (runs.unwrap_or(profile.runs()), Duration::from_millis(lead_ms));
        Self { divisor, runs, time, lead, warm_reads, sizes }
    }

    pub(super) const fn records(&self) -> u64 {
        RECORDS / self.divisor
    }

    /// Bytes of all keys and values.
    pub(super) const fn data(&self) -> u64 {
        self.records() * (KEY_BYTES + VALUE_BYTES)
    }

    /// The share `percent` of the data, in bytes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a size"
    )]
    pub(super) fn share(&self, percent: f64) -> u64 {
        (self.data() as f64 * percent / 100.0) as u64
    }
}
