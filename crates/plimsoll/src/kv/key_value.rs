//! A store as protocol servers use it: atomic commands, and errors that say what to do.

use std::time::Duration;

use bytes::Bytes;
use engine::kv::{Change, Count, Durability, KeyRange, KeyValue, Result, Scan};
use parking_lot::RwLockReadGuard;
use policy::reclaim::DeletedRange;
use rust_rocksdb::{ErrorKind, Range, ReadOptions, ReadTier, SizeApproximationOptions, WriteBatch};

use super::Db;
use super::error::{store_error, write_error};
use super::waiting::waiting;

/// The most keys that [`KeyValue::count`] counts one by one; beyond that it gives RocksDB's estimate, which counts a
/// recently overwritten key twice. Counting this many takes some milliseconds.
pub const COUNT_EXACT_MAX: u64 = 10_000;

/// A deleted range with at least this many tables drops their files at once.
const LARGE_TABLES: u64 = 4;

/// How long the removal of tables waits for writes in progress, and keeps new ones waiting. A sync of a busy volume takes
/// tens of milliseconds; a write that takes longer is stalled.
const ALONE_WAIT_MAX: Duration = Duration::from_secs(1);

/// A deleted range of a family counts as this many deleted keys when the store decides whether to flush: they are not
/// counted.
pub(super) const RANGE_DELETIONS: u64 = 1 << 20;

/// Above every key: none of ours begins with this many bytes of 0xff.
const END: &[u8] = &[u8::MAX; 64];

/// The approximate size of a record besides its key and value.
const RECORD_BYTES: u64 = 32;

impl Db {
    /// Deletes the range, for which RocksDB needs an end. `put_last` is the largest key that `batch` puts so far: it
    /// goes too if it is in the range.
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

    /// Counts the keys of `range` while they are few.
    fn count_some(&self, range: &KeyRange) -> Result<Count> {
        let mut options = bounded(range);
        options.fill_cache(false);
        // The walk passes over deleted and overwritten keys, too, but no more than this many.
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

    /// The store's estimate for all keys, times the share of bytes in `range`; at least the keys `counted` before.
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

impl Db {
    /// Applies admitted changes.
    fn apply_in<'s>(
        &'s self,
        changes: &[Change],
        mut writing: RwLockReadGuard<'s, ()>,
    ) -> Result<()> {
        let ranges = self.deleted_ranges(changes);
        let least = LARGE_TABLES * self.room().sizes().table;
        let large = ranges.iter().filter(|(_, bytes)| *bytes >= least);
        let large: Vec<_> = large.map(|(range, _)| *range).collect();
        if !large.is_empty() {
            drop(writing);
            if let Some(applied) = waiting(|| self.apply_alone(changes, &large)) {
                // Tables at the ends of a range stay.
                self.note(&ranges);
                return applied;
            }
            writing = self.room().share();
        }
        self.write_beside(&self.batch(changes)?).map_err(write_error)?;
        drop(writing);
        self.note(&ranges);
        Ok(())
    }

    /// Writes a batch. Where that only appends to a log in the page cache, a wait means a stall: it tries without waiting
    /// first, unless other writers are in the way, whose volume may hang.
    fn write_beside(&self, batch: &WriteBatch) -> std::result::Result<(), rust_rocksdb::Error> {
        let mut options = self.write_options();
        let writers = self.inner().writers();
        if self.options().durability != Durability::Always {
            options.set_no_slowdown(true);
            match writers.in_place(|| self.write_opt(batch, &options)) {
                None => {}
                Some(Err(error)) if error.kind() == ErrorKind::Incomplete => {}
                Some(done) => return done,
            }
            options.set_no_slowdown(false);
        }
        writers.aside(|| self.write_opt(batch, &options))
    }

    /// Notes what is to be compacted for deleted ranges.
    fn note(&self, ranges: &[(&KeyRange, u64)]) {
        for &(range, bytes) in ranges {
            let (first, end) = (range.from.to_vec(), range.to.as_deref().map(<[u8]>::to_vec));
            self.room().add_deleted(DeletedRange { first, end, bytes });
        }
    }

    /// Applies changes and removes the tables in the `large` deleted ranges, with every key in them: so no other write
    /// may be in progress. `None`, and nothing was done, if one is for longer than [`ALONE_WAIT_MAX`]; compactions remove
    /// the tables then.
    fn apply_alone(&self, changes: &[Change], large: &[&KeyRange]) -> Option<Result<()>> {
        let _alone = self.room().alone(ALONE_WAIT_MAX)?;
        let tables = large.iter().filter_map(|range| Some((range, self.last_of(range)?)));
        let tables: Vec<_> = tables.collect();
        // Removed files do not come back, so the deletion of their keys has to be durable before.
        let mut options = self.write_options();
        options.set_sync(true);
        let batch = match self.batch(changes) {
            Ok(batch) => batch,
            Err(error) => return Some(Err(error)),
        };
        if let Err(error) = self.write_opt(&batch, &options) {
            return Some(Err(write_error(error)));
        }
        for (range, last) in tables {
            if let Err(error) = self.delete_file_in_range(&range.from[..], &last[..]) {
                tracing::warn!(%error,
                    "tables of a deleted range could not be removed at once: compactions remove them");
            }
        }
        Some(Ok(()))
    }

    fn batch(&self, changes: &[Change]) -> Result<WriteBatch> {
        let mut batch = WriteBatch::default();
        let mut put_last = None;
        for change in changes {
            match change {
                Change::Put(key, value) => {
                    batch.put(key, value);
                    put_last = put_last.max(Some(key));
                }
                Change::Delete(key) => batch.delete(key),
                Change::DeleteRange(range) => {
                    waiting(|| self.delete_range(&mut batch, range, put_last))?;
                }
            }
        }
        Ok(batch)
    }

    /// The deleted ranges among `changes`, and about how many bytes of tables are in each.
    fn deleted_ranges<'a>(&self, changes: &'a [Change]) -> Vec<(&'a KeyRange, u64)> {
        let ranges = changes.iter().filter_map(|change| match change {
            Change::DeleteRange(range) if !range.is_empty() => Some(range),
            _ => None,
        });
        ranges.map(|range| (range, waiting(|| self.table_bytes(range)))).collect()
    }

