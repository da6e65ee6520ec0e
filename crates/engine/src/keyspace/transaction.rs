//! A view of the store with changes on top, which are applied together at the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::fetched::Fetched;
use super::format::{self, Collection, Head, Kind, Main, Value};
use super::records::{decode, successor};
use super::stripes::{Held, Hold, StripeIndex};
use super::touches::{Budget, ReadLimits, Touch, Touches};
use super::{Error, Keyspace, Result};
use crate::kv::{self, Change, KeyRange, Scan};

/// Changes that are not applied yet, and the locks on the keys they were derived from. Dropped without
/// [`commit`](Self::commit), it changes nothing. A call that fails has changed nothing, except that it may have removed
/// an expired key: the transaction can go on.
///
/// Calls panic for a key that the transaction does not touch as they need: a bug of the caller, which would lose writes
/// otherwise.
pub struct Transaction<'k> {
    pub(super) space: &'k Keyspace,
    /// The one time that the transaction compares expiries with, in milliseconds since 1970.
    pub(super) now: u64,
    /// Records as the store has them.
    fetched: HashMap<Bytes, Option<Bytes>>,
    /// Heads of main records that the transaction only looks at.
    heads: HashMap<Bytes, Option<Head>>,
    /// Records as the commit leaves them; `None` for deleted ones.
    overlay: BTreeMap<Bytes, Option<Bytes>>,
    /// Ranges that the commit deletes before it applies the overlay.
    dropped: Vec<KeyRange>,
    /// Whether the transaction removed everything, so that only the overlay counts.
    flushed: bool,
    /// Stripes of keys that change.
    changed: BTreeSet<StripeIndex>,
    /// Stripes that will be marked.
    marked: BTreeSet<StripeIndex>,
    /// Expired keys that the transaction removed.
    pub(super) expired: u64,
    /// The earliest expiry that was written, in milliseconds since 1970.
    earliest: u64,
    /// Whether the commit may need more room in the store.
    grows: bool,
    /// How many parts of the touches were fetched.
    parts_fetched: usize,
    /// What reads may still hold in memory for the caller.
    pub(super) budget: Budget,
    held: Held<'k>,
}

/// Records and what they hold.
type Entries = Vec<(Bytes, Bytes)>;

/// The most entries that a walk reads from the store at once. Few in tests, as all sizes here, so that borders are met.
const PAGE_ENTRIES: usize = if cfg!(test) { 3 } else { 1024 };
/// The most bytes.
const PAGE_BYTES: usize = if cfg!(test) { 64 } else { 1 << 20 };
/// Deletes collections of up to this many elements one by one. A deleted range leaves a tombstone that later reads have
/// to check, which a few records are not worth.
const DELETED_SINGLY_MAX: usize = if cfg!(test) { 4 } else { 64 };

impl<'k> Transaction<'k> {
    pub(super) fn begin(
        space: &'k Keyspace,
        touches: &Touches,
        limits: ReadLimits,
    ) -> Result<Self> {
        let stripes = &space.stripes;
        let wait = |wait: &mut dyn FnMut()| space.store.wait(wait);
        let hold = || {
            let holds = touches.keys.iter().map(|(key, touch)| match touch {
                Touch::Look | Touch::Peek | Touch::Read => (stripes.of(key), Hold::Shared),
                Touch::Write | Touch::Replace => (stripes.of(key), Hold::Alone),
            });
            stripes.hold(holds, wait)
        };
        let is_short = |(_, touch): &(_, Touch)| matches!(touch, Touch::Look | Touch::Peek);
        let lock_free = !touches.everything && !touches.locks && touches.keys.iter().all(is_short);
        let mut held = if touches.everything {
            stripes.hold_everything(wait)
        } else if lock_free {
            stripes.hold([], wait)
        } else {
            hold()
        };
        let (fetched, budget) = match Fetched::of(space, touches, limits, !lock_free)? {
            Some(fetched) => fetched,
            // Too many bytes for one call of the store. Locked, the keys stay the same over several calls.
            None => {
                held = hold();
                let fetched = Fetched::of(space, touches, limits, true)?;
                fetched.expect("locked keys are fetched in several calls")
            }
        };
        let Fetched { records: fetched, heads, parts: parts_fetched } = fetched;
        Ok(Self {
            space,
            now: space.now(),
            fetched,
            heads,
            overlay: BTreeMap::new(),
            dropped: Vec::new(),
            flushed: false,
            changed: BTreeSet::new(),
            marked: BTreeSet::new(),
            expired: 0,
            earliest: u64::MAX,
            grows: false,
            parts_fetched,
            budget,
            held,
        })
    }

