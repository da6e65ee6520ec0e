//! Byte strings.

use bytes::Bytes;

use super::format::{Kind, Main, Value};
use super::{Error, Result, Transaction};

/// What a write of a key does with its expiry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expiry {
    /// It never expires.
    Never,
    /// It keeps the one it has.
    Keep,
    /// It does not exist from this time on, in milliseconds since 1970.
    At(u64),
}

impl Transaction<'_> {
    /// The string of `key`.
    ///
    /// # Errors
    /// [`Error::WrongKind`] if it holds something else; what the store reports.
    pub fn string(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.live(key)?.map(|main| main.value) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(_) => Err(Error::WrongKind),
        }
    }

    /// How many bytes the string of `key` has.
    ///
    /// # Errors
    /// As [`Transaction::string`].
    pub fn string_len(&mut self, key: &[u8]) -> Result<Option<u64>> {
        self.len_of(key, Kind::String)
    }

    /// Sets `key` to a string, replacing a value of any kind. Reads nothing where no key of the stripe ever was a
    /// collection, unless the expiry is to be kept.
    ///
    /// # Errors
    /// What the store reports.
    pub fn put_string(&mut self, key: &[u8], value: Bytes, expiry: Expiry) -> Result<()> {
        let looked_at = expiry == Expiry::Keep || self.may_be_collection(key);
        let mut old = if looked_at { self.opened(key)? } else { self.known_main(key)? };
        let expires = match expiry {
            Expiry::Never => None,
            Expiry::Keep => old.as_ref().and_then(|old| old.expires),
            Expiry::At(expires) => Some(expires),
        };
        if let Some(collection) = old.take_if(|old| !matches!(old.value, Value::String(_))) {
            self.remove(key, &collection)?;
        }
        let new = Main { expires, value: Value::String(value) };
        self.put_main(key, old.as_ref(), &new);
        Ok(())
    }
}
