//! Intended start times of operations.
//!
//! A thread that waits for a slow answer sends nothing meanwhile, and a request that is not sent is not measured:
//! latencies look best where the store is worst (Tene, "coordinated omission"). An intended start is the time at which
//! an operation should start, however long earlier ones took; its latency is measured from there too.
//!
//! ```text
//! AtOnce     when the one before has ended                        closed loop
//! Shared     after each hundred, when the threads' common rate    closed loop, as db_bench's mixgraph
//!            has room for a hundred more
//! Even       thread by thread in turn, at a rate                  open loop, as YCSB's target
//! Schedule   whichever thread is free takes the next of a         open loop
//!            common list, which follows a rate over time
//! ```

use std::time::Duration;

use parking_lot::Mutex;
use policy::time::{Instant, NANOS_PER_SEC};

use super::{Operation, Rate};

/// When an operation starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Turn {
    /// Immediately.
    Now,
    /// At this time; the pace allows no earlier start.
    At(Instant),
    /// At this time: the latency counts from there.
    Intended(Instant),
}

/// Decides when one thread starts its operations.
pub(crate) trait Pace: Send {
    /// The start of the next operation, an `operation`, if the thread is free at `now`.
    fn turn(&mut self, operation: Operation, now: Instant) -> Turn;
}

/// Starts each operation when the one before has ended.
pub(crate) struct AtOnce;

impl Pace for AtOnce {
    fn turn(&mut self, _operation: Operation, _now: Instant) -> Turn {
        Turn::Now
    }
}

/// Evenly spaced starts of one of several threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Even {
    start: Instant,
    /// Between two operations of this thread, in nanoseconds.
    gap_nanos: f64,
    /// The offset of the first one.
    offset_nanos: f64,
    turn: u64,
}

impl Even {
    /// For thread number `thread` of `threads` that together start `per_sec` operations a second.
    pub(crate) fn new(start: Instant, per_sec: u64, thread: usize, threads: usize) -> Self {
        let between_any = NANOS_PER_SEC as f64 / per_sec as f64;
        let (gap_nanos, offset_nanos) = (between_any * threads as f64, between_any * thread as f64);
        Self { start, gap_nanos, offset_nanos, turn: 0 }
    }
}

impl Pace for Even {
    fn turn(&mut self, _operation: Operation, _now: Instant) -> Turn {
        let nanos = self.offset_nanos + self.gap_nanos * self.turn as f64;
        self.turn += 1;
        Turn::Intended(self.start + Duration::from_secs_f64(nanos / NANOS_PER_SEC as f64))
    }
}

/// Operations granted to a thread at a time, as in db_bench.
const HUNDRED: u64 = 100;

/// The unused part of a rate that stays available for later: one refill of RocksDB's rate limiter.
const SAVED: Duration = Duration::from_millis(100);

/// A rate that threads share, with one limit for operations that read and one for those that only write.
pub(crate) struct Shared {
    rate: Rate,
    start: Instant,
    /// The share of each kind, and the time since the start up to which its operations are granted.
    kinds: Mutex<[(f64, Duration); 2]>,
}

impl Shared {
    /// From `start` on, with the share `writes` of operations that only write.
    pub(crate) fn new(rate: Rate, start: Instant, writes: f64) -> Self {
        let kinds = Mutex::new([(1.0 - writes, Duration::ZERO), (writes, Duration::ZERO)]);
        Self { rate, start, kinds }
    }

    /// When a thread that asks at `now` may start its next hundred.
    fn hundred(&self, only_writes: bool, now: Instant) -> Instant {
        let now = now.since(self.start);
        let (share, given) = &mut self.kinds.lock()[usize::from(only_writes)];
        let from = (*given).max(now.saturating_sub(SAVED));
        let to = self.rate.after(from, *share, HUNDRED as f64);
        // At rate zero it never starts.
        *given = to.unwrap_or(Duration::from_secs(u32::MAX.into()));
        self.start + *given
    }
}

/// One thread's part of a [`Shared`] rate.
pub(crate) struct SharedPace<'p> {
    pub(crate) shared: &'p Shared,
    /// Operations of each kind so far.
    counts: [u64; 2],
}

