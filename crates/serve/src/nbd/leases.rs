//! Which connection serves a client's device: the newest one that names the device's id.
//!
//! A client that lost its connection dials again, and sends again what was not answered. The server may still have the
//! earlier connection, and a write on it that would overtake the repeated one. So the newer connection ends the earlier ones
//! first, and waits until their requests in progress have ended.
//!
//! An id takes memory while a connection with it is open, and each connection has one id at most.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// What a client calls its device: random, so no other client has it.
pub(super) type DeviceId = [u8; 16];

/// The connections that named the id of their device.
#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<HashMap<DeviceId, Vec<Holder>>>);

/// A connection that holds an id, or that still ends after it lost the id.
#[derive(Debug)]
struct Holder {
    number: u64,
    /// Cancelled to end the connection.
    end: CancellationToken,
    /// Cancelled when the last request of the connection has ended.
    ended: CancellationToken,
}

/// A connection's hold on an id, until a newer connection takes it. Drop it once all requests of the connection have ended.
#[derive(Debug)]
pub(super) struct Lease {
    leases: Arc<Leases>,
    id: DeviceId,
    number: u64,
    earlier: Vec<CancellationToken>,
}

impl Leases {
    /// Ends all earlier connections with this id, and gives it to a new one. Cancelling `end` must end that. It may begin
    /// no request before [`Lease::wait_for_earlier`] returns.
    pub(super) fn take(self: &Arc<Self>, id: DeviceId, end: CancellationToken) -> Lease {
        let mut leases = self.0.lock();
        let holders = leases.entry(id).or_default();
        holders.iter().for_each(|holder| holder.end.cancel());
        let earlier = holders.iter().map(|holder| holder.ended.clone()).collect();
        let number = holders.last().map_or(0, |holder| holder.number + 1);
        holders.push(Holder { number, end, ended: CancellationToken::new() });
        drop(leases);
        Lease { leases: Arc::clone(self), id, number, earlier }
    }

    /// The connections that hold an id, or lost it and still end.
    #[cfg(test)]
    pub(super) fn holders(&self) -> usize {
        self.0.lock().values().map(Vec::len).sum()
    }
}

impl Lease {
    /// Waits until all requests of the earlier connections have ended. A caller may stop waiting at any time.
    pub(super) async fn wait_for_earlier(&self) {
        for earlier in &self.earlier {
            earlier.cancelled().await;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut leases = self.leases.0.lock();
        let Some(holders) = leases.get_mut(&self.id) else { return };
        if let Some(at) = holders.iter().position(|holder| holder.number == self.number) {
            holders.remove(at).ended.cancel();
        }
        if holders.is_empty() {
            leases.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_newest_waits_for_all_earlier_ones() {
        let leases = Arc::new(Leases::default());
        let ends = [(); 3].map(|()| CancellationToken::new());
        let take = |at: usize| leases.take([7; 16], ends[at].clone());
        let (first, second) = (take(0), take(1));
        assert!(first.wait_for_earlier().now_or_never().is_some());
        assert!(second.wait_for_earlier().now_or_never().is_none());
        let third = take(2);
        let other = leases.take([8; 16], CancellationToken::new());
        assert!(other.wait_for_earlier().now_or_never().is_some());
        assert_eq!([0, 1, 2].map(|at: usize| ends[at].is_cancelled()), [true, true, false]);
        // The second one ends before its own wait is over.
        drop(second);
        assert!(third.wait_for_earlier().now_or_never().is_none());
        drop(first);
        assert!(third.wait_for_earlier().now_or_never().is_some());
        assert_eq!(leases.holders(), 2);
        drop((third, other));
        assert!(leases.0.lock().is_empty());
    }
}
