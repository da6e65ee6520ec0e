//! Keys of any kind: their kinds, expiries and removal, and walks over all of them.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::format::{self, Kind};
use super::records::{decode, successor, unreadable};
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

/// How many expiries are looked for at once.
const EXPIRED_AT_ONCE: usize = if cfg!(test) { 5 } else { 128 };
/// How many expired keys are removed together. Their values are in memory then, and other transactions wait.
const EXPIRED_TOGETHER: usize = if cfg!(test) { 2 } else { 16 };

impl Transaction<'_> {
    /// What `key` holds; `None` if it does not exist.
    ///
    /// # Errors
    /// What the store reports.
    pub fn kind(&mut self, key: &[u8]) -> Result<Option<Kind>> {
        Ok(self.head(key)?.map(|head| head.kind))
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
        Ok(self.head(key)?.map(|head| head.expires))
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

    /// Up to `keys_max` keys from `from` on; expired keys take up room in a page, but are left out.
    ///
    /// # Errors
    /// What the store reports.
    pub fn keys(&self, from: &[u8], keys_max: usize) -> Result<KeysPage> {
        let mut range = KeyRange::with_prefix(vec![format::KEYS]);
        range.from = format::main_key(from);
        let keys_max = keys_max.max(1);
        let (mut keys, mut last, mut records) = (Vec::new(), None, 0);
        self.walk(&range, false, keys_max, |record, value| {
            let key = record.slice(1..);
            let main = decode(&key, &value)?;
            if main.expires.is_none_or(|expires| expires > self.now) {
                keys.push((key, main.value.kind()));
            }
            (last, records) = (Some(record), records + 1);
            Ok(())
        })?;
        let next = last.filter(|_| records == keys_max).map(|last| successor(&last[1..]));
        Ok(KeysPage { keys, next })
    }
}

impl Keyspace {
    /// Removes some expired keys; false if none is left. Expired keys do not exist for any caller, removed or not: this
    /// reclaims their space.
    ///
    /// # Errors
    /// What the store reports.
    pub fn remove_expired(&self) -> Result<bool> {
        let now = self.now();
        // Moved before the scan: a transaction that writes an expiry before this time from now on moves `swept` back
        // itself.
        let from = self.swept.swap(now, Ordering::AcqRel);
        let reached = self.remove_expired_between(from, now);
        let rest = *reached.as_ref().unwrap_or(&Some(from));
        if let Some(rest) = rest {
            self.swept.fetch_min(rest, Ordering::AcqRel);
        }
        Ok(reached?.is_some())
    }

    /// Removes keys that expire from `from` on: expiries removed before it leave tombstones in the store, which each
    /// scan would walk over. Gives the time reached if there were too many.
    fn remove_expired_between(&self, from: u64, now: u64) -> Result<Option<u64>> {
        let due = self.store.scan(&Scan {
            range: format::expiries(from, now.saturating_add(1)),
            reverse: false,
            entries_max: EXPIRED_AT_ONCE,
            bytes_max: usize::MAX,
        })?;
        for together in due.chunks(EXPIRED_TOGETHER) {
            self.remove_if_expired(together.iter().map(|(expiry, _)| expiry))?;
        }
        let last = due.last().filter(|_| due.len() == EXPIRED_AT_ONCE);
        Ok(last.and_then(|(last, _)| format::read_expiry(last)).map(|(expires, _)| expires))
    }

    /// Removes these expiries, and their keys unless they were written again since.
    fn remove_if_expired<'e>(&self, expiries: impl Iterator<Item = &'e Bytes>) -> Result<()> {
        let (mut touches, mut due) = (Touches::default(), Vec::new());
        for record in expiries {
            let expiry = format::read_expiry(record);
            let (expires, key) = expiry.ok_or_else(|| unreadable("expiry", record))?;
            touches.add(key.clone(), Touch::Write);
            due.push((record, expires, key));
        }
        let mut transaction = self.begin(&touches)?;
        for (record, expires, key) in due {
            let main = transaction.opened(&key)?;
            if main.and_then(|main| main.expires) == Some(expires) {
                // The wall clock was set back meanwhile, so the key is not due any more.
                self.swept.fetch_min(expires, Ordering::AcqRel);
            } else {
                transaction.delete_record(record.clone());
            }
        }
        transaction.commit()
    }
}
