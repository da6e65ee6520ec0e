//! Which connections may write to a device.
//!
//! ```text
//! nobody holds the lease: every connection writes
//! held:                   the holder's connection writes, all others read
//! ```
//!
//! The store keeps the lease, durably. Here are the connections: one that is to write alone ends those that lost the right
//! first, and waits until their requests in progress have ended. A lease is taken while no connection without one writes;
//! by force, those are ended.
//!
//! A device takes memory while a connection that may write to it is open.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use engine::block::{BlockDevices, Error, Holder, Lease, Result, block_on};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::wire::{LeaseRequest, Token};

/// How long a take waits for connections without a lease to end by themselves: that of a client that is done may have
/// its last request in progress still.
const ENDING_MAX: Duration = Duration::from_secs(1);

/// The connections that may write, and the devices with their leases.
pub(super) struct Writers {
    devices: Arc<dyn BlockDevices>,
    writing: Mutex<HashMap<String, Writing>>,
}

/// The connections that may write to one device, and those that lost the right and still end.
#[derive(Debug, Default)]
struct Writing {
    /// The takes in progress: connections without a lease only read meanwhile.
    takes: usize,
    next: u64,
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    /// Of its lease, if it writes by one.
    token: Option<Token>,
    /// Cancelled to end the connection.
    end: CancellationToken,
    /// Cancelled when the last request of the connection has ended.
    ended: CancellationToken,
}

/// A connection's right to write to a device. Drop it once all requests of the connection have ended.
pub(super) struct Writer {
    writers: Arc<Writers>,
    name: String,
    number: u64,
    /// Of its lease, if it has one.
    token: Option<Token>,
    earlier: Vec<CancellationToken>,
}

/// A take in progress.
struct Taking {
    writers: Arc<Writers>,
    name: String,
}

impl Writers {
    pub(super) fn new(devices: Arc<dyn BlockDevices>) -> Arc<Self> {
        Arc::new(Self { devices, writing: Mutex::default() })
    }

    /// The right of a connection without a lease; `None` while another one holds the device: it only reads. Cancelling `end`
    /// must end the connection. It may begin no request before [`Writer::wait_for_earlier`] returns.
    pub(super) fn join(self: &Arc<Self>, name: &str, end: &CancellationToken) -> Option<Writer> {
        let mut all = self.writing.lock();
        let takes = all.get(name).map_or(0, |writing| writing.takes);
        if takes > 0 || self.devices.lease(name).holder.is_some() {
            return None;
        }
        let writing = all.entry(name.to_owned()).or_default();
        // Those whose lease was released, and whose requests may still be in progress.
        let earlier = writing.end(|connection| connection.token.is_some());
        let number = writing.add(None, end.clone());
        drop(all);
        let (writers, name) = (Arc::clone(self), name.to_owned());
        Some(Writer { writers, name, number, token: None, earlier })
    }

    /// Takes the lease of a device for a connection, or finds that the client has it. Waits for the store, and for the
    /// requests of all connections that lose the right to write. Cancelling `end` must end the connection.
    ///
    /// # Errors
    /// `Held`: another one holds it, or took it since; or connections without a lease write. Else that of the store.
    pub(super) async fn take(
        self: &Arc<Self>,
        request: &LeaseRequest,
        end: &CancellationToken,
    ) -> Result<Writer> {
        let name = &request.name;
        let writer = match request.token {
            Some(token) => self.add(name, token, end)?,
            None => {
                let taking = self.begin(name);
                if !request.force {
                    self.wait_for_others(name).await?;
                }
                let (id, holder_name) = (request.holder, request.holder_name.clone());
                let (holder, force) = (Holder { id, name: holder_name }, request.force);
                // The change of the lease goes on to its end if the client leaves meanwhile.
                let taken = spawn_blocking(move || {
                    let Taking { writers, name } = &taking;
                    let token = block_on(writers.devices.take(name, &holder, force))?;
                    Ok((token, taking))
                });
                let (token, _taking) = taken.await.unwrap_or_else(|_| Err(stopped()))?;
                self.add(name, token, end)?
            }
        };
        writer.wait_for_earlier().await;
        Ok(writer)
    }

    /// Ends the connections whose lease was released or taken since.
    pub(super) fn end_released(&self, name: &str) {
        if let Some(writing) = self.writing.lock().get(name) {
            let lease = self.devices.lease(name);
            writing.end(|connection| connection.token.is_some_and(|t| !lease.is_held_with(t)));
        }
    }

