//! The server behind HTTP listeners: the listener's protocol for requests to a router, which times out slow clients.
//!
//! Each connection costs memory, so each must make progress: the header, every piece of the body, and the client's
//! reading of the answer have timeouts.

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::admission::{Guest, Limits};
use crate::figures::Counter;
use crate::listener::{self, Arrival, Counts, Failure, Listener, Protocol, Socket, Stream};
use crate::tls::Tls;

/// The limits on connections of a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terms {
    /// The limit on connections. At the limit, a new one displaces one that never sent a request, or the one that was
    /// idle longest, for at least a minute. A higher limit costs memory and file descriptors. Default 1000.
    pub connections_max: usize,
    /// The limit for one address; for IPv6, for one /64 network. Default: half of
    /// [`connections_max`](Self::connections_max), all of it for loopback.
    pub per_address_max: Option<usize>,
    /// The timeout of a TLS handshake, of each header, and of each piece of a body; also closes connections without
    /// requests. Default 60 s.
    pub read_timeout: Duration,
    /// The time for which a client may read nothing of an answer that is ready. Default 60 s.
    pub write_timeout: Duration,
    /// How long a stopping listener waits for requests under way. Default 5 s.
    pub stop_grace: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            connections_max: 1000,
            per_address_max: None,
            read_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            stop_grace: Duration::from_secs(5),
        }
    }
}

/// Connections of a listener since it was opened.
#[derive(Debug, Default)]
pub struct Connections {
    /// Open now.
    pub open: Counter,
    /// Accepted.
    pub accepted: Counter,
    /// Rejected at the limit.
    pub rejected: Counter,
    /// Displaced: without a request so far, or idle longest.
    pub shed: Counter,
}

/// The longest header of a request, in bytes, and the buffer for a body.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// Serves `router` on a TCP or Unix socket until `stop` is ready. Then accepts no more connections, finishes open
/// requests, and returns; requests that exceed [`Terms::stop_grace`] are cut off.
pub async fn run(
    socket: impl Socket,
    router: Router,
    tls: Option<Arc<Tls>>,
    terms: Terms,
    counts: Arc<Connections>,
    stop: impl Future<Output = ()>,
) {
    let Terms { connections_max, per_address_max, .. } = terms;
    let limits = listener::Terms {
        limits: Limits { connections_max, per_address_max },
        handshake_timeout: terms.read_timeout,
        stop_grace: terms.stop_grace,
    };
    let http = Http { router, terms, counts, over: PhantomData };
    Listener::new(http, tls, limits).run(socket, stop).await;
}

/// HTTP, over streams of one kind.
struct Http<S> {
    router: Router,
    terms: Terms,
    counts: Arc<Connections>,
    over: PhantomData<fn(S)>,
}

impl<S: Stream> Protocol for Http<S> {
    type Stream = S;
    type Session = (Known, Terms, CancellationToken);

    fn counts(&self) -> Counts<'_> {
        let Connections { open, accepted, rejected, shed } = &*self.counts;
        Counts { open, accepted, rejected, shed }
    }

    fn begin(&self, _stream: &S, arrival: Arrival) -> Self::Session {
        let inner = TowerToHyperService::new(self.router.clone());
        (Known { inner, guest: Arc::new(arrival.guest) }, self.terms, arrival.stop)
    }

    async fn serve(
        (service, terms, stop): Self::Session,
        stream: impl Stream,
    ) -> Result<(), Failure> {
        serve(stream, service, terms, &stop).await
    }
}

async fn serve(
    stream: impl Stream,
    service: Known,
    terms: Terms,
    stopping: &CancellationToken,
) -> Result<(), Failure> {
    let guest = Arc::clone(&service.guest);
    let stream = TokioIo::new(Patient::new(stream, terms.write_timeout, guest));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(terms.read_timeout)
        .max_buf_size(HEADER_BYTES_MAX);
    let connection = http.serve_connection(stream, service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        served = connection.as_mut() => return Ok(served?),
        () = stopping.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}

/// The service of one connection. During a request the connection is not a stranger, nor afterwards unless the request
/// failed authentication. The connection is in use until the body of the answer ends.
struct Known {
    inner: TowerToHyperService<Router>,
    guest: Arc<Guest>,
}

impl Service<Request<Incoming>> for Known {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.guest.is_known();
        let under_way = UnderWay::new(Arc::clone(&self.guest));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            let guest = &under_way.0;
            let refused =
                [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::MISDIRECTED_REQUEST];
            if refused.contains(&answer.status()) {
                guest.is_stranger();
            }
            Ok(answer.map(|body| Body::new(Produced { body, _under_way: under_way })))
        })
    }
}

