//! The server: accepts connections, limits their number, and ends them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{Connection, drain};
use super::expiry;
use super::peers::{Ends, Peer};
use super::service::Service;
use super::settings::KEEPALIVE;
use super::threads::Threads;
use super::tls::Tls;
use crate::admission::{Admission, Admitted, Limits};

/// The pause when the system has no descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
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
    tls: Option<Arc<Tls>>,
    threads: Arc<Threads>,
    admission: Arc<Admission>,
    connections: TaskTracker,
    stop: CancellationToken,
    cut: CancellationToken,
}

impl Server {
    /// A server, started by [`run`](Self::run): with TLS if `tls` is given, otherwise with plain TCP.
    #[must_use]
    pub fn new(service: Arc<Service>, tls: Option<Arc<Tls>>) -> Self {
        let threads = Arc::new(Threads::new(service.settings.threads));
        let admission = Admission::new(Limits {
            connections_max: usize::try_from(service.settings.clients_max).unwrap_or(usize::MAX),
            per_address_max: service.settings.clients_per_address,
        });
        Self {
            service,
            tls,
            threads,
            admission,
            connections: TaskTracker::new(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    /// Serves the connections of `listener` until `stop` is ready. Then accepts no more connections, executes and
    /// answers the requests that have arrived, closes, and returns; a client that does not read its replies within
    /// [`Settings::stop_grace`](super::Settings::stop_grace) is cut off. No request is executing on return.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        tokio::select! {
            () = stop => {}
            () = self.accept(&listener) => {}
            () = expiry::remove_expired(Arc::clone(&self.service.keyspace)) => {}
            () = self.sample() => {}
        }
        drop(listener);
        self.stop.cancel();
        self.connections.close();
        let grace = self.service.settings.stop_grace;
        if tokio::time::timeout(grace, self.connections.wait()).await.is_err() {
            self.cut.cancel();
            self.connections.wait().await;
        }
    }

    async fn accept(&self, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => self.admit(stream, from),
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Samples rates for `INFO`.
    async fn sample(&self) {
        let mut ticks = tokio::time::interval(SAMPLE);
        loop {
            ticks.tick().await;
            self.service.stats.sample(self.service.figures.uptime());
        }
    }

    fn admit(&self, stream: TcpStream, from: SocketAddr) {
        let stats = &self.service.stats;
        let id = stats.connections.add_one();
        let cut = self.cut.child_token();
        let admitted = self.admission.admit(Some(from.ip()), cut.clone(), Instant::now());
        let Some(Admitted { guest, shed }) = admitted else {
            stats.rejected.add_one();
            if self.tls.is_none() {
                // Best effort, as in Redis: the server does not wait for a rejected client.
                let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
            }
            return;
        };
        stats.shed.add(u64::from(shed));
        let ends = stream.local_addr().ok().map(|server| Ends { client: from, server });
        let now = self.service.figures.uptime();
        let peer = Arc::new(Peer::new(id, ends, now, Some(guest), cut));
        let open = Open::new(Arc::clone(&self.service), Arc::clone(&peer));
        let service = Arc::clone(&self.service);
        let threads = Arc::clone(&self.threads);
        let stop = self.stop.child_token();
        let acceptor = self.tls.as_ref().map(|tls| tls.acceptor());
        self.connections.spawn(async move {
            let served = async {
                prepare(&stream)?;
                match acceptor {
                    None => Connection::new(stream, service, peer, threads, stop).serve().await,
                    Some(acceptor) => {
                        let within = service.settings.auth_timeout;
                        let stream = tokio::select! {
                            () = stop.cancelled() => return Ok(()),
                            () = peer.cut.cancelled() => return Ok(()),
                            stream = tokio::time::timeout(within, handshake(stream, acceptor)) => {
                                stream??
                            }
                        };
                        Connection::new(stream, service, peer, threads, stop).serve().await
                    }
                }
            };
            let served: io::Result<()> = served.await;
            if let Err(error) = served {
                tracing::debug!("connection {id} from {from} ended: {error}");
            }
            drop(open);
        });
    }
}

/// Sends replies without delay, and detects dead clients by keepalive.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// The TLS handshake. A client without TLS, or without a required certificate, gets an error and is closed.
async fn handshake(
    mut stream: TcpStream,
    acceptor: TlsAcceptor,
) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [TLS_HANDSHAKE];
    stream.peek(&mut first).await?;
    let (error, mut stream) = if first == [TLS_HANDSHAKE] {
        match acceptor.accept(stream).into_fallible().await {
            Ok(stream) => return Ok(stream),
            Err(failed) => failed,
        }
    } else {
        stream.write_all(b"-ERR this port speaks TLS only, as redis-cli --tls does\r\n").await?;
        (io::Error::new(io::ErrorKind::InvalidData, "the client speaks no TLS"), stream)
    };
    // Closing with unread bytes would reset the connection, and the client could lose the answer.
    stream.shutdown().await?;
    drain(&mut stream).await?;
    Err(error)
}

/// Counts and lists a connection while it is open.
struct Open(Arc<Service>, u64);

impl Open {
    fn new(service: Arc<Service>, peer: Arc<Peer>) -> Self {
        service.stats.clients.add_one();
        let id = peer.id;
        service.peers.enter(peer);
        Self(service, id)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.peers.leave(self.1);
        self.0.stats.clients.sub(1);
    }
}
