//! Errors of volumes as those of block devices.

use std::fmt;

use volume::ErrorKind;

use super::super::Error;

/// What a failed call on `what` means for the caller.
pub(super) fn failed(what: impl fmt::Display, error: volume::Error) -> Error {
    let kind = error.kind();
    let text = format!("{what}: {error}");
    match kind {
        ErrorKind::Busy => Error::Busy(text),
        ErrorKind::OutOfSpace => Error::OutOfSpace(text),
        ErrorKind::Corrupt | ErrorKind::Io => Error::Corrupt(text),
        ErrorKind::Unsupported => Error::Unsupported(text),
        ErrorKind::Gone | ErrorKind::Fenced => Error::Closed(text),
        // Also of objects that are not where they were, and of syncs that failed: the operator has to look.
        _ => Error::Unavailable(text),
    }
}
