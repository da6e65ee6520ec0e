//! Notifies tasks that wait for an event.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Wakes all waiting tasks.
#[derive(Default)]
pub(super) struct Bell {
    rings: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
}

impl Bell {
    /// Wakes all tasks that wait now.
    pub(super) fn ring(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ready at the first ring after the ring number `seen`.
    pub(super) fn after(&self, seen: u64) -> Ring<'_> {
        Ring { bell: self, seen }
    }

    /// The number of rings so far.
    pub(super) fn rings(&self) -> u64 {
        self.rings.load(Ordering::SeqCst)
    }
}

/// A task's wait for a [`Bell`].
pub(super) struct Ring<'a> {
    bell: &'a Bell,
    seen: u64,
}

impl Future for Ring<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.bell.waiting.lock();
        if self.bell.rings() != self.seen {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
