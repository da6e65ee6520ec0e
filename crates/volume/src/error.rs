//! One error type for every failure of a volume; a kind for each action of the caller.

use std::fmt;
use std::io;

/// The result of an operation on a volume.
pub type Result<T> = std::result::Result<T, Error>;

/// What the caller should do.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such object.
    NotFound,
    /// There is such an object already.
    AlreadyExists,
    /// The object was removed while it was open: drop the handle.
    Gone,
    /// Try again: nothing was done. A deadline passed, a queue was full, or this process lacks something (descriptors,
    /// rights, memory): the message then names the way out. It says nothing about the volume or its bytes.
    Busy,
    /// The volume is away, perhaps since the operation took effect: try again when it is back.
    Unavailable,
    /// The volume gave no answer within its limit. The operation may have taken effect, or may still: bytes that it
    /// writes are unknown. Read another copy, write elsewhere; try again when the volume answers.
    TimedOut,
    /// The volume is full: make room, or write elsewhere.
    OutOfSpace,
    /// Stored bytes are not what was written: read a replica, or restore.
    Corrupt,
    /// A sync failed: stop writing to this object; probe its volume.
    Poisoned,
    /// Another owner holds the volume or has taken it over: stop writing.
    Fenced,
    /// The request makes no sense: mend the caller.
    Invalid,
    /// The device cannot read or write these bytes, and works otherwise. Read: as `Corrupt`, but the bytes may be whole
    /// for another reader. Write or removal: write elsewhere.
    Io,
    /// This volume cannot do it, now or later: nothing was done. Do without.
    Unsupported,
}

impl ErrorKind {
    /// Whether a read that fails so means that these bytes are lost here: read another copy, or restore.
    #[must_use]
    pub const fn is_damage(self) -> bool {
        matches!(self, Self::Corrupt | Self::Io)
    }

    /// Whether the volume did not serve the call, and may serve it later.
    #[must_use]
    pub const fn is_away(self) -> bool {
        matches!(self, Self::Unavailable | Self::TimedOut)
    }
}

/// A failed operation: its kind, what failed in words, and the lower error if there was one.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<io::Error>,
}

impl Error {
    /// An error of `kind`. The message names the thing (volume, object) and the way out.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// An error of the operating system, with `doing` naming the operation and its object.
    pub fn from_io(doing: impl fmt::Display, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::OutOfSpace,
            io::ErrorKind::TimedOut | io::ErrorKind::StaleNetworkFileHandle => {
                ErrorKind::Unavailable
            }
            _ => ErrorKind::Busy,
        };
        Self { kind, message: doing.to_string(), source: Some(source) }
    }

    /// An error of `kind` that a lower error caused; the message need not repeat that one.
    pub fn with_source(kind: ErrorKind, message: impl Into<String>, source: io::Error) -> Self {
        Self { kind, message: message.into(), source: Some(source) }
    }

    /// What the caller should do.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same error of a call that may have taken effect in part: `Busy` becomes `Unavailable`.
    #[must_use]
    pub fn in_doubt(mut self) -> Self {
        if self.kind == ErrorKind::Busy {
            self.kind = ErrorKind::Unavailable;
        }
        self
    }

    /// The same error for a layer above: `what` goes in front of the message.
    #[must_use]
    pub fn within(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
