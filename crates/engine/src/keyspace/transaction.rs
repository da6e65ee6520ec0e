//! A view of the store with changes on top, which are applied together at the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::format::{self, Collection, Main, Value};
use super::stripes::{Held, Hold, StripeIndex};
use super::{Error, Keyspace, Result};
use crate::kv::{self, Change, KeyRange, Scan};

/// What a transaction does with a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Touch {
    /// Looks at its kind, expiry, length or string: one record. A transaction that only peeks sees all
    /// keys of a [part](Touches::end_part) at one moment, and keeps nobody away; beside other touches this
    /// one is as `Read`.
    Peek,
    /// Reads any part of it.
    Read,
    /// Reads it and changes it.
    Write,
    /// Changes it without having looked at it, as a rule: it is not fetched ahead.
    Replace,
}

/// What a transaction touches.
#[derive(Clone, Debug, Default)]
pub struct Touches {
    keys: Vec<(Bytes, Touch)>,
    everything: bool,
    /// How many keys there were at the end of each part.
    parts: Vec<usize>,
}

impl Touches {
    /// Adds a key.
    pub fn add(&mut self, key: Bytes, touch: Touch) {
        self.keys.push((key, touch));
    }

    /// Adds every key there is, to be changed: the transaction has the keyspace for itself.
    pub fn add_everything(&mut self) {
        self.everything = true;
    }

    /// Ends a part: the keys since the part before are fetched at one moment. With parts, only so many
    /// of them are fetched ahead as have [`FETCHED_BYTES_MAX`] bytes together:
    /// [`Transaction::parts_fetched`] tells how many.
    pub fn end_part(&mut self) {
        self.parts.push(self.keys.len());
    }

    /// Whether a part was ended.
    #[must_use]
    pub fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// How many keys were added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.everything
    }
}

/// Changes that are not applied yet, and the locks that make them one with what they were made from.
/// Dropped without [`commit`](Self::commit), nothing has happened. A call that fails has changed nothing,
/// but may have removed a key whose time was over: the transaction can go on.
///
/// Calls panic for a key that the transaction does not touch as they need: that is a bug of the caller,
/// and would be lost writes in the store.
pub struct Transaction<'k> {
    pub(super) space: &'k Keyspace,
    /// The time of everything in this transaction, in milliseconds since 1970.
    pub(super) now: u64,
    /// Records as the store has them.
    fetched: HashMap<Bytes, Option<Bytes>>,
    /// Records as they will be, and those that will be gone.
    overlay: BTreeMap<Bytes, Option<Bytes>>,
    /// Ranges that will be gone, before anything of the overlay is there.
    dropped: Vec<KeyRange>,
    /// Whether nothing of what the store has is there any more.
    flushed: bool,
    /// Stripes of keys that change.
    changed: BTreeSet<StripeIndex>,
    /// Stripes that will be marked.
    marked: BTreeSet<StripeIndex>,
    /// Expired keys that were removed on the way.
    pub(super) expired: u64,
    /// The earliest expiry that was written, in milliseconds since 1970.
    earliest: u64,
    /// Whether the store may hold more than before once this is applied.
    grows: bool,
    /// How many parts of what is touched were fetched.
    parts_fetched: usize,
    /// What may still be read to be given to the caller.
    pub(super) budget: Budget,
    held: Held<'k>,
}

/// Bytes that reads may hold in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    max: usize,
    left: usize,
}

/// What an element that was read takes beside its bytes.
const ELEMENT_BYTES: usize = 32;

impl Budget {
    /// An element of so many bytes was read.
    pub(super) fn take(&mut self, bytes: usize) -> Result<()> {
        let left = self.left.checked_sub(bytes.saturating_add(ELEMENT_BYTES));
        self.left = left.ok_or(Error::TooLong(self.max))?;
        Ok(())
    }
}

/// The bytes of values after which a transaction fetches no further part ahead.
pub const FETCHED_BYTES_MAX: usize = 16 << 20;
/// How many keys are fetched together where they are of several parts. More: fewer calls of the store; but
/// a value may be as long as a client may send, and all of them are in memory before they are counted.
const PARTS_KEYS_MAX: usize = 8;