    fn begin(self: &Arc<Self>, name: &str) -> Taking {
        self.writing.lock().entry(name.to_owned()).or_default().takes += 1;
        Taking { writers: Arc::clone(self), name: name.to_owned() }
    }

    /// Waits a moment for the connections without a lease to end.
    async fn wait_for_others(&self, name: &str) -> Result<()> {
        let others = || -> Vec<_> {
            let all = self.writing.lock();
            let connections = all.get(name).into_iter().flat_map(|writing| &writing.connections);
            let others = connections.filter(|connection| connection.token.is_none());
            others.map(|connection| connection.ended.clone()).collect()
        };
        let waiting = others();
        let ended = waiting.iter().map(CancellationToken::cancelled);
        if timeout(ENDING_MAX, join_all(ended)).await.is_ok() {
            return Ok(());
        }
        let count = others().len();
        Err(Error::Held(format!("connections without a lease may write to device {name}: {count}")))
    }

    /// Adds the connection of the holder, and ends all others.
    fn add(self: &Arc<Self>, name: &str, token: Token, end: &CancellationToken) -> Result<Writer> {
        let mut all = self.writing.lock();
        // Under the lock: a later take ends this connection, or is seen here.
        let lease = self.devices.lease(name);
        if !lease.is_held_with(token) {
            return Err(lost(name, &lease));
        }
        let writing = all.entry(name.to_owned()).or_default();
        let earlier = writing.end(|_| true);
        let number = writing.add(Some(token), end.clone());
        drop(all);
        let (writers, name) = (Arc::clone(self), name.to_owned());
        Ok(Writer { writers, name, number, token: Some(token), earlier })
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Writing)) {
        let mut all = self.writing.lock();
        let Some(writing) = all.get_mut(name) else { return };
        change(writing);
        if writing.takes == 0 && writing.connections.is_empty() {
            all.remove(name);
        }
    }

    /// The connections that may write, or lost the right and still end.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.writing.lock().values().map(|writing| writing.connections.len()).sum()
    }
}

impl Writing {
    fn add(&mut self, token: Option<Token>, end: CancellationToken) -> u64 {
        let number = self.next;
        self.next += 1;
        self.connections.push(Connection { number, token, end, ended: CancellationToken::new() });
        number
    }

    /// Ends some connections; returns what is cancelled when their last requests have ended.
    fn end(&self, which: impl Fn(&Connection) -> bool) -> Vec<CancellationToken> {
        let ended = self.connections.iter().filter(|connection| which(connection));
        let end = |connection: &Connection| {
            connection.end.cancel();
            connection.ended.clone()
        };
        ended.map(end).collect()
    }
}

impl Writer {
    /// The name of the device.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Of its lease, if it has one.
    pub(super) fn token(&self) -> Option<Token> {
        self.token
    }

    /// Waits until all requests of the connections that lost the right have ended. A caller may stop waiting at any time.
    pub(super) async fn wait_for_earlier(&self) {
        join_all(self.earlier.iter().map(CancellationToken::cancelled)).await;
    }

    /// Ends the lease, if it has one. No request of the connection may be in progress.
    pub(super) async fn release(self) {
        let Some(token) = self.token else { return };
        let (devices, name) = (Arc::clone(&self.writers.devices), self.name.clone());
        let change = spawn_blocking(move || block_on(devices.release(&name, Some(token))));
        if let Err(error) = change.await.unwrap_or_else(|_| Err(stopped())) {
            tracing::warn!("nbd: {}: its lease was not released: {error}", self.name);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let number = self.number;
        self.writers.change(&self.name, |writing| {
            let at = writing.connections.iter().position(|known| known.number == number);
            if let Some(at) = at {
                writing.connections.remove(at).ended.cancel();
            }
        });
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.writers.change(&self.name, |writing| writing.takes -= 1);
    }
}

/// The runtime ends, or the store panicked.
fn stopped() -> Error {
    Error::Closed("the server stops".into())
}

fn lost(name: &str, lease: &Lease) -> Error {
    Error::Held(match &lease.holder {
        Some(holder) => format!("the lease of device {name} was taken by {}", holder.name),
        None => format!("the lease of device {name} was released"),
    })
}
