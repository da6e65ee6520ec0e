//! Sizes: the papers', and our divisors.
//!
//! Ratios are kept (data to cache, offered to paid, files to levels), and sizes are divided by 20 to 100. Rates are
//! unchanged where the volume's rate is.

use std::time::Duration;

use bench::Profile;
use policy::units::MIB;

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
    pub(super) memtable: u64,
    pub(super) table: u64,
    pub(super) level_base: u64,
}

/// Records in the papers' tests.
const RECORDS: u64 = 100_000_000;
pub(super) const KEY_BYTES: u64 = 16;
pub(super) const VALUE_BYTES: u64 = 256;

impl Scale {
    pub(super) const fn of(profile: Profile) -> Self {
        match profile {
            Profile::Smoke => Self {
                divisor: 2500,
                runs: 1,
                time: Duration::from_millis(1000),
                lead: Duration::from_millis(200),
                warm_reads: 2000,
                memtable: MIB,
                table: MIB,
                level_base: MIB,
            },
            Profile::Short => Self {
                divisor: 50,
                runs: 3,
                time: Duration::from_secs(60),
                lead: Duration::from_secs(2),
                warm_reads: 20_000,
                memtable: MIB,
                table: MIB,
                level_base: 8 * MIB,
            },
            Profile::Paper => Self {
                divisor: 20,
                runs: 5,
                time: Duration::from_secs(900),
                lead: Duration::from_secs(10),
                warm_reads: 100_000,
                memtable: 2 * MIB,
                table: 2 * MIB,
                level_base: 16 * MIB,
            },
        }
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
