//! One connection's commands, executed in order: request in, bytes of the reply out.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use engine::keyspace::{Touches, Watched};
use engine::kv;
use tokio_util::sync::CancellationToken;

use super::clients::Peer;
use super::command::{self, Call, Control, Data, Failure, Found, Pending, Queue, Run};
use super::reply::{Protocol, Reply};
use super::service::Service;
use super::wire::Request;

/// How many neighbouring commands on keys become one transaction: they then share one log record.
const COMMANDS_AT_ONCE: usize = 128;
/// How many keys they may name together: their values may be in memory at the same time.
const KEYS_AT_ONCE: usize = 128;
/// How many bytes they may have together.
const BYTES_AT_ONCE: usize = 1 << 20;

/// What a connection is to the commands.
pub(super) struct Client {
    /// What others see of it.
    pub(super) peer: Arc<Peer>,
    /// What it speaks.
    pub(super) protocol: Protocol,
    /// Whether it has said who it is, or need not.
    pub(super) authenticated: bool,
    /// Whether it asked to be closed.
    pub(super) closing: bool,
    /// What it keeps for `EXEC`.
    pub(super) pending: Pending,
}

/// The state of one connection between its requests.
pub struct Session {
    client: Client,
    run: Neighbours,
}

/// Commands on keys that were not executed yet.
#[derive(Default)]
struct Neighbours {
    commands: Vec<(Request, Found)>,
    touches: Touches,
    bytes: usize,
}

impl Session {
    /// A connection without a socket, which no list shows.
    #[must_use]
    pub fn new(id: u64, service: &Service) -> Self {
        let now = service.figures.uptime();
        Self::of(Arc::new(Peer::new(id, None, now, CancellationToken::new())), service)
    }

    /// A connection that was just accepted.
    pub(super) fn of(peer: Arc<Peer>, service: &Service) -> Self {
        let client = Client {
            peer,
            protocol: Protocol::Resp2,
            authenticated: service.settings.password.is_none(),
            closing: false,
            pending: Pending::default(),
        };
        Self { client, run: Neighbours::default() }
    }