    /// Applies the changes: all are there on return, with the store's durability.
    ///
    /// # Errors
    /// What the store reports; nothing was applied then.
    pub fn commit(self) -> Result<()> {
        let Self {
            space,
            overlay,
            dropped,
            flushed,
            changed,
            marked,
            expired,
            earliest,
            grows,
            ..
        } = self;
        if overlay.is_empty() && dropped.is_empty() {
            return Ok(());
        }
        let changes = dropped.into_iter().map(Change::DeleteRange);
        let changes = changes.chain(overlay.into_iter().map(|(record, value)| match value {
            Some(value) => Change::Put(record, value),
            None => Change::Delete(record),
        }));
        let changes: Vec<_> = changes.collect();
        let store = &space.store;
        let done = if grows { store.apply(&changes) } else { store.apply_freeing(&changes) };
        // A failed write may have been applied, so clients that watch its keys see a change then, too. A flush
        // counts no changes: they see that a key is gone, and one that was absent has not changed.
        let stripes = &space.stripes;
        changed.into_iter().for_each(|stripe| stripes.changed(stripe));
        // After the write to the store: `remove_expired` reads `swept` first, and the store afterwards.
        space.swept.fetch_min(earliest, Ordering::AcqRel);
        done?;
        if flushed {
            (0..=StripeIndex::MAX).for_each(|stripe| stripes.mark(stripe, false));
        }
        marked.into_iter().for_each(|stripe| stripes.mark(stripe, true));
        space.expired.fetch_add(expired, Ordering::Relaxed);
        Ok(())
    }

    /// The one time that the transaction compares expiries with, in milliseconds since 1970.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// How many parts of its touches were fetched ahead, from the first on: all of them, unless their values have too
    /// many bytes.
    #[must_use]
    pub fn parts_fetched(&self) -> usize {
        self.parts_fetched
    }

    /// Charges elements that the caller keeps from a [walk](Self::keys), and their bytes, against the transaction's
    /// limits.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::TooMany`].
    pub fn keeps(&mut self, elements: usize, bytes: usize) -> Result<()> {
        self.budget.take(elements, bytes)
    }

