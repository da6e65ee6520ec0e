//! A keyspace over a store in memory that counts its calls and fails on demand.

mod cases;
mod concurrent;
mod full;
mod model;
mod parts;
mod stored;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::format::{self, Collection, Kind, Main, Value};
use super::stripes::StripeIndex;
use super::{Error, Keyspace, ReadLimits, Result, Touch, Touches, Transaction};
use crate::kv::{self, Change, Count, Durability, KeyRange, KeyValue, Memory, Scan};

/// A store in memory.
#[derive(Default)]
struct Probe {
    memory: Memory,
    /// Calls that read.
    reads: AtomicU64,
    /// The most bytes of values that one call gave.
    read_at_once: AtomicUsize,
    /// The most entries that were asked for at once.
    scanned_max: AtomicUsize,
    /// All applied changes.
    changes: Mutex<Vec<Change>>,
    /// Which of the next calls fails, the next one being 1; 0 for none.
    fails_in: AtomicU64,
    /// Whether only changes that free room are accepted.
    full: AtomicBool,
}

impl Probe {
    fn failure(&self) -> kv::Error {
        kv::Error::Unavailable("a failure that was asked for".into())
    }

    fn no_room(&self) -> kv::Error {
        kv::Error::OutOfSpace("the reserve is for deletions".into())
    }

    fn called(&self) -> kv::Result<()> {
        let next = |left: u64| left.checked_sub(1);
        match self.fails_in.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(1) => Err(self.failure()),
            _ => Ok(()),
        }
    }

    fn everything(&self) -> BTreeMap<Bytes, Bytes> {
        let scan = Scan {
            range: KeyRange::ALL,
            reverse: false,
            entries_max: usize::MAX,
            bytes_max: usize::MAX,
        };
        self.memory.scan(&scan).expect("memory is read").into_iter().collect()
    }
}

impl KeyValue for Probe {
    fn get_many(&self, keys: &[Bytes]) -> kv::Result<Vec<Option<Bytes>>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.called()?;
        let values = self.memory.get_many(keys)?;
        let bytes = values.iter().flatten().map(Bytes::len).sum();
        self.read_at_once.fetch_max(bytes, Ordering::Relaxed);
        Ok(values)
    }

    fn get_many_within(
        &self,
        keys: &[Bytes],
        bytes_max: usize,
    ) -> kv::Result<Option<Vec<Option<Bytes>>>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.called()?;
        let values = self.memory.get_many(keys)?;
        let bytes = values.iter().flatten().map(Bytes::len).sum();
        if bytes > bytes_max {
            return Ok(None);
        }
        self.read_at_once.fetch_max(bytes, Ordering::Relaxed);
        Ok(Some(values))
    }

    fn apply(&self, changes: &[Change]) -> kv::Result<()> {
        if self.full.load(Ordering::Relaxed) {
            return Err(self.no_room());
        }
        self.apply_freeing(changes)
    }

    fn apply_freeing(&self, changes: &[Change]) -> kv::Result<()> {
        self.called()?;
        self.changes.lock().extend_from_slice(changes);
        self.memory.apply(changes)
    }

    fn scan(&self, scan: &Scan) -> kv::Result<Vec<(Bytes, Bytes)>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.called()?;
        if scan.range != KeyRange::with_prefix(vec![format::MARKS]) {
            self.scanned_max.fetch_max(scan.entries_max, Ordering::Relaxed);
        }
        self.memory.scan(scan)
    }

    fn count(&self, range: &KeyRange) -> kv::Result<Count> {
        self.called()?;
        self.memory.count(range)
    }

    fn durability(&self) -> Durability {
        self.memory.durability()
    }
}

/// A keyspace with a settable clock.
struct Stage {
    store: Arc<Probe>,
    wall: Arc<AtomicU64>,
    space: Keyspace,
}

/// The seed for the stripes of test keys.
const SEED: u64 = 1;

impl Stage {
    fn new() -> Self {
        let (store, wall) = (Arc::default(), Arc::new(AtomicU64::new(1000)));
        let space = Self::open(&store, &wall).expect("an empty store is opened");
        Self { store, wall, space }
    }

    fn open(store: &Arc<Probe>, wall: &Arc<AtomicU64>) -> Result<Keyspace> {
        let (store, wall) = (Arc::clone(store), Arc::clone(wall));
        Keyspace::open(store, Box::new(move || wall.load(Ordering::Relaxed)), SEED)
    }

    fn reopen(&mut self) {
        self.space = Self::open(&self.store, &self.wall).expect("it is opened again");
    }

    fn at(&self, time: u64) {
        self.wall.store(time, Ordering::Relaxed);
    }

