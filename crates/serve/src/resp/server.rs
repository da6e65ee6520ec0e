//! The shell around sessions: accepts connections, reads, has requests executed on threads that may
//! block, writes.
//!
//! What bounds it: connections by `clients_max`; a connection's unfinished request by the limits of
//! the decoder and, for all together, `clients_bytes_max`; replies by [`REPLY_BYTES_AT_ONCE`], since
//! nothing more is executed before they were taken; work in the store by `threads`. A client that does
//! not read its replies stops only itself.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::expiry;
use super::service::Service;
use super::session::Session;
use super::wire::{Decoder, ProtocolError, Request};

/// Room for reading that every connection has. Redis reads 16 KiB at a time.
const READ_BYTES: usize = 16 * 1024;
/// What a connection may hold of unfinished requests without asking.
const FREE_BYTES: u64 = 64 * 1024;
/// How many requests are executed before their replies leave. More: fewer hops between threads for a
/// deep pipeline, longer until its first reply.
const REQUESTS_AT_ONCE: usize = 1024;
/// How many bytes of replies gather before they leave.
const REPLY_BYTES_AT_ONCE: usize = 256 * 1024;
/// How long what a refused client still sends is read.
const REFUSED_GRACE: Duration = Duration::from_secs(5);
/// How long to wait when the system has no descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A RESP door on a TCP listener.
pub struct Server {
    service: Arc<Service>,
    /// One permit for each thread that may execute requests.
    threads: Arc<Semaphore>,
    connections: TaskTracker,
    stop: CancellationToken,
    cut: CancellationToken,
}

