//! Stop signals from one thread to a future, or to another thread.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Tells a future to end.
#[derive(Default)]
pub(crate) struct Stop(Mutex<(bool, Option<Waker>)>);

impl Stop {
    pub(crate) fn set(&self) {
        let mut state = self.0.lock();
        state.0 = true;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    /// Whether it is set; if not, wakes `waker` when it is.
    pub(crate) fn is_set(&self, waker: &Waker) -> bool {
        let mut state = self.0.lock();
        state.1 = Some(waker.clone());
        state.0
    }

    /// Runs `future` until it ends, or this is set.
    pub(crate) async fn or_end_of(&self, future: impl Future<Output = ()>) {
        let mut future = pin!(future);
        poll_fn(|cx| match self.is_set(cx.waker()) {
            true => Poll::Ready(()),
            false => future.as_mut().poll(cx),
        })
        .await;
    }
}

/// Tells a thread to end.
#[derive(Default)]
pub(crate) struct ThreadStop {
    set: Mutex<bool>,
    changed: Condvar,
}

impl ThreadStop {
    pub(crate) fn set(&self) {
        *self.set.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for `time`; false once the thread is to end.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let mut set = self.set.lock();
        if !*set {
            self.changed.wait_for(&mut set, time);
        }
        !*set
    }
}
