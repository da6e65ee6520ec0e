//! Keys, whatever they hold: their kind, their end, all of them.

use bytes::Bytes;

use super::format::{self, Kind};
use super::transaction::successor;
use super::{Keyspace, Result, Touch, Touches, Transaction};
use crate::kv::{KeyRange, Scan};

/// Some keys of a keyspace, in their order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeysPage {
    /// Keys and what they hold.
    pub keys: Vec<(Bytes, Kind)>,
    /// Where the next page begins; `None` behind the last.
    pub next: Option<Bytes>,
}

/// How many expired keys are removed together.
const EXPIRED_AT_ONCE: usize = 128;

impl Transaction<'_> {
    /// What `key` holds; `None` if it does not exist.
    ///
    /// # Errors
    /// What the store reports.
    pub fn kind(&mut self, key: &[u8]) -> Result<Option<Kind>> {
        Ok(self.live(key)?.map(|main| main.value.kind()))
    }

    /// Removes `key`, and says whether it existed.
    ///
    /// # Errors
    /// What the store reports.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let Some(main) = self.opened(key)? else { return Ok(false) };
        self.remove(key, &main)?;
        Ok(true)
    }

    /// When `key` expires, in milliseconds since 1970: `Some(None)` if never, `None` if it does not
    /// exist.
    ///
    /// # Errors
    /// What the store reports.
    pub fn expires(&mut self, key: &[u8]) -> Result<Option<Option<u64>>> {
        Ok(self.live(key)?.map(|main| main.expires))
    }

    /// Has `key` expire at a time in milliseconds since 1970, or never; and says whether it exists. A
    /// time that is not in the future removes it.
    ///
    /// # Errors
    /// What the store reports.
    pub fn set_expires(&mut self, key: &[u8], expires: Option<u64>) -> Result<bool> {
        let Some(mut main) = self.opened(key)? else { return Ok(false) };
        if expires.is_some_and(|expires| expires <= self.now) {
            self.remove(key, &main)?;
        } else if expires != main.expires {
            let old = main.clone();
            main.expires = expires;
            self.put_main(key, Some(&old), &main);
        }
        Ok(true)
    }

    /// Removes every key. The transaction has to touch everything.
    pub fn clear(&mut self) {
        self.remove_everything();
    }

    /// Up to `keys_max` records of keys from `from` on, those left out whose time is over.
    ///
    /// # Errors
    /// What the store reports.
    pub fn keys(&self, from: &[u8], keys_max: usize) -> Result<KeysPage> {
        let mut range = KeyRange::with_prefix(vec![format::KEYS]);
        range.from = format::main_key(from);
        let records = self.entries(&range, false, keys_max.max(1))?;
        let next = records.last().filter(|_| records.len() == keys_max.max(1));
        let next = next.map(|(record, _)| successor(&record[1..]));
        let mut keys = Vec::with_capacity(records.len());
        for (record, value) in records {
            let key = record.slice(1..);
            let main = super::transaction::decode(&key, &value)?;
            if main.expires.is_none_or(|expires| expires > self.now) {
                keys.push((key, main.value.kind()));
            }
        }
        Ok(KeysPage { keys, next })
    }
}

impl Keyspace {
    /// Removes some keys whose time is over; false if none was left. Keys whose time is over do not
    /// exist for anybody, removed or not: this gives their space back.
    ///
    /// # Errors
    /// What the store reports.
    pub fn remove_expired(&self) -> Result<bool> {
        let due = self.store.scan(&Scan {
            range: format::expiries_before(self.now().saturating_add(1)),
            reverse: false,
            entries_max: EXPIRED_AT_ONCE,
            bytes_max: usize::MAX,
        })?;
        let due: Vec<_> =
            due.iter().filter_map(|(record, _)| format::read_expiry(record)).collect();
        let mut touches = Touches::default();
        due.iter().for_each(|(_, key)| touches.add(key.clone(), Touch::Write));
        let mut transaction = self.begin(&touches)?;
        for (expires, key) in &due {
            // Removes the key if its time is over, and not if it was written again since.
            transaction.opened(key)?;
            transaction.delete_record(format::expiry_key(*expires, key));
        }
        transaction.commit()?;
        Ok(due.len() == EXPIRED_AT_ONCE)
    }
}
