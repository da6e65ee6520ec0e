//! When operations are meant to start, where a rate is asked for.
//!
//! A thread that waits for a slow answer sends nothing meanwhile, and what it did not send is not
//! measured: latencies look best where the store is worst (Tene, "coordinated omission"). With a rate,
//! each operation has a time at which it should start, whatever those before it took, and its latency
//! is counted from there.

use std::time::Duration;

use policy::time::{Instant, NANOS_PER_SEC};

/// The times one of several threads starts at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    start: Instant,
    /// Between two operations of this thread, in nanoseconds.
    gap_nanos: f64,
    /// Of its first one.
    offset_nanos: f64,
}

impl Pace {
    /// For thread number `thread` of `threads` that together start `per_sec` operations a second.
    pub(super) fn new(start: Instant, per_sec: u64, thread: usize, threads: usize) -> Self {
        let between_any = NANOS_PER_SEC as f64 / per_sec as f64;
        let (gap_nanos, offset_nanos) = (between_any * threads as f64, between_any * thread as f64);
        Self { start, gap_nanos, offset_nanos }
    }

    /// When operation number `turn` of this thread should start.
    pub(super) fn at(&self, turn: u64) -> Instant {
        let nanos = self.offset_nanos + self.gap_nanos * turn as f64;
        self.start + Duration::from_secs_f64(nanos / NANOS_PER_SEC as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns_at_the_rate_asked_for() {
        let start = Instant::from_nanos(5);
        let paces: Vec<_> = (0..4).map(|thread| Pace::new(start, 1000, thread, 4)).collect();
        let all = (0..3).flat_map(|turn| paces.iter().map(move |pace| pace.at(turn)));
        for (n, at) in (0_u32..).zip(all) {
            let off = at.since(start).abs_diff(Duration::from_millis(1) * n);
            assert!(off < Duration::from_nanos(10), "{n}: {off:?}");
        }
    }
}
