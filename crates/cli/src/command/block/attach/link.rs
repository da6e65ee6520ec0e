//! Carries bytes between the kernel, a relay and the server, and dials again when a connection breaks.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use serve::nbd::wire::{CacheEpoch, Export};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use volume::Clock;

use super::client::{Connection, Failure};
use super::outgoing::Outgoing;
use super::relay::{Relay, Violation};

/// The shortest time between two attempts to connect.
const DIAL_EVERY: Duration = Duration::from_millis(50);
/// The most time that a server gets to end the lease of a device that was detached.
const RELEASE_MAX: Duration = Duration::from_secs(5);
/// The unit in which buffers grow, in bytes: two of the kernel's largest requests by default.
const BUFFER: usize = 256 << 10;
/// Less free room than this, and a buffer grows.
const ROOM_MIN: usize = 16 << 10;

/// What the relay needs from around it.
pub(super) trait Around {
    /// Dials the server once, and agrees on the export.
    fn dial(&mut self) -> impl Future<Output = Result<Connection, Failure>>;

    /// The server is back with another size.
    ///
    /// # Errors
    /// The kernel does not take it.
    fn resize(&mut self, size: u64) -> anyhow::Result<()>;
}

/// How a relay ended whose device was detached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Detached {
    /// The server heard of it, and has released the lease if there was one.
    Heard,
    /// The server was away or did not answer. It keeps the lease if there was one.
    Unheard,
}

/// Why no more bytes are carried over a connection.
enum Carried {
    Detached(Detached),
    /// The connection broke.
    Broken(String),
}

/// Why a relay ended without being told to.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    /// The kernel's socket broke, or what came over it makes no sense.
    #[error("the kernel's end of the device: {0}")]
    Kernel(String),
    /// The server did not come back in time.
    #[error("given up after {:.0} s: {why}", .after.as_secs_f64())]
    GaveUp { after: Duration, why: String },
    /// Another host took the device, or an operator took it away.
    #[error("the server refuses it for good: {0}")]
    Lost(String),
}

/// A relay between a device of the kernel and a server.
pub(super) struct Link<A> {
    relay: Relay,
    kernel: UnixStream,
    around: A,
    clock: Clock,
    export: Export,
    epoch: Option<CacheEpoch>,
    give_up: Option<Duration>,
}

impl<A: Around> Link<A> {
    /// `give_up`: how long it waits for a server, or forever.
    pub(super) fn new(
        kernel: UnixStream,
        around: A,
        clock: Clock,
        export: Export,
        give_up: Option<Duration>,
    ) -> Self {
        let relay = Relay::default();
        Self { relay, kernel, around, clock, export, epoch: None, give_up }
    }

    /// Relays until the device is detached; dials first if there is no connection.
    ///
    /// # Errors
    /// As the kind says. Requests that the kernel waits for are not answered.
    pub(super) async fn run(mut self, mut connection: Option<Connection>) -> Result<Detached, End> {
        if let Some(first) = &connection {
            self.epoch = first.epoch;
            self.relay.is_leased = first.token.is_some();
            self.relay.on_connected(false);
        }
        loop {
            let dialed = self.clock.now();
            if let Some(connection) = &mut connection {
                let why = match self.carry(connection).await? {
                    Carried::Detached(how) => return Ok(how),
                    Carried::Broken(_) if self.relay.is_over() => return Ok(Detached::Unheard),
                    Carried::Broken(why) => why,
                };
                tracing::warn!("the connection to the server broke: {why}; requests wait for it");
            }
            // Closed before the next one is dialed: a server without `TakeOver` knows no better.
            drop(connection.take());
            self.relay.on_disconnected();
            let lost = self.clock.now();
            self.clock.sleep_until(dialed + DIAL_EVERY).await;
            let Some(next) = self.redial(lost).await? else { return Ok(Detached::Unheard) };
            let lost_changes = matches!((self.epoch, next.epoch), (Some(a), Some(b)) if a != b);
            self.epoch = next.epoch.or(self.epoch);
            self.relay.is_leased = next.token.is_some();
            connection = Some(next);
            let again = self.relay.on_connected(lost_changes);
            let pause = self.clock.now().since(lost);
            tracing::info!(
                "the server is back after {:.3} s; {again} requests are sent again",
                pause.as_secs_f64()
            );
            if lost_changes {
                tracing::error!(
                    "the server lost changes that were not flushed; the next flush fails"
                );
            }
        }
    }

