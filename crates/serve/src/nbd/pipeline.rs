//! The requests of one connection that are in progress: begun in the order they came, answered in any.
//!
//! ```text
//! intake -> begun: polled once -> in flight -> outbox -> stream
//!    ^                                            |
//!    +---- room: requests, memory, bytes to send -+
//! ```
//!
//! All of it is one task. A request that is done at once, as a read from a cache, costs no further wake-up; all replies
//! that are ready go out together. Without room nothing is read, so a client that reads no replies stops only itself.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use engine::block::{self, BlockDevice, Durable, Extent, IoBuf, IoBufMut};
use futures_util::poll;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;

use super::budget::Share;
use super::intake::{Arrived, Intake, Next};
use super::outbox::Outbox;
use super::service::Service;
use super::transmission::{Agreed, Done, Plan, Refusal, reply};
use super::wire::{Errno, Malformed, Request};
use super::writers::Writer;
use crate::listener::{CLOSING_GRACE, Stream};

/// Replies without data and short ones: with more of them unsent, nothing more is read.
const HEADS_BYTES_MAX: usize = 1024 * 1024;
/// A connection logs an error of one kind once in this time.
const LOG_PAUSE: Duration = Duration::from_secs(60);
/// How often a silent connection looks at the size of its device.
const SIZE_CHECK: Duration = Duration::from_secs(1);

/// Whether more is read from the client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reading {
    Yes,
    /// Not before something in progress is done or sent.
    Later,
    Ended,
}

/// The state of a connection with a device.
pub(super) struct Pipeline<'a> {
    service: &'a Service,
    device: &'a dyn BlockDevice,
    name: &'a str,
    /// The size that the client knows, in bytes.
    size: u64,
    agreed: Agreed,
    intake: Intake,
    outbox: Outbox,
    /// Requests in flight, and the memory they hold.
    requests: usize,
    memory: u64,
    /// Of the memory of all connections.
    share: Share<'a>,
    /// When errors of a kind were logged last.
    logged: Vec<(Errno, Instant)>,
    /// The device was deleted, or its store is closing.
    is_gone: bool,
    /// The right to write.
    writer: Option<Writer>,
    /// The client gives up its lease.
    releases: bool,
}

/// Requests that are done: one, or writes that became one.
struct Completed {
    memory: u64,
    results: Vec<(Request, block::Result<Outcome>)>,
}

/// A request in progress.
type Work<'a> = Pin<Box<dyn Future<Output = Completed> + Send + 'a>>;
type InFlight<'a> = FuturesUnordered<Work<'a>>;

enum Outcome {
    Changed,
    Read(IoBufMut),
    Extents(Vec<Extent>),
}

impl<'a> Pipeline<'a> {
    /// `input` was read behind the last option. Without a `writer`, the client agreed to read only.
    pub(super) fn new(
        service: &'a Service,
        (name, device, size): (&'a str, &'a dyn BlockDevice, u64),
        agreed: Agreed,
        input: BytesMut,
        writer: Option<Writer>,
    ) -> Self {
        Self {
            service,
            device,
            name,
            size,
            agreed,
            intake: Intake::new(agreed, input),
            outbox: Outbox::default(),
            requests: 0,
            memory: 0,
            share: Share::new(&service.budget),
            logged: Vec::new(),
            is_gone: false,
            writer,
            releases: false,
        }
    }

