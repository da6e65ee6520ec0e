//! One caller at a time works for all that wait.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// Whose turn it is. When a turn ends all callers that wait look whether it did their work, too: none of them has to get the
/// turn only to find that.
#[derive(Default)]
pub(super) struct Turns {
    taken: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

/// A turn. It ends when this is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits until `done` gives something, or it is the caller's turn: then `None`, and the turn.
    pub(super) async fn wait<T>(&self, done: impl Fn() -> Option<T>) -> Result<T, Turn<'_>> {
        poll_fn(|cx| {
            if let Some(done) = done() {
                return Poll::Ready(Ok(done));
            }
            if !self.taken.swap(true, Ordering::AcqRel) {
                return Poll::Ready(Err(Turn(self)));
            }
            self.waiting.lock().push(cx.waker().clone());
            // The turn may have ended before the waker was there.
            match self.taken.load(Ordering::Acquire) {
                true => Poll::Pending,
                false => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Turn<'_> {
    /// Lets callers that are about to ask for the same do so first.
    pub(super) async fn let_others_come(&self) {
        let mut first = true;
        poll_fn(|cx| {
            if std::mem::take(&mut first) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
        let waiting = std::mem::take(&mut *self.0.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use volume::task::block_on;

    use super::*;

    #[test]
    fn one_turn_does_the_work_of_all_that_wait() {
        let turns = Turns::default();
        let (asked, done, rounds) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let callers = (0..16).map(async |_| {
            for _ in 0..10 {
                asked.set(asked.get() + 1);
                let mine = asked.get();
                while let Err(turn) = turns.wait(|| (done.get() >= mine).then_some(())).await {
                    turn.let_others_come().await;
                    done.set(asked.get());
                    rounds.set(rounds.get() + 1);
                }
            }
        });
        block_on(join_all(callers));
        assert_eq!(done.get(), 160);
        assert!(rounds.get() <= 20, "{}", rounds.get());
    }

    #[test]
    fn a_turn_that_is_given_up_goes_to_another_caller() {
        let turns = Turns::default();
        let turn = turns.wait(|| None::<()>).now_or_never().unwrap().unwrap_err();
        let mut next = Box::pin(turns.wait(|| None::<()>));
        assert!(next.as_mut().now_or_never().is_none());
        drop(turn);
        assert!(next.now_or_never().is_some());
    }
}