    /// About how many bytes of tables lie in `range`.
    fn table_bytes(&self, range: &KeyRange) -> u64 {
        let options = SizeApproximationOptions::default();
        let ranges = [Range::new(&range.from, range.to.as_deref().unwrap_or(END))];
        let sizes = self.get_approximate_sizes_with_options(&options, &ranges);
        sizes.ok().and_then(|sizes| sizes.first().copied()).unwrap_or(0)
    }

    /// The last key of `range`; `None` if it is empty or unreadable.
    fn last_of(&self, range: &KeyRange) -> Option<Vec<u8>> {
        let mut entries = self.raw_iterator_opt(bounded(range));
        entries.seek_to_last();
        entries.key().map(<[u8]>::to_vec)
    }
}

impl KeyValue for Db {
    fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let found = self.get_many_within(keys, usize::MAX)?;
        Ok(found.expect("no values have more bytes than there are addresses"))
    }

    fn get_many_within(
        &self,
        keys: &[Bytes],
        bytes_max: usize,
    ) -> Result<Option<Vec<Option<Bytes>>>> {
        let limited = || {
            let mut options = ReadOptions::default();
            options.set_value_size_soft_limit(bytes_max as u64);
            options
        };
        let before = rocks::table_reads();
        let found = cached_or_waiting(limited, |options| {
            let values = match keys {
                [key] => vec![self.get_opt(key, &options)],
                keys => self.multi_get_opt(keys, &options),
            };
            let (mut found, mut bytes) = (Vec::with_capacity(values.len()), 0);
            for value in values {
                match value {
                    // RocksDB stopped reading at the limit.
                    Err(error) if error.kind() == ErrorKind::Aborted => return Ok(None),
                    value => found.push(value?.map(Bytes::from)),
                }
                bytes += found.last().and_then(Option::as_ref).map_or(0, Bytes::len);
            }
            Ok((bytes <= bytes_max).then_some(found))
        });
        // What memory answers need not be in a cache tier. Which keys of a call it was is not known.
        let reads = rocks::table_reads().wrapping_sub(before);
        if let Some(counts) = self.key_counts()
            && reads >= (keys.len() as u64).div_ceil(2).max(1)
        {
            keys.iter().for_each(|key| counts.add(key));
        }
        found
    }

    fn apply(&self, changes: &[Change]) -> Result<()> {
        let writing = self.enter(bytes_of(changes))?;
        self.room().count_deleted(deletions(changes));
        self.apply_in(changes, writing)
    }

    fn apply_freeing(&self, changes: &[Change]) -> Result<()> {
        self.apply_in(changes, self.room().enter_freeing(deletions(changes)))
    }

    fn scan(&self, scan: &Scan) -> Result<Vec<(Bytes, Bytes)>> {
        if scan.range.is_empty() {
            return Ok(Vec::new());
        }
        cached_or_waiting(
            || bounded(&scan.range),
            |options| {
                let mut found = Vec::new();
                let mut entries = self.raw_iterator_opt(options);
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
                entries.status().map(|()| found)
            },
        )
    }

    fn count(&self, range: &KeyRange) -> Result<Count> {
        if range.is_empty() {
            return Ok(Count { keys: 0, exact: true });
        }
        waiting(|| self.count_some(range))
    }

    fn yields(&self) -> bool {
        true
    }

    fn wait(&self, wait: &mut dyn FnMut()) {
        waiting(wait);
    }

    fn durability(&self) -> Durability {
        self.options().durability
    }
}

/// The approximate bytes that `changes` add to the store.
fn bytes_of(changes: &[Change]) -> u64 {
    let bytes = changes.iter().map(|change| match change {
        Change::Put(key, value) => (key.len() + value.len()) as u64,
        Change::Delete(key) => key.len() as u64,
        Change::DeleteRange(range) => {
            (range.from.len() + range.to.as_ref().map_or(0, Bytes::len)) as u64
        }
    });
    bytes.map(|bytes| bytes + RECORD_BYTES).sum()
}

/// How many keys `changes` delete one by one.
fn deletions(changes: &[Change]) -> u64 {
    let deletions = changes.iter().map(|change| match change {
        Change::Put(..) | Change::DeleteRange(_) => 0,
        Change::Delete(_) => 1,
    });
    deletions.sum()
}

/// Options for a walk within `range`.
fn bounded(range: &KeyRange) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(&range.from[..]);
    if let Some(to) = &range.to {
        options.set_iterate_upper_bound(&to[..]);
    }
    options
}

/// Reads from memory; if something is missing there, reads again and waits for volumes.
fn cached_or_waiting<T>(
    options: impl Fn() -> ReadOptions,
    read: impl Fn(ReadOptions) -> std::result::Result<T, rust_rocksdb::Error>,
) -> Result<T> {
    let mut cached = options();
    cached.set_read_tier(ReadTier::BlockCache);
    let done = match read(cached) {
        Err(error) if error.kind() == ErrorKind::Incomplete => waiting(|| read(options())),
        done => done,
    };
    done.map_err(store_error)
}
