//! The listener under every protocol: accepts connections, limits their number, does TLS, and ends them.
//!
//! ```text
//! socket -> admission -> TLS handshake -> the protocol's session
//! ```
//!
//! A protocol is told of each admitted connection, and serves its stream once TLS is agreed. Its sessions end by
//! themselves after a stop; the listener drops those that are displaced, or go on after the grace.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod apart;

use crate::admission::{Admission, Admitted, Guest, Limits};
use crate::figures::Counter;
use crate::tls::Tls;

/// The pause when the system has no descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long to read the rest of a refused client's input, and the timeout of a closing handshake.
pub(crate) const CLOSING_GRACE: Duration = Duration::from_secs(5);
/// The buffer for input that is discarded.
const DRAIN_BYTES: usize = 16 * 1024;

/// The two directions of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// Gives a connection to the runtime in which it is called.
pub type Adopt<S> = Box<dyn FnOnce() -> io::Result<S> + Send>;

/// A source of connections.
pub trait Socket: Send + Sync + 'static {
    /// A connection.
    type Stream: Stream;

    /// Waits for the next connection, and the client's address: `None` if it is certainly on this machine. A caller
    /// may stop waiting at any time.
    ///
    /// # Errors
    /// There is no connection: try again later.
    fn accept(&self)
    -> impl Future<Output = io::Result<(Self::Stream, Option<SocketAddr>)>> + Send;

    /// Takes a connection from the runtime that accepted it. The result is called on another thread, in its runtime. Without a
    /// way to do so the stream comes back.
    fn apart(stream: Self::Stream) -> Result<Adopt<Self::Stream>, Self::Stream> {
        Err(stream)
    }

    /// Ends a connection whose peer is gone, once it was silent for `idle` and answers no probes. Does nothing where the
    /// system ends such connections at once.
    fn keep_alive(_stream: &Self::Stream, _idle: Duration) {}
}

/// With `TCP_NODELAY`. An answer may be several small writes; otherwise each waits for the acknowledgement of the one
/// before, which the client delays by up to 40 ms.
impl Socket for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        let (stream, from) = Self::accept(self).await?;
        // Best effort: without it answers are correct but slow.
        let _ = stream.set_nodelay(true);
        Ok((stream, Some(from)))
    }

    fn apart(stream: TcpStream) -> Result<Adopt<TcpStream>, TcpStream> {
        Ok(Box::new(|| TcpStream::from_std(stream.into_std()?)))
    }

    fn keep_alive(stream: &TcpStream, idle: Duration) {
        let keepalive = TcpKeepalive::new().with_time(idle).with_interval(idle);
        // Best effort: without it the connection of a peer that is gone stays open.
        let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
    }
}

impl Socket for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Option<SocketAddr>)> {
        Ok((Self::accept(self).await?.0, None))
    }

    fn apart(stream: UnixStream) -> Result<Adopt<UnixStream>, UnixStream> {
        Ok(Box::new(|| UnixStream::from_std(stream.into_std()?)))
    }
}

/// What clients of a listener speak.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// A connection before TLS.
    type Stream: Stream;
    /// The state of one connection, from its admission to its end.
    type Session: Send + 'static;
    /// The name of the threads of connections that do little but read and write volumes; without, the runtime's threads
    /// serve them.
    const THREAD: Option<&'static str> = None;

    /// The listener's counters, which the listener keeps.
    fn counts(&self) -> Counts<'_>;

    /// A connection was admitted. Must not wait: it holds up the next one.
    fn begin(&self, stream: &Self::Stream, arrival: Arrival) -> Self::Session;

    /// A connection found no place, and is closed. Must not wait.
    fn refuse(&self, _stream: &Self::Stream) {}

    /// Prepares the stream of a connection that has begun, before the TLS handshake if there is one. An error ends the
    /// connection.
    fn prepare(&self, _stream: &mut Self::Stream) -> impl Future<Output = io::Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Serves a connection to its end.
    fn serve(
        session: Self::Session,
        stream: impl Stream,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Why a connection ended early.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The connections of a listener.
pub(crate) struct Counts<'a> {
    /// Open now.
    pub(crate) open: &'a Counter,
    /// Accepted.
    pub(crate) accepted: &'a Counter,
    /// Rejected at the limit.
    pub(crate) rejected: &'a Counter,
    /// Displaced by new ones.
    pub(crate) shed: &'a Counter,
}

/// An admitted connection.
pub(crate) struct Arrival {
    /// A number that no other connection of the listener has.
    pub(crate) number: u64,
    /// The client's address; `None` if it is certainly on this machine.
    pub(crate) from: Option<SocketAddr>,
    /// Its place; the session says when it is in use.
    pub(crate) guest: Guest,
    /// Cancelled when the listener stops: what has arrived is answered, nothing new begins.
    pub(crate) stop: CancellationToken,
    /// Cancelled when the connection ends at once: the listener drops the session.
    pub(crate) cut: CancellationToken,
}

/// The limits of a listener.
pub(crate) struct Terms {
    /// The limits on connections.
    pub(crate) limits: Limits,
    /// The timeout of a TLS handshake.
    pub(crate) handshake_timeout: Duration,
    /// How long a stopping listener waits for sessions.
    pub(crate) stop_grace: Duration,
}

