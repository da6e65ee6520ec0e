//! Sizes and volumes.

use std::time::Duration;

use bench::Profile;
use bench::report::Report;
use policy::contract::spec::Bought;
use policy::contract::{Contract, Counted, Latency, Limit, Percentiles, catalogue};
use policy::units::{Bytes, GIB, KIB, MIB};

/// The part of the data that fits the cache, in percent, unless a row says otherwise.
pub(super) const CACHED_PERCENT: u64 = 20;

/// The smallest cache: a tier needs room for two units.
const CACHE_MIN: u64 = 2 * MIB;

/// How much each profile measures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Bytes that clients use.
    pub(super) data: u64,
    pub(super) runs: u64,
    /// The time before each run of a cache, with the same load or the one that warms it.
    pub(super) lead: Duration,
    /// The time of each run.
    pub(super) time: Duration,
}

impl Scale {
    /// The scale of a profile, with `runs` if the user asked for a number.
    pub(super) fn of(profile: Profile, runs: Option<u64>) -> Self {
        let (data, lead, time) = match profile {
            Profile::Smoke => (16 * MIB, 4, 2),
            Profile::Short => (128 * MIB, 40, 10),
            Profile::Paper => (GIB, 600, 60),
        };
        let [lead, time] = [lead, time].map(Duration::from_secs);
        Self { data, runs: runs.unwrap_or(profile.runs()), lead, time }
    }

    /// Bytes of the fast volume that a cache uses which fits a part of the data.
    pub(super) fn cache(&self, percent: u64) -> u64 {
        (self.data * percent / 100).max(CACHE_MIN)
    }

    /// Adds the notes that a reader of the report needs.
    pub(super) fn describe(&self, report: &mut Report) -> anyhow::Result<()> {
        report.notes.push(format!(
            "virtual time; {} of data, a cache of {} on the fast volume (of 8 % in B26); {} runs of {}, after a lead of {} where there is a \
             cache; every answer is compared",
            Bytes(self.data),
            Bytes(self.cache(CACHED_PERCENT)),
            self.runs,
            humantime::format_duration(self.time),
            humantime::format_duration(self.lead),
        ));
        report.notes.push(
            "slow: a simulated gp3 volume of 3,000 IOPS and 125 MiB/s; fast: a simulated local disk of 30,000 IOPS and 1 GiB/s, \
             80 us a read in the median, which is an assumption; each behind a gate"
                .into(),
        );
        report.notes.push(
            "tier: units of 1 MiB, lazy promotion of the pages that were read, write-through. objects on demand: every miss first \
             promotes its whole object of 1 MiB, and waits for it, as in Ceph's cache tiering; least recently used ones leave"
                .into(),
        );
        report.notes.push(
            "at the list prices of us-east-1, 1 TB on gp3 costs 80 $ a month with 3,000 IOPS, and 145 $ with 16,000".into(),
        );
        report.assume(&slow()?);
        report.assume(&fast());
        Ok(())
    }
}

/// The slow volume.
pub(super) fn slow() -> anyhow::Result<Contract> {
    Ok(catalogue::find("gp3")?.contract(Some(Bytes(100 * GIB)), Bought::default())?)
}

/// The volume that has as many operations as a tier should feel like.
pub(super) fn wide() -> anyhow::Result<Contract> {
    let bought = Bought { iops: Some(16_000), ..Bought::default() };
    Ok(catalogue::find("gp3")?.contract(Some(Bytes(100 * GIB)), bought)?)
}

/// The fast volume.
pub(super) fn fast() -> Contract {
    let limit = |counts, rate_per_sec| Limit { counts, rate_per_sec, depth: rate_per_sec / 10 };
    let us = Duration::from_micros;
    let [read, write] = [[60, 80, 110, 200, 500], [12, 20, 30, 60, 200]].map(|micros| {
        let [p1, p50, p90, p99, p999] = micros.map(us);
        Percentiles { p1, p50, p90, p99, p999 }
    });
    Contract {
        name: "local disk".into(),
        limits: vec![limit(Counted::Ops, 30_000), limit(Counted::Bytes, GIB)],
        op_bytes_max: 256 * KIB,
        latency: Latency { read, write },
        assumed: ["iops", "mib_per_s", "latency.read", "latency.write"].map(String::from).into(),
        ..Contract::unlimited()
    }
}
