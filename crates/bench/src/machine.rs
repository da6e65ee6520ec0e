//! The machine a figure was measured on, in one line.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processors, their model and the kernel, as far as the system tells.
pub(crate) fn describe() -> String {
    let count = processor_count();
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("processors", |(_, model)| model);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{count} x {model}, {} {}", std::env::consts::OS, kernel.trim())
}

/// Processors available to this process.
pub(crate) fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processor time that all threads of this process took so far, in user mode and in the kernel.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("processor time is never negative")
}

/// Processor time that this thread took so far.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("processor time is never negative")
}

/// The load average of the last minute: threads that ran or wanted to run.
pub(crate) fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The time of all processors since boot.
#[derive(Clone, Copy)]
pub(crate) struct Processors {
    idle: f64,
    all: f64,
}

/// As far as the system tells.
pub(crate) fn processors() -> Processors {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let times: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // The fields are user nice system idle iowait irq softirq steal; the first two include guests.
    let idle = times.iter().skip(3).take(2).sum();
    Processors { idle, all: times.iter().take(8).sum() }
}

impl Processors {
    /// The busy share of their time since `earlier`.
    pub(crate) fn busy_since(self, earlier: Self) -> f64 {
        let all = self.all - earlier.all;
        if all > 0.0 { 1.0 - (self.idle - earlier.idle) / all } else { 0.0 }
    }
}
