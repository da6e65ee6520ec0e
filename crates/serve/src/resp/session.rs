//! Executes one connection's commands in order: requests in, encoded replies out.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use engine::keyspace::{self, FETCHED_BYTES_MAX, Touches, Watched};
use engine::kv;
use tokio_util::sync::CancellationToken;

use super::client::{Client, Pending, Queue};
use super::command::{self, Call, Command, Control, Data, Failure, Found, Run};
use super::peers::Peer;
use super::reply::{Reply, ReplyLimit};
use super::service::Service;
use super::wire::Request;

/// The most neighbouring commands on keys that form one transaction, with one log record.
const COMMANDS_AT_ONCE: usize = 128;
/// The most keys they name together: all their values may be in memory at once.
const KEYS_AT_ONCE: usize = 128;
/// The most bytes of these commands together.
const BYTES_AT_ONCE: usize = 1 << 20;
/// The bytes of replies that end a transaction: the commands behind wait until these are sent.
const REPLY_BYTES_AT_ONCE: usize = FETCHED_BYTES_MAX;

/// The state of one connection between its requests.
pub struct Session {
    client: Client,
    run: Neighbours,
}

/// Commands on keys that are not executed yet.
#[derive(Default)]
struct Neighbours {
    commands: Vec<(Request, Found)>,
    touches: Touches,
    bytes: usize,
    /// Whether its single command needs the whole keyspace.
    has_everything: bool,
}

impl Session {
    /// A connection without a socket, not listed for clients.
    #[must_use]
    pub fn new(id: u64, service: &Service) -> Self {
        let now = service.figures.uptime();
        Self::of(Arc::new(Peer::new(id, None, now, None, CancellationToken::new())), service)
    }

    /// A newly accepted connection.
    pub(super) fn of(peer: Arc<Peer>, service: &Service) -> Self {
        Self { client: Client::new(peer, service), run: Neighbours::default() }
    }

