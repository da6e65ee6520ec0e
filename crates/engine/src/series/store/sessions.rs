//! The stored batches of each client.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use policy::time::Instant;

use super::wal::{put_text, take_text};
use crate::series::batch::{put_varint, take_varint};
use crate::series::memory::behind;
use crate::series::{Error, Result, SESSION_IDLE, SESSION_WINDOW, SESSIONS_MAX, Session};

/// When a client refused for too many sessions should try again.
const LATER: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Sessions {
    clients: HashMap<String, Client>,
    /// No client is dropped before this time: all of them wrote lately.
    full_until: Option<Instant>,
}

/// The newest sequence, and a bit for each stored one of those up to it.
#[derive(Clone, Copy, Debug)]
struct Client {
    newest: u64,
    stored: u64,
    used: Instant,
}

impl Sessions {
    /// Whether a batch was stored before.
    pub(super) fn knows(&self, session: &Session) -> Result<bool> {
        if !(1..=64).contains(&session.client.len()) {
            return Err(Error::Invalid("a session's client has a name of 1 to 64 bytes".into()));
        }
        let Some(client) = self.clients.get(&session.client) else { return Ok(false) };
        match client.newest.checked_sub(session.sequence) {
            None => Ok(false),
            Some(back) if back < SESSION_WINDOW => Ok(client.stored >> back & 1 == 1),
            Some(_) => Err(behind(session.sequence, client.newest)),
        }
    }

    /// Makes sure that there is a place for a client; clients that wrote lately are never dropped for it.
    ///
    /// # Errors
    /// `Busy`: too many other clients wrote lately.
    pub(super) fn make_place(&mut self, name: &str, now: Instant) -> Result<()> {
        if self.clients.len() < SESSIONS_MAX || self.clients.contains_key(name) {
            return Ok(());
        }
        if self.full_until.is_none_or(|until| until <= now) {
            self.clients.retain(|_, client| now.since(client.used) < SESSION_IDLE);
            let oldest = self.clients.values().map(|client| client.used).min();
            self.full_until = oldest.map(|oldest| oldest + SESSION_IDLE);
        }
        if self.clients.len() < SESSIONS_MAX {
            return Ok(());
        }
        let why = format!(
            "{SESSIONS_MAX} sessions wrote within {} minutes: write without a session, or in one of these",
            SESSION_IDLE.as_secs() / 60
        );
        Err(Error::Busy { why, after: LATER })
    }

    /// Records a stored batch.
    pub(super) fn add(&mut self, name: &str, sequence: u64, now: Instant) {
        let new = Client { newest: sequence, stored: 0, used: now };
        let client = self.clients.entry(name.to_string()).or_insert(new);
        client.used = now;
        if let Some(ahead) = sequence.checked_sub(client.newest).filter(|&ahead| ahead > 0) {
            client.stored =
                u32::try_from(ahead).ok().and_then(|by| client.stored.checked_shl(by)).unwrap_or(0);
            client.newest = sequence;
        }
        if client.newest - sequence < SESSION_WINDOW {
            client.stored |= 1 << (client.newest - sequence);
        }
    }

    /// All sessions, least recently used first, in records of about `max` bytes; at least one record.
    pub(super) fn encode(&self, max: usize) -> Vec<Bytes> {
        let mut clients: Vec<_> = self.clients.iter().collect();
        clients.sort_by_key(|(_, client)| client.used);
        let (mut records, mut bytes) = (Vec::new(), Vec::new());
        for (name, client) in clients {
            if bytes.len() + RECORD_MAX > max {
                records.push(std::mem::take(&mut bytes).into());
            }
            put_text(&mut bytes, name.as_bytes());
            put_varint(&mut bytes, client.newest);
            put_varint(&mut bytes, client.stored);
        }
        records.push(bytes.into());
        records
    }

    /// Reads a record of [`Sessions::encode`]. A client may be in two records, of which one was written later.
    pub(super) fn decode(&mut self, mut bytes: &[u8], now: Instant) -> Option<()> {
        while !bytes.is_empty() {
            let name = take_text(&mut bytes)?.to_string();
            let (newest, stored) = (take_varint(&mut bytes)?, take_varint(&mut bytes)?);
            let read = Client { newest, stored, used: now };
            let known = self.clients.entry(name).or_insert(read);
            if (known.newest, known.stored.count_ones()) < (newest, stored.count_ones()) {
                *known = read;
            }
        }
        Some(())
    }
}

/// The most bytes of a client in a record.
const RECORD_MAX: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn session(sequence: u64) -> Session {
        Session { client: "c".into(), sequence }
    }

    #[test]
    fn batches_are_known_in_any_order_within_the_window() {
        let mut sessions = Sessions::default();
        for sequence in [10, 12, 11, 500, 499] {
            assert!(!sessions.knows(&session(sequence)).unwrap());
            sessions.add("c", sequence, NOW);
            assert!(sessions.knows(&session(sequence)).unwrap());
        }
        assert!(!sessions.knows(&session(437)).unwrap());
        assert!(sessions.knows(&session(436)).is_err());
        let mut read = Sessions::default();
        for record in sessions.encode(1000) {
            read.decode(&record, NOW).unwrap();
        }
        assert!(read.knows(&session(500)).unwrap() && !read.knows(&session(498)).unwrap());
    }

    /// Once, a new client beyond the limit had other clients dropped silently: batches that those sent again were
    /// stored twice.
    #[test]
    fn a_client_that_wrote_lately_is_not_forgotten_for_others() {
        let mut sessions = Sessions::default();
        let minutes = |n: u64| NOW + Duration::from_secs(60 * n);
        for n in 0..SESSIONS_MAX {
            let at = minutes(u64::from(n >= 10));
            sessions.make_place(&n.to_string(), at).unwrap();
            sessions.add(&n.to_string(), 1, at);
        }
        let refused = sessions.make_place("new", minutes(2));
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        sessions.make_place("7", minutes(2)).unwrap();
        sessions.add("7", 2, minutes(2));
        let knows = |sessions: &Sessions, client: &str| {
            sessions.knows(&Session { client: client.into(), sequence: 1 }).unwrap()
        };
        assert!(knows(&sessions, "0") && knows(&sessions, "7"));
        // Clients that wrote an hour ago are dropped.
        sessions.make_place("new", minutes(60)).unwrap();
        assert!(!knows(&sessions, "0") && knows(&sessions, "7") && knows(&sessions, "10"));
        let records = sessions.encode(4000);
        assert!(records.len() > 10 && records.iter().all(|record| record.len() <= 4000));
        let mut read = Sessions::default();
        records.iter().for_each(|record| read.decode(record, NOW).unwrap());
        assert!(read.clients.len() == sessions.clients.len() && knows(&read, "10"));
    }
}
