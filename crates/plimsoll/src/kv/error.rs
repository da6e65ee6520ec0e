//! Maps errors of RocksDB to what a client should do about them.
//!
//! RocksDB's message begins with its code, and [`rocks::pool_error`] finds the pool's answer in it. The rest of the
//! text is not parsed.

use engine::kv::Error;
use rust_rocksdb::ErrorKind;
use volume::ErrorKind as Pool;

use super::room::WAY_OUT;

/// The error of any call.
pub(super) fn store_error(error: rust_rocksdb::Error) -> Error {
    let (pool, kind) = (rocks::pool_error(&error), error.kind());
    let text = error.into_string();
    match (pool, kind) {
        (Some(Pool::OutOfSpace), _) => out_of_space(&text),
        (Some(Pool::Unavailable | Pool::TimedOut), _) => Error::Unavailable(text),
        (Some(Pool::Busy), _) => Error::Busy(text),
        (Some(Pool::Corrupt | Pool::Io), _) => Error::Corrupt(text),
        // Another process has the volumes.
        (Some(Pool::Fenced), _) => Error::Closed(text),
        // A compaction that found no room stopped the store.
        (_, ErrorKind::CompactionTooLarge) => out_of_space(&text),
        (_, ErrorKind::IOError) => Error::Unavailable(text),
        (
            _,
            ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain | ErrorKind::Incomplete,
        ) => Error::Busy(text),
        (_, ErrorKind::Corruption) => Error::Corrupt(text),
        (_, ErrorKind::ShutdownInProgress) => Error::Closed(text),
        _ => Error::Other(text),
    }
}

fn out_of_space(text: &str) -> Error {
    Error::OutOfSpace(format!("{text}; {WAY_OUT}"))
}

/// The error of a write. After a failed sync of a log, RocksDB takes no write until it is opened again, as it does not
/// know how much of the log is stored. After other errors of a device it writes elsewhere, and goes on.
pub(super) fn write_error(error: rust_rocksdb::Error) -> Error {
    match rocks::pool_error(&error) {
        Some(Pool::Poisoned | Pool::Gone) => Error::Closed(error.into_string()),
        Some(Pool::Io) => Error::Unavailable(error.into_string()),
        _ => store_error(error),
    }
}
