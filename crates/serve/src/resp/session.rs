//! One connection's commands, executed in order: request in, bytes of the reply out.

use std::collections::VecDeque;
use std::mem;

use bytes::{Bytes, BytesMut};
use engine::kv::Change;

use super::command::{self, Call, Run};
use super::reply::{Protocol, Reply};
use super::service::Service;
use super::wire::Request;

/// How many neighbouring `SET`s become one batch of the store: they then share one log record.
const PUTS_AT_ONCE: usize = 128;
/// How many neighbouring `GET`s become one read of the store. Fewer than puts, because their values
/// are in memory at the same time.
const GETS_AT_ONCE: usize = 16;

/// What a connection is to the commands.
#[derive(Debug)]
pub(super) struct Client {
    /// Its number, unique since the start of the program.
    pub(super) id: u64,
    /// The name it gave itself; empty for none.
    pub(super) name: Bytes,
    /// What it speaks.
    pub(super) protocol: Protocol,
    /// Whether it has said who it is, or need not.
    pub(super) authenticated: bool,
    /// Whether it asked to be closed.
    pub(super) closing: bool,
}

/// The state of one connection between its requests.
#[derive(Debug)]
pub struct Session {
    client: Client,
    run: Neighbours,
}

/// Commands of one kind that were not executed yet; at most one of the two holds any.
#[derive(Debug, Default)]
struct Neighbours {
    puts: Vec<Change>,
    gets: Vec<Bytes>,
}

impl Session {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new(id: u64, service: &Service) -> Self {
        let client = Client {
            id,
            name: Bytes::new(),
            protocol: Protocol::Resp2,
            authenticated: service.settings.password.is_none(),
            closing: false,
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
        while out.len() < out_bytes_max
            && !self.client.closing
            && let Some(request) = requests.pop_front()
        {
            self.one(service, &request, out);
        }
        self.finish_run(service, out);
    }

    /// Answers bytes that were no request. The connection is closing from then on.
    pub fn refuse(&mut self, service: &Service, error: impl std::fmt::Display, out: &mut BytesMut) {
        self.client.closing = true;
        self.answer(service, Reply::error(error), out);
    }

    fn one(&mut self, service: &Service, request: &Request, out: &mut BytesMut) {
        if is_http(request) {
            self.client.closing = true;
            return;
        }
        let found = command::find(request);
        if let Ok(found) = &found {
            service.stats.called(found.index);
        }
        let reply = match found {
            Err(error) => error,
            Ok(found) if !self.client.authenticated && !found.command.needs_no_auth() => {
                Reply::coded("NOAUTH", "Authentication required.")
            }
            Ok(found) => match found.command.run() {
                Run::Get => return self.get(service, request[1].clone(), out),
                Run::Put(parse) => match parse(request) {
                    Ok(change) => return self.put(service, change, out),
                    Err(error) => error,
                },
                Run::Call(_) | Run::Subcommands(_) => {
                    self.finish_run(service, out);
                    let client = &mut self.client;
                    command::call(found.command, &mut Call { words: request, client, service })
                }
            },
        };
        self.finish_run(service, out);
        self.answer(service, reply, out);
    }

    fn get(&mut self, service: &Service, key: Bytes, out: &mut BytesMut) {
        if !self.run.puts.is_empty() || self.run.gets.len() == GETS_AT_ONCE {
            self.finish_run(service, out);
        }
        self.run.gets.push(key);
    }

    fn put(&mut self, service: &Service, change: Change, out: &mut BytesMut) {
        if !self.run.gets.is_empty() || self.run.puts.len() == PUTS_AT_ONCE {
            self.finish_run(service, out);
        }
        self.run.puts.push(change);
    }

    /// Executes the commands that were put off, and answers each.
    fn finish_run(&mut self, service: &Service, out: &mut BytesMut) {
        let Neighbours { puts, gets } = mem::take(&mut self.run);
        if !puts.is_empty() {
            // All or none: if the batch fails, none of its commands was done.
            let done = service.store.apply(&puts);
            for _ in &puts {
                let reply = done.clone().map_or_else(Reply::from, |()| Reply::OK);
                self.answer(service, reply, out);
            }
        }
        if !gets.is_empty() {
            match service.store.get_many(&gets) {
                Ok(values) => {
                    let hits = values.iter().flatten().count() as u64;
                    service.stats.hits.add(hits);
                    service.stats.misses.add(values.len() as u64 - hits);
                    values.into_iter().for_each(|value| self.answer(service, value.into(), out));
                }
                Err(error) => {
                    gets.iter().for_each(|_| self.answer(service, error.clone().into(), out));
                }
            }
        }
    }

    fn answer(&self, service: &Service, reply: Reply, out: &mut BytesMut) {
        if matches!(reply, Reply::Error(_)) {
            service.stats.errors.add_one();
        }
        reply.encode(self.client.protocol, out);
    }
}

/// Whether this is the head of an HTTP request: a web page on this machine that was made to post
/// commands to a port it should not know. Redis hangs up on it too.
fn is_http(request: &Request) -> bool {
    request[0].eq_ignore_ascii_case(b"post") || request[0].eq_ignore_ascii_case(b"host:")
}

#[cfg(test)]
mod tests;
