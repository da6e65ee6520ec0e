//! What a relay between the kernel and a server keeps and sends: a pure machine.
//!
//! ```text
//!            from_kernel                      to_server
//!   kernel ──────────────▶ requests in flight ─────────▶ server
//!          ◀────────────── ◀───────────────────────────
//!             to_kernel                       from_server
//! ```
//!
//! The relay keeps each request, with the bytes it writes, until the server answered it. When the connection to the
//! server breaks, all of them are sent again on the next one, in the order in which they came. The kernel sees none of
//! it: it gets one answer for each request, whole or not at all.
//!
//! Sending a change twice is safe: the kernel has no answer yet, so either outcome is right. But a server that still runs
//! must not carry out the earlier one later: see `client`.
//!
//! Messages are those of the NBD protocol's transmission phase, with simple replies; they pass unchanged.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use serve::nbd::wire::{
    Command, Errno, Headers, Malformed, ReplyHead, Request, encode_simple, flags,
};

use super::outgoing::Outgoing;

/// Lengths of heads, in bytes.
const REQUEST_BYTES: usize = 28;
const REPLY_BYTES: usize = 16;
/// Most bytes that a request writes or reads: 32 MiB, twice what the kernel's driver sends at most.
const DATA_MAX: u64 = 32 << 20;
/// The other side does not keep to the protocol.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Violation(pub(super) String);

impl From<Malformed> for Violation {
    fn from(malformed: Malformed) -> Self {
        Self(malformed.to_string())
    }
}

/// A relay. Its owner, a `Link`, moves bytes between its four buffers and two sockets.
#[derive(Debug, Default)]
pub(super) struct Relay {
    /// Append what the kernel sent, then call [`Self::on_kernel`].
    pub(super) from_kernel: BytesMut,
    /// To be written to the kernel.
    pub(super) to_kernel: Outgoing,
    /// Append what the server sent, then call [`Self::on_server`].
    pub(super) from_server: BytesMut,
    /// To be written to the server, while there is a connection.
    pub(super) to_server: Outgoing,
    /// By the cookie that the kernel gave them.
    in_flight: HashMap<u64, InFlight>,
    arrivals: u64,
    /// Requests that the server has, or will have once `to_server` is written.
    outstanding: usize,
    connection: Connection,
    /// The kernel has detached the device.
    is_over: bool,
    /// The server keeps a lease, which ends when the device is detached.
    pub(super) is_leased: bool,
    /// Changes that were answered without being durable, as a count.
    changes: u64,
    /// How many of them, from the first one on, are durable or were reported as lost.
    durable: u64,
    /// Changes before this count may be lost, and no flush has said so yet.
    lost: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Connection {
    #[default]
    Down,
    Up,
    /// The server is about to stop: it answers what it has and gets nothing more.
    Closing,
}

/// A request without an answer.
#[derive(Debug)]
struct InFlight {
    arrival: u64,
    request: Request,
    /// Its head, and the bytes that it writes.
    message: Bytes,
    is_outstanding: bool,
    /// Of a flush: the changes that it makes durable, as a count.
    covers: u64,
}

impl Relay {
    /// Takes the kernel's whole requests out of `from_kernel`.
    ///
    /// # Errors
    /// The kernel sent something else: detach the device.
    pub(super) fn on_kernel(&mut self) -> Result<(), Violation> {
        while let Some((request, message)) = take_request(&mut self.from_kernel)? {
            if request.command == Command::Disconnect {
                self.is_over = true;
                if self.connection == Connection::Up {
                    let leased = self.is_leased.then(|| disconnect(flags::RELEASE));
                    self.to_server.push(leased.unwrap_or(message));
                }
                return Ok(());
            }
            let cookie = request.cookie;
            let arrival = self.arrivals;
            self.arrivals += 1;
            let one = InFlight { arrival, request, message, is_outstanding: false, covers: 0 };
            if self.in_flight.insert(cookie, one).is_some() {
                return Err(Violation(format!("the kernel sent two requests {cookie:#x} at once")));
            }
            if self.connection == Connection::Up {
                self.send(cookie);
            }
        }
        Ok(())
    }

