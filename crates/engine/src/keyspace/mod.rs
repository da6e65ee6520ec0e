//! Keys with values of several kinds, expiries and transactions, over a plain ordered map.
//!
//! A [`Keyspace`] keeps each key's value in a [`KeyValue`] store as records. A string is one record; a hash or a sorted
//! set is a main record and one or more for each element, so that a collection may be far larger than memory. Every
//! call is part of a [`Transaction`]: it names the keys it touches, locks them, sees the store and its own changes, and
//! applies all of them at once or none.
//!
//! ```text
//!   strings  hashes  sorted sets  keys     what commands mean
//!        └──────┴────────┴─────────┘
//!               transaction                a view of the store and changes on top
//!          stripes       format            locks, and record keys and values
//! ```
//!
//! Times are milliseconds since 1970 of the wall clock, because expiries survive restarts. A clock that is set back
//! lets keys live longer, one set forward ends them early; nothing else depends on it.

mod fetched;
mod format;
mod hashes;
mod keys;
mod records;
mod sorted_sets;
mod strings;
mod stripes;
#[cfg(test)]
mod tests;
mod touches;
mod transaction;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::kv::{self, Change, Durability, KeyRange, KeyValue, Scan};
pub use fetched::FETCHED_BYTES_MAX;
pub use format::Kind;
pub use keys::KeysPage;
use records::unreadable;
pub use strings::Expiry;
use stripes::Stripes;
pub use touches::{ReadLimits, Touch, Touches};
pub use transaction::Transaction;
pub use watch::Watched;

/// What a call on a keyspace ends with.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed: one kind for each way a caller reacts.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key holds a value of another kind: use that kind's calls, or delete it.
    #[error("the key holds the wrong kind of value")]
    WrongKind,
    /// The store holds something else: give the keyspace a store of its own.
    #[error(
        "the store holds data of another program or version: give this program a store of its own"
    )]
    NotAKeyspace,
    /// The values read exceed the bytes that [`Keyspace::begin_within`] allows: read less at a time.
    #[error("what is read has more than {0} bytes")]
    TooLong(usize),
    /// The read exceeds the elements that [`Keyspace::begin_within`] allows: read less at a time.
    #[error("what is read has more than {0} elements")]
    TooMany(usize),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] kv::Error),
}

/// The time as milliseconds since 1970.
pub type WallClock = Box<dyn Fn() -> u64 + Send + Sync>;

/// How many ids are taken from the store at once. More: fewer writes for new collections, but more ids lost at a
/// restart. Few in tests, so that borders are met.
const IDS_AT_ONCE: u64 = if cfg!(test) { 2 } else { 1 << 20 };

/// Keys and their values in a store.
pub struct Keyspace {
    store: Arc<dyn KeyValue>,
    stripes: Stripes,
    ids: Mutex<Ids>,
    wall: WallClock,
    /// Keys removed because they were expired.
    expired: AtomicU64,
    /// No expiry before this time is in the store, in milliseconds since 1970.
    swept: AtomicU64,
}

/// Ids for collections.
#[derive(Debug)]
struct Ids {
    next: u64,
    /// The stored next id: after a restart ids begin here.
    end: u64,
}

