//! The place of a listener: an address and port, or a Unix socket.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a listener is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Listen {
    /// An address and port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// The place that `text` names: an address and port, or `unix:` and a path.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("unix:") {
            Some(path) => (!path.is_empty()).then(|| Self::Unix(path.into())),
            None => text.parse().ok().map(Self::Tcp),
        }
    }

    /// Whether only processes of this machine reach it.
    pub(super) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