/// A listener that is not running yet.
pub(crate) struct Listener<P> {
    protocol: Arc<P>,
    tls: Option<Arc<Tls>>,
    terms: Terms,
    admission: Arc<Admission>,
    connections: TaskTracker,
    stop: CancellationToken,
    cut: CancellationToken,
}

impl<P: Protocol> Listener<P> {
    /// With TLS if `tls` is given.
    pub(crate) fn new(protocol: P, tls: Option<Arc<Tls>>, terms: Terms) -> Self {
        Self {
            protocol: Arc::new(protocol),
            tls,
            admission: Admission::new(terms.limits),
            terms,
            connections: TaskTracker::new(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    /// Serves the connections of `socket` until `stop` is ready. Then accepts no more, waits for the sessions, and cuts
    /// those that exceed the grace. No session is left on return.
    pub(crate) async fn run<L>(self, socket: L, stop: impl Future<Output = ()>)
    where
        L: Socket<Stream = P::Stream>,
    {
        tokio::select! {
            () = stop => {}
            () = async { loop { self.admit::<L>(next(&socket).await) } } => {}
        }
        drop(socket);
        self.stop.cancel();
        self.connections.close();
        if timeout(self.terms.stop_grace, self.connections.wait()).await.is_err() {
            self.cut.cancel();
            self.connections.wait().await;
        }
    }

    fn admit<L>(&self, (stream, from): (P::Stream, Option<SocketAddr>))
    where
        L: Socket<Stream = P::Stream>,
    {
        let counts = self.protocol.counts();
        let (stop, cut) = (self.stop.child_token(), self.cut.child_token());
        let address = from.map(|from| from.ip());
        let Some(Admitted { guest, shed }) =
            self.admission.admit(address, cut.clone(), Instant::now())
        else {
            counts.rejected.add_one();
            return self.protocol.refuse(&stream);
        };
        counts.shed.add(u64::from(shed));
        let number = counts.accepted.add_one();
        let open = Open::new(Arc::clone(&self.protocol));
        let arrival = Arrival { number, from, guest, stop: stop.clone(), cut: cut.clone() };
        let session = self.protocol.begin(&stream, arrival);
        let acceptor = self.tls.as_ref().map(|tls| tls.acceptor());
        let within = self.terms.handshake_timeout;
        let serve = async move |stream: io::Result<P::Stream>| {
            let served = async {
                let mut stream = stream?;
                let Some(acceptor) = acceptor else {
                    open.0.prepare(&mut stream).await?;
                    return P::serve(session, stream).await;
                };
                let handshake = timeout(within, handshake(&*open.0, stream, acceptor));
                match stop.run_until_cancelled(handshake).await {
                    Some(stream) => P::serve(session, stream??).await,
                    None => Ok(()),
                }
            };
            if let Some(Err(error)) = cut.run_until_cancelled(served).await {
                let from = from.map_or_else(|| "this machine".to_owned(), |from| from.to_string());
                tracing::debug!("connection {number} from {from} ended: {error}");
            }
        };
        let stream = match P::THREAD {
            Some(name) => match L::apart(stream) {
                Ok(adopt) => {
                    let place = self.connections.token();
                    let work = async move || {
                        serve(adopt()).await;
                        drop(place);
                    };
                    if let Err(error) = apart::spawn(name, work) {
                        tracing::warn!("connection {number} was closed, no thread for it: {error}");
                    }
                    return;
                }
                Err(stream) => stream,
            },
            None => stream,
        };
        self.connections.spawn(async move { serve(Ok(stream)).await });
    }
}

/// The next connection.
async fn next<L: Socket>(socket: &L) -> (L::Stream, Option<SocketAddr>) {
    loop {
        match socket.accept().await {
            Ok(next) => return next,
            Err(error) => tracing::warn!("cannot accept a connection: {error}"),
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Closes each connection of `socket` at once, so that clients do not wait for an answer. A caller may stop it at any
/// time.
pub async fn refuse(socket: &impl Socket) -> Infallible {
    loop {
        next(socket).await;
    }
}

/// The TLS handshake. A client that fails it gets an error and is closed.
async fn handshake<P: Protocol>(
    protocol: &P,
    mut stream: P::Stream,
    acceptor: TlsAcceptor,
) -> io::Result<TlsStream<P::Stream>> {
    let (error, mut stream) = match protocol.prepare(&mut stream).await {
        Ok(()) => match acceptor.accept(stream).into_fallible().await {
            Ok(stream) => return Ok(stream),
            Err(failed) => failed,
        },
        Err(error) => (error, stream),
    };
    // Closing with unread bytes would reset the connection, and the client could lose the answer.
    stream.shutdown().await?;
    drain(&mut stream).await?;
    Err(error)
}

/// Reads and discards what a refused client is still sending, for a limited time.
pub(crate) async fn drain(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut rest = vec![0; DRAIN_BYTES];
    let read_all = async {
        while stream.read(&mut rest).await? > 0 {}
        Ok(())
    };
    timeout(CLOSING_GRACE, read_all).await.unwrap_or(Ok(()))
}

/// Counts a connection while it is open.
struct Open<P: Protocol>(Arc<P>);

impl<P: Protocol> Open<P> {
    fn new(protocol: Arc<P>) -> Self {
        protocol.counts().open.add_one();
        Self(protocol)
    }
}

impl<P: Protocol> Drop for Open<P> {
    fn drop(&mut self) {
        self.0.counts().open.sub(1);
    }
}

#[cfg(test)]
mod tests;
