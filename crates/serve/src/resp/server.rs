//! The server: the listener's protocol for Redis clients, and the tasks beside it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::expiry;
use super::peers::{Ends, Peer};
use super::service::Service;
use super::settings::KEEPALIVE;
use super::threads::Threads;
use crate::admission::Limits;
use crate::listener::{Arrival, Counts, Failure, Listener, Protocol, Stream, Terms};
use crate::tls::Tls;

/// The interval between TCP keepalive probes, and their number. As in Redis.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(100);
const KEEPALIVE_RETRIES: u32 = 3;
/// The interval between samples of rates.
const SAMPLE: Duration = Duration::from_secs(1);
/// The first byte of every TLS connection: a record of type handshake (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// A RESP server on a TCP listener.
pub struct Server {
    service: Arc<Service>,
    clients: Listener<Resp>,
}

impl Server {
    /// A server, started by [`run`](Self::run): with TLS if `tls` is given, otherwise with plain TCP.
    #[must_use]
    pub fn new(service: Arc<Service>, tls: Option<Arc<Tls>>) -> Self {
        let settings = &service.settings;
        let terms = Terms {
            limits: Limits {
                connections_max: usize::try_from(settings.clients_max).unwrap_or(usize::MAX),
                per_address_max: settings.clients_per_address,
            },
            handshake_timeout: settings.auth_timeout,
            stop_grace: settings.stop_grace,
        };
        let threads = Arc::new(Threads::new(settings.threads));
        let resp = Resp { service: Arc::clone(&service), threads, has_tls: tls.is_some() };
        Self { service, clients: Listener::new(resp, tls, terms) }
    }

    /// Serves the connections of `listener` until `stop` is ready. Then accepts no more connections, executes and
    /// answers the requests that have arrived, closes, and returns; a client that does not read its replies within
    /// [`Settings::stop_grace`](super::Settings::stop_grace) is cut off. No request is executing on return.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let Self { service, clients } = self;
        let stop = async {
            tokio::select! {
                () = stop => {}
                () = expiry::remove_expired(Arc::clone(&service.keyspace)) => {}
                () = sample(&service) => {}
            }
        };
        clients.run(listener, stop).await;
    }
}

/// Samples rates for `INFO`.
async fn sample(service: &Service) {
    let mut ticks = tokio::time::interval(SAMPLE);
    loop {
        ticks.tick().await;
        service.stats.sample(service.figures.uptime());
    }
}

/// RESP, with the state that all connections share.
struct Resp {
    service: Arc<Service>,
    threads: Arc<Threads>,
    has_tls: bool,
}

impl Protocol for Resp {
    type Stream = TcpStream;
    type Session = Listed;

    fn counts(&self) -> Counts<'_> {
        let stats = &self.service.stats;
        let (open, accepted) = (&stats.clients, &stats.connections);
        Counts { open, accepted, rejected: &stats.rejected, shed: &stats.shed }
    }

    fn begin(&self, stream: &TcpStream, arrival: Arrival) -> Listed {
        let Arrival { number, from, guest, stop, cut } = arrival;
        let ends = from.zip(stream.local_addr().ok());
        let ends = ends.map(|(client, server)| Ends { client, server });
        let now = self.service.figures.uptime();
        let peer = Arc::new(Peer::new(number, ends, now, Some(guest), cut));
        self.service.peers.enter(Arc::clone(&peer));
        let (service, threads) = (Arc::clone(&self.service), Arc::clone(&self.threads));
        Listed { service, threads, peer, stop }
    }

    fn refuse(&self, stream: &TcpStream) {
        // `INFO` counts it among those received.
        self.service.stats.connections.add_one();
        if !self.has_tls {
            // Best effort, as in Redis: the server does not wait for a rejected client.
            let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
        }
    }

    /// Detects dead clients by keepalive, and tells a client without TLS that it needs it.
    async fn prepare(&self, stream: &mut TcpStream) -> io::Result<()> {
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_RETRIES);
        SockRef::from(&*stream).set_tcp_keepalive(&keepalive)?;
        let mut first = [TLS_HANDSHAKE];
        if self.has_tls {
            stream.peek(&mut first).await?;
        }
        if first == [TLS_HANDSHAKE] {
            return Ok(());
        }
        stream.write_all(b"-ERR this port speaks TLS only, as redis-cli --tls does\r\n").await?;
        Err(io::Error::new(io::ErrorKind::InvalidData, "the client speaks no TLS"))
    }

    async fn serve(session: Listed, stream: impl Stream) -> Result<(), Failure> {
        let Listed { service, threads, peer, stop } = &session;
        let (service, threads) = (Arc::clone(service), Arc::clone(threads));
        let connection = Connection::new(stream, service, Arc::clone(peer), threads, stop.clone());
        Ok(connection.serve().await?)
    }
}

/// A connection while others see it.
struct Listed {
    service: Arc<Service>,
    threads: Arc<Threads>,
    peer: Arc<Peer>,
    stop: CancellationToken,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.service.peers.leave(self.peer.id);
    }
}