impl Keyspace {
    /// Opens the keyspace in `store`, or makes it in an empty one, with `seed` for its stripes.
    ///
    /// # Errors
    /// [`Error::NotAKeyspace`] for a store that holds something else; what the store reports.
    pub fn open(store: Arc<dyn KeyValue>, wall: WallClock, seed: u64) -> Result<Self> {
        let seed = match &store.get_many(&[Bytes::from_static(format::IDENTITY)])?[0] {
            Some(identity) => match format::read_identity(identity) {
                Some((format::VERSION, seed)) => seed,
                _ => return Err(Error::NotAKeyspace),
            },
            None => {
                let any = Scan {
                    range: KeyRange::ALL,
                    reverse: false,
                    entries_max: 1,
                    bytes_max: usize::MAX,
                };
                if !store.scan(&any)?.is_empty() {
                    return Err(Error::NotAKeyspace);
                }
                let identity = (Bytes::from_static(format::IDENTITY), format::identity(seed));
                store.apply(&[Change::Put(identity.0, identity.1)])?;
                seed
            }
        };
        let marks = store.scan(&Scan {
            range: KeyRange::with_prefix(vec![format::MARKS]),
            reverse: false,
            entries_max: usize::MAX,
            bytes_max: usize::MAX,
        })?;
        let marked = marks.iter().map(|(mark, _)| {
            format::marked_stripe(mark).ok_or_else(|| unreadable("mark of a stripe", mark))
        });
        let stripes = Stripes::new(seed, marked.collect::<Result<Vec<_>>>()?);
        let next = match &store.get_many(&[Bytes::from_static(format::NEXT_ID)])?[0] {
            None => 0,
            Some(next) => {
                let next = next[..].try_into().map(u64::from_le_bytes);
                next.map_err(|_| unreadable("next id", format::NEXT_ID))?
            }
        };
        let ids = Mutex::new(Ids { next, end: next });
        Ok(Self { store, stripes, ids, wall, expired: AtomicU64::new(0), swept: AtomicU64::new(0) })
    }

    /// A transaction that touches these keys. Waits until it has their locks: no other transaction changes one of them
    /// before this one is over, and others see its writes only once it commits. All transactions take their locks in
    /// one order, so no two deadlock. A thread has one transaction at a time.
    ///
    /// # Errors
    /// What the store reports when it fetches the keys, all at once.
    pub fn begin(&self, touches: &Touches) -> Result<Transaction<'_>> {
        Transaction::begin(self, touches, ReadLimits::NONE)
    }

    /// As [`Keyspace::begin`], for a transaction whose reads may hold this much in memory. Values that it changes, or
    /// [looks](Touch::Look) at, do not count.
    ///
    /// # Errors
    /// [`Error::TooLong`] or [`Error::TooMany`] where the keys to read have more, here or in the calls that read; the
    /// others as for `begin`.
    pub fn begin_within(&self, touches: &Touches, limits: ReadLimits) -> Result<Transaction<'_>> {
        Transaction::begin(self, touches, limits)
    }

    /// How many keys there are, expired ones that were not removed yet included: counted while they are few, else
    /// estimated.
    ///
    /// # Errors
    /// What the store reports.
    pub fn count(&self) -> Result<kv::Count> {
        Ok(self.store.count(&KeyRange::with_prefix(vec![format::KEYS]))?)
    }

    /// How many keys with an expiry there are, as [`Keyspace::count`] counts. An expiry that a blind put replaced
    /// counts until its time has come.
    ///
    /// # Errors
    /// What the store reports.
    pub fn count_expiring(&self) -> Result<kv::Count> {
        Ok(self.store.count(&KeyRange::with_prefix(vec![format::EXPIRIES]))?)
    }

    /// How many keys were removed because they were expired, since the keyspace was opened.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// Whether transactions may run on a thread that serves many tasks: [`KeyValue::yields`].
    #[must_use]
    pub fn yields(&self) -> bool {
        self.store.yields()
    }

    /// What a change has survived once [`Transaction::commit`] returned.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.store.durability()
    }

    /// The time that expiries are compared with, in milliseconds since 1970.
    #[must_use]
    pub fn now(&self) -> u64 {
        (self.wall)()
    }

    /// An id that no collection ever had.
    fn new_id(&self) -> Result<u64> {
        let mut ids = self.ids.lock();
        if ids.next == ids.end {
            let end = ids.end.checked_add(IDS_AT_ONCE);
            let end = end.ok_or_else(|| unreadable("next id", format::NEXT_ID))?;
            let end_record = Bytes::copy_from_slice(&end.to_le_bytes());
            self.store.apply(&[Change::Put(Bytes::from_static(format::NEXT_ID), end_record)])?;
            ids.end = end;
        }
        ids.next += 1;
        Ok(ids.next - 1)
    }
}
