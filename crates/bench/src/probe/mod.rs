//! Finds the contract of a volume by loading it, as experiments 1 to 4 of Calcspar do (ATC 2023):
//! latency below the line and above it, what is paid, how deep the buckets are and how fast they
//! fill again.
//!
//! A volume does not say what it was sold as, and a stopwatch is fooled: a bucket that was full gives
//! more than is paid for a second, the credits of a burst for half an hour. So the volume is asked for
//! all it gives, and the curve of what came through is taken apart (`fit`). What cannot be seen is
//! said: a bandwidth that ends before a large I/O would count as two, credits that last longer than the
//! probe, a machine that is slower than the volume.
//!
//! The probe works on an object of its own on any [`volume::Volume`], so that all of it runs in virtual
//! time on every contract of the catalogue.

mod contract;
mod fit;
mod measure;
mod picture;
mod stand;
mod watch;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use policy::contract::Percentiles;
use policy::time::Instant;
use volume::{Clock, Object};

pub use self::contract::Labels;
pub use self::fit::Estimate;
pub use self::stand::Time;
pub use self::watch::Counters;

/// The least that can be read at random without meeting the same place all the time.
pub const BYTES_MIN: u64 = 16 << 20;

/// The shortest time that says anything.
pub const TIME_MIN: Duration = Duration::from_secs(5);

/// What to probe, and how long.
pub struct Probe {
    /// An empty object on the volume. It is left filled.
    pub object: Arc<dyn Object>,
    /// How much of it is filled, in bytes; at least [`BYTES_MIN`], and less than this if a quarter of
    /// `time` does not suffice.
    pub bytes: u64,
    /// How long to measure, at least [`TIME_MIN`]. Filling comes on top.
    pub time: Duration,
    /// Whether to measure writes. The object is filled in any case.
    pub writes: bool,
    /// Time passes here.
    pub clock: Clock,
    /// Whether that is the machine's.
    pub runs: Time,
    /// Where the requests go.
    pub seed: u64,
    /// What the kernel counts for the device, if it does.
    pub device: Option<Counters>,
}

/// Learns how far a probe is.
pub trait Progress: Sync {
    /// A part of it begins.
    fn begins(&self, what: &str);
    /// It is this late.
    fn passes(&self, now: Instant);
}

/// Nobody looks.
impl Progress for () {
    fn begins(&self, _: &str) {}
    fn passes(&self, _: Instant) {}
}

/// It was stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

impl Probe {
    /// How long filling may take at most, unless the volume is so slow that even the least takes longer.
    #[must_use]
    pub fn fill_time(&self) -> Duration {
        self.time / 4
    }

    /// Loads the volume, for as long as it was asked to and what filling takes.
    ///
    /// # Errors
    /// [`Interrupted`] soon after `stop` is set; what the volume answers with; too little room or time.
    pub fn run(&self, stop: &AtomicBool, progress: &dyn Progress) -> anyhow::Result<Found> {
        measure::run(self, stop, progress)
    }
}

/// Why a rate was not higher.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bound {
    /// The volume let no more through.
    Volume,
    /// The other kind of limit, operations or bytes, let no more through.
    OtherLimit,
    /// This machine had no more processor time.
    Machine,
    /// More requests at once might have got more through.
    Requests,
}

/// A rate, what it takes to see it, and what surrounds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// The lasting rate, as far as the time showed: operations or bytes a second.
    pub per_sec: Estimate,
    /// Why it was not higher.
    pub bound: Bound,
    /// A higher rate that ended, if it did.
    pub burst: Option<Burst>,
    /// What a full bucket holds; none if it was not seen to be spent or full.
    pub depth: Option<Estimate>,
    /// How long the rate was watched, in seconds.
    pub watched_secs: f64,
    /// What came through in each stretch of time: when it began, in seconds, and how much a second.
    pub course: Vec<(f64, f64)>,
    /// What a stopwatch would have said: all that came through by the time it took.
    pub naive_per_sec: f64,
}

/// A higher rate that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Operations or bytes a second.
    pub per_sec: f64,
    /// What was spent beyond the lasting rate: at least this much can be saved up.
    pub credits: f64,
    /// For how long, in seconds.
    pub lasted_secs: f64,
}

/// Latencies below the line or above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Their percentiles.
    pub percentiles: Percentiles,
    /// Of how many requests.
    pub samples: u64,
    /// How many requests were under way at once.
    pub at_once: usize,
}

/// What a load of one size gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sized {
    /// Of each request.
    pub bytes: u64,
    /// Requests a second.
    pub per_sec: Estimate,
}

/// What came back after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recovered {
    /// The pause after an overdraft, in seconds.
    pub idle_secs: f64,
    /// Operations that were there then, beyond the rate; none if they were not spent.
    pub tokens: Option<f64>,
}

/// Whether reads and writes share their limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sharing {
    /// One limit for both.
    Shared,
    /// Each has its own.
    Separate,
    /// It cannot be told.
    Unclear,
}

/// Writes beside reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Writes {
    /// Latency below the line.
    pub base: Measured,
    /// Operations a second.
    pub per_sec: Estimate,
    /// Why not more.
    pub bound: Bound,
    /// Reads and writes a second when both were asked for.
    pub mixed_per_sec: [f64; 2],
    /// What that means.
    pub sharing: Sharing,
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Bytes that were filled.
    pub bytes: u64,
    /// How long it took, in seconds.
    pub secs: f64,
    /// Read latency below the line.
    pub base: Measured,
    /// Read latency above it.
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
    /// Whether larger ones count as more. Otherwise bandwidth ends first and hides it.
    pub operation_is_largest: bool,
    /// What came back after pauses of some lengths.
    pub recovery: Vec<Recovered>,
    /// Writes, if they were measured.
    pub writes: Option<Writes>,
    /// I/Os a second of others, seen while the probe did nothing.
    pub others_per_sec: Option<f64>,
    /// How much of this machine's processors was used while it ended, by whomever.
    pub machine_busy: f64,
    /// Kernel's I/Os for each of the probe's 4 KiB requests, where the kernel counts them.
    pub device_ios_per_request: Option<f64>,
}

#[cfg(test)]
mod tests;