impl Server {
    /// A door that serves once it is [run](Self::run).
    #[must_use]
    pub fn new(service: Arc<Service>) -> Self {
        let threads = Arc::new(Semaphore::new(service.settings.threads));
        Self {
            service,
            threads,
            connections: TaskTracker::new(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    /// Serves the connections of `listener` until `stop` is ready. Then accepts no more, executes
    /// the requests that have arrived, answers them, closes, and returns; a client that does not take
    /// its replies within [`Settings::stop_grace`](super::Settings::stop_grace) is cut off. On return
    /// no request is executing any more.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        tokio::select! {
            () = stop => {}
            () = self.accept(&listener) => {}
            () = expiry::remove_expired(Arc::clone(&self.service.keyspace)) => {}
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
                Ok((stream, _)) => self.admit(stream),
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream) {
        let stats = &self.service.stats;
        let open = Open::new(Arc::clone(&self.service));
        if stats.clients.get() > self.service.settings.clients_max {
            stats.rejected.add_one();
            // Best effort, as in Redis: who is turned away is not waited for.
            let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
            return;
        }
        let connection = Connection {
            session: Some(Session::new(stats.connections.add_one(), &self.service)),
            held: Held { service: Arc::clone(&self.service), bytes: 0 },
            service: Arc::clone(&self.service),
            threads: Arc::clone(&self.threads),
            stop: self.stop.clone(),
            cut: self.cut.clone(),
        };
        self.connections.spawn(async move {
            if let Err(error) = connection.serve(stream).await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(open);
        });
    }
}

/// Counts a connection while it is open.
struct Open(Arc<Service>);

impl Open {
    fn new(service: Arc<Service>) -> Self {
        service.stats.clients.add_one();
        Self(service)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.stats.clients.sub(1);
    }
}

/// What one connection holds of the bytes that all share.
struct Held {
    service: Arc<Service>,
    bytes: u64,
}

impl Held {
    /// Holds what `buffered` bytes take beyond the free ones; false if that is too much, together
    /// with what others hold.
    fn set(&mut self, buffered: usize) -> bool {
        let bytes = (buffered as u64).saturating_sub(FREE_BYTES);
        let buffered = &self.service.stats.buffered;
        buffered.sub(self.bytes);
        self.bytes = bytes;
        let all = buffered.add(bytes);
        bytes == 0 || all <= self.service.settings.clients_bytes_max
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.service.stats.buffered.sub(self.bytes);
    }
}

struct Connection {
    /// Away while it executes on another thread.
    session: Option<Session>,
    held: Held,
    service: Arc<Service>,
    threads: Arc<Semaphore>,
    /// Nothing more is read.
    stop: CancellationToken,
    /// Nothing more is written.
    cut: CancellationToken,
}

impl Connection {
    async fn serve(mut self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut decoder = Decoder::new(self.service.limits(self.session().is_authenticated()));
        let mut input = BytesMut::with_capacity(READ_BYTES);
        let mut requests = VecDeque::new();
        while !self.session().is_closing() {
            let broken = self.decode(&mut decoder, &mut input, &mut requests);
            if requests.is_empty() && broken.is_none() {
                if !self.held.set(input.len()) {
                    drop(input);
                    self.held.set(0);
                    return self.refuse(&mut stream, "too much data in unfinished requests").await;
                }
                input.reserve(READ_BYTES);
                let read = tokio::select! {
                    biased;
                    () = self.stop.cancelled() => return Ok(()),
                    read = stream.read_buf(&mut input) => read?,
                };
                if read == 0 {
                    return Ok(());
                }
                self.service.stats.bytes_in.add(read as u64);
                continue;
            }
            while !requests.is_empty() && !self.session().is_closing() {
                let out;
                (requests, out) = self.execute(requests).await?;
                self.write(&mut stream, out).await?;
            }
            if let Some(error) = broken
                && !self.session().is_closing()
            {
                return self.refuse(&mut stream, error).await;
            }
            if self.held.bytes > 0 {
                // A long request made the buffer large: an idle connection keeps none of it.
                input = BytesMut::from(&input[..]);
                self.held.set(input.len());
            }
        }
        Ok(())
    }

    /// Moves complete requests from `input` to `requests`; gives the error that follows them, if the
    /// stream is broken there.
    fn decode(
        &self,
        decoder: &mut Decoder,
        input: &mut BytesMut,
        requests: &mut VecDeque<Request>,
    ) -> Option<ProtocolError> {
        let authenticated = self.session().is_authenticated();
        decoder.set_limits(self.service.limits(authenticated));
        // The request after an AUTH may be as long as any: look at it only when AUTH was executed.
        let at_once = if authenticated { REQUESTS_AT_ONCE } else { 1 };
        while requests.len() < at_once {
            match decoder.next(input) {
                Ok(Some(request)) => requests.push_back(request),
                Ok(None) => return None,
                Err(error) => return Some(error),
            }
        }
        None
    }

    /// Executes requests on a thread that may block; gives back those that were left, and the
    /// replies of the others.
    async fn execute(
        &mut self,
        mut requests: VecDeque<Request>,
    ) -> io::Result<(VecDeque<Request>, BytesMut)> {
        let service = Arc::clone(&self.service);
        let mut session = self.session.take().expect("the session is back after each execution");
        let _permit = self.threads.acquire().await.expect("the semaphore is never closed");
        let executed = spawn_blocking(move || {
            let mut out = BytesMut::new();
            session.execute(&service, &mut requests, &mut out, REPLY_BYTES_AT_ONCE);
            (session, requests, out)
        });
        let (session, requests, out) = executed.await.map_err(|panicked| {
            tracing::error!("a request was not executed to its end: {panicked}");
            io::Error::other(panicked)
        })?;
        self.session = Some(session);
        Ok((requests, out))
    }

    async fn refuse(
        &mut self,
        stream: &mut TcpStream,
        error: impl std::fmt::Display,
    ) -> io::Result<()> {
        let mut out = BytesMut::new();
        let session = self.session.as_mut().expect("the session is here between executions");
        session.refuse(&self.service, error, &mut out);
        self.write(stream, out).await?;
        // Closing with bytes unread would reset the connection, and the client could lose the reply.
        stream.shutdown().await?;
        self.stop.run_until_cancelled(drain(stream)).await.unwrap_or(Ok(()))
    }

    async fn write(&self, stream: &mut TcpStream, mut out: BytesMut) -> io::Result<()> {
        self.service.stats.bytes_out.add(out.len() as u64);
        let write_all = async {
            while out.has_remaining() {
                stream.write_buf(&mut out).await?;
            }
            Ok(())
        };
        let cut_off = || Err(io::Error::new(io::ErrorKind::TimedOut, "the server stopped"));
        self.cut.run_until_cancelled(write_all).await.unwrap_or_else(cut_off)
    }

    fn session(&self) -> &Session {
        self.session.as_ref().expect("the session is here between executions")
    }
}

/// Reads and forgets what a refused client is still sending, for a while.
async fn drain(stream: &mut TcpStream) -> io::Result<()> {
    let mut rest = vec![0; READ_BYTES];
    let read_all = async {
        while stream.read(&mut rest).await? > 0 {}
        Ok(())
    };
    tokio::time::timeout(REFUSED_GRACE, read_all).await.unwrap_or(Ok(()))
}