    /// Runs and commits one transaction that writes these keys.
    fn write<T>(&self, keys: &[&str], run: impl FnOnce(&mut Transaction<'_>) -> T) -> T {
        self.touch(Touch::Write, keys, run)
    }

    fn touch<T>(
        &self,
        touch: Touch,
        keys: &[&str],
        run: impl FnOnce(&mut Transaction<'_>) -> T,
    ) -> T {
        let mut transaction = self.space.begin(&touches(touch, keys)).expect("it begins");
        let result = run(&mut transaction);
        transaction.commit().expect("it is committed");
        result
    }

    fn fail_call(&self, call: u64) {
        self.store.fails_in.store(call, Ordering::Relaxed);
    }

    /// The error of calls that were set to fail.
    fn failure(&self) -> Error {
        Error::Store(self.store.failure())
    }

    /// Counts the calls that read the store while `run` runs.
    fn reads(&self, run: impl FnOnce()) -> u64 {
        let before = self.store.reads.load(Ordering::Relaxed);
        run();
        self.store.reads.load(Ordering::Relaxed) - before
    }

    fn put_raw(&self, record: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.store.memory.apply(&[Change::Put(record.into(), value.into())]).expect("memory");
    }

    /// Panics if a record is missing, or belongs to no key.
    fn audit(&self) {
        audit(&self.space, &self.store.everything());
    }
}

fn touches(touch: Touch, keys: &[&str]) -> Touches {
    let mut touches = Touches::default();
    keys.iter().for_each(|key| touches.add(bytes(key), touch));
    touches
}

/// Limits of bytes alone.
fn within(bytes_max: usize) -> ReadLimits {
    ReadLimits { bytes_max, ..ReadLimits::NONE }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Keys on this stripe.
fn neighbours(space: &Keyspace, stripe: StripeIndex) -> impl Iterator<Item = String> {
    let keys = (0..).map(|n| format!("n{n}"));
    keys.filter(move |key| space.stripes.of(key.as_bytes()) == stripe)
}

/// Walks all records. Only an expiry may belong to no key, as blind writes leave some.
fn audit(space: &Keyspace, records: &BTreeMap<Bytes, Bytes>) {
    let mut elements: BTreeMap<(u8, u64), BTreeMap<Bytes, Bytes>> = BTreeMap::new();
    let mut mains = BTreeMap::new();
    let mut expiries = BTreeSet::new();
    let mut marks = BTreeSet::new();
    let mut next_id = 0;
    for (record, value) in records {
        match record[0] {
            b'k' => {
                let key = record.slice(1..);
                let main = Main::decode(value).unwrap_or_else(|| panic!("main record of {key:?}"));
                assert!(mains.insert(key, main).is_none());
            }
            prefix @ (b'h' | b'm' | b'z') => {
                let id = u64::from_be_bytes(record[1..9].try_into().expect("eight bytes"));
                elements.entry((prefix, id)).or_default().insert(record.slice(9..), value.clone());
            }
            b't' => {
                assert!(value.is_empty());
                expiries.insert(format::read_expiry(record).expect("an expiry"));
            }
            b'c' => {
                assert!(value.is_empty());
                marks.insert(format::marked_stripe(record).expect("a mark"));
            }
            b'i' => next_id = u64::from_le_bytes(value[..].try_into().expect("eight bytes")),
            b'v' => assert_eq!(format::read_identity(value), Some((1, SEED))),
            other => panic!("a record of no kind: {other}"),
        }
    }
    for stripe in 0..=StripeIndex::MAX {
        let stored = marks.contains(&stripe);
        assert_eq!(space.stripes.may_have_collections(stripe), stored, "mark of {stripe}");
    }
    let mut take = |prefix, Collection { id, len }: Collection| {
        assert!(id < next_id, "id {id} of {next_id}");
        let found = elements.remove(&(prefix, id)).unwrap_or_default();
        assert_eq!(found.len() as u64, len, "elements of {id}");
        found
    };
    for (key, main) in mains {
        if let Some(expires) = main.expires {
            assert!(expiries.contains(&(expires, key.clone())), "expiry of {key:?}");
        }
        match main.value {
            Value::String(_) => continue,
            Value::Hash(hash) => {
                take(b'h', hash);
            }
            Value::SortedSet(set) => {
                let scores = take(b'z', set).into_keys().map(|scored| {
                    let record = [&[b'z'; 9], &scored[..]].concat().into();
                    let (score, member) = format::read_score(&record).expect("a score");
                    (member, Bytes::copy_from_slice(&score.to_le_bytes()))
                });
                assert_eq!(take(b'm', set), scores.collect(), "scores of {key:?}");
            }
        }
        assert!(marks.contains(&space.stripes.of(&key)), "mark for {key:?}");
    }
    assert!(elements.is_empty(), "records without an owner: {elements:?}");
}
