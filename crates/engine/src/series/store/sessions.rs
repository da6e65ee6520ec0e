//! Which batches of which clients were stored.

use std::collections::HashMap;

use super::wal::{put_text, take_text};
use crate::series::batch::{put_varint, take_varint};
use crate::series::memory::behind;
use crate::series::{Error, Result, SESSION_WINDOW, Session};

/// Clients remembered: of more, those that wrote longest ago are forgotten.
const CLIENTS_MAX: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    clients: HashMap<String, Client>,
    uses: u64,
}

/// The newest sequence, and a bit for each of those before it that was stored.
#[derive(Clone, Copy, Debug)]
struct Client {
    newest: u64,
    stored: u64,
    used: u64,
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

    /// A batch is stored.
    pub(super) fn add(&mut self, name: &str, sequence: u64) {
        self.uses += 1;
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(name) {
            let mut uses: Vec<u64> = self.clients.values().map(|client| client.used).collect();
            uses.sort_unstable();
            let oldest = uses[CLIENTS_MAX / 4];
            self.clients.retain(|_, client| client.used > oldest);
        }
        let new = Client { newest: sequence, stored: 0, used: 0 };
        let client = self.clients.entry(name.to_string()).or_insert(new);
        client.used = self.uses;
        if let Some(ahead) = sequence.checked_sub(client.newest).filter(|&ahead| ahead > 0) {
            client.stored =
                u32::try_from(ahead).ok().and_then(|by| client.stored.checked_shl(by)).unwrap_or(0);
            client.newest = sequence;
        }
        if client.newest - sequence < SESSION_WINDOW {
            client.stored |= 1 << (client.newest - sequence);
        }
    }

    /// A batch that was added is not stored after all, or nobody knows.
    pub(super) fn remove(&mut self, session: &Session) {
        if let Some(client) = self.clients.get_mut(&session.client)
            && let Some(back) = client.newest.checked_sub(session.sequence)
            && back < SESSION_WINDOW
        {
            client.stored &= !(1 << back);
        }
    }

    /// All of them, least recently used first.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut clients: Vec<_> = self.clients.iter().collect();
        clients.sort_by_key(|(_, client)| client.used);
        let mut bytes = Vec::new();
        for (name, client) in clients {
            put_text(&mut bytes, name.as_bytes());
            put_varint(&mut bytes, client.newest);
            put_varint(&mut bytes, client.stored);
        }
        bytes
    }

    /// What [`Sessions::encode`] gave.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut sessions = Self::default();
        while !bytes.is_empty() {
            let name = take_text(&mut bytes)?.to_string();
            let (newest, stored) = (take_varint(&mut bytes)?, take_varint(&mut bytes)?);
            sessions.uses += 1;
            sessions.clients.insert(name, Client { newest, stored, used: sessions.uses });
        }
        Some(sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(sequence: u64) -> Session {
        Session { client: "c".into(), sequence }
    }

    #[test]
    fn batches_are_known_in_any_order_within_the_window() {
        let mut sessions = Sessions::default();
        for sequence in [10, 12, 11, 500, 499] {
            assert!(!sessions.knows(&session(sequence)).unwrap());
            sessions.add("c", sequence);
            assert!(sessions.knows(&session(sequence)).unwrap());
        }
        assert!(!sessions.knows(&session(437)).unwrap());
        assert!(sessions.knows(&session(436)).is_err());
        sessions.remove(&session(499));
        let sessions = Sessions::decode(&sessions.encode()).unwrap();
        assert!(sessions.knows(&session(500)).unwrap() && !sessions.knows(&session(499)).unwrap());
    }

    #[test]
    fn the_clients_that_wrote_longest_ago_are_forgotten() {
        let mut sessions = Sessions::default();
        for n in 0..CLIENTS_MAX + 1 {
            sessions.add(&n.to_string(), 1);
        }
        let knows = |client: usize| {
            sessions.knows(&Session { client: client.to_string(), sequence: 1 }).unwrap()
        };
        assert!(!knows(0) && knows(CLIENTS_MAX) && knows(CLIENTS_MAX / 2));
    }
}
