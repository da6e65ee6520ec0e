//! Decoding stored records, and errors for those that do not decode.

use bytes::Bytes;

use super::format::{Collection, Main};
use super::{Error, Result};
use crate::kv;

/// The first key behind `key`.
pub(super) fn successor(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

pub(super) fn decode(key: &[u8], record: &Bytes) -> Result<Main> {
    Main::decode(record).ok_or_else(|| unreadable("main record", key))
}

/// The error for stored bytes that do not decode.
pub(super) fn unreadable(what: &str, at: &[u8]) -> Error {
    let at = at.escape_ascii();
    Error::Store(kv::Error::Corrupt(format!("the {what} at \"{at}\" is not readable")))
}

impl Collection {
    /// This collection with `elements` more.
    pub(super) fn grown(self, key: &[u8], elements: u64) -> Result<Self> {
        let len = self.len.checked_add(elements);
        Ok(Self { len: len.ok_or_else(|| unreadable("number of elements", key))?, ..self })
    }

    /// This collection with `elements` fewer; `None` if none is left.
    pub(super) fn shrunk(self, key: &[u8], elements: u64) -> Result<Option<Self>> {
        let len = self.len.checked_sub(elements);
        let len = len.ok_or_else(|| unreadable("number of elements", key))?;
        Ok((len > 0).then_some(Self { len, ..self }))
    }
}
