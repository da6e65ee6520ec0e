//! Sizes and volumes.

use std::time::Duration;

use policy::contract::spec::Bought;
use policy::contract::{Contract, catalogue};
use policy::units::{Bytes, GIB, MIB};

use crate::Profile;
use crate::report::Report;

/// One more than an object has fragments: after the loss of one, each fragment still has a volume of its own.
pub(super) const VOLUMES: usize = 7;

/// Bytes of a value of the log store, and how many are put a second.
pub(super) const VALUE: usize = 8 << 10;
pub(super) const PUTS_PER_SEC: u64 = 256;

/// How much each profile measures.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Bytes of the device.
    pub(super) data: u64,
    pub(super) runs: u64,
    /// One wave of the offered load.
    pub(super) wave: Duration,
    /// The time of each run.
    pub(super) time: Duration,
}

impl Scale {
    /// The scale of a profile, with `runs` if the user asked for a number.
    #[must_use]
    pub fn of(profile: Profile, runs: Option<u64>) -> Self {
        let (data, wave, time) = match profile {
            Profile::Smoke => (64 * MIB, 2, 4),
            Profile::Short => (512 * MIB, 10, 20),
            Profile::Paper => (4 * GIB, 60, 240),
        };
        let [wave, time] = [wave, time].map(Duration::from_secs);
        Self { data, runs: runs.unwrap_or(profile.runs()), wave, time }
    }

    /// Adds the notes that a reader of the report needs.
    ///
    /// # Errors
    /// The catalogue lacks the contract.
    pub fn describe(&self, report: &mut Report) -> anyhow::Result<()> {
        report.notes.push(format!(
            "virtual time; {VOLUMES} simulated gp3 volumes of 3,000 IOPS and 125 MiB/s, one of which is lost at the start except in \
             the arm `healthy`; {} of a device in extents; users: 4 KiB anywhere, seven reads of ten, the others durable writes; {} \
             runs of {} for each arm, each with a seed; every answer is compared",
            Bytes(self.data),
            self.runs,
            humantime(self.time),
        ));
        report.notes.push(format!(
            "a log store on the same pool takes {PUTS_PER_SEC} values of {} a second in every arm; merges have work only where it has \
             little room. `rebuild`: the mover makes what was lost again. `scrub`: one pass after the other, as fast as it may",
            Bytes(VALUE as u64),
        ));
        report.assume(&gp3()?);
        Ok(())
    }
}

fn humantime(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

/// The volumes.
pub(super) fn gp3() -> anyhow::Result<Contract> {
    Ok(catalogue::find("gp3")?.contract(Some(Bytes(100 * GIB)), Bought::default())?)
}