    /// Whether the connection has authenticated, or need not.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.client.authenticated
    }

    /// Whether to close the connection after its replies are sent.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.client.closing
    }

    /// Whether one of `requests` may write to the store. A write in `MULTI` is executed by `EXEC`, which counts as one.
    #[must_use]
    pub fn writes(&self, requests: &VecDeque<Request>) -> bool {
        requests.iter().any(|request| command::find(request).is_ok_and(|it| it.command.writes()))
    }

    /// Executes requests from the front of `requests` in their order and appends the replies to `out`, until none is
    /// left, the connection is closing, or `out` holds `out_bytes_max`; a single run of neighbours may exceed that by
    /// 16 MiB and the replies to one command. Blocks the thread when the store does.
    ///
    /// On return, every reply in `out` is for a completed command, with the durability of the store.
    pub fn execute(
        &mut self,
        service: &Service,
        requests: &mut VecDeque<Request>,
        out: &mut BytesMut,
        out_bytes_max: usize,
    ) {
        self.client.peer.begin_work(service.figures.uptime());
        self.client.review(service);
        while out.len() < out_bytes_max
            && !self.client.closing
            && let Some(request) = requests.pop_front()
        {
            // A request behind unexecuted neighbours is retried after them.
            if let Some(request) = self.one(service, request, out) {
                requests.push_front(request);
                self.finish_run(service, requests, out);
            }
        }
        self.finish_run(service, requests, out);
        if self.client.authenticated {
            self.client.peer.is_known();
        }
        self.client.peer.rests();
    }

    /// Replies to bytes that are not a request. The connection is closing from then on.
    pub fn refuse(&mut self, service: &Service, error: impl std::fmt::Display, out: &mut BytesMut) {
        self.client.closing = true;
        self.answer(service, Reply::error(error), out);
    }

    /// Executes a request, or defers it with its neighbours. Returns it if those must be executed first.
    fn one(&mut self, service: &Service, request: Request, out: &mut BytesMut) -> Option<Request> {
        let found = match command::find(&request) {
            Ok(found) if !self.client.authenticated && !found.command.needs_no_auth() => {
                Err(Reply::coded("NOAUTH", "Authentication required."))
            }
            Ok(found) if !found.command.is_for(self.client.may, &request) => {
                let user = self.client.peer.told().user;
                Err(Reply::coded(
                    "NOPERM",
                    format_args!(
                        "User {} has no permissions to run the '{}' command",
                        String::from_utf8_lossy(&user),
                        found.command.name
                    ),
                ))
            }
            found => found,
        };
        if let Ok(found) = found
            && let Run::Data(..) | Run::Everything(_) = found.command.run
            && self.client.pending.queue.is_none()
        {
            return self.join(request, found);
        }
        if !self.run.commands.is_empty() {
            return Some(request);
        }
        if is_http(&request) {
            self.client.closing = true;
            return None;
        }
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
            Ok(found) => match (found.command.run, &mut self.client.pending.queue) {
                (Run::Control(control), queue)
                    if control != Control::Unwatch || queue.is_none() =>
                {
                    service.stats.called(found.index);
                    self.control(service, control, &request)
                }
                (_, Some(queue)) if !found.command.is_done_at_once() => {
                    queue.keep(request, found.index, service.settings.request_bytes_max)
                }
                _ => {
                    service.stats.called(found.index);
                    self.call(service, found.command, &request)
                }
            },
        };
        self.answer(service, reply, out);
        None
    }

    /// Defers a command until its neighbours are known. Returns it if the run cannot take it.
    fn join(&mut self, request: Request, found: Found) -> Option<Request> {
        let run = &mut self.run;
        let bytes = request.iter().map(Bytes::len).sum::<usize>();
        let keys = run.touches.len() + found.command.keys_of(&request);
        // A command that locks the whole keyspace runs alone, so that it holds the lock briefly.
        let alone = matches!(found.command.run, Run::Everything(_)) || run.has_everything;
        let full = run.commands.len() == COMMANDS_AT_ONCE
            || keys > KEYS_AT_ONCE
            || run.bytes + bytes > BYTES_AT_ONCE;
        if !run.commands.is_empty() && (full || alone) {
            return Some(request);
        }
        self.client.peer.called(found.index);
        found.command.touch(&request, &mut run.touches);
        run.touches.end_part();
        run.bytes += bytes;
        run.has_everything = alone;
        run.commands.push((request, found));
        None
    }

    /// Executes the deferred commands, and replies to each. If earlier replies are long enough, the remaining commands
    /// go back to the front of `requests`.
    fn finish_run(
        &mut self,
        service: &Service,
        requests: &mut VecDeque<Request>,
        out: &mut BytesMut,
    ) {
        if self.run.commands.is_empty() {
            return;
        }
        let Neighbours { mut commands, touches, .. } = mem::take(&mut self.run);
        let done = match self.perform(service, &commands, &touches, &[]) {
            Ok(replies) => {
                let replies = replies.expect("nothing was watched");
                let done = replies.len();
                replies.into_iter().for_each(|reply| self.answer(service, reply, out));
                done
            }
            // The transaction is atomic: if it fails, none of its commands was executed, and each is retried alone.
            // Only those fail that need the broken part.
            Err(Undone { again: true, .. }) if commands.len() > 1 => {
                self.each_alone(service, &commands, out)
            }
            Err(Undone { reply, .. }) => {
                commands.iter().for_each(|_| self.answer(service, reply.clone(), out));
                commands.len()
            }
        };
        commands.iter().take(done).for_each(|(_, found)| service.stats.called(found.index));
        commands.drain(..done);
        for (request, _) in commands.into_iter().rev() {
            requests.push_front(request);
        }
    }

    /// Executes commands in separate transactions, until the replies are long enough. Returns the number executed.
    fn each_alone(
        &mut self,
        service: &Service,
        commands: &[(Request, Found)],
        out: &mut BytesMut,
    ) -> usize {
        let before = out.len();
        for (n, command) in commands.iter().enumerate() {
            if out.len() - before >= REPLY_BYTES_AT_ONCE {
                return n;
            }
            let mut touches = Touches::default();
            command.1.command.touch(&command.0, &mut touches);
            touches.end_part();
            let reply = match self.perform(service, std::slice::from_ref(command), &touches, &[]) {
                Ok(replies) => replies.into_iter().flatten().next().expect("a reply to each"),
                Err(Undone { reply, .. }) => reply,
            };
            self.answer(service, reply, out);
        }
        commands.len()
    }

    /// Executes a command that is not about keys.
    fn call(&mut self, service: &Service, command: &'static Command, words: &[Bytes]) -> Reply {
        let (table, client) = (command::table(), &mut self.client);
        command.execute(&mut Call { words, table, client, service })
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

    /// Executes all queued commands, or none.
    fn exec(&mut self, service: &Service, queue: Queue, watched: Vec<Watched>) -> Reply {
        if queue.broken {
            return Reply::coded("EXECABORT", "Transaction discarded because of previous errors.");
        }
        let kept = queue.kept.into_iter();
        let commands: Vec<_> = kept.map(|(request, index)| (request, Found::at(index))).collect();
        let mut touches = Touches::default();
        for (request, found) in &commands {
            found.command.touch(request, &mut touches);
            service.stats.called(found.index);
        }
        watched.iter().for_each(|watched| touches.add_watched(watched));
        match self.perform(service, &commands, &touches, &watched) {
            Ok(Some(replies)) => Reply::Array(replies),
            Ok(None) => Reply::NullArray,
            Err(Undone { reply: Reply::Error(why), aborts: true, .. }) => {
                Reply::coded("EXECABORT", format_args!("Transaction discarded because of: {why}"))
            }
            Err(Undone { reply, .. }) => reply,
        }
    }

    /// Executes commands in one transaction that touches their keys and the watched ones. `None` if a watched key has
    /// changed; then nothing is executed. If `touches` has parts, one for each command, execution stops once the
    /// replies reach [`REPLY_BYTES_AT_ONCE`]: there are fewer replies then.
    fn perform(
        &mut self,
        service: &Service,
        commands: &[(Request, Found)],
        touches: &Touches,
        watched: &[Watched],
    ) -> Result<Option<Vec<Reply>>, Undone> {
        let max = service.settings.request_bytes_max;
        let before = |error| Undone::before(error, max);
        let transaction = service.keyspace.begin_within(touches, service.read_limits());
        let mut transaction = transaction.map_err(before)?;
        for watched in watched {
            if !transaction.is_unchanged(watched).map_err(before)? {
                return Ok(None);
            }
        }
        let in_parts = touches.has_parts();
        let fetched = if in_parts { transaction.parts_fetched() } else { commands.len() };
        let mut replies = Vec::with_capacity(fetched);
        // The replies to EXEC form one reply.
        let mut bytes = if in_parts { 0 } else { Reply::head_len(commands.len()) };
        for (words, found) in &commands[..fetched] {
            let outcome = match found.command.run {
                Run::Data(_, run) | Run::Everything(run) => {
                    let (protocol, transaction) = (self.client.protocol, &mut transaction);
                    run(&mut Data { words, protocol, transaction, service })
                }
                // Only UNWATCH can be queued, and EXEC has dropped the watched keys already.
                Run::Control(_) => Ok(Reply::OK),
                Run::Call(_) | Run::Subcommands(_) => Ok(self.call(service, found.command, words)),
            };
            let reply = match outcome {
                Ok(reply) | Err(Failure::Refused(reply)) => reply,
                Err(Failure::Failed(error)) => return Err(before(error.into())),
                Err(Failure::TooLong(limit)) => return Err(Undone::too_long(limit, max)),
            };
            let reply_bytes = reply.encoded_len(self.client.protocol);
            bytes += reply_bytes;
            // A single value is at most `bulk_max` long, and its owner must be able to read it.
            let is_value = matches!(reply, Reply::Bulk(_));
            // Neighbours are then executed one by one, each with its own limit on the reply.
            let is_too_long = if in_parts { reply_bytes > max && !is_value } else { bytes > max };
            if is_too_long {
                return Err(Undone::too_long(ReplyLimit::Length, max));
            }
            replies.push(reply);
            if in_parts && bytes >= REPLY_BYTES_AT_ONCE {
                break;
            }
        }
        transaction.commit().map_err(Undone::at_commit)?;
        Ok(Some(replies))
    }

    fn answer(&self, service: &Service, reply: Reply, out: &mut BytesMut) {
        if matches!(reply, Reply::Error(_)) {
            service.stats.errors.add_one();
        }
        reply.encode(self.client.protocol, out);
    }
}

