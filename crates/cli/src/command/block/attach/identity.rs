//! How the next `attach` of a device recognizes what it is attached to.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use serve::nbd::wire::Token;

/// What the kernel keeps with an attached device, as text: `plimsoll ID FLAGS SERVER NAME`, or
/// `plimsoll ID FLAGS-TOKEN SERVER NAME` with a lease.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in super::super) struct Identity {
    /// Of the device while it is attached, by whichever process.
    pub(super) id: [u8; 16],
    /// Transmission flags that the kernel got.
    pub(in super::super) flags: u16,
    /// Of the lease, if the device was attached with one.
    pub(in super::super) token: Option<Token>,
    pub(in super::super) server: String,
    pub(in super::super) name: String,
}

impl Identity {
    /// What any `attach` gave the kernel, for a server whose address has no spaces. `None`: another program attached the device.
    pub(in super::super) fn read(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("plimsoll ")?.splitn(4, ' ');
        let id = u128::from_str_radix(parts.next()?, 16).ok()?.to_be_bytes();
        let flags = parts.next()?;
        let (flags, token) = match flags.split_once('-') {
            Some((flags, token)) => (flags, Some(Token::from_str_radix(token, 16).ok()?)),
            None => (flags, None),
        };
        let flags = u16::from_str_radix(flags, 16).ok()?;
        let (server, name) = (parts.next()?.into(), parts.next()?.into());
        Some(Self { id, flags, token, server, name })
    }

    pub(super) fn new(server: &str, name: &str) -> Self {
        let random = || RandomState::new().hash_one(0);
        let id = (u128::from(random()) << 64) | u128::from(random());
        let id = id.to_be_bytes();
        Self { id, flags: 0, token: None, server: server.into(), name: name.into() }
    }

    /// `None`: it is another device, or was attached by another program.
    pub(super) fn parse(text: &str, server: &str, name: &str) -> Option<Self> {
        let found = Self::read(text)?;
        // The path of a socket may have spaces.
        let is_same = format!("{} {}", found.server, found.name) == format!("{server} {name}");
        is_same.then(|| Self { server: server.into(), name: name.into(), ..found })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { id, flags, token, server, name } = self;
        write!(f, "plimsoll {:032x} {flags:x}", u128::from_be_bytes(*id))?;
        if let Some(token) = token {
            write!(f, "-{token:x}")?;
        }
        write!(f, " {server} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_process_recognizes_the_device() {
        let identity = Identity { flags: 0x16d, ..Identity::new("h:1", "a b") };
        let leased = Identity { token: Some(31), ..identity.clone() };
        assert_eq!(Identity::parse(&leased.to_string(), "h:1", "a b"), Some(leased));
        let text = identity.to_string();
        assert_eq!(Identity::read(&text), Some(identity.clone()));
        assert_eq!(Identity::read("nbd-client"), None);
        let spaced = Identity::new("/run/a b/nbd", "c");
        assert_eq!(Identity::parse(&spaced.to_string(), "/run/a b/nbd", "c"), Some(spaced));
        assert_eq!(Identity::parse(&text, "h:1", "a b"), Some(identity));
        assert_eq!(Identity::parse(&text, "h:2", "a b"), None);
        assert_eq!(Identity::parse(&text, "h:1", "a"), None);
        assert_eq!(Identity::parse("nbd-client", "h:1", "a b"), None);
        assert_eq!(Identity::parse("plimsoll x 1 h:1 a b", "h:1", "a b"), None);
    }
}