    /// Serves requests until the client is done, `stop` is cancelled, the device is gone, or it has another size than the
    /// client knows. The protocol cannot tell a client of a size, so it must connect again. Then completes and answers
    /// those in flight, releases the lease if the client says so, and closes. Once `end` is cancelled it only completes
    /// those in flight: the client has another connection, or may not write any more.
    ///
    /// Whatever it returns, no request is in progress then.
    pub(super) async fn run(
        mut self,
        stream: impl Stream,
        stop: &CancellationToken,
        end: &CancellationToken,
    ) -> io::Result<()> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut stopped = pin!(stop.cancelled());
        let mut in_flight = InFlight::new();
        let mut reading = Reading::Yes;
        let mut size_check = interval_at(Instant::now() + SIZE_CHECK, SIZE_CHECK);
        size_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let service = self.service;
        let ended = loop {
            // Room that another connection frees from here on wakes this one.
            let freed = service.budget.freed();
            if reading != Reading::Ended {
                match self.begin(&mut in_flight, &mut reader).await {
                    Ok(next) => reading = next,
                    Err(malformed) => {
                        break Err(io::Error::new(io::ErrorKind::InvalidData, malformed));
                    }
                }
            }
            while let Poll::Ready(Some(completed)) = poll!(in_flight.next()) {
                self.complete(completed);
            }
            if reading == Reading::Ended && in_flight.is_empty() {
                break Ok(());
            }
            self.share.hold(self.held() + self.intake.held());
            tokio::select! {
                biased;
                () = end.cancelled() => {
                    while in_flight.next().await.is_some() {}
                    let why = "another connection took its place";
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
                }
                sent = self.outbox.send(&mut writer), if !self.outbox.is_sent() => {
                    if let Err(error) = sent {
                        break Err(error);
                    }
                }
                Some(completed) = in_flight.next() => self.complete(completed),
                () = &mut stopped, if reading != Reading::Ended => reading = Reading::Ended,
                read = self.intake.read(&mut reader), if reading == Reading::Yes => match read {
                    Ok(0) => reading = Reading::Ended,
                    Ok(_) => {}
                    Err(error) => break Err(error),
                },
                () = freed, if reading == Reading::Later => {}
                // The next round looks.
                _ = size_check.tick(), if reading != Reading::Ended => {}
            }
        };
        // Whatever ended the connection: what the client asked for before is done.
        while let Some(completed) = in_flight.next().await {
            self.complete(completed);
        }
        if self.releases
            && let Some(writer) = self.writer.take()
        {
            writer.release().await;
        }
        let said = timeout(CLOSING_GRACE, goodbye(&mut self.outbox, &mut writer));
        match end.run_until_cancelled(said).await {
            Some(said) => ended.and(said.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))),
            None => ended,
        }
    }

    /// Begins the requests that have arrived, as far as there is room. Each is polled once, so they reach the device in
    /// this order.
    async fn begin(
        &mut self,
        in_flight: &mut InFlight<'a>,
        reader: &mut (impl AsyncRead + Unpin),
    ) -> Result<Reading, Malformed> {
        loop {
            if self.is_gone || self.device.geometry().size != self.size {
                return Ok(Reading::Ended);
            }
            let has_room = |requests: usize, bytes: usize, more: u64| {
                let held = self.memory + self.outbox.data_bytes() + bytes as u64;
                let ours = (self.requests + requests, held);
                has_room(self.service, &self.share, &self.outbox, ours, more)
            };
            let next = self.intake.next(self.size, has_room)?;
            let arrived = match next {
                Next::Read => return Ok(Reading::Yes),
                Next::Wait => return Ok(Reading::Later),
                Next::Arrived(arrived) => arrived,
                Next::Continue => {
                    let read = poll!(pin!(self.intake.read(reader)));
                    match read {
                        Poll::Ready(Ok(1..)) => continue,
                        // The end of the stream is met again, once this write has begun.
                        _ => match self.intake.release() {
                            Some(arrived) => arrived,
                            None => return Ok(Reading::Yes),
                        },
                    }
                }
            };
            match arrived {
                Arrived::Disconnect { releases } => {
                    self.releases = releases;
                    return Ok(Reading::Ended);
                }
                Arrived::Refused(request, refusal) => {
                    self.reply(&request, Err(refusal));
                }
                Arrived::Requests(requests, plan, data) => {
                    self.requests += requests.len();
                    self.service.stats.merged.add(requests.len() as u64 - 1);
                    self.memory += plan.memory();
                    self.share.hold(self.held() + self.intake.held());
                    let (service, device) = (self.service, self.device);
                    let mut work: Work<'a> =
                        Box::pin(execute(service, device, requests, plan, data));
                    match poll!(&mut work) {
                        Poll::Ready(completed) => self.complete(completed),
                        Poll::Pending => in_flight.push(work),
                    }
                }
            }
        }
    }

    /// The memory of requests in progress and of unsent replies, in bytes.
    fn held(&self) -> u64 {
        self.memory + self.outbox.data_bytes()
    }

    /// Writes the replies of requests that are done.
    fn complete(&mut self, completed: Completed) {
        let Completed { memory, results } = completed;
        self.requests -= results.len();
        self.memory -= memory;
        for (request, result) in results {
            self.answer(request, result);
        }
    }

    fn answer(&mut self, request: Request, result: block::Result<Outcome>) {
        let result = result.map_err(|error| {
            let refusal = Refusal::of(&error);
            self.is_gone |= refusal.error == Errno::Shutdown;
            self.log(&request, &refusal);
            refusal
        });
        match result {
            Ok(Outcome::Changed) => self.reply(&request, Ok(Done::Changed)),
            Ok(Outcome::Extents(extents)) => self.reply(&request, Ok(Done::Extents(&extents))),
            Ok(Outcome::Read(data)) => {
                self.reply(&request, Ok(Done::Read(data.len())));
                self.outbox.data(data);
            }
            Err(refusal) => self.reply(&request, Err(refusal)),
        }
    }

    fn reply(&mut self, request: &Request, outcome: Result<Done<'_>, Refusal>) {
        if let Err(refusal) = &outcome {
            self.service.stats.failed(refusal.error);
        }
        let agreed = self.agreed;
        self.outbox.head(|out| reply(request, agreed, outcome, out));
    }

    /// Logs the first error of each kind, and then one a minute: a client repeats what fails.
    fn log(&mut self, request: &Request, refusal: &Refusal) {
        let Refusal { error, message } = refusal;
        let now = Instant::now();
        match self.logged.iter_mut().find(|(known, _)| known == error) {
            Some((_, last)) if now.duration_since(*last) < LOG_PAUSE => return,
            Some((_, last)) => *last = now,
            None => self.logged.push((*error, now)),
        }
        let (name, Request { command, offset, len, .. }) = (self.name, request);
        match error {
            Errno::Io | Errno::NoSpace => {
                tracing::warn!("nbd: {name}: {command:?} of {len} bytes at {offset}: {message}");
            }
            _ => tracing::debug!("nbd: {name}: {command:?} of {len} bytes at {offset}: {message}"),
        }
    }
}

