//! Finds the contract of a volume by loading it, as experiments 1 to 4 of Calcspar do (ATC 2023): latency below and
//! above the limit, the paid rate, the depth of the buckets and their refill rate.
//!
//! A volume does not report its contract, and a stopwatch misleads: a full bucket exceeds the paid rate for a second,
//! burst credits for half an hour. So the probe loads the volume fully and analyses the curve of served requests
//! (`fit`). It reports what it cannot see: a bandwidth that ends before a large I/O would count as two, credits that
//! last longer than the probe, a machine that is slower than the volume.
//!
//! The probe works on its own object on any [`volume::Volume`], so that all of it runs in virtual time on every
//! contract of the catalogue.

mod contract;
mod fit;
mod fixture;
mod measure;
mod picture;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use policy::contract::Percentiles;
use policy::time::Instant;
use volume::dir::BlockDevice;
use volume::{Clock, Object};

pub use self::contract::Labels;
pub use self::fit::Estimate;
pub use self::fixture::Time;

/// The smallest object for random reads that rarely hit the same place.
pub const BYTES_MIN: u64 = 16 << 20;

/// The shortest meaningful time.
pub const TIME_MIN: Duration = Duration::from_secs(5);

/// What to probe, and how long.
pub struct Probe {
    /// An empty object on the volume. It is left filled.
    pub object: Arc<dyn Object>,
    /// Bytes of it to fill, at least [`BYTES_MIN`]; filling ends earlier after a quarter of `time`.
    pub bytes: u64,
    /// How long to measure, at least [`TIME_MIN`]. Filling takes additional time.
    pub time: Duration,
    /// Whether to measure writes. The object is filled in any case.
    pub writes: bool,
    /// The clock of the probe.
    pub clock: Clock,
    /// Whether that clock is real or simulated.
    pub runs: Time,
    /// The seed of the requests' offsets.
    pub seed: u64,
    /// The device below, if the kernel counts its I/Os.
    pub device: Option<BlockDevice>,
}

/// Observes the progress of a probe.
pub trait Progress: Sync {
    /// A part begins.
    fn begins(&self, what: &str);
    /// The current time.
    fn passes(&self, now: Instant);
}

/// Ignores progress.
impl Progress for () {
    fn begins(&self, _: &str) {}
    fn passes(&self, _: Instant) {}
}

/// The probe was stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

impl Probe {
    /// The limit on the time for filling; a slow volume may take longer to fill the minimum.
    #[must_use]
    pub fn fill_time(&self) -> Duration {
        self.time / 4
    }

    /// Loads the volume for the probe's time plus the time for filling.
    ///
    /// # Errors
    /// [`Interrupted`] soon after `stop` is set; an error of the volume; too little space or time.
    pub fn run(&self, stop: &AtomicBool, progress: &dyn Progress) -> anyhow::Result<Found> {
        measure::run(self, stop, progress)
    }
}

/// Why a rate was not higher.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bound {
    /// The volume's limit.
    Volume,
    /// The volume's other limit, of operations or bytes.
    OtherLimit,
    /// This machine's processor time.
    Machine,
    /// The number of requests at once: more might have given more.
    Requests,
}

/// A rate with its context.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// The sustained rate, as far as the time showed: operations or bytes a second.
    pub per_sec: Estimate,
    /// Why it was not higher.
    pub bound: Bound,
    /// A higher rate that ended, if there was one.
    pub burst: Option<Burst>,
    /// The depth of the bucket; `None` if it was never seen spent or full.
    pub depth: Option<Estimate>,
    /// The duration of the observation, in seconds.
    pub watched_secs: f64,
    /// The rate in each stretch of time: its start in seconds, and the rate per second.
    pub course: Vec<(f64, f64)>,
    /// The stopwatch's result: the total divided by the time.
    pub naive_per_sec: f64,
}

/// A higher rate that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Operations or bytes a second.
    pub per_sec: f64,
    /// Operations or bytes spent beyond the sustained rate: at least this much can be saved up.
    pub credits: f64,
    /// For how long, in seconds.
    pub lasted_secs: f64,
}

/// Latencies below or above the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Their percentiles.
    pub percentiles: Percentiles,
    /// The number of requests.
    pub samples: u64,
    /// How many requests were under way at once.
    pub at_once: usize,
}

/// The result of a load of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sized {
    /// The size of each request.
    pub bytes: u64,
    /// Requests a second.
    pub per_sec: Estimate,
}

/// Tokens after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recovered {
    /// The pause after an overdraft, in seconds.
    pub idle_secs: f64,
    /// Operations available then beyond the rate; `None` if they were not spent.
    pub tokens: Option<f64>,
}

/// Whether reads and writes share their limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sharing {
    /// One limit for both.
    Shared,
    /// Each has its own.
    Separate,
    /// Undetermined.
    Unclear,
}

/// The results of writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Writes {
    /// Latency below the limit.
    pub base: Measured,
    /// Operations a second.
    pub per_sec: Estimate,
    /// Why the rate was not higher.
    pub bound: Bound,
    /// Reads and writes per second under a load of both.
    pub mixed_per_sec: [f64; 2],
    /// Whether they share a limit.
    pub sharing: Sharing,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Bytes filled.
    pub bytes: u64,
    /// The duration, in seconds.
    pub secs: f64,
    /// Read latency below the limit.
    pub base: Measured,
    /// Read latency above the limit.
    pub over: Measured,
    /// Operations: reads of 4 KiB.
    pub iops: Rate,
    /// Bytes.
    pub bandwidth: Rate,
    /// The size of the requests bandwidth was measured with.
    pub bandwidth_bytes: u64,
    /// Requests a second by size, ascending.
    pub sizes: Vec<Sized>,
    /// The largest I/O seen to count as one operation, in bytes.
    pub operation_bytes: u64,
    /// Whether larger ones count as several. If false, bandwidth ends first and hides it.
    pub operation_is_largest: bool,
    /// Tokens after pauses of several lengths.
    pub recovery: Vec<Recovered>,
    /// Writes, if they were measured.
    pub writes: Option<Writes>,
    /// I/Os per second of other processes, seen while the probe was idle.
    pub others_per_sec: Option<f64>,
    /// The busy share of this machine's processors during the last load.
    pub machine_busy: f64,
    /// Kernel's I/Os for each of the probe's 4 KiB requests, where the kernel counts them.
    pub device_ios_per_request: Option<f64>,
}

#[cfg(test)]
mod tests;
