//! The state of one connection between its requests: its rights, and its transaction.

use std::sync::Arc;

use bytes::Bytes;
use engine::keyspace::Watched;

use super::peers::Peer;
use super::reply::{Protocol, Reply};
use super::service::Service;
use super::settings::DEFAULT_USER;
use super::wire::Request;
use crate::{May, Secret};

/// A connection as commands see it.
pub(super) struct Client {
    /// The part visible to other clients.
    pub(super) peer: Arc<Peer>,
    /// Its protocol.
    pub(super) protocol: Protocol,
    /// Whether it has authenticated, or need not.
    pub(super) authenticated: bool,
    /// Its password, if it had to send one.
    shown: Option<Secret>,
    /// The version of [`Access`](super::access::Access) that was last checked.
    access_seen: u64,
    /// Its rights, once authenticated.
    pub(super) may: May,
    /// Whether it asked to be closed.
    pub(super) closing: bool,
    /// Its queue for `EXEC`.
    pub(super) pending: Pending,
}

impl Client {
    /// A newly accepted connection.
    pub(super) fn new(peer: Arc<Peer>, service: &Service) -> Self {
        let mut client = Self {
            peer,
            protocol: Protocol::Resp2,
            authenticated: false,
            shown: None,
            access_seen: 0,
            may: May::All,
            closing: false,
            pending: Pending::default(),
        };
        client.deauthenticate(service);
        client
    }

    /// Marks the connection as authenticated as `user`.
    pub(super) fn authenticate(&mut self, user: &[u8], password: &[u8], may: May) {
        (self.authenticated, self.may) = (true, may);
        self.shown = Some(Secret::new(String::from_utf8_lossy(password)));
        self.peer.tell(|told| told.user = Bytes::copy_from_slice(user));
    }

    /// Marks the connection as unauthenticated.
    pub(super) fn deauthenticate(&mut self, service: &Service) {
        // Read the version first: a change from here on is noticed before the next request.
        self.access_seen = service.access.version();
        self.authenticated = !service.access.is_asked_for();
        (self.may, self.shown) = (May::All, None);
        self.peer.tell(|told| told.user = DEFAULT_USER.into());
    }

    /// Applies the current password and users: the connection gets the current rights of its password, or none. A
    /// transaction begun with other rights is discarded at `EXEC`, since its commands were checked against those.
    pub(super) fn review(&mut self, service: &Service) {
        let version = service.access.version();
        if self.access_seen == version {
            return;
        }
        self.access_seen = version;
        let may = match &self.shown {
            Some(shown) => service.access.known(&self.peer.told().user, shown.reveal().as_bytes()),
            None => (!service.access.is_asked_for()).then_some(May::All),
        };
        match may {
            Some(may) if may == self.may => {}
            Some(may) => {
                self.may = may;
                self.pending.queue.iter_mut().for_each(Queue::discard);
            }
            None => {
                self.deauthenticate(service);
                self.pending = Pending::default();
            }
        }
    }
}

/// Commands queued for `EXEC`.
#[derive(Default)]
pub(super) struct Queue {
    /// The requests, and the positions of their commands in the table.
    pub(super) kept: Vec<(Request, usize)>,
    /// Their size in bytes.
    bytes: usize,
    /// Whether `EXEC` executes none of them: one was refused, or the client's rights changed.
    pub(super) broken: bool,
}

/// The state of a client between `WATCH`, `MULTI` and `EXEC`.
#[derive(Default)]
pub(super) struct Pending {
    /// The queue, between `MULTI` and `EXEC`.
    pub(super) queue: Option<Queue>,
    /// The keys that must be unchanged at `EXEC`.
    pub(super) watched: Vec<Watched>,
}

impl Queue {
    /// Queues a request for the command at `index` of the table, unless the queue gets longer than `max` bytes.
    pub(super) fn keep(&mut self, request: Request, index: usize, max: usize) -> Reply {
        // Counts some bytes for each word itself: many empty words are not free.
        const WORD_BYTES: usize = 32;
        self.bytes += request.iter().map(|word| word.len() + WORD_BYTES).sum::<usize>();
        if self.bytes > max {
            self.discard();
            return Reply::error(format_args!(
                "the commands of a transaction have more than {max} bytes together (request_max)"
            ));
        }
        if !self.broken {
            self.kept.push((request, index));
        }
        Reply::Status("QUEUED")
    }

    /// Drops the commands: `EXEC` executes neither these nor later ones.
    pub(super) fn discard(&mut self) {
        self.broken = true;
        self.kept.clear();
    }
}