/// Whether there is room for a request that needs `more` memory beside `requests` that hold `held`. If those hold none,
/// there is.
fn has_room(
    service: &Service,
    share: &Share<'_>,
    outbox: &Outbox,
    (requests, held): (usize, u64),
    more: u64,
) -> bool {
    let Service { settings, budget, .. } = service;
    let has_memory = held.saturating_add(more) <= settings.payload_bytes_max
        && (more == 0 || budget.has_room(share, held, more));
    requests < settings.requests_max.max(1)
        && outbox.heads_bytes() < HEADS_BYTES_MAX
        && (held == 0 || has_memory)
}

/// Sends all replies, and closes.
async fn goodbye(outbox: &mut Outbox, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    while !outbox.is_sent() {
        outbox.send(writer).await?;
    }
    writer.shutdown().await
}

/// Does requests: one, or writes that become one.
async fn execute(
    service: &Service,
    device: &dyn BlockDevice,
    requests: Vec<Request>,
    plan: Plan,
    data: Option<IoBuf>,
) -> Completed {
    let count = |request: &Request| service.stats.begin(request.command, request.len);
    let _counted: Vec<_> = requests.iter().map(count).collect();
    let memory = plan.memory();
    let changed = |()| Outcome::Changed;
    let result = match plan {
        Plan::Read { offset, len } => {
            // A device gives every byte, or an error.
            let read = device.read(offset, IoBufMut::unread(len)).await;
            // Any other number of bytes would be taken for the next reply.
            read.and_then(|data| match data.len() {
                read if read == len => Ok(Outcome::Read(data)),
                read => {
                    Err(block::Error::Unavailable(format!("the device read {read} of {len} bytes")))
                }
            })
        }
        Plan::Write { offset, durable, .. } => {
            let data = data.expect("the intake reads the data of every write");
            if requests.len() > 1 {
                let results = write_all(device, requests, data, durable).await;
                return Completed { memory, results };
            }
            device.write(offset, data, durable).await.map(changed)
        }
        Plan::Flush => device.flush().await.map(changed),
        Plan::Trim { range, durable } => device.discard(range, durable).await.map(changed),
        Plan::Zero { range, room, fast, durable } => {
            device.zero(range, room, fast, durable).await.map(changed)
        }
        Plan::Prefetch { range } => device.prefetch(range).await.map(changed),
        Plan::Extents { range, most } => device.extents(range, most).await.map(Outcome::Extents),
    };
    // Others than writes are one.
    let results =
        requests.into_iter().next().map(|request| (request, result)).into_iter().collect();
    Completed { memory, results }
}

/// Does writes that continue each other as one. If there is no room, each is tried by itself: those over bytes that have
/// room work.
async fn write_all(
    device: &dyn BlockDevice,
    requests: Vec<Request>,
    data: IoBuf,
    durable: Durable,
) -> Vec<(Request, block::Result<Outcome>)> {
    let offset = requests.first().map_or(0, |first| first.offset);
    let whole = device.write(offset, data.clone(), durable).await;
    let is_full = matches!(whole, Err(block::Error::OutOfSpace(_)));
    let mut results = Vec::with_capacity(requests.len());
    for request in requests {
        let result = if is_full {
            let start = (request.offset - offset) as usize;
            let part = data.slice(start..start + request.len as usize);
            device.write(request.offset, part, durable).await
        } else {
            whole.clone()
        };
        results.push((request, result.map(|()| Outcome::Changed)));
    }
    results
}
