//! The memory that the payloads of all connections hold.
//!
//! Each connection reports what it holds. Above the limit, a connection that holds any begins nothing that needs more. One
//! that holds none may always begin a request, so every connection advances, and none can hold memory that another needs
//! to free its own. The bound is the limit and one request of each connection.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The budget of a service, in bytes.
#[derive(Debug)]
pub(super) struct Budget {
    bytes_max: u64,
    held: AtomicU64,
    freed: Notify,
}

/// What one connection holds. Dropping it frees that.
#[derive(Debug)]
pub(super) struct Share<'a> {
    budget: &'a Budget,
    held: u64,
}

impl Budget {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, held: AtomicU64::new(0), freed: Notify::new() }
    }

    /// The bytes that all connections hold.
    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether there is room for `more` bytes beside what the others hold, and `ours`.
    pub(super) fn has_room(&self, share: &Share<'_>, ours: u64, more: u64) -> bool {
        let others = self.held().saturating_sub(share.held);
        others.saturating_add(ours).saturating_add(more) <= self.bytes_max
    }

    /// Ready when a connection has freed some after this call.
    pub(super) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }
}

impl<'a> Share<'a> {
    pub(super) fn new(budget: &'a Budget) -> Self {
        Self { budget, held: 0 }
    }

    /// Reports that the connection holds this many bytes now.
    pub(super) fn hold(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.held, bytes);
        if bytes > before {
            self.budget.held.fetch_add(bytes - before, Ordering::Relaxed);
        } else if bytes < before {
            self.budget.held.fetch_sub(before - bytes, Ordering::Relaxed);
            self.budget.freed.notify_waiters();
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn shares_add_up_and_waiters_hear_of_room() {
        let budget = Budget::new(10);
        let (mut one, mut other) = (Share::new(&budget), Share::new(&budget));
        one.hold(6);
        other.hold(3);
        assert!(budget.has_room(&other, 3, 1) && !budget.has_room(&other, 3, 2));
        let freed = budget.freed();
        one.hold(7);
        assert!(budget.freed().now_or_never().is_none());
        drop(one);
        assert!(freed.now_or_never().is_some() && budget.has_room(&other, 3, 7));
        assert_eq!(budget.held(), 3);
    }
}
