//! Shared/exclusive lock over an object's writes.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// The lock: writers share it, [`WriteLock::exclusive`] excludes them.
#[derive(Default)]
pub(crate) struct WriteLock(Mutex<LockState>);

#[derive(Default)]
struct LockState {
    writers: usize,
    /// The exclusive lock is held, or its next holder waits for writers to end.
    exclusive: bool,
    /// The first byte written or cut since the last [`WriteLock::take_touched`].
    touched: Option<u64>,
    /// The lowest byte that a write could change since [`WriteLock::watch`].
    lowest: u64,
    waiting: Vec<Waker>,
}

/// The shared lock of a writer, and the first byte that it changes.
pub(crate) struct SharedGuard<'a>(&'a WriteLock, u64);

/// The exclusive lock.
pub(crate) struct ExclusiveGuard<'a>(&'a WriteLock);

impl WriteLock {
    /// Waits for the shared lock, for a change of bytes from `offset` on.
    pub(crate) async fn shared(&self, offset: u64) -> SharedGuard<'_> {
        poll_fn(|cx| match self.try_shared(offset) {
            Some(guard) => Poll::Ready(guard),
            None => {
                let mut state = self.0.lock();
                // The exclusive lock may have been released in between.
                if !state.exclusive {
                    cx.waker().wake_by_ref();
                }
                state.waiting.push(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// The same without waiting; `None` while the exclusive lock is held or requested.
    pub(super) fn try_shared(&self, offset: u64) -> Option<SharedGuard<'_>> {
        let mut state = self.0.lock();
        if state.exclusive {
            return None;
        }
        state.writers += 1;
        state.lowest = state.lowest.min(offset);
        Some(SharedGuard(self, offset))
    }

    /// Waits for the exclusive lock, which keeps new writers out.
    pub(crate) async fn exclusive(&self) -> ExclusiveGuard<'_> {
        let guard = poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.exclusive {
                state.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
            state.exclusive = true;
            Poll::Ready(ExclusiveGuard(self))
        })
        .await;
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.writers > 0 {
                state.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        guard
    }

    /// Starts to watch for [`WriteLock::lowest`]. One caller at a time.
    pub(super) fn watch(&self) {
        self.0.lock().lowest = u64::MAX;
    }

    /// The first byte that writers may have changed since [`WriteLock::watch`]; `u64::MAX` without a writer.
    pub(super) fn lowest(&self) -> u64 {
        self.0.lock().lowest
    }

    /// The first byte that finished writers changed since the last call.
    pub(super) fn take_touched(&self) -> Option<u64> {
        self.0.lock().touched.take()
    }

    fn wake(&self, change: impl FnOnce(&mut LockState)) {
        let waiting = {
            let mut state = self.0.lock();
            change(&mut state);
            if state.writers > 0 && state.exclusive {
                return;
            }
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Drop for SharedGuard<'_> {
    fn drop(&mut self) {
        self.0.wake(|state| {
            state.writers -= 1;
            state.touched = Some(state.touched.unwrap_or(u64::MAX).min(self.1));
        });
    }
}

impl Drop for ExclusiveGuard<'_> {
    fn drop(&mut self) {
        self.0.wake(|state| state.exclusive = false);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use futures_util::future::{join, join_all};
    use volume::Clock;

    use super::*;

    #[test]
    fn writers_share_the_lock_and_an_exclusive_holder_excludes_them() {
        let (clock, lock) = (Clock::simulated(), WriteLock::default());
        let (sharing, most, exclusive) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let ms = Duration::from_millis(1);
        let writer = async |i: u64| {
            clock.sleep(ms * (i as u32 % 5)).await;
            let guard = lock.shared(i).await;
            assert_eq!(exclusive.get(), 0);
            sharing.set(sharing.get() + 1);
            most.set(most.get().max(sharing.get()));
            clock.sleep(ms * 3).await;
            sharing.set(sharing.get() - 1);
            drop(guard);
        };
        let owner = async |i: u32| {
            clock.sleep(ms * i).await;
            let guard = lock.exclusive().await;
            assert_eq!((sharing.get(), exclusive.get()), (0, 0));
            exclusive.set(1);
            clock.sleep(ms * 2).await;
            exclusive.set(0);
            drop(guard);
        };
        clock.run(join(join_all((0..20).map(writer)), join_all((0..5).map(owner))));
        assert!(most.get() > 2, "{}", most.get());
        assert_eq!(lock.take_touched(), Some(0));
        assert_eq!(lock.take_touched(), None);
    }

    #[test]
    fn giving_up_an_exclusive_request_lets_writers_in() {
        let (clock, lock) = (Clock::simulated(), WriteLock::default());
        clock.run(async {
            let shared = lock.shared(7).await;
            let mut exclusive = Box::pin(lock.exclusive());
            let polled = futures_util::poll!(exclusive.as_mut());
            assert!(polled.is_pending());
            assert!(lock.try_shared(8).is_none());
            drop(exclusive);
            drop(lock.try_shared(8).expect("the exclusive request was dropped"));
            drop(shared);
            assert_eq!(lock.take_touched(), Some(7));
        });
    }
}