    /// Whether the connection said who it is, or need not.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.client.authenticated
    }

    /// Whether the connection is to be closed once its replies are out.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.client.closing
    }

    /// Executes requests from the front of `requests` in their order and appends the replies to
    /// `out`, until none is left, the connection is closing, or `out` holds `out_bytes_max`; a single
    /// run of neighbours may go beyond that. Blocks the thread as the store does.
    ///
    /// On return every reply in `out` stands for a command that is done, with the durability the
    /// store promises.
    pub fn execute(
        &mut self,
        service: &Service,
        requests: &mut VecDeque<Request>,
        out: &mut BytesMut,
        out_bytes_max: usize,
    ) {
        self.client.peer.is_busy(service.figures.uptime());
        while out.len() < out_bytes_max
            && !self.client.closing
            && let Some(request) = requests.pop_front()
        {
            self.one(service, request, out);
        }
        self.finish_run(service, out);
    }

    /// Answers bytes that were no request. The connection is closing from then on.
    pub fn refuse(&mut self, service: &Service, error: impl std::fmt::Display, out: &mut BytesMut) {
        self.client.closing = true;
        self.answer(service, Reply::error(error), out);
    }

    fn one(&mut self, service: &Service, request: Request, out: &mut BytesMut) {
        if is_http(&request) {
            self.client.closing = true;
            return;
        }
        let found = match command::find(&request) {
            Ok(found) if !self.client.authenticated && !found.command.needs_no_auth() => {
                Err(Reply::coded("NOAUTH", "Authentication required."))
            }
            found => found,
        };
        if let Ok(found) = &found {
            self.client.peer.called(found.index);
        }
        let reply = match found {
            Err(error) => {
                if let Some(queue) = &mut self.client.pending.queue {
                    queue.broken = true;
                }
                error
            }
            Ok(found) => match (found.command.run(), &mut self.client.pending.queue) {
                (Run::Control(control), queue)
                    if control != Control::Unwatch || queue.is_none() =>
                {
                    self.finish_run(service, out);
                    service.stats.called(found.index);
                    self.control(service, control, &request)
                }
                (_, Some(queue)) if !found.command.is_done_at_once() => {
                    queue.keep(request, found, service.settings.request_bytes_max)
                }
                (Run::Data(..), _) => return self.join(service, request, found, out),
                (Run::Everything(_), _) => {
                    self.finish_run(service, out);
                    self.join(service, request, found, out);
                    return self.finish_run(service, out);
                }
                (Run::Call(_) | Run::Subcommands(_) | Run::Control(_), _) => {
                    self.finish_run(service, out);
                    service.stats.called(found.index);
                    let client = &mut self.client;
                    command::call(found.command, &mut Call { words: &request, client, service })
                }
            },
        };
        self.finish_run(service, out);
        self.answer(service, reply, out);
    }

    /// Puts a command off until its neighbours are known.
    fn join(&mut self, service: &Service, request: Request, found: Found, out: &mut BytesMut) {
        let bytes = request.iter().map(Bytes::len).sum::<usize>();
        let keys = self.run.touches.len() + found.command.keys_of(&request);
        if self.run.commands.len() == COMMANDS_AT_ONCE
            || keys > KEYS_AT_ONCE
            || self.run.bytes + bytes > BYTES_AT_ONCE
        {
            self.finish_run(service, out);
        }
        found.command.touch(&request, &mut self.run.touches);
        self.run.bytes += bytes;
        self.run.commands.push((request, found));
    }

    /// Executes the commands that were put off, and answers each.
    fn finish_run(&mut self, service: &Service, out: &mut BytesMut) {
        if self.run.commands.is_empty() {
            return;
        }
        let Neighbours { commands, touches, .. } = mem::take(&mut self.run);
        match self.perform(service, &commands, &touches, &[]) {
            Ok(replies) => {
                let replies = replies.expect("nothing was watched");
                replies.into_iter().for_each(|reply| self.answer(service, reply, out));
            }
            // All or none: if the transaction fails, none of its commands was done.
            Err(error) => {
                commands.iter().for_each(|_| self.answer(service, error.clone().into(), out));
            }
        }
    }

    fn control(&mut self, service: &Service, control: Control, request: &[Bytes]) -> Reply {
        let pending = &mut self.client.pending;
        match (control, pending.queue.is_some()) {
            (Control::Multi, false) => {
                pending.queue = Some(Queue::default());
                Reply::OK
            }
            (Control::Multi, true) => Reply::error("MULTI calls can not be nested"),
            (Control::Exec, true) => {
                let Pending { queue, watched } = mem::take(pending);
                self.exec(service, queue.unwrap_or_default(), watched)
            }
            (Control::Exec, false) => Reply::error("EXEC without MULTI"),
            (Control::Discard, true) => {
                *pending = Pending::default();
                Reply::OK
            }
            (Control::Discard, false) => Reply::error("DISCARD without MULTI"),
            (Control::Watch, true) => Reply::error("WATCH inside MULTI is not allowed"),
            (Control::Watch, false) => {
                for key in &request[1..] {
                    match service.keyspace.watch(key) {
                        Ok(watched) => pending.watched.push(watched),
                        Err(error) => return error.into(),
                    }
                }
                Reply::OK
            }
            (Control::Unwatch, _) => {
                pending.watched.clear();
                Reply::OK
            }
        }
    }

    /// Does all that was kept, or nothing.
    fn exec(&mut self, service: &Service, queue: Queue, watched: Vec<Watched>) -> Reply {
        if queue.broken {
            return Reply::coded("EXECABORT", "Transaction discarded because of previous errors.");
        }
        let mut touches = Touches::default();
        for (request, found) in &queue.kept {
            found.command.touch(request, &mut touches);
        }
        watched.iter().for_each(|watched| touches.add_watched(watched));
        match self.perform(service, &queue.kept, &touches, &watched) {
            Ok(Some(replies)) => Reply::Array(replies),
            Ok(None) => Reply::NullArray,
            Err(error) => error.into(),
        }
    }

    /// Does commands in one transaction that touches their keys, and what is watched. `None` if something
    /// watched has changed: then nothing is done.
    fn perform(
        &mut self,
        service: &Service,
        commands: &[(Request, Found)],
        touches: &Touches,
        watched: &[Watched],
    ) -> Result<Option<Vec<Reply>>, kv::Error> {
        let mut transaction = service.keyspace.begin(touches).map_err(store_error)?;
        for watched in watched {
            if !transaction.is_unchanged(watched).map_err(store_error)? {
                return Ok(None);
            }
        }
        let mut replies = Vec::with_capacity(commands.len());
        for (words, found) in commands {
            service.stats.called(found.index);
            let outcome = match found.command.run() {
                Run::Data(_, run) | Run::Everything(run) => {
                    let (protocol, transaction) = (self.client.protocol, &mut transaction);
                    run(&mut Data { words, protocol, transaction, service })
                }
                // Only UNWATCH is kept, and EXEC has forgotten what was watched.
                Run::Control(_) => Ok(Reply::OK),
                Run::Call(_) | Run::Subcommands(_) => {
                    let client = &mut self.client;
                    Ok(command::call(found.command, &mut Call { words, client, service }))
                }
            };
            replies.push(match outcome {
                Ok(reply) | Err(Failure::Refused(reply)) => reply,
                Err(Failure::Failed(error)) => return Err(error),
            });
        }
        transaction.commit().map_err(store_error)?;
        Ok(Some(replies))
    }

    fn answer(&self, service: &Service, reply: Reply, out: &mut BytesMut) {
        if matches!(reply, Reply::Error(_)) {
            service.stats.errors.add_one();
        }
        reply.encode(self.client.protocol, out);
    }
}

fn store_error(error: engine::keyspace::Error) -> kv::Error {
    match error {
        engine::keyspace::Error::Store(error) => error,
        other => kv::Error::Other(other.to_string()),
    }
}

/// Whether this is the head of an HTTP request: a web page on this machine that was made to post
/// commands to a port it should not know. Redis hangs up on it too.
fn is_http(request: &Request) -> bool {
    request[0].eq_ignore_ascii_case(b"post") || request[0].eq_ignore_ascii_case(b"host:")
}

#[cfg(test)]
mod tests;