/// A request under way: its connection is in use until this is dropped.
struct UnderWay(Arc<Guest>);

impl UnderWay {
    fn new(guest: Arc<Guest>) -> Self {
        guest.works();
        Self(guest)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.rests(Instant::now());
    }
}

/// The body of an answer, made piece by piece after the head is sent. The HTTP library drops it at its end, or with the
/// connection.
struct Produced {
    body: Body,
    _under_way: UnderWay,
}

impl HttpBody for Produced {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream with a timeout for writes that make no progress.
struct Patient<S> {
    stream: S,
    timeout: Duration,
    guest: Arc<Guest>,
    /// Runs while a write is blocked.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    fn new(stream: S, timeout: Duration, guest: Arc<Guest>) -> Self {
        Self { stream, timeout, guest, until: None }
    }

    /// Passes on the result of a write, or fails if it was blocked for too long.
    fn in_time<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.guest.moves(Instant::now());
            self.until = None;
            return written;
        }
        let after = self.timeout;
        let until = self
            .until
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + after)));
        match until.as_mut().poll(context) {
            Poll::Ready(()) => {
                let error = "the client does not read its answer";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, error)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, data);
        this.in_time(context, written)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.in_time(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let closed = Pin::new(&mut this.stream).poll_shutdown(context);
        this.in_time(context, closed)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, data);
        this.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use futures_util::stream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::{Mutex, mpsc};

    use super::*;
    use crate::admission::Admission;

    /// Once, a query whose rows took longer than a minute was cut off for a new connection.
    #[tokio::test]
    async fn an_answer_under_way_gives_way_to_no_new_connection() {
        let endpoint = Admission::new(Limits { connections_max: 1, per_address_max: None });
        let cut = CancellationToken::new();
        let admitted = endpoint.admit(None, cut.clone(), Instant::now()).expect("room");
        let guest = Arc::new(admitted.guest);
        let (pieces, receiver) = mpsc::channel::<Bytes>(1);
        let receiver = Arc::new(Mutex::new(Some(receiver)));
        let answer = move || async move {
            let receiver = receiver.lock().await.take().expect("it is asked once");
            Body::from_stream(stream::unfold(receiver, |mut receiver| async {
                let piece = receiver.recv().await?;
                Some((Ok::<_, Infallible>(piece), receiver))
            }))
        };
        let inner = TowerToHyperService::new(Router::new().route("/query", get(answer)));
        let service = Known { inner, guest: Arc::clone(&guest) };
        let (mut client, stream) = tokio::io::duplex(4096);
        let served = tokio::spawn(async move {
            serve(stream, service, Terms::default(), &CancellationToken::new()).await
        });
        let request = b"GET /query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        client.write_all(request).await.expect("it is read");
        pieces.send(Bytes::from_static(b"one")).await.expect("it is answered");
        let mut seen = Vec::new();
        while !seen.ends_with(b"one\r\n") {
            seen.push(client.read_u8().await.expect("the server answers"));
        }

        // The rest is made later.
        let late = || Instant::now() + Duration::from_secs(61);
        let none = endpoint.admit(None, CancellationToken::new(), late());
        assert!(none.is_none() && !cut.is_cancelled(), "the answer is under way");
        pieces.send(Bytes::from_static(b"two")).await.expect("it is answered");
        drop(pieces);
        let mut rest = String::new();
        client.read_to_string(&mut rest).await.expect("the server answers");
        assert!(rest.contains("two") && rest.ends_with("0\r\n\r\n"), "{rest}");
        served.await.expect("no panic").expect("it ended well");
        let next = endpoint.admit(None, CancellationToken::new(), late()).expect("it is idle");
        assert!(next.shed && cut.is_cancelled());
    }
}
