//! `[admin]`: the listener for the administrator.

use std::net::SocketAddr;

use super::document::Section;
use super::{Entry, Listen};

/// The keys of the section.
pub(super) const KEYS: &[&str] = &["listen", "hosts"];

/// The admin listener.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Admin {
    /// The address it listens on. Default 127.0.0.1:9180.
    pub(crate) listen: Listen,
    /// Host names it answers to besides those of loopback. Default: none.
    pub(crate) hosts: Vec<String>,
}

const LISTEN: &str = "an address on loopback, such as \"127.0.0.1:9180\", or \"unix:<path>\"";

impl Default for Admin {
    fn default() -> Self {
        let listen = Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 9180)));
        Self { listen, hosts: Vec::new() }
    }
}

impl Admin {
    pub(super) fn read(section: &Section<'_>) -> Self {
        // Other machines cannot reach it: the listener has no authentication.
        let read = |text: &str| Listen::parse(text).filter(Listen::is_local);
        let usual = Self::default().listen;
        let listen = section.read_or("listen", usual, |field| field.parsed(LISTEN, read));
        Self { listen, hosts: hosts(section) }
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut entries =
            vec![Entry::new("admin", "listen", toml::Value::from(self.listen.to_string()))];
        if !self.hosts.is_empty() {
            entries.push(Entry::new("admin", "hosts", toml::Value::from(self.hosts.clone())));
        }
        entries
    }
}

/// The host names of a listener besides those of loopback, as in the header `Host`.
pub(super) fn hosts(section: &Section<'_>) -> Vec<String> {
    const NAMES: &str = "a list of names of this machine, without ports, such as [\"db.example\"]";
    let plain = |name: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
        let has_port = !name.contains('[') && name.matches(':').count() == 1;
        (name.bytes().all(allowed) && !has_port).then(|| name.to_owned())
    };
    section
        .read_or("hosts", Vec::new(), |field| field.list(NAMES, |name| name.parsed(NAMES, plain)))
}
