//! Shared/exclusive lock over an object's writes.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// The lock: writers share it, [`Turn::alone`] is exclusive.
#[derive(Default)]
pub(super) struct Turn(Mutex<State>);

#[derive(Default)]
struct State {
    writers: usize,
    /// The exclusive lock is held, or its next holder waits for writers to end.
    alone: bool,
    /// The first byte written or cut since the last [`Turn::take_touched`].
    touched: Option<u64>,
    /// The lowest byte that a write could change since [`Turn::watch`].
    lowest: u64,
    waiting: Vec<Waker>,
}

/// The shared lock of a writer, and the first byte that it changes.
pub(super) struct Writing<'a>(&'a Turn, u64);

/// The exclusive lock.
pub(super) struct Alone<'a>(&'a Turn);

impl Turn {
    /// Waits for the shared lock, for a change of bytes from `offset` on.
    pub(super) async fn write(&self, offset: u64) -> Writing<'_> {
        poll_fn(|cx| match self.try_write(offset) {
            Some(writing) => Poll::Ready(writing),
            None => {
                let mut state = self.0.lock();
                // The exclusive lock may have been released in between.
                if !state.alone {
                    cx.waker().wake_by_ref();
                }
                state.waiting.push(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// The same without waiting; `None` while the exclusive lock is held or requested.
    pub(super) fn try_write(&self, offset: u64) -> Option<Writing<'_>> {
        let mut state = self.0.lock();
        if state.alone {
            return None;
        }
        state.writers += 1;
        state.lowest = state.lowest.min(offset);
        Some(Writing(self, offset))
    }

    /// Waits for the exclusive lock, which keeps new writers out.
    pub(super) async fn alone(&self) -> Alone<'_> {
        let alone = poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.alone {
                state.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
            state.alone = true;
            Poll::Ready(Alone(self))
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
        alone
    }

    /// Starts to watch for [`Turn::lowest`]. One caller at a time.
    pub(super) fn watch(&self) {
        self.0.lock().lowest = u64::MAX;
    }

    /// The first byte that writers may have changed since [`Turn::watch`]; `u64::MAX` without a writer.
    pub(super) fn lowest(&self) -> u64 {
        self.0.lock().lowest
    }

    /// The first byte that finished writers changed since the last call.
    pub(super) fn take_touched(&self) -> Option<u64> {
        self.0.lock().touched.take()
    }

    fn wake(&self, change: impl FnOnce(&mut State)) {
        let waiting = {
            let mut state = self.0.lock();
            change(&mut state);
            if state.writers > 0 && state.alone {
                return;
            }
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.wake(|state| {
            state.writers -= 1;
            state.touched = Some(state.touched.unwrap_or(u64::MAX).min(self.1));
        });
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.wake(|state| state.alone = false);
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
    fn writers_write_together_and_nobody_while_one_is_alone() {
        let (clock, turn) = (Clock::simulated(), Turn::default());
        let (writing, most, alone) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let ms = Duration::from_millis(1);
        let writer = async |i: u64| {
            clock.sleep(ms * (i as u32 % 5)).await;
            let guard = turn.write(i).await;
            assert_eq!(alone.get(), 0);
            writing.set(writing.get() + 1);
            most.set(most.get().max(writing.get()));
            clock.sleep(ms * 3).await;
            writing.set(writing.get() - 1);
            drop(guard);
        };
        let loner = async |i: u32| {
            clock.sleep(ms * i).await;
            let guard = turn.alone().await;
            assert_eq!((writing.get(), alone.get()), (0, 0));
            alone.set(1);
            clock.sleep(ms * 2).await;
            alone.set(0);
            drop(guard);
        };
        clock.run(join(join_all((0..20).map(writer)), join_all((0..5).map(loner))));
        assert!(most.get() > 2, "{}", most.get());
        assert_eq!(turn.take_touched(), Some(0));
        assert_eq!(turn.take_touched(), None);
    }

    #[test]
    fn giving_up_being_alone_lets_writers_in() {
        let (clock, turn) = (Clock::simulated(), Turn::default());
        clock.run(async {
            let writing = turn.write(7).await;
            let mut alone = Box::pin(turn.alone());
            let polled = futures_util::poll!(alone.as_mut());
            assert!(polled.is_pending());
            assert!(turn.try_write(8).is_none());
            drop(alone);
            drop(turn.try_write(8).expect("the exclusive request was dropped"));
            drop(writing);
            assert_eq!(turn.take_touched(), Some(7));
        });
    }
}
