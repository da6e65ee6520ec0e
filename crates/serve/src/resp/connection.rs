//! One connection: reads, executes requests, writes.
//!
//! Its limits: the decoder's limits and `clients_bytes_max` bound unfinished requests. [`REPLY_BYTES_AT_ONCE`] plus one
//! reply of `request_max` bounds replies, since the next requests wait until these are sent. `threads` bounds work in
//! the store, `idle_timeout` silence, and `auth_timeout` the time until authentication. A client that does not read its
//! replies stops only itself.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::block_in_place;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use super::peers::Peer;
use super::service::Service;
use super::session::Session;
use super::threads::Threads;
use super::wire::{Decoder, ProtocolError, Request};
use crate::listener::{CLOSING_GRACE, drain};

/// The read buffer of every connection. Redis reads 16 KiB at a time.
const READ_BYTES: usize = 16 * 1024;
/// Bytes of unfinished requests that a connection may hold without counting them.
const FREE_BYTES: u64 = 64 * 1024;
/// Requests executed before their replies are sent. A higher number means fewer hops between threads for a deep
/// pipeline, but a later first reply.
const REQUESTS_AT_ONCE: usize = 1024;
/// Bytes of replies gathered before they are sent.
const REPLY_BYTES_AT_ONCE: usize = 256 * 1024;
/// The capacity of the reply buffer that a connection keeps.
const REPLY_BYTES_KEPT: usize = 16 * 1024;

