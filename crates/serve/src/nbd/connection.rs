//! One connection: negotiates, begins TLS if it must, and serves a device.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use engine::block::BlockDevice;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::handshake::{Handshake, Next};
use super::leases::Lease;
use super::pipeline::Pipeline;
use super::service::Service;
use super::stats::Held;
use super::transmission::Agreed;
use super::wire::Malformed;
use super::writers::Writer;
use crate::admission::Guest;
use crate::listener::Stream;
use crate::tls::Tls;

/// The read buffer during negotiation.
const INPUT_BYTES: usize = 4096;
/// The most bytes of answers to options that wait to be sent.
const ANSWERS_BYTES: usize = 64 * 1024;

/// A connection from its admission on.
pub(super) struct Joined {
    pub(super) service: Arc<Service>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) guest: Guest,
    /// Nothing more is read once this is cancelled.
    pub(super) stop: CancellationToken,
    /// Cancelled when a newer connection takes the client's device over, or its right to write.
    pub(super) end: CancellationToken,
}

/// A device that a client has chosen.
struct Chosen {
    name: String,
    device: Arc<dyn BlockDevice>,
    /// The size that the client knows, in bytes.
    size: u64,
    agreed: Agreed,
    /// The right to write, unless the client agreed to read only.
    writer: Option<Writer>,
}

/// What a negotiation ended with.
enum Ended {
    Chosen(Chosen),
    StartTls,
    Closed,
}

/// The state of a negotiation.
struct Negotiation<'a> {
    service: &'a Service,
    handshake: Handshake,
    input: BytesMut,
    out: BytesMut,
    /// Of the id of the client's device, if it named one.
    lease: Option<Lease>,
    /// By the lease of a device, if it took one.
    writer: Option<Writer>,
    end: &'a CancellationToken,
}

impl Joined {
    /// Serves until the client is done, or the server stops.
    pub(super) async fn serve(self, mut stream: impl Stream) -> io::Result<()> {
        let mut out = BytesMut::new();
        let handshake = Handshake::new(self.tls.is_some(), &mut out);
        let (service, input) = (&*self.service, BytesMut::new());
        // Its lease is dropped last, so a newer connection goes on only after the end of this one.
        let mut negotiation = Negotiation {
            service,
            handshake,
            input,
            out,
            lease: None,
            writer: None,
            end: &self.end,
        };
        let until = Instant::now() + self.service.settings.handshake_timeout;
        match self.before(until, negotiation.run(&mut stream)).await? {
            Ended::Closed => Ok(()),
            Ended::Chosen(chosen) => self.attach(chosen, negotiation.input, stream).await,
            Ended::StartTls => {
                let Some(tls) = &self.tls else { return Ok(()) };
                let secured = async {
                    let mut stream = tls.acceptor().accept(stream).await?;
                    negotiation.handshake.is_secure();
                    match negotiation.run(&mut stream).await? {
                        Ended::Chosen(chosen) => Ok(Some((chosen, stream))),
                        Ended::StartTls | Ended::Closed => Ok(None),
                    }
                };
                match self.before(until, secured).await? {
                    Some((chosen, stream)) => self.attach(chosen, negotiation.input, stream).await,
                    None => Ok(()),
                }
            }
        }
    }

    async fn attach(&self, chosen: Chosen, input: BytesMut, stream: impl Stream) -> io::Result<()> {
        let Chosen { name, device, size, agreed, writer } = chosen;
        // A device in use is never displaced, however long its client is silent.
        self.guest.is_known();
        self.guest.works();
        let _attached = Held::new(&self.service.stats.attached);
        let of = (&*name, &*device, size);
        let pipeline = Pipeline::new(&self.service, of, agreed, input, writer);
        pipeline.run(stream, &self.stop, &self.end).await
    }

    /// Waits until a time, for the server's stop, and for a connection that takes the place of this one.
    async fn before<T>(
        &self,
        until: Instant,
        work: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let late = |why| io::Error::new(io::ErrorKind::TimedOut, why);
        let work = self.end.run_until_cancelled(timeout_at(until, work));
        let ended = self.stop.run_until_cancelled(work).await;
        let ended = ended.ok_or_else(|| late("the server stops"))?;
        let ended = ended.ok_or_else(|| late("another connection took its place"))?;
        ended.unwrap_or_else(|_| Err(late("it did not choose a device in time")))
    }
}

impl Negotiation<'_> {
    /// Answers options until a device is chosen, or the client is done.
    async fn run(&mut self, stream: &mut impl Stream) -> io::Result<Ended> {
        let Self { service, handshake, input, out, lease, writer, end } = self;
        let devices = &service.devices;
        loop {
            match handshake.next(input, || devices.names(), out).map_err(invalid)? {
                Next::Read => {
                    send(out, stream).await?;
                    input.reserve(INPUT_BYTES);
                    if stream.read_buf(input).await? == 0 {
                        return Ok(Ended::Closed);
                    }
                }
                Next::Answered => {}
                Next::Open(wanted) => {
                    let device = devices.open(&wanted.name).await;
                    let geometry = device.as_ref().map(|device| device.geometry());
                    let geometry = geometry.map_err(Clone::clone);
                    let size = geometry.as_ref().map_or(0, |geometry| geometry.size);
                    let name = &wanted.name;
                    let is_leased = writer.as_ref().is_some_and(|writer| writer.name() == name);
                    let joined = match is_leased {
                        true => None,
                        false => service.writers.join(name, end),
                    };
                    let is_read_only = !is_leased && joined.is_none();
                    if let Some(joined) = joined.as_ref().filter(|_| wanted.begins()) {
                        joined.wait_for_earlier().await;
                    }
                    let agreed =
                        handshake.opened(&wanted, geometry, is_read_only, out).map_err(invalid)?;
                    if let (Some(agreed), Ok(device)) = (agreed, device) {
                        send(out, stream).await?;
                        let writer = if is_leased { writer.take() } else { joined };
                        let name = wanted.name;
                        return Ok(Ended::Chosen(Chosen { name, device, size, agreed, writer }));
                    }
                }
                Next::TakeOver(id) => {
                    send(out, stream).await?;
                    let lease = lease.get_or_insert_with(|| service.leases.take(id, end.clone()));
                    lease.wait_for_earlier().await;
                    Handshake::took_over(&service.cache_epoch, out);
                }
                Next::TakeLease(request) => {
                    send(out, stream).await?;
                    let taken = service.writers.take(&request, end).await;
                    let token = taken.as_ref().map(|taken| taken.token().unwrap_or_default());
                    Handshake::leased(&token.map_err(Clone::clone), out);
                    *writer = taken.ok();
                }
                Next::StartTls => {
                    send(out, stream).await?;
                    return Ok(Ended::StartTls);
                }
                Next::Close => {
                    send(out, stream).await?;
                    stream.shutdown().await?;
                    return Ok(Ended::Closed);
                }
            }
            if out.len() > ANSWERS_BYTES {
                send(out, stream).await?;
            }
        }
    }
}

/// Sends all of `out`, and empties it.
async fn send(out: &mut BytesMut, stream: &mut impl Stream) -> io::Result<()> {
    stream.write_all(out).await?;
    out.clear();
    stream.flush().await
}

fn invalid(malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}
