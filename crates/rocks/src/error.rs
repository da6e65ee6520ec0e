//! Errors: those of the crate, and the statuses that RocksDB gets.

use volume::ErrorKind;

/// The result of opening a database.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// RocksDB refused or failed: its message names the file, and the volume if one was away.
    #[error("RocksDB: {0}")]
    Rocks(#[from] rust_rocksdb::Error),
    /// The pool failed: see the kind for what to do.
    #[error(transparent)]
    Pool(#[from] volume::Error),
    /// The RocksDB that was linked is not the one this crate was compiled for: build again.
    #[error("the linked RocksDB lays out its {0} in another way than its headers say: build again")]
    Layout(&'static str),
}

/// Begins the mark at the end of every message of the pool. RocksDB passes only the message of a status on to
/// its callers, so the message carries the kind.
const MARK: &str = " [pool: ";

/// The mark's word for every kind.
const WORDS: [(ErrorKind, &str); 12] = [
    (ErrorKind::NotFound, "not found"),
    (ErrorKind::AlreadyExists, "already exists"),
    (ErrorKind::Gone, "gone"),
    (ErrorKind::Busy, "busy"),
    (ErrorKind::Unavailable, "unavailable"),
    (ErrorKind::TimedOut, "timed out"),
    (ErrorKind::OutOfSpace, "out of space"),
    (ErrorKind::Corrupt, "corrupt"),
    (ErrorKind::Poisoned, "poisoned"),
    (ErrorKind::Fenced, "fenced"),
    (ErrorKind::Invalid, "invalid"),
    (ErrorKind::Io, "io"),
];

/// The kind of the pool's error behind `error`: that of this call, or the earlier one that stopped RocksDB.
/// `None` for RocksDB's own errors.
#[must_use]
pub fn pool_error(error: &rust_rocksdb::Error) -> Option<ErrorKind> {
    let (_, marked) = error.as_ref().rsplit_once(MARK)?;
    let (word, _) = marked.split_once(']')?;
    WORDS.iter().find(|(_, known)| *known == word).map(|&(kind, _)| kind)
}

/// The type of a call: it decides how RocksDB is told of an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Call {
    /// Names: open, create, remove, rename, list.
    Names,
    /// A table or blob file is read by RocksDB's own work.
    BackgroundRead,
    /// A table or blob file is read for a user, or a log at recovery.
    Read,
    /// A table or blob file is written.
    TableWrite,
    /// A log is written or synced.
    LogWrite,
}

/// The values of `Code` in shim/ffi.h.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Code {
    Ok = 0,
    NotFound = 1,
    PathNotFound = 2,
    IoError = 3,
    Fenced = 5,
    Corruption = 6,
    Invalid = 8,
}

/// A failed call, as RocksDB is told.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Status {
    pub(crate) code: Code,
    /// RocksDB may try again. An error of a flush or a log that is not retryable makes the database
    /// read-only until it is opened again.
    pub(crate) retryable: bool,
    /// Only this file is lost: RocksDB writes another one, and the pool places it elsewhere.
    pub(crate) file_scope: bool,
    pub(crate) message: String,
}

impl Status {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, retryable: false, file_scope: false, message: message.into() }
    }

    /// The answer to `call` after `error`.
    pub(crate) fn of(error: &volume::Error, call: Call) -> Self {
        let kind = error.kind();
        Self {
            code: code(kind),
            retryable: is_retryable(kind, call),
            file_scope: kind == ErrorKind::Poisoned && call == Call::TableWrite,
            message: marked(error),
        }
    }
}

fn marked(error: &volume::Error) -> String {
    let word = WORDS.iter().find(|(kind, _)| *kind == error.kind());
    word.map_or_else(|| error.to_string(), |(_, word)| format!("{error}{MARK}{word}]"))
}

/// Whatever may be retried is an `IoError`, because RocksDB recovers from that alone. After another status of a write to
/// its MANIFEST it begins no new MANIFEST: the flush that has to end the recovery fails for ever, and so does the close.
///
/// Out of space is an `IoError` too. After its own `NoSpace`, RocksDB waits until a memtable's worth of space
/// is free, although the work that it holds back may free that space.
const fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::NotFound | ErrorKind::Gone => Code::PathNotFound,
        ErrorKind::Corrupt => Code::Corruption,
        ErrorKind::Fenced => Code::Fenced,
        ErrorKind::Invalid => Code::Invalid,
        _ => Code::IoError,
    }
}

/// Whether RocksDB may try again: it does so each second, and recovers by itself.
///
/// A volume that is away may come back, a full one may get room, the process may get what it lacks, and the pool puts
/// bytes that a device does not take elsewhere. A failed sync is final: the state of the device is unknown, and a retry
/// would only hide the loss.
///
/// A read that RocksDB does not repeat is never retryable: on a retryable error, the background opening of tables stops
/// writes.
pub(crate) const fn is_retryable(kind: ErrorKind, call: Call) -> bool {
    (kind.is_away() || matches!(kind, ErrorKind::Busy | ErrorKind::OutOfSpace | ErrorKind::Io))
        && !matches!(call, Call::Read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: ErrorKind, call: Call) -> (Code, bool, bool) {
        let status = Status::of(&volume::Error::new(kind, "a: volume"), call);
        assert!(status.message.starts_with("a: volume [pool: "), "{}", status.message);
        (status.code, status.retryable, status.file_scope)
    }

    #[test]
    fn a_volume_that_fails_is_tried_again_by_whoever_tries_by_itself() {
        for kind in [ErrorKind::Unavailable, ErrorKind::TimedOut, ErrorKind::Io, ErrorKind::Busy] {
            for call in [Call::Names, Call::BackgroundRead, Call::TableWrite, Call::LogWrite] {
                assert_eq!(told(kind, call), (Code::IoError, true, false));
            }
            assert_eq!(told(kind, Call::Read), (Code::IoError, false, false));
        }
    }

    #[test]
    fn what_found_no_room_is_tried_again() {
        for call in [Call::Names, Call::TableWrite, Call::LogWrite] {
            assert_eq!(told(ErrorKind::OutOfSpace, call), (Code::IoError, true, false));
        }
    }

    #[test]
    fn a_failed_sync_is_never_tried_again() {
        assert_eq!(told(ErrorKind::Poisoned, Call::LogWrite), (Code::IoError, false, false));
        assert_eq!(told(ErrorKind::Poisoned, Call::TableWrite), (Code::IoError, false, true));
    }

    #[test]
    fn kinds_rocksdb_knows_keep_their_meaning() {
        for (kind, code) in [
            (ErrorKind::Corrupt, Code::Corruption),
            (ErrorKind::Fenced, Code::Fenced),
            (ErrorKind::NotFound, Code::PathNotFound),
        ] {
            assert_eq!(told(kind, Call::TableWrite), (code, false, false), "{kind:?}");
        }
    }

    /// `Busy` was once told as `TimedOut`: a MANIFEST that met too many open files stopped all writes until a restart.
    #[test]
    fn rocksdb_recovers_from_whatever_it_may_try_again() {
        for (kind, _) in WORDS {
            for call in [Call::Names, Call::BackgroundRead, Call::TableWrite, Call::LogWrite] {
                let (code, retryable, file_scope) = told(kind, call);
                assert!(code == Code::IoError || !retryable && !file_scope, "{kind:?}, {call:?}");
            }
        }
    }
}
