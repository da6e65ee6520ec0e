//! Installs that wait for their turn, and the rate at which they run: off the users' path.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use policy::time::{Instant, NANOS_PER_SEC};

/// A bounded queue of jobs, each of some bytes.
pub(super) struct Queue<J> {
    bytes_max: u64,
    state: Mutex<QueueState<J>>,
}

struct QueueState<J> {
    jobs: VecDeque<(J, u64)>,
    bytes: u64,
    woken: bool,
    waiting: Option<Waker>,
}

impl<J> Queue<J> {
    pub(super) fn new(bytes_max: u64) -> Self {
        let state = QueueState { jobs: VecDeque::new(), bytes: 0, woken: false, waiting: None };
        Self { bytes_max, state: Mutex::new(state) }
    }

    /// Whether there is room for a job.
    pub(super) fn has_room(&self) -> bool {
        self.state.lock().bytes < self.bytes_max
    }

    /// Appends a job; gives it back if the queue is full.
    pub(super) fn push(&self, job: J, bytes: u64) -> Result<(), J> {
        let mut state = self.state.lock();
        if state.bytes >= self.bytes_max {
            return Err(job);
        }
        state.bytes += bytes;
        state.jobs.push_back((job, bytes));
        drop(state);
        self.wake();
        Ok(())
    }

    pub(super) fn pop(&self) -> Option<(J, u64)> {
        let mut state = self.state.lock();
        let (job, bytes) = state.jobs.pop_front()?;
        state.bytes -= bytes;
        Some((job, bytes))
    }

    /// Ends a wait, now or the next one.
    pub(super) fn wake(&self) {
        let mut state = self.state.lock();
        state.woken = true;
        let waker = state.waiting.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for a call of [`Queue::wake`]. One task may wait.
    pub(super) async fn wait(&self) {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if std::mem::take(&mut state.woken) {
                return Poll::Ready(());
            }
            state.waiting = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Bytes a second, without credit for idle times.
pub(super) struct Pace {
    bytes_per_sec: u64,
    free_at: Instant,
}

impl Pace {
    pub(super) const fn new(bytes_per_sec: u64) -> Self {
        Self { bytes_per_sec, free_at: Instant::ZERO }
    }

    /// When a job of `bytes` may begin.
    pub(super) fn charge(&mut self, now: Instant, bytes: u64) -> Instant {
        let at = self.free_at.max(now);
        let nanos = u128::from(bytes) * u128::from(NANOS_PER_SEC);
        let nanos = nanos / u128::from(self.bytes_per_sec.max(1));
        self.free_at = at + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_gives_jobs_back() {
        let queue = Queue::new(10);
        assert_eq!(queue.push('a', 9), Ok(()));
        assert_eq!(queue.push('b', 9), Ok(()), "the last one may go over");
        assert_eq!(queue.push('c', 1), Err('c'));
        assert_eq!(queue.pop(), Some(('a', 9)));
        assert!(queue.has_room());
    }

    #[test]
    fn a_pace_spreads_jobs_and_saves_nothing() {
        let mut pace = Pace::new(1000);
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        assert_eq!(pace.charge(at(0), 500), at(0));
        assert_eq!(pace.charge(at(100), 100), at(500));
        assert_eq!(pace.charge(at(9000), 1000), at(9000));
        assert_eq!(pace.charge(at(9000), 1), at(10_000));
    }
}
