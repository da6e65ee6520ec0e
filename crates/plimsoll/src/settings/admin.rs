//! `[admin]`: the door for whoever runs the program.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::document::Section;
use super::{Entry, Mistake};

/// The keys of the admin door.
pub(super) const KEYS: &[&str] = &["listen"];

/// The admin door.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Admin {
    /// Where it listens. Default 127.0.0.1:9180.
    pub(crate) listen: AdminListen,
}

/// A place nobody reaches from another machine: there is no authentication behind it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum AdminListen {
    /// An address on loopback.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

const LISTEN: &str = "an address on loopback, such as \"127.0.0.1:9180\", or \"unix:<path>\"";

impl Default for Admin {
    fn default() -> Self {
        Self { listen: AdminListen::Tcp(SocketAddr::from(([127, 0, 0, 1], 9180))) }
    }
}

impl Admin {
    pub(super) fn read(section: &Section<'_>) -> Result<Self, Mistake> {
        let Some(field) = section.get("listen") else { return Ok(Self::default()) };
        let listen = field.parsed(LISTEN, |text| match text.strip_prefix("unix:") {
            Some(path) => (!path.is_empty()).then(|| AdminListen::Unix(path.into())),
            None => {
                let address: SocketAddr = text.parse().ok()?;
                address.ip().is_loopback().then_some(AdminListen::Tcp(address))
            }
        })?;
        Ok(Self { listen })
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        vec![Entry::new("admin", "listen", toml::Value::from(self.listen.to_string()))]
    }
}

impl fmt::Display for AdminListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