/// Records and what they hold.
type Entries = Vec<(Bytes, Bytes)>;

/// The most entries that are read from the store at once while walking. Few in tests, as all sizes
/// here, so that borders are met.
const PAGE_ENTRIES: usize = if cfg!(test) { 3 } else { 1024 };
/// The most bytes.
const PAGE_BYTES: usize = if cfg!(test) { 64 } else { 1 << 20 };
/// Collections of up to so many elements are deleted one by one: a range would leave a mark in the store
/// that reads look at, for the sake of few records.
const DELETED_SINGLY_MAX: usize = if cfg!(test) { 4 } else { 64 };

impl<'k> Transaction<'k> {
    pub(super) fn begin(space: &'k Keyspace, touches: &Touches, bytes_max: usize) -> Result<Self> {
        let stripes = &space.stripes;
        let wait = |wait: &mut dyn FnMut()| space.store.wait(wait);
        let held = if touches.everything {
            stripes.hold_everything(wait)
        } else if touches.keys.iter().all(|(_, touch)| *touch == Touch::Peek) {
            stripes.hold([], wait)
        } else {
            let holds = touches.keys.iter().map(|(key, touch)| match touch {
                Touch::Peek | Touch::Read => (stripes.of(key), Hold::Shared),
                Touch::Write | Touch::Replace => (stripes.of(key), Hold::Alone),
            });
            stripes.hold(holds, wait)
        };
        let mut budget = Budget { max: bytes_max, left: bytes_max };
        let (fetched, parts_fetched) = fetch(space, touches, &mut budget)?;
        Ok(Self {
            space,
            now: space.now(),
            fetched,
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
        // Whoever watches a key is told also where nobody knows what happened. A flush needs no telling:
        // a key that was there is seen to be gone, and one that was not there has not changed.
        let stripes = &space.stripes;
        changed.into_iter().for_each(|stripe| stripes.changed(stripe));
        // Once it is in the store: who removes expired keys looks there after asking for this.
        space.swept.fetch_min(earliest, Ordering::AcqRel);
        done?;
        if flushed {
            (0..=StripeIndex::MAX).for_each(|stripe| stripes.mark(stripe, false));
        }
        marked.into_iter().for_each(|stripe| stripes.mark(stripe, true));
        space.expired.fetch_add(expired, Ordering::Relaxed);
        Ok(())
    }

    /// The time of everything in this transaction, in milliseconds since 1970.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// How many parts of what it touches were fetched ahead, from the first on: all of them, unless their values
    /// have too many bytes.
    #[must_use]
    pub fn parts_fetched(&self) -> usize {
        self.parts_fetched
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

    /// As [`Transaction::get_all`], of what the caller is given: within its budget.
    pub(super) fn read_all(&mut self, records: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let missing: Vec<_> =
            records.iter().filter(|record| self.known(record).is_none()).cloned().collect();
        if !missing.is_empty() {
            let values = self.space.store.get_many_within(&missing, self.budget.left)?;
            let values = values.ok_or(Error::TooLong(self.budget.max))?;
            self.fetched.extend(missing.into_iter().zip(values));
        }
        let values: Vec<_> = records.iter().map(|record| self.known(record).flatten()).collect();
        values.iter().flatten().try_for_each(|value| self.budget.take(value.len()))?;
        Ok(values)
    }

    pub(super) fn get(&mut self, record: &Bytes) -> Result<Option<Bytes>> {
        match self.known(record) {
            Some(known) => Ok(known),
            None => Ok(self.get_all(std::slice::from_ref(record))?.swap_remove(0)),
        }
    }

    /// What the record holds, if that is known without asking the store.
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

    /// Shows the first entries of the range, or the last from the end on: a page of them is in memory
    /// at a time.
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

    /// Some entries of the range, and what is left of it.
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

    /// The key's main record, whether or not its time is over.
    pub(super) fn main(&mut self, key: &[u8]) -> Result<Option<Main>> {
        self.get(&format::main_key(key))?.map(|record| decode(key, &record)).transpose()
    }

    /// The key's main record if there is one and somebody looked at it before.
    pub(super) fn known_main(&self, key: &[u8]) -> Result<Option<Main>> {
        let known = self.known(&format::main_key(key)).flatten();
        known.map(|record| decode(key, &record)).transpose()
    }

    /// The key's main record, unless its time is over.
    pub(super) fn live(&mut self, key: &[u8]) -> Result<Option<Main>> {
        let now = self.now;
        Ok(self.main(key)?.filter(|main| main.expires.is_none_or(|expires| expires > now)))
    }

    /// The key's main record, for changing it: one whose time is over is removed first.
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

    /// Whether the key may be something whose main record is not all of it.
    pub(super) fn may_be_collection(&self, key: &[u8]) -> bool {
        let stripe = self.space.stripes.of(key);
        self.marked.contains(&stripe)
            || !self.flushed && self.space.stripes.may_have_collections(stripe)
    }

    /// Puts the key's main record in the place of `old`; `None` for what was not looked at.
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

    /// Puts the main record of a collection that lost elements in the place of `old`. It is as long as that
    /// one, so that it needs no room of its own.
    pub(super) fn put_shrunk(&mut self, key: &[u8], old: &Main, value: Value) {
        let new = Main { expires: old.expires, value };
        self.overlay.insert(format::main_key(key), Some(new.encode()));
        self.touch(key);
    }

    /// Removes the key and all that belongs to it.
    pub(super) fn remove(&mut self, key: &[u8], main: &Main) -> Result<()> {
        let (ranges, len) = match main.value {
            Value::String(_) => (Vec::new(), 0),
            Value::Hash(hash) => (vec![format::fields(hash.id)], hash.len),
            Value::SortedSet(set) => {
                (vec![format::members(set.id), format::scores(set.id)], set.len)
            }
        };
        // What may fail comes first: a call that failed has changed nothing.
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

    /// Removes the key, of whose elements none is left.
    pub(super) fn remove_main(&mut self, key: &[u8], main: &Main) {
        if let Some(expires) = main.expires {
            self.delete_record(format::expiry_key(expires, key));
        }
        self.delete_record(format::main_key(key));
        self.touch(key);
    }

    /// The records of a range that has `len`, unless they are too many to be deleted singly.
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

    /// Removes every record of a range that nobody will write to again.
    fn drop_range(&mut self, range: KeyRange) {
        let made: Vec<_> =
            kv::within(&self.overlay, &range).map(|(record, _)| record.clone()).collect();
        made.iter().for_each(|record| {
            self.overlay.remove(record);
        });
        self.dropped.push(range);
    }

    /// A collection with no element yet, and no main record before it has one.
    pub(super) fn new_collection(&self) -> Result<Collection> {
        Ok(Collection { id: self.space.new_id()?, len: 0 })
    }

    /// Removes every key.
    pub(super) fn remove_everything(&mut self) {
        assert!(self.held.is_everything(), "others may be at the keys that are removed");
        self.overlay.clear();
        self.fetched.clear();
        self.marked.clear();
        self.flushed = true;
        self.grows = false;
        self.dropped = format::data().into();
    }

    /// How many keys there are, those included whose time is over but which were not removed yet:
    /// counted while they are few, else estimated.
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

    /// Says that the key changes, which those who watch it are told.
    pub(super) fn touch(&mut self, key: &[u8]) {
        let stripe = self.space.stripes.of(key);
        assert!(self.held.has(stripe, Hold::Alone), "others may be at a key that is changed");
        self.changed.insert(stripe);
    }

    /// For what has more than one record, and changes meanwhile if it is not held.
    pub(super) fn assert_held(&self, key: &[u8]) {
        let stripe = self.space.stripes.of(key);
        assert!(self.held.has(stripe, Hold::Shared), "others may change a key that is read");
    }
}

/// Whether the caller is given what is fetched for it.
const fn is_read(touch: Touch) -> bool {
    matches!(touch, Touch::Peek | Touch::Read)
}

/// Main records as the store has them, and how many parts of `touches` they are.
fn fetch(
    space: &Keyspace,
    touches: &Touches,
    budget: &mut Budget,
) -> Result<(HashMap<Bytes, Option<Bytes>>, usize)> {
    let stripes = &space.stripes;
    let mut fetched = HashMap::new();
    let mut fetch = |keys: &[(Bytes, Touch)]| -> Result<usize> {
        let wanted = keys.iter().filter(|(key, touch)| match touch {
            Touch::Peek | Touch::Read | Touch::Write => true,
            Touch::Replace => stripes.may_have_collections(stripes.of(key)),
        });
        let records = wanted.map(|(key, touch)| (format::main_key(key), is_read(*touch)));
        let mut records: Vec<_> =
            records.filter(|(record, _)| !fetched.contains_key(record)).collect();
        if records.len() > 1 {
            // A key that is both read and changed counts as one that is changed.
            records.sort_unstable();
            records.dedup_by(|later, kept| later.0 == kept.0);
        }
        if records.is_empty() {
            return Ok(0);
        }
        let bytes_of =
            |values: &[Option<Bytes>]| values.iter().flatten().map(Bytes::len).sum::<usize>();
        let all: Vec<_> = records.iter().map(|(record, _)| record.clone()).collect();
        if let Some(values) = space.store.get_many_within(&all, budget.left)? {
            // Only values of keys that are read are given to the caller.
            let read = records.iter().zip(&values).filter(|((_, is_read), _)| *is_read);
            let read = read.filter_map(|(_, value)| value.as_ref()).map(Bytes::len).sum();
            budget.left = budget.left.saturating_sub(read);
            let bytes: usize = bytes_of(&values);
            fetched.extend(all.into_iter().zip(values));
            return Ok(bytes);
        }
        // Too much, unless it is in what is changed: those are held, so the others may be read apart.
        let mut bytes = 0;
        for is_read in [true, false] {
            let some = records.iter().filter(|(_, of)| *of == is_read);
            let some: Vec<_> = some.map(|(record, _)| record.clone()).collect();
            let values = if is_read {
                let values = space.store.get_many_within(&some, budget.left)?;
                let values = values.ok_or(Error::TooLong(budget.max))?;
                budget.left = budget.left.saturating_sub(bytes_of(&values));
                values
            } else {
                space.store.get_many(&some)?
            };
            bytes += bytes_of(&values);
            fetched.extend(some.into_iter().zip(values));
        }
        Ok(bytes)
    };
    let (mut from, mut bytes, mut done) = (0, 0, 0);
    let mut parts = touches.parts.iter().copied().enumerate().peekable();
    while let Some((n, end)) = parts.next() {
        let joins = |(_, next): &(usize, usize)| next - from <= PARTS_KEYS_MAX;
        if parts.peek().is_some_and(joins) {
            continue;
        }
        bytes += fetch(&touches.keys[from..end])?;
        (from, done) = (end, n + 1);
        if bytes >= FETCHED_BYTES_MAX {
            return Ok((fetched, done));
        }
    }
    fetch(&touches.keys[from..])?;
    Ok((fetched, done))
}

/// The first key behind `key`.
pub(super) fn successor(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

pub(super) fn decode(key: &[u8], record: &Bytes) -> Result<Main> {
    Main::decode(record).ok_or_else(|| unreadable("main record", key))
}

/// The error for stored bytes that are not what is written here.
pub(super) fn unreadable(what: &str, at: &[u8]) -> Error {
    let at = at.escape_ascii();
    Error::Store(kv::Error::Corrupt(format!("the {what} at \"{at}\" is not readable")))
}

impl Collection {
    /// With so many elements more.
    pub(super) fn grown(self, key: &[u8], elements: u64) -> Result<Self> {
        let len = self.len.checked_add(elements);
        Ok(Self { len: len.ok_or_else(|| unreadable("number of elements", key))?, ..self })
    }

    /// With so many elements fewer; `None` if none is left.
    pub(super) fn shrunk(self, key: &[u8], elements: u64) -> Result<Option<Self>> {
        let len = self.len.checked_sub(elements);
        let len = len.ok_or_else(|| unreadable("number of elements", key))?;
        Ok((len > 0).then_some(Self { len, ..self }))
    }
}
