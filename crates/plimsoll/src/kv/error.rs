//! What a front door tells its client to do about an error of RocksDB.

use engine::kv::Error;
use rust_rocksdb::ErrorKind;

pub(super) fn store_error(error: rust_rocksdb::Error) -> Error {
    let kind = error.kind();
    let text = error.into_string();
    match kind {
        ErrorKind::IOError if text.contains("No space left") => Error::OutOfSpace(text),
        ErrorKind::IOError => Error::Unavailable(text),
        ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain | ErrorKind::Incomplete => {
            Error::Busy(text)
        }
        ErrorKind::Corruption => Error::Corrupt(text),
        ErrorKind::ShutdownInProgress => Error::Closed(text),
        _ => Error::Other(text),
    }
}
