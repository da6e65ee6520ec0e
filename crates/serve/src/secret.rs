//! A password that is never logged.

use std::fmt;

/// A password: prints as stars, compares without leaking how much of a guess is right.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password itself, to authenticate at a server.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `guess` is the secret. The time depends only on the length of `guess`.
    #[must_use]
    pub fn is(&self, guess: &[u8]) -> bool {
        let secret = self.0.as_bytes();
        let differing = guess.iter().enumerate().fold(0, |seen, (at, byte)| {
            seen | (byte ^ secret.get(at % secret.len().max(1)).copied().unwrap_or(0))
        });
        secret.len() == guess.len() && differing == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn only_the_whole_secret_is_right() {
        let secret = Secret::new("plimsoll");
        assert!(secret.is(b"plimsoll"));
        for wrong in ["", "p", "plimsol", "plimsolL", "plimsollplimsoll"] {
            assert!(!secret.is(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn a_secret_never_shows() {
        assert_eq!(format!("{0} {0:?}", Secret::new("plimsoll")), "*** ***");
    }
}