/// A client, and the state that serves it.
pub(super) struct Connection<S> {
    stream: S,
    session: Session,
    held: Held,
    service: Arc<Service>,
    peer: Arc<Peer>,
    threads: Arc<Threads>,
    /// Nothing more is read once this is cancelled.
    stop: CancellationToken,
    /// The deadline for authentication.
    stranger_until: Pin<Box<Sleep>>,
    /// Whether the client was unauthenticated at the last read.
    was_stranger: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(
        stream: S,
        service: Arc<Service>,
        peer: Arc<Peer>,
        threads: Arc<Threads>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            stream,
            session: Session::of(Arc::clone(&peer), &service),
            held: Held { service: Arc::clone(&service), bytes: 0 },
            peer,
            threads,
            stop,
            stranger_until: Box::pin(tokio::time::sleep(service.settings.auth_timeout)),
            was_stranger: true,
            service,
        }
    }

    /// Serves until the client is done, the server stops, or the connection is cut off.
    pub(super) async fn serve(mut self) -> io::Result<()> {
        self.answer_requests().await?;
        // With TLS, the shutdown tells the client that nothing is missing.
        let goodbye = tokio::time::timeout(CLOSING_GRACE, self.stream.shutdown());
        let cut_off = || Ok(Ok(()));
        self.peer.cut.run_until_cancelled(goodbye).await.unwrap_or_else(cut_off)?
    }

    async fn answer_requests(&mut self) -> io::Result<()> {
        let mut decoder = Decoder::new(self.service.limits(self.session.is_authenticated()));
        let mut input = BytesMut::with_capacity(READ_BYTES);
        let mut requests = VecDeque::new();
        let mut out = BytesMut::new();
        while !self.session.is_closing() {
            let broken = self.decode(&mut decoder, &mut input, &mut requests);
            if requests.is_empty() && broken.is_none() {
                if !self.held.set(input.len()) {
                    drop(input);
                    self.held.set(0);
                    return self.refuse("too much data in unfinished requests").await;
                }
                if self.read(&mut input).await? == 0 {
                    return Ok(());
                }
                continue;
            }
            while !requests.is_empty() && !self.session.is_closing() {
                self.execute(&mut requests, &mut out).await?;
                self.write(&mut out).await?;
            }
            if let Some(error) = broken
                && !self.session.is_closing()
            {
                return self.refuse(error).await;
            }
            if self.held.bytes > 0 {
                // A long request enlarged the buffer; an idle connection must not keep it.
                input = BytesMut::from(&input[..]);
                self.held.set(input.len());
            }
        }
        Ok(())
    }

    /// Waits for more bytes from the client; returns zero at their end, or when the server stops.
    async fn read(&mut self, input: &mut BytesMut) -> io::Result<usize> {
        input.reserve(READ_BYTES);
        let is_stranger = !self.session.is_authenticated();
        if is_stranger && !self.was_stranger {
            // A reload replaced its password, or it sent RESET: the time for authentication starts anew.
            let until = Instant::now() + self.service.settings.auth_timeout;
            self.stranger_until.as_mut().reset(until);
        }
        self.was_stranger = is_stranger;
        if self.stop.is_cancelled() {
            return Ok(0);
        }
        if self.peer.cut.is_cancelled() {
            return Err(ended("it was cut off"));
        }
        // Polls the read first: a client that sends without pause skips the other polls.
        let read = tokio::select! {
            biased;
            read = patient(&self.service, self.stream.read_buf(input)) => read?,
            () = self.stop.cancelled() => return Ok(0),
            () = self.peer.cut.cancelled() => return Err(ended("it was cut off")),
            () = &mut self.stranger_until, if is_stranger => {
                return Err(ended("it did not authenticate in time"));
            }
        };
        self.peer.moves();
        self.service.stats.bytes_in.add(read as u64);
        Ok(read)
    }

    /// Moves complete requests from `input` to `requests`; returns the error after them, if the stream is malformed
    /// there.
    fn decode(
        &self,
        decoder: &mut Decoder,
        input: &mut BytesMut,
        requests: &mut VecDeque<Request>,
    ) -> Option<ProtocolError> {
        let authenticated = self.session.is_authenticated();
        decoder.set_limits(self.service.limits(authenticated));
        // The limits for the request after an AUTH depend on it, so decode that only after the AUTH was executed.
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

    /// Executes requests from the front of `requests`, until `out` holds enough replies. Runs on this thread, without a
    /// hop to another; other connections of the thread move elsewhere while the store blocks. A connection that waits
    /// for a permit is in use, so no new one displaces it. One that is cut off meanwhile executes nothing.
    async fn execute(
        &mut self,
        requests: &mut VecDeque<Request>,
        out: &mut BytesMut,
    ) -> io::Result<()> {
        self.peer.begin_work(self.service.figures.uptime());
        let permit = self.threads.permit(self.session.writes(requests));
        let permit = self.peer.cut.run_until_cancelled(permit).await;
        let permit = permit.filter(|_| !self.peer.cut.is_cancelled());
        let _permit = permit.ok_or_else(|| ended("it was cut off"))?;
        let (session, service) = (&mut self.session, &self.service);
        let mut work = || session.execute(service, requests, out, REPLY_BYTES_AT_ONCE);
        if service.keyspace.yields() {
            work()
        } else {
            block_in_place(work)
        }
        Ok(())
    }

    async fn refuse(&mut self, error: impl std::fmt::Display) -> io::Result<()> {
        let mut out = BytesMut::new();
        self.session.refuse(&self.service, error, &mut out);
        self.write(&mut out).await?;
        // Closing with unread bytes would reset the connection, and the client could lose the reply.
        self.stream.shutdown().await?;
        self.stop.run_until_cancelled(drain(&mut self.stream)).await.unwrap_or(Ok(()))
    }

    /// Sends all of `out`, and empties it.
    async fn write(&mut self, out: &mut BytesMut) -> io::Result<()> {
        self.service.stats.bytes_out.add(out.len() as u64);
        let write_all = async {
            let mut rest = &out[..];
            while !rest.is_empty() {
                let written = patient(&self.service, self.stream.write(rest)).await?;
                if written == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                self.peer.moves();
                rest = &rest[written..];
            }
            patient(&self.service, self.stream.flush()).await
        };
        tokio::select! {
            biased;
            written = write_all => written?,
            () = self.peer.cut.cancelled() => return Err(ended("it was cut off")),
        }
        if out.capacity() > REPLY_BYTES_KEPT {
            *out = BytesMut::new();
        }
        out.clear();
        Ok(())
    }
}

/// Waits for the client, at most for the idle timeout.
async fn patient<T>(service: &Service, io: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match service.settings.idle_timeout {
        None => io.await,
        Some(longest) => tokio::time::timeout(longest, io)
            .await
            .unwrap_or_else(|_| Err(ended("it was idle for too long"))),
    }
}

