//! A store as front doors see it: commands that are atomic, errors that say what to do.

use bytes::Bytes;
use engine::kv::{Change, Count, Durability, KeyRange, KeyValue, Result, Scan};
use rust_rocksdb::{ErrorKind, Range, ReadOptions, SizeApproximationOptions, WriteBatch};

use super::Db;
use super::error::store_error;

/// The most keys that [`KeyValue::count`] counts one by one; beyond, RocksDB's estimate is given, which
/// counts a key that was overwritten lately twice. Counting this many takes some milliseconds.
pub const COUNT_EXACT_MAX: u64 = 10_000;

impl Db {
    /// Deletes the range, which RocksDB wants to have an end. `put_last` is the last key that `batch`
    /// has put so far: it goes too if it is in the range.
    fn delete_range(
        &self,
        batch: &mut WriteBatch,
        range: &KeyRange,
        put_last: Option<&Bytes>,
    ) -> Result<()> {
        match &range.to {
            _ if range.is_empty() => {}
            Some(to) => batch.delete_range(&range.from, to),
            None => {
                let mut entries = self.raw_iterator_opt(bounded(range));
                entries.seek_to_last();
                entries.status().map_err(store_error)?;
                let put_last = put_last.filter(|key| range.contains(key)).map(|key| &key[..]);
                if let Some(last) = entries.key().max(put_last) {
                    batch.delete_range(&range.from[..], last);
                    batch.delete(last);
                }
            }
        }
        Ok(())
    }

    /// The store's estimate for all keys, and of it the share that the bytes of `range` have; at least
    /// the keys that were `counted` before it was asked.
    fn estimate(&self, range: &KeyRange, counted: u64) -> Result<Count> {
        let estimate = self.property_int_value("rocksdb.estimate-num-keys");
        let estimate = estimate.map_err(store_error)?.unwrap_or(0);
        let share = if *range == KeyRange::ALL { 1.0 } else { self.share(range) };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
        let keys = (estimate as f64 * share) as u64;
        Ok(Count { keys: keys.max(counted), exact: false })
    }

    /// The share of the store's bytes that lies in `range`.
    fn share(&self, range: &KeyRange) -> f64 {
        // No key of ours begins with this many of the highest byte.
        const END: &[u8] = &[u8::MAX; 64];
        let mut options = SizeApproximationOptions::default();
        options.set_include_memtables(true);
        let ranges =
            [Range::new(&range.from, range.to.as_deref().unwrap_or(END)), Range::new(&[], END)];
        match self.get_approximate_sizes_with_options(&options, &ranges).as_deref() {
            Ok(&[part, all]) if all > 0 => part as f64 / all as f64,
            _ => 1.0,
        }
    }
}

impl KeyValue for Db {
    fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let values: Vec<_> = match keys {
            [key] => vec![self.get(key)],
            keys => self.multi_get(keys),
        };
        let found = |value: std::result::Result<Option<_>, _>| Ok(value?.map(Bytes::from));
        values.into_iter().map(found).collect::<std::result::Result<_, _>>().map_err(store_error)
    }

    fn apply(&self, changes: &[Change]) -> Result<()> {
        let mut batch = WriteBatch::default();
        let mut put_last = None;
        for change in changes {
            match change {
                Change::Put(key, value) => {
                    batch.put(key, value);
                    put_last = put_last.max(Some(key));
                }
                Change::Delete(key) => batch.delete(key),
                Change::DeleteRange(range) => self.delete_range(&mut batch, range, put_last)?,
            }
        }
        self.write(&batch).map_err(store_error)
    }

    fn scan(&self, scan: &Scan) -> Result<Vec<(Bytes, Bytes)>> {
        let mut found = Vec::new();
        if scan.range.is_empty() {
            return Ok(found);
        }
        let mut entries = self.raw_iterator_opt(bounded(&scan.range));
        if scan.reverse {
            entries.seek_to_last();
        } else {
            entries.seek_to_first();
        }
        let mut bytes = 0;
        while found.len() < scan.entries_max
            && bytes < scan.bytes_max.max(1)
            && let Some((key, value)) = entries.item()
        {
            bytes += key.len() + value.len();
            found.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            if scan.reverse {
                entries.prev();
            } else {
                entries.next();
            }
        }
        entries.status().map_err(store_error)?;
        Ok(found)
    }

    fn count(&self, range: &KeyRange) -> Result<Count> {
        if range.is_empty() {
            return Ok(Count { keys: 0, exact: true });
        }
        let mut options = bounded(range);
        options.fill_cache(false);
        // What was deleted or overwritten is walked over too: not for longer than this.
        options.set_max_skippable_internal_keys(4 * COUNT_EXACT_MAX);
        let mut keys = self.raw_iterator_opt(options);
        keys.seek_to_first();
        let mut counted = 0;
        while keys.valid() && counted <= COUNT_EXACT_MAX {
            counted += 1;
            keys.next();
        }
        match keys.status() {
            Ok(()) if counted <= COUNT_EXACT_MAX => Ok(Count { keys: counted, exact: true }),
            Err(error) if error.kind() != ErrorKind::Incomplete => Err(store_error(error)),
            _ => self.estimate(range, counted),
        }
    }

    fn durability(&self) -> Durability {
        self.options().durability
    }
}

/// For a walk over `range` alone.
fn bounded(range: &KeyRange) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(&range.from[..]);
    if let Some(to) = &range.to {
        options.set_iterate_upper_bound(&to[..]);
    }
    options
}