/// Why a transaction was not executed.
struct Undone {
    /// The reply to its commands.
    reply: Reply,
    /// Whether `EXEC` replies that it was discarded: nothing was executed, and the client may retry.
    aborts: bool,
    /// Whether its commands may be executed one by one instead: nothing was applied, and some of them may not need the
    /// part that failed.
    again: bool,
}

impl Undone {
    /// A failure before anything was applied; replies have at most `max` bytes.
    fn before(error: keyspace::Error, max: usize) -> Self {
        match error {
            keyspace::Error::TooLong(_) => return Self::too_long(ReplyLimit::Read, max),
            keyspace::Error::TooMany(_) => return Self::too_long(ReplyLimit::Elements, max),
            _ => {}
        }
        let error = store_error(error);
        let again = !matches!(error, kv::Error::Busy(_) | kv::Error::Closed(_));
        Self { aborts: matches!(error, kv::Error::OutOfSpace(_)), again, reply: error.into() }
    }

    /// A reply, or all together, exceed `max` bytes.
    fn too_long(limit: ReplyLimit, max: usize) -> Self {
        Self { reply: Reply::too_long(limit, max), aborts: true, again: true }
    }

    /// A failure of the commit: without space nothing was applied, otherwise that is unknown.
    fn at_commit(error: keyspace::Error) -> Self {
        let error = store_error(error);
        let full = matches!(error, kv::Error::OutOfSpace(_));
        Self { reply: error.into(), aborts: full, again: full }
    }
}

fn store_error(error: keyspace::Error) -> kv::Error {
    match error {
        keyspace::Error::Store(error) => error,
        other => kv::Error::Other(other.to_string()),
    }
}

/// Whether this is the head of an HTTP request: a web page may try to post commands to this port. Redis closes such
/// connections too.
fn is_http(request: &Request) -> bool {
    request[0].eq_ignore_ascii_case(b"post") || request[0].eq_ignore_ascii_case(b"host:")
}

#[cfg(test)]
mod tests;