    /// Carries bytes until the connection breaks or the device is detached.
    async fn carry(&mut self, connection: &mut Connection) -> Result<Carried, End> {
        let Self { relay, kernel, clock, .. } = self;
        let (mut kernel_in, mut kernel_out) = kernel.split();
        let (mut server_in, mut server_out) = tokio::io::split(&mut connection.stream);
        let mut is_sent = true;
        loop {
            if relay.is_over() && relay.to_server.is_empty() {
                // The device is gone, whether the server hears of it or not.
                let _ = server_out.shutdown().await;
                if !relay.is_leased {
                    return Ok(Carried::Detached(Detached::Heard));
                }
                let mut rest = Vec::new();
                return Ok(Carried::Detached(tokio::select! {
                    // The server closes the connection once it has released the lease.
                    read = server_in.read_to_end(&mut rest) => match read {
                        Ok(_) => Detached::Heard,
                        Err(_) => Detached::Unheard,
                    },
                    () = clock.sleep(RELEASE_MAX) => Detached::Unheard,
                }));
            }
            make_room(&mut relay.from_kernel);
            make_room(&mut relay.from_server);
            tokio::select! {
                read = kernel_in.read_buf(&mut relay.from_kernel), if !relay.is_over() => {
                    on_kernel(relay, read)?;
                }
                read = server_in.read_buf(&mut relay.from_server) => match read {
                    Ok(0) => return Ok(Carried::Broken("the server closed it".into())),
                    Ok(_) => if let Err(violation) = relay.on_server() {
                        return Ok(Carried::Broken(violation.to_string()));
                    },
                    Err(error) => return Ok(Carried::Broken(error.to_string())),
                },
                wrote = kernel_out.write_buf(&mut relay.to_kernel), if !relay.to_kernel.is_empty() => {
                    if wrote.is_err() {
                        // The kernel takes no answers any more. What it sent last says why.
                        relay.to_kernel.clear();
                    }
                }
                sent = send(&mut server_out, &mut relay.to_server), if !(is_sent && relay.to_server.is_empty()) => {
                    match sent {
                        Ok(all) => is_sent = all,
                        Err(error) => return Ok(Carried::Broken(error.to_string())),
                    }
                }
            }
        }
    }

    /// Dials until the server has the export again. `None`: the device was detached meanwhile.
    async fn redial(&mut self, since: policy::time::Instant) -> Result<Option<Connection>, End> {
        let mut told = "there is no answer".to_owned();
        loop {
            let Self { relay, kernel, around, clock, give_up, .. } = self;
            let next = clock.now() + DIAL_EVERY;
            let dialed = {
                let mut dialing = std::pin::pin!(around.dial());
                loop {
                    if relay.is_over() {
                        return Ok(None);
                    }
                    make_room(&mut relay.from_kernel);
                    tokio::select! {
                        dialed = &mut dialing => break dialed,
                        () = clock.sleep_until(since + give_up.unwrap_or_default()), if give_up.is_some() => {
                            let after = clock.now().since(since);
                            return Err(End::GaveUp { after, why: told });
                        }
                        read = kernel.read_buf(&mut relay.from_kernel) => on_kernel(relay, read)?,
                    }
                }
            };
            if let Err(Failure::Held(why)) = dialed {
                return Err(End::Lost(why));
            }
            let why = match dialed.map_err(|failure| failure.to_string()) {
                Ok(connection) => match self.check(&connection.export) {
                    Ok(()) => return Ok(Some(connection)),
                    Err(why) => why,
                },
                Err(why) => why,
            };
            if why != told {
                tracing::warn!("the server is not back yet: {why}");
                told = why;
            }
            self.clock.sleep_until(next).await;
        }
    }

    /// Whether the export is still what the kernel knows of it. A larger one is made known to it.
    fn check(&mut self, export: &Export) -> Result<(), String> {
        let known = self.export;
        if export.flags != known.flags {
            return Err(format!(
                "the device can other things than before (flags {:#x}, before {:#x}): detach and attach it",
                export.flags, known.flags
            ));
        }
        if export.size < known.size {
            return Err(format!("the device has {} bytes, and had {}", export.size, known.size));
        }
        if export.size > known.size {
            self.around.resize(export.size).map_err(|error| error.to_string())?;
            tracing::info!("the device has {} bytes now, and had {}", export.size, known.size);
        }
        self.export = *export;
        Ok(())
    }
}

fn on_kernel(relay: &mut Relay, read: io::Result<usize>) -> Result<(), End> {
    match read {
        Ok(0) => Err(End::Kernel("it was closed".into())),
        Ok(_) => relay.on_kernel().map_err(|Violation(what)| End::Kernel(what)),
        Err(error) => Err(End::Kernel(error.to_string())),
    }
}

/// Writes some of the queue; if it is empty, flushes what a TLS stream still holds. Returns whether everything is sent.
/// A caller may stop waiting at any time.
async fn send(to: &mut (impl AsyncWrite + Unpin), queue: &mut Outgoing) -> io::Result<bool> {
    match queue.is_empty() {
        true => to.flush().await.map(|()| true),
        false => to.write_buf(queue).await.map(|_| false),
    }
}

/// Large reads, and few allocations: a buffer is shared by the requests in it until all of them are answered.
fn make_room(buffer: &mut BytesMut) {
    if buffer.capacity() - buffer.len() < ROOM_MIN {
        buffer.reserve(BUFFER);
    }
}

#[cfg(test)]
mod tests;
