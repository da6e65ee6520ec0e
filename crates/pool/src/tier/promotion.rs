//! Installs that wait for their turn, off the users' path.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

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

    /// The bytes of the next job.
    pub(super) fn next_bytes(&self) -> Option<u64> {
        self.state.lock().jobs.front().map(|(_, bytes)| *bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_gives_jobs_back() {
        let queue = Queue::new(10);
        assert_eq!(queue.push('a', 9), Ok(()));
        assert_eq!(queue.push('b', 9), Ok(()), "the last one may go over");
        assert_eq!(queue.push('c', 1), Err('c'));
        assert_eq!(queue.next_bytes(), Some(9));
        assert_eq!(queue.pop(), Some(('a', 9)));
        assert!(queue.has_room());
    }
}