    /// Takes the server's whole replies out of `from_server`.
    ///
    /// # Errors
    /// The server sent something else, or a reply to no request: break the connection.
    pub(super) fn on_server(&mut self) -> Result<(), Violation> {
        while let Some(head) = self.from_server.first_chunk::<REPLY_BYTES>() {
            let ReplyHead::Simple { error, cookie } = ReplyHead::decode(head)? else {
                return Err(Violation(
                    "the server sent a structured reply to a client without".into(),
                ));
            };
            let one = self.in_flight.get_mut(&cookie).filter(|one| one.is_outstanding);
            let Some(one) = one else {
                return Err(Violation(format!(
                    "the server answered {cookie:#x}, which it does not have"
                )));
            };
            let reads = error.is_none() && one.request.command == Command::Read;
            let len = REPLY_BYTES + if reads { one.request.len as usize } else { 0 };
            if self.from_server.len() < len {
                return Ok(());
            }
            let message = self.from_server.split_to(len).freeze();
            self.outstanding -= 1;
            if error == Some(Errno::Shutdown) {
                // Not done, and the next server will do it.
                one.is_outstanding = false;
                self.connection = Connection::Closing;
            } else if let Some(one) = self.in_flight.remove(&cookie) {
                self.answer(&one, error, message);
            }
            if self.connection == Connection::Closing && self.outstanding == 0 {
                self.to_server.push(disconnect(0));
                return Ok(());
            }
        }
        Ok(())
    }

    /// There is a new connection. Returns how many requests will be sent again on it. `lost_changes`: the server may have
    /// lost changes that it had answered and not made durable.
    pub(super) fn on_connected(&mut self, lost_changes: bool) -> usize {
        self.on_disconnected();
        self.connection = Connection::Up;
        if lost_changes && self.changes > self.durable {
            self.lost = Some(self.changes);
        }
        let mut waiting: Vec<_> =
            self.in_flight.iter().map(|(&cookie, one)| (one.arrival, cookie)).collect();
        waiting.sort_unstable();
        waiting.iter().for_each(|&(_, cookie)| self.send(cookie));
        waiting.len()
    }

    /// The connection is gone. What came and went in part is void.
    pub(super) fn on_disconnected(&mut self) {
        self.connection = Connection::Down;
        self.to_server.clear();
        self.from_server.clear();
        self.outstanding = 0;
        self.in_flight.values_mut().for_each(|one| one.is_outstanding = false);
    }

    /// Whether the kernel has detached the device: write what is left in `to_server`, and end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sends a request that is in flight to the server.
    fn send(&mut self, cookie: u64) {
        let Some(one) = self.in_flight.get_mut(&cookie) else { return };
        if one.request.command == Command::Flush && self.lost.is_some() {
            // The server would call durable what it has lost. One failed flush is what a disk reports, too.
            self.in_flight.remove(&cookie);
            self.durable = self.lost.take().unwrap_or_default();
            self.to_kernel.push(failure(cookie));
            return;
        }
        one.is_outstanding = true;
        one.covers = self.changes;
        self.outstanding += 1;
        self.to_server.push(one.message.clone());
    }

    /// Hands the server's answer to the kernel.
    fn answer(&mut self, one: &InFlight, error: Option<Errno>, message: Bytes) {
        let is_durable = one.request.flags & flags::FUA != 0;
        match one.request.command {
            _ if error.is_some() => (),
            Command::Write | Command::Trim | Command::WriteZeroes if !is_durable => {
                self.changes += 1;
            }
            Command::Flush => self.durable = self.durable.max(one.covers),
            _ => (),
        }
        self.to_kernel.push(message);
    }
}

/// Takes a request that has arrived whole.
fn take_request(from: &mut BytesMut) -> Result<Option<(Request, Bytes)>, Violation> {
    let Some(head) = from.first_chunk::<REQUEST_BYTES>() else { return Ok(None) };
    let request = Request::decode(head, Headers::Compact)?;
    let Request { command, len, .. } = request;
    let moves_data = matches!(command, Command::Read | Command::Write);
    if moves_data && len > DATA_MAX {
        return Err(Violation(format!("the kernel sent a {command:?} of {len} bytes")));
    }
    let len = REQUEST_BYTES + if command == Command::Write { len as usize } else { 0 };
    Ok((from.len() >= len).then(|| (request, from.split_to(len).freeze())))
}

fn failure(cookie: u64) -> Bytes {
    let mut message = BytesMut::with_capacity(REPLY_BYTES);
    encode_simple(cookie, Some(Errno::Io), &mut message);
    message.freeze()
}

fn disconnect(flags: u16) -> Bytes {
    let mut message = BytesMut::with_capacity(REQUEST_BYTES);
    let request = Request { flags, command: Command::Disconnect, cookie: 0, offset: 0, len: 0 };
    request.encode(Headers::Compact, &mut message);
    message.freeze()
}

#[cfg(test)]
mod tests;
