//! The machine a figure was measured on, in a line.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processors, their model and the kernel, as far as the system tells.
pub(crate) fn describe() -> String {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("processors", |(_, model)| model);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{count} x {model}, {} {}", std::env::consts::OS, kernel.trim())
}

/// Processor time that all threads of this process took so far, in user mode and in the kernel.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("nobody has spent less than no time")
}

/// How many threads ran or wanted to, on average over the last minute.
pub(crate) fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}
