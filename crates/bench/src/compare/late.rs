//! The lateness of a bare sleep while a cell runs: the machine's part of every latency.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use policy::latency::Times;
use volume::Clock;
use volume::task::block_on;

use crate::machine;

/// As long as a fast network volume takes.
const SLEEP: Duration = Duration::from_micros(500);

/// Between two sleeps: long enough that the sleeps cost no processor time to speak of.
const PAUSE: Duration = Duration::from_millis(4);

/// The lateness of sleeps, and how busy the machine was.
#[derive(Clone, Debug, Default)]
pub struct Late {
    sleeps: Times,
    busy_percent: f64,
    machine_percent: f64,
}

impl Late {
    /// Sleeps again and again until the other end of `running` is gone.
    #[must_use]
    pub fn watch(clock: &Clock, running: &Receiver<()>) -> Self {
        let mut late = Times::default();
        let (start, cpu) = (clock.now(), machine::cpu_time());
        let processors = machine::processors();
        while running.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
            let due = clock.now() + SLEEP;
            block_on(clock.sleep_until(due));
            late.record(clock.now().since(due));
        }
        let cpu = machine::cpu_time().saturating_sub(cpu).as_secs_f64();
        let there = clock.now().since(start).as_secs_f64() * machine::processor_count() as f64;
        Self {
            sleeps: late,
            busy_percent: 100.0 * cpu / there,
            machine_percent: 100.0 * machine::processors().busy_since(processors),
        }
    }

    /// The quantile `part` of the lateness, in microseconds.
    #[must_use]
    pub fn us(&self, part: f64) -> f64 {
        self.sleeps.quantile(part).map_or(f64::NAN, |late| late.as_secs_f64() * 1e6)
    }

    /// Processor time this process took, in percent of that of all processors.
    #[must_use]
    pub const fn busy_percent(&self) -> f64 {
        self.busy_percent
    }

    /// The same of all processes on the machine.
    #[must_use]
    pub const fn machine_percent(&self) -> f64 {
        self.machine_percent
    }

    /// The mean, in microseconds.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.sleeps.total().as_secs_f64() * 1e6 / self.sleeps.count() as f64
    }
}
