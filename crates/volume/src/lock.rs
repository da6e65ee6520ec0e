//! A mutex across awaits that serves its waiters in order of arrival.
//!
//! `futures_util::lock::Mutex` wakes any waiter, and lets a new caller pass all of them. So one of several callers that
//! come back at once may wait without end.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_util::lock as unordered;

/// A value that one task at a time may use, also across an await.
#[derive(Default)]
pub struct Mutex<T> {
    queue: parking_lot::Mutex<Queue>,
    /// Locked by the holder of the turn only, so nobody ever waits for it.
    value: unordered::Mutex<T>,
}

#[derive(Default)]
struct Queue {
    is_held: bool,
    next: u64,
    /// The waiters by number, which ascends.
    waiting: VecDeque<(u64, Waker)>,
}

impl Queue {
    fn first(&self) -> Option<Waker> {
        self.waiting.front().map(|(_, waker)| waker.clone())
    }
}

/// The right to use the value. Dropping it hands the mutex to the oldest waiter.
pub struct MutexGuard<'a, T> {
    // Released before the turn, as fields are dropped in order.
    value: unordered::MutexGuard<'a, T>,
    _turn: Turn<'a>,
}

struct Turn<'a>(&'a parking_lot::Mutex<Queue>);

/// A task's wait for the mutex. Dropping it leaves the queue.
#[must_use = "the mutex is not locked before this is awaited"]
pub struct Locking<'a, T> {
    mutex: &'a Mutex<T>,
    number: Option<u64>,
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Self {
        Self { queue: parking_lot::Mutex::default(), value: unordered::Mutex::new(value) }
    }

    /// Waits until all earlier callers have had the mutex, and locks it. A wait that is dropped gives up its place.
    pub fn lock(&self) -> Locking<'_, T> {
        Locking { mutex: self, number: None }
    }

    /// Locks the mutex if it is free and no task waits for it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let mut queue = self.queue.lock();
        if queue.is_held || !queue.waiting.is_empty() {
            return None;
        }
        queue.is_held = true;
        drop(queue);
        Some(self.guard())
    }

    /// For the new holder of the turn.
    fn guard(&self) -> MutexGuard<'_, T> {
        let value = self.value.try_lock().expect("the holder of the turn is alone");
        MutexGuard { value, _turn: Turn(&self.queue) }
    }
}

impl<'a, T> Future for Locking<'a, T> {
    type Output = MutexGuard<'a, T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<MutexGuard<'a, T>> {
        let mutex = self.mutex;
        let mut queue = mutex.queue.lock();
        let first = queue.waiting.front().map(|(number, _)| *number);
        if !queue.is_held && first == self.number {
            if self.number.take().is_some() {
                queue.waiting.pop_front();
            }
            queue.is_held = true;
            drop(queue);
            return Poll::Ready(mutex.guard());
        }
        match self.number {
            Some(number) => {
                if let Ok(at) = queue.waiting.binary_search_by_key(&number, |&(number, _)| number) {
                    queue.waiting[at].1.clone_from(cx.waker());
                }
            }
            None => {
                let number = queue.next;
                queue.next += 1;
                queue.waiting.push_back((number, cx.waker().clone()));
                self.number = Some(number);
            }
        }
        Poll::Pending
    }
}

impl<T> Drop for Locking<'_, T> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut queue = self.mutex.queue.lock();
        queue.waiting.retain(|&(waiting, _)| waiting != number);
        // It may have been woken already, to take the mutex.
        let first = if queue.is_held { None } else { queue.first() };
        drop(queue);
        first.inspect(Waker::wake_by_ref);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.is_held = false;
        let first = queue.first();
        drop(queue);
        first.inspect(Waker::wake_by_ref);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::{join, join_all};
    use futures_util::{FutureExt, poll};

    use super::*;
    use crate::Clock;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn waiters_are_served_in_order_of_arrival() {
        let (clock, lock) = (Clock::simulated(), Mutex::new(Vec::new()));
        let caller = async |caller: u32| {
            clock.sleep(MS * caller).await;
            for _ in 0..3 {
                let mut served = lock.lock().await;
                clock.sleep(MS * 20).await;
                served.push(caller);
            }
        };
        clock.run(join_all((0..5).map(caller)));
        let served = clock.run(lock.lock()).clone();
        assert_eq!(served, [0, 1, 2, 3, 4].repeat(3));
    }

    #[test]
    fn no_caller_passes_a_waiter_that_was_woken() {
        let (clock, lock) = (Clock::simulated(), Mutex::new(()));
        clock.run(async {
            let held = lock.lock().await;
            let mut waiting = Box::pin(lock.lock());
            assert!(poll!(waiting.as_mut()).is_pending());
            drop(held);
            assert!(lock.try_lock().is_none());
            assert!(lock.lock().now_or_never().is_none());
            drop(waiting.await);
            assert!(lock.try_lock().is_some());
        });
    }

    #[test]
    fn a_waiter_that_gives_up_lets_the_next_one_in() {
        let (clock, lock) = (Clock::simulated(), Mutex::new(()));
        clock.run(async {
            for is_woken in [false, true] {
                let mut held = Some(lock.lock().await);
                let mut gives_up = Box::pin(lock.lock());
                assert!(poll!(gives_up.as_mut()).is_pending());
                let next = async { drop(lock.lock().await) };
                let rest = async {
                    clock.sleep(MS).await;
                    if is_woken {
                        drop(held.take());
                    }
                    drop(gives_up);
                    drop(held.take());
                };
                join(next, rest).await;
            }
        });
        assert!(lock.try_lock().is_some());
    }
}