    /// The keyspace.
    #[must_use]
    pub fn keyspace(&self) -> &'k Keyspace {
        self.space
    }

    /// The records' values, in their order.
    pub(super) fn get_all(&mut self, records: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let unknown = |record: &&Bytes| {
            !self.flushed
                && !self.overlay.contains_key(*record)
                && !self.fetched.contains_key(*record)
        };
        let missing: Vec<_> = records.iter().filter(unknown).cloned().collect();
        if !missing.is_empty() {
            let values = self.space.store.get_many(&missing)?;
            self.fetched.extend(missing.into_iter().zip(values));
        }
        Ok(records.iter().map(|record| self.known(record).flatten()).collect())
    }

    /// As [`Transaction::get_all`], for values that go to the caller: within its budget.
    pub(super) fn read_all(&mut self, records: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let missing: Vec<_> =
            records.iter().filter(|record| self.known(record).is_none()).cloned().collect();
        if !missing.is_empty() {
            let values = self.space.store.get_many_within(&missing, self.budget.bytes_left)?;
            let values = values.ok_or_else(|| self.budget.too_long())?;
            self.fetched.extend(missing.into_iter().zip(values));
        }
        let values: Vec<_> = records.iter().map(|record| self.known(record).flatten()).collect();
        values.iter().flatten().try_for_each(|value| self.budget.take(1, value.len()))?;
        Ok(values)
    }

    pub(super) fn get(&mut self, record: &Bytes) -> Result<Option<Bytes>> {
        match self.known(record) {
            Some(known) => Ok(known),
            None => Ok(self.get_all(std::slice::from_ref(record))?.swap_remove(0)),
        }
    }

    /// The record's value, without keeping it.
    pub(super) fn glance(&self, record: &Bytes) -> Result<Option<Bytes>> {
        match self.known(record) {
            Some(known) => Ok(known),
            None => Ok(self.space.store.get_many(std::slice::from_ref(record))?.swap_remove(0)),
        }
    }

    /// The record's value if it is known without a read of the store.
    fn known(&self, record: &Bytes) -> Option<Option<Bytes>> {
        match self.overlay.get(record) {
            Some(value) => Some(value.clone()),
            None if self.flushed => Some(None),
            None => self.fetched.get(record).cloned(),
        }
    }

    pub(super) fn put(&mut self, record: Bytes, value: Bytes) {
        self.grows = true;
        self.overlay.insert(record, Some(value));
    }

    pub(super) fn delete_record(&mut self, record: Bytes) {
        self.overlay.insert(record, None);
    }

    /// Visits the first entries of the range, or the last in reverse, with one page of them in memory at a time.
    pub(super) fn walk(
        &self,
        range: &KeyRange,
        reverse: bool,
        entries_max: usize,
        mut visit: impl FnMut(Bytes, Bytes) -> Result<()>,
    ) -> Result<()> {
        let mut left = entries_max;
        let mut rest = Some(range.clone());
        while let Some(range) = rest.filter(|rest| left > 0 && !rest.is_empty()) {
            let (page, after) = self.page(&range, reverse, left)?;
            for (record, value) in page.into_iter().take(left) {
                visit(record, value)?;
                left -= 1;
            }
            rest = after;
        }
        Ok(())
    }

    /// Some entries of the range, and the rest of it.
    fn page(
        &self,
        range: &KeyRange,
        reverse: bool,
        wanted: usize,
    ) -> Result<(Entries, Option<KeyRange>)> {
        let entries_max = wanted.clamp(1, PAGE_ENTRIES);
        let bytes_max = PAGE_BYTES;
        let scan = Scan { range: range.clone(), reverse, entries_max, bytes_max };
        let stored = if self.flushed { Vec::new() } else { self.space.store.scan(&scan)? };
        let bytes: usize = stored.iter().map(|(key, value)| key.len() + value.len()).sum();
        let full = stored.len() == entries_max || bytes >= bytes_max;
        let last = stored.last().filter(|_| full).map(|(key, _)| key.clone());
        let (covered, after) = match last {
            None => (range.clone(), None),
            Some(last) if reverse => {
                let after = KeyRange { from: range.from.clone(), to: Some(last.clone()) };
                (KeyRange { from: last, to: range.to.clone() }, Some(after))
            }
            Some(last) => {
                let behind = successor(&last);
                let after = KeyRange { from: behind.clone(), to: range.to.clone() };
                (KeyRange { from: range.from.clone(), to: Some(behind) }, Some(after))
            }
        };
        let mut changes = kv::within(&self.overlay, &covered).peekable();
        if changes.peek().is_none() {
            return Ok((stored, after));
        }
        let mut merged: BTreeMap<_, _> = stored.into_iter().collect();
        for (record, value) in changes {
            match value {
                Some(value) => merged.insert(record.clone(), value.clone()),
                None => merged.remove(record),
            };
        }
        let page = merged.into_iter();
        Ok((if reverse { page.rev().collect() } else { page.collect() }, after))
    }

    /// The key's main record, expired or not.
    pub(super) fn main(&mut self, key: &[u8]) -> Result<Option<Main>> {
        self.get(&format::main_key(key))?.map(|record| decode(key, &record)).transpose()
    }

    /// The key's main record if there is one and the transaction holds it already.
    pub(super) fn known_main(&self, key: &[u8]) -> Result<Option<Main>> {
        let known = self.known(&format::main_key(key)).flatten();
        known.map(|record| decode(key, &record)).transpose()
    }

    /// The key's main record, unless it is expired.
    pub(super) fn live(&mut self, key: &[u8]) -> Result<Option<Main>> {
        let now = self.now;
        Ok(self.main(key)?.filter(|main| main.expires.is_none_or(|expires| expires > now)))
    }

    /// The head of the key's main record, unless it is expired.
    pub(super) fn head(&mut self, key: &[u8]) -> Result<Option<Head>> {
        let record = format::main_key(key);
        let head = match self.heads.get(&record) {
            // The head as fetched with the other keys of its part, even if the record was fetched again for another
            // part.
            Some(head) if !self.flushed && !self.overlay.contains_key(&record) => *head,
            _ => self.main(key)?.map(|main| main.head()),
        };
        let now = self.now;
        Ok(head.filter(|head| head.expires.is_none_or(|expires| expires > now)))
    }

    /// How many bytes or elements a key of this kind has, unless it is expired.
    pub(super) fn len_of(&mut self, key: &[u8], kind: Kind) -> Result<Option<u64>> {
        match self.head(key)? {
            Some(head) if head.kind != kind => Err(Error::WrongKind),
            head => Ok(head.map(|head| head.len)),
        }
    }

    /// The key's main record, for changing it: an expired one is removed first.
    pub(super) fn opened(&mut self, key: &[u8]) -> Result<Option<Main>> {
        match self.main(key)? {
            Some(main) if main.expires.is_some_and(|expires| expires <= self.now) => {
                self.remove(key, &main)?;
                self.expired += 1;
                Ok(None)
            }
            main => Ok(main),
        }
    }

    /// Whether the key may have records besides its main record.
    pub(super) fn may_be_collection(&self, key: &[u8]) -> bool {
        let stripe = self.space.stripes.of(key);
        self.marked.contains(&stripe)
            || !self.flushed && self.space.stripes.may_have_collections(stripe)
    }

    /// Puts the key's main record in the place of `old`; `None` if it is absent or was not read.
    pub(super) fn put_main(&mut self, key: &[u8], old: Option<&Main>, new: &Main) {
        let expired = old.and_then(|old| old.expires);
        if expired != new.expires {
            if let Some(expires) = expired {
                self.delete_record(format::expiry_key(expires, key));
            }
            if let Some(expires) = new.expires {
                self.put(format::expiry_key(expires, key), Bytes::new());
                self.earliest = self.earliest.min(expires);
            }
        }
        if !matches!(new.value, Value::String(_)) && !self.may_be_collection(key) {
            let stripe = self.space.stripes.of(key);
            self.marked.insert(stripe);
            self.put(format::mark_key(stripe), Bytes::new());
        }
        self.put(format::main_key(key), new.encode());
        self.touch(key);
    }

    /// Puts the main record of a collection whose elements changed in the place of `old`, unless it is
    /// the same.
    pub(super) fn put_collection(&mut self, key: &[u8], old: Option<Main>, value: Value) {
        let new = Main { expires: old.as_ref().and_then(|old| old.expires), value };
        if old.as_ref() == Some(&new) {
            self.touch(key);
        } else {
            self.put_main(key, old.as_ref(), &new);
        }
    }

    /// Puts the main record of a collection that lost elements in the place of `old`. It has the same length, so it
    /// needs no more room.
    pub(super) fn put_shrunk(&mut self, key: &[u8], old: &Main, value: Value) {
        let new = Main { expires: old.expires, value };
        self.overlay.insert(format::main_key(key), Some(new.encode()));
        self.touch(key);
    }

    /// Removes the key and all of its records.
    pub(super) fn remove(&mut self, key: &[u8], main: &Main) -> Result<()> {
        let (ranges, len) = match main.value {
            Value::String(_) => (Vec::new(), 0),
            Value::Hash(hash) => (vec![format::fields(hash.id)], hash.len),
            Value::SortedSet(set) => {
                (vec![format::members(set.id), format::scores(set.id)], set.len)
            }
        };
        // Calls that may fail come first: a failed call changes nothing.
        let few = ranges.iter().map(|range| self.few(range, len)).collect::<Result<Vec<_>>>()?;
        for (range, few) in ranges.into_iter().zip(few) {
            match few {
                Some(records) => records.into_iter().for_each(|record| self.delete_record(record)),
                None => self.drop_range(range),
            }
        }
        self.remove_main(key, main);
        Ok(())
    }

    /// Removes the main record of a key whose elements are gone.
    pub(super) fn remove_main(&mut self, key: &[u8], main: &Main) {
        if let Some(expires) = main.expires {
            self.delete_record(format::expiry_key(expires, key));
        }
        self.delete_record(format::main_key(key));
        self.touch(key);
    }

    /// The records of a range that has `len`, unless there are too many to delete singly.
    fn few(&self, range: &KeyRange, len: u64) -> Result<Option<Vec<Bytes>>> {
        if len > DELETED_SINGLY_MAX as u64 {
            return Ok(None);
        }
        let mut few = Vec::new();
        self.walk(range, false, DELETED_SINGLY_MAX + 1, |record, _| {
            few.push(record);
            Ok(())
        })?;
        Ok((few.len() <= DELETED_SINGLY_MAX).then_some(few))
    }

    /// Removes every record of a range to which no transaction will write again.
    fn drop_range(&mut self, range: KeyRange) {
        let made: Vec<_> =
            kv::within(&self.overlay, &range).map(|(record, _)| record.clone()).collect();
        made.iter().for_each(|record| {
            self.overlay.remove(record);
        });
        self.dropped.push(range);
    }

    /// A collection with no element yet. Its main record is written with its first element.
    pub(super) fn new_collection(&self) -> Result<Collection> {
        Ok(Collection { id: self.space.new_id()?, len: 0 })
    }

    /// Removes every key.
    pub(super) fn remove_everything(&mut self) {
        assert!(self.held.is_everything(), "others may be at the keys that are removed");
        self.overlay.clear();
        self.fetched.clear();
        self.heads.clear();
        self.marked.clear();
        self.flushed = true;
        self.grows = false;
        self.dropped = format::data().into();
    }

    /// How many keys there are, expired ones that were not removed yet included: counted while they are few, else
    /// estimated.
    ///
    /// # Errors
    /// What the store reports.
    pub fn count(&self) -> Result<kv::Count> {
        let none = kv::Count { keys: 0, exact: true };
        let mut count = if self.flushed { none } else { self.space.count()? };
        let keys = KeyRange::with_prefix(vec![format::KEYS]);
        let changed: Vec<_> =
            kv::within(&self.overlay, &keys).map(|(record, _)| record.clone()).collect();
        let stored = match &changed[..] {
            _ if self.flushed => vec![None; changed.len()],
            [] => return Ok(count),
            changed => self.space.store.get_many(changed)?,
        };
        for (record, stored) in changed.iter().zip(stored) {
            match (stored.is_some(), self.overlay[record].is_some()) {
                (false, true) => count.keys += 1,
                (true, false) => count.keys = count.keys.saturating_sub(1),
                _ => {}
            }
        }
        Ok(count)
    }

    /// Marks the key's stripe as changed, for transactions that watch it.
    pub(super) fn touch(&mut self, key: &[u8]) {
        let stripe = self.space.stripes.of(key);
        assert!(self.held.has(stripe, Hold::Alone), "others may be at a key that is changed");
        self.changed.insert(stripe);
    }

    /// A read of several records is consistent only while the key is locked.
    pub(super) fn assert_held(&self, key: &[u8]) {
        let stripe = self.space.stripes.of(key);
        assert!(self.held.has(stripe, Hold::Shared), "others may change a key that is read");
    }
}