impl<'p> SharedPace<'p> {
    pub(crate) const fn new(shared: &'p Shared) -> Self {
        Self { shared, counts: [0; 2] }
    }
}

impl Pace for SharedPace<'_> {
    fn turn(&mut self, operation: Operation, now: Instant) -> Turn {
        let only_writes = operation.only_writes();
        let count = &mut self.counts[usize::from(only_writes)];
        *count += 1;
        // Asks before each hundred. db_bench asks after it, so its threads begin with an unpaced burst of one hundred
        // each: a thousandth of its million operations, but a large part of a run of seconds.
        if *count % HUNDRED == 1 {
            Turn::At(self.shared.hundred(only_writes, now))
        } else {
            Turn::Now
        }
    }
}

/// Intended starts that follow a rate; any free thread takes the next.
pub(crate) struct Schedule {
    rate: Rate,
    start: Instant,
    last: Mutex<Duration>,
}

impl Schedule {
    pub(crate) fn new(rate: Rate, start: Instant) -> Self {
        Self { rate, start, last: Mutex::default() }
    }
}

impl Pace for &Schedule {
    fn turn(&mut self, _operation: Operation, _now: Instant) -> Turn {
        let mut last = self.last.lock();
        let next = self.rate.after(*last, 1.0, 1.0);
        *last = next.unwrap_or(Duration::from_secs(u32::MAX.into()));
        Turn::Intended(self.start + *last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Wave;

    #[test]
    fn threads_take_turns_at_the_rate_asked_for() {
        let start = Instant::from_nanos(5);
        let mut paces: Vec<_> = (0..4).map(|thread| Even::new(start, 1000, thread, 4)).collect();
        for n in 0..12_u32 {
            let turn = paces[n as usize % 4].turn(Operation::Read, start);
            let Turn::Intended(at) = turn else { panic!("{turn:?}") };
            let off = at.since(start).abs_diff(Duration::from_millis(1) * n);
            assert!(off < Duration::from_nanos(10), "{n}: {off:?}");
        }
    }

    const RATE: Rate = Rate {
        wave: Wave::Flat { d: 1000.0 },
        noise: 0.0,
        interval: Duration::from_millis(50),
        seed: 1,
    };

    #[test]
    fn a_shared_rate_gives_hundreds_in_turn_and_saves_little() {
        let start = Instant::from_nanos(7);
        let shared = Shared::new(RATE, start, 0.2);
        let mut threads = [SharedPace::new(&shared), SharedPace::new(&shared)];
        // 800 reads per second: a hundred take an eighth of a second.
        let due = |turn| match turn {
            Turn::At(at) => (at.since(start).as_secs_f64() * 1000.0).round(),
            other => panic!("{other:?}"),
        };
        let [one, two] = &mut threads;
        assert_eq!(due(one.turn(Operation::Scan, start)), 125.0);
        assert_eq!(due(two.turn(Operation::Read, start)), 250.0);
        assert!((0..99).all(|_| two.turn(Operation::Read, start) == Turn::Now));
        // Writes have their own limit.
        assert_eq!(due(one.turn(Operation::Update, start)), 500.0);
        // After a pause only a tenth of a second of the rate is left.
        assert!((0..99).all(|_| one.turn(Operation::Read, start) == Turn::Now));
        let later = start + Duration::from_secs(10);
        assert_eq!(due(one.turn(Operation::Read, later)), 9900.0 + 125.0);
    }

    #[test]
    fn a_schedule_gives_each_start_once() {
        let start = Instant::from_nanos(7);
        let schedule = Schedule::new(RATE, start);
        let (mut one, mut two) = (&schedule, &schedule);
        for n in 0..10_u32 {
            let pace = if n % 3 == 0 { &mut one } else { &mut two };
            let Turn::Intended(at) = pace.turn(Operation::Read, start) else { panic!("not open") };
            let off = at.since(start).abs_diff(Duration::from_millis(1) * (n + 1));
            assert!(off < Duration::from_micros(1), "{n}: {off:?}");
        }
    }
}