fn ended(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// A connection's part of the bytes shared by all.
struct Held {
    service: Arc<Service>,
    bytes: u64,
}

impl Held {
    /// Counts the part of `buffered` bytes beyond the free ones; false if all connections together exceed the limit.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use engine::keyspace::Keyspace;
    use engine::kv::{Change, Count, Durability, KeyRange, KeyValue, Memory, Result, Scan};
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::{JoinHandle, yield_now};

    use super::*;
    use crate::admission::{Admission, Limits};
    use crate::resp::Settings;

    /// A store in memory that allows calls from any thread.
    struct Anywhere(Memory);

    impl KeyValue for Anywhere {
        fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
            self.0.get_many(keys)
        }

        fn apply(&self, changes: &[Change]) -> Result<()> {
            self.0.apply(changes)
        }

        fn scan(&self, scan: &Scan) -> Result<Vec<(Bytes, Bytes)>> {
            self.0.scan(scan)
        }

        fn count(&self, range: &KeyRange) -> Result<Count> {
            self.0.count(range)
        }

        fn yields(&self) -> bool {
            true
        }

        fn durability(&self) -> Durability {
            self.0.durability()
        }
    }

    /// The only connection of a listener, and one thread each for its reads and its writes.
    struct Stage {
        endpoint: Arc<Admission>,
        service: Arc<Service>,
        threads: Arc<Threads>,
        cut: CancellationToken,
        client: DuplexStream,
        served: JoinHandle<io::Result<()>>,
    }

    impl Stage {
        /// An authenticated connection.
        async fn new() -> Self {
            let store = Arc::new(Anywhere(Memory::default()));
            let keyspace = Keyspace::open(store, Box::new(|| 0), 1).expect("an empty store");
            let service = Service::new(Settings::default(), Arc::new(keyspace), Arc::new(()));
            let service = Arc::new(service);
            let threads = Arc::new(Threads::new(1));
            let endpoint = Admission::new(Limits { connections_max: 1, per_address_max: None });
            let cut = CancellationToken::new();
            let guest = endpoint.admit(None, cut.clone(), Instant::now()).expect("room").guest;
            let peer = Arc::new(Peer::new(1, None, Duration::ZERO, Some(guest), cut.clone()));
            let (client, stream) = duplex(4096);
            let stop = CancellationToken::new();
            let (of, on) = (Arc::clone(&service), Arc::clone(&threads));
            let connection = Connection::new(stream, of, peer, on, stop);
            let served = tokio::spawn(connection.serve());
            let mut stage = Self { endpoint, service, threads, cut, client, served };
            stage.client.write_all(b"PING\r\n").await.expect("it is read");
            assert_eq!(stage.line().await, "+PONG");
            stage
        }

        async fn line(&mut self) -> String {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.push(self.client.read_u8().await.expect("the server answers"));
            }
            String::from_utf8_lossy(&line).trim_end().to_owned()
        }

        /// Sends a request, and returns once the connection has read it and is blocked: all tasks run on this thread.
        async fn send(&mut self, request: &str) {
            let before = self.service.stats.bytes_in.get();
            self.client.write_all(request.as_bytes()).await.expect("it is read");
            while self.service.stats.bytes_in.get() < before + request.len() as u64 {
                yield_now().await;
            }
        }

        /// Whether a new connection is admitted 61 seconds from now.
        fn lets_in_another(&self) -> bool {
            let late = Instant::now() + Duration::from_secs(61);
            self.endpoint.admit(None, CancellationToken::new(), late).is_some()
        }
    }

    /// Writes of a store that stalled once held every thread, and readers waited for as long as the stall lasted.
    #[tokio::test]
    async fn reads_need_no_thread_that_writes_hold() {
        let mut stage = Stage::new().await;
        let threads = Arc::clone(&stage.threads);
        let stalled = threads.permit(true).await;
        for read in ["GET k\r\n", "PING\r\n", "MULTI\r\n"] {
            stage.send(read).await;
            let line = stage.line().await;
            assert!(["$-1", "+PONG", "+OK"].contains(&&line[..]), "{line}");
        }
        stage.send("GET k\r\nEXEC\r\n").await;
        assert!(!stage.lets_in_another(), "the commands of EXEC may write: it waits");
        drop(stalled);
        assert_eq!([stage.line().await, stage.line().await], ["+QUEUED", "*1"]);
    }

    /// Once, a request that waited for a thread made its connection look idle, and a new one displaced it.
    #[tokio::test]
    async fn a_request_that_waits_for_a_thread_gives_way_to_no_new_connection() {
        let mut stage = Stage::new().await;
        let threads = Arc::clone(&stage.threads);
        let thread = threads.permit(true).await;
        stage.send("SET k v\r\n").await;
        assert!(!stage.lets_in_another(), "its request waits");
        drop(thread);
        assert_eq!(stage.line().await, "+OK");
        assert!(stage.lets_in_another(), "it is idle");
        assert!(stage.cut.is_cancelled());
    }

    #[tokio::test]
    async fn a_connection_that_is_cut_while_it_waits_executes_nothing() {
        let mut stage = Stage::new().await;
        let threads = Arc::clone(&stage.threads);
        let thread = threads.permit(true).await;
        stage.send("SET k v\r\n").await;
        stage.cut.cancel();
        drop(thread);
        let ended = stage.served.await.expect("no panic").expect_err("it was cut");
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        assert_eq!(stage.service.keyspace.count().expect("memory").keys, 0);
    }
}
