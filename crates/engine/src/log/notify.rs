//! Notifies tasks that wait for an event.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Wakes all waiting tasks.
#[derive(Default)]
pub(super) struct Notify {
    count: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

impl Notify {
    /// Wakes all tasks that wait now.
    pub(super) fn notify_all(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ready at the first notification after the notification number `seen`.
    pub(super) fn after(&self, seen: u64) -> Notified<'_> {
        Notified { notify: self, seen }
    }

    /// The number of notifications so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

/// A task's wait for a [`Notify`].
pub(super) struct Notified<'a> {
    notify: &'a Notify,
    seen: u64,
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.notify.waiting.lock();
        if self.notify.count() != self.seen {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
