//! The open connections as others see them: for `CLIENT LIST` and `CLIENT KILL`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::reply::Protocol;
use super::settings::DEFAULT_USER;
use crate::admission::Guest;

/// The open connections, by number.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<BTreeMap<u64, Arc<Peer>>>);

impl Peers {
    pub(super) fn enter(&self, peer: Arc<Peer>) {
        self.0.lock().insert(peer.id, peer);
    }

    pub(super) fn leave(&self, id: u64) {
        self.0.lock().remove(&id);
    }

    /// The open connections, oldest first, without those already cancelled.
    pub(super) fn all(&self) -> Vec<Arc<Peer>> {
        self.0.lock().values().filter(|peer| !peer.cut.is_cancelled()).cloned().collect()
    }
}

/// The two addresses of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Ends {
    /// The client's.
    pub(super) client: SocketAddr,
    /// The server's.
    pub(super) server: SocketAddr,
}

/// One connection as shown to others. Times are since the start of the program.
#[derive(Debug)]
pub(super) struct Peer {
    /// Its number, unique since the start of the program.
    pub(super) id: u64,
    /// `None` without a socket.
    pub(super) ends: Option<Ends>,
    since: Duration,
    /// The time of its last command, in milliseconds.
    busy_ms: AtomicU64,
    /// The position of its last command in the table, plus one.
    command: AtomicUsize,
    told: Mutex<Told>,
    /// Its admission.
    guest: Option<Guest>,
    /// Ends the connection: nothing more is read or written.
    pub(super) cut: CancellationToken,
}

/// The client's own statements about itself.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// Its user.
    pub(super) user: Bytes,
    /// Its name; empty for none.
    pub(super) name: Bytes,
    /// The library it uses, and the library's version.
    pub(super) library: Bytes,
    pub(super) library_version: Bytes,
    /// Its protocol.
    pub(super) protocol: Protocol,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            user: Bytes::from_static(DEFAULT_USER),
            name: Bytes::new(),
            library: Bytes::new(),
            library_version: Bytes::new(),
            protocol: Protocol::default(),
        }
    }
}

impl Peer {
    pub(super) fn new(
        id: u64,
        ends: Option<Ends>,
        since: Duration,
        guest: Option<Guest>,
        cut: CancellationToken,
    ) -> Self {
        let peer = Self {
            id,
            ends,
            since,
            busy_ms: AtomicU64::default(),
            command: AtomicUsize::default(),
            told: Mutex::default(),
            guest,
            cut,
        };
        peer.begin_work(since);
        peer.rests();
        peer
    }

    /// A command is under way until [`Peer::rests`].
    pub(super) fn begin_work(&self, now: Duration) {
        self.guest.iter().for_each(Guest::works);
        let ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.busy_ms.store(ms, Ordering::Relaxed);
    }

    /// No command is under way.
    pub(super) fn rests(&self) {
        self.guest.iter().for_each(|guest| guest.rests(Instant::now()));
    }

    /// The client received replies.
    pub(super) fn moves(&self) {
        self.guest.iter().for_each(|guest| guest.moves(Instant::now()));
    }

    /// An authenticated client executed a command.
    pub(super) fn is_known(&self) {
        if self.last_command().is_some() {
            self.guest.iter().for_each(Guest::is_known);
        }
    }

    /// The position of its last command in the table.
    pub(super) fn last_command(&self) -> Option<usize> {
        self.command.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Records a call of the command at `index` of the table.
    pub(super) fn called(&self, index: usize) {
        self.command.store(index + 1, Ordering::Relaxed);
    }

    /// The client's statements about itself.
    pub(super) fn told(&self) -> Told {
        self.told.lock().clone()
    }

    /// Changes the client's statements about itself.
    pub(super) fn tell(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.told.lock());
    }

    /// Its line in `CLIENT LIST`, without the line's end: those of Redis' fields that exist here. `command` is the name
    /// of its last command.
    pub(super) fn line(&self, now: Duration, command: &str) -> impl fmt::Display {
        let ends = |end: fn(&Ends) -> SocketAddr| {
            self.ends.as_ref().map_or_else(String::new, |ends| end(ends).to_string())
        };
        let Told { user, name, library, library_version, protocol } = self.told();
        let busy = Duration::from_millis(self.busy_ms.load(Ordering::Relaxed));
        format!(
            "id={} addr={} laddr={} name={} age={} idle={} flags=N db=0 cmd={} user={} resp={} \
             lib-name={} lib-ver={}",
            self.id,
            ends(|ends| ends.client),
            ends(|ends| ends.server),
            String::from_utf8_lossy(&name),
            now.saturating_sub(self.since).as_secs(),
            now.saturating_sub(busy).as_secs(),
            command,
            String::from_utf8_lossy(&user),
            protocol.number(),
            String::from_utf8_lossy(&library),
            String::from_utf8_lossy(&library_version),
        )
    }
}
