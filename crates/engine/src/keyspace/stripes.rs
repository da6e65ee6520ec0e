//! Locks for keys: each key belongs to one of many stripes, and a transaction locks those of its keys.
//!
//! A stripe also counts the transactions that changed one of its keys: a watched key is unchanged while the count is.
//! And it knows whether it ever had a collection: a put of a string on a stripe without one replaces the old value
//! unread, which is what makes a log-structured store fast.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Part of the format, as marks of stripes are stored. At this number two batches of a hundred keys seldom share a
/// stripe.
const STRIPES: usize = 1 << 16;

/// The stripe of a key.
pub(super) type StripeIndex = u16;

#[derive(Debug, Default)]
struct Stripe {
    lock: RwLock<()>,
    /// Transactions that changed one of its keys.
    version: AtomicU64,
    /// Whether a key of it may hold a collection.
    collections: AtomicBool,
}

/// The stripes of a keyspace.
#[derive(Debug)]
pub(super) struct Stripes {
    stripes: Vec<Stripe>,
    /// Shared by transactions that lock stripes, exclusive for one that touches everything.
    everything: RwLock<()>,
    /// Random and stored with the keyspace, so that no client can choose keys that all meet in one stripe.
    seed: u64,
}

/// How a key is locked.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Hold {
    Shared,
    Alone,
}

/// Locks that are held, until dropped.
pub(super) struct Held<'s> {
    _shared: Vec<RwLockReadGuard<'s, ()>>,
    _alone: Vec<RwLockWriteGuard<'s, ()>>,
    _all_shared: Option<RwLockReadGuard<'s, ()>>,
    all_alone: Option<RwLockWriteGuard<'s, ()>>,
    /// The stripes that are locked, in their order.
    stripes: Vec<(StripeIndex, Hold)>,
}

impl Held<'_> {
    /// Whether this excludes every other holder.
    pub(super) fn is_everything(&self) -> bool {
        self.all_alone.is_some()
    }

    /// Whether the stripe is held at least this exclusively.
    pub(super) fn has(&self, stripe: StripeIndex, hold: Hold) -> bool {
        let at = self.stripes.binary_search_by_key(&stripe, |(stripe, _)| *stripe);
        self.is_everything() || at.is_ok_and(|at| self.stripes[at].1 >= hold)
    }
}

impl Stripes {
    pub(super) fn new(seed: u64, marked: impl IntoIterator<Item = StripeIndex>) -> Self {
        let stripes: Vec<_> = std::iter::repeat_with(Stripe::default).take(STRIPES).collect();
        for index in marked {
            stripes[usize::from(index)].collections.store(true, Ordering::Relaxed);
        }
        Self { stripes, everything: RwLock::new(()), seed }
    }

    pub(super) fn of(&self, key: &[u8]) -> StripeIndex {
        let hash = xxh3_64_with_seed(key, self.seed);
        StripeIndex::try_from(hash % STRIPES as u64).expect("there are as many stripes")
    }

    /// Waits, inside `wait`, for the locks of these stripes. All callers take them in one order, so no two deadlock. No
    /// stripes take no lock at all.
    pub(super) fn hold(
        &self,
        stripes: impl IntoIterator<Item = (StripeIndex, Hold)>,
        wait: impl Fn(&mut dyn FnMut()),
    ) -> Held<'_> {
        let mut holds = BTreeMap::new();
        for (stripe, hold) in stripes {
            holds
                .entry(stripe)
                .and_modify(|held: &mut Hold| *held = hold.max(*held))
                .or_insert(hold);
        }
        let stripes: Vec<_> = holds.into_iter().collect();
        let (mut shared, mut alone) = (Vec::new(), Vec::new());
        let all_shared = (!stripes.is_empty()).then(|| read(&self.everything, &wait));
        for (stripe, hold) in &stripes {
            let lock = &self.stripes[usize::from(*stripe)].lock;
            match hold {
                Hold::Shared => shared.push(read(lock, &wait)),
                Hold::Alone => alone.push(write(lock, &wait)),
            }
        }
        Held { _shared: shared, _alone: alone, _all_shared: all_shared, all_alone: None, stripes }
    }

    /// Waits, inside `wait`, until no lock is held, and excludes every other holder.
    pub(super) fn hold_everything(&self, wait: impl Fn(&mut dyn FnMut())) -> Held<'_> {
        Held {
            _shared: Vec::new(),
            _alone: Vec::new(),
            _all_shared: None,
            all_alone: Some(write(&self.everything, &wait)),
            stripes: Vec::new(),
        }
    }

    pub(super) fn version(&self, stripe: StripeIndex) -> u64 {
        self.stripes[usize::from(stripe)].version.load(Ordering::Acquire)
    }

    /// Counts a change of a key of the stripe. The caller holds it alone.
    pub(super) fn changed(&self, stripe: StripeIndex) {
        self.stripes[usize::from(stripe)].version.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn may_have_collections(&self, stripe: StripeIndex) -> bool {
        self.stripes[usize::from(stripe)].collections.load(Ordering::Acquire)
    }

    /// Records whether the mark of the stripe is stored. The caller holds the stripe alone.
    pub(super) fn mark(&self, stripe: StripeIndex, collections: bool) {
        self.stripes[usize::from(stripe)].collections.store(collections, Ordering::Release);
    }
}

fn read<'l>(lock: &'l RwLock<()>, wait: impl Fn(&mut dyn FnMut())) -> RwLockReadGuard<'l, ()> {
    lock.try_read().unwrap_or_else(|| {
        let mut guard = None;
        wait(&mut || guard = Some(lock.read()));
        guard.expect("it was waited for")
    })
}

fn write<'l>(lock: &'l RwLock<()>, wait: impl Fn(&mut dyn FnMut())) -> RwLockWriteGuard<'l, ()> {
    lock.try_write().unwrap_or_else(|| {
        let mut guard = None;
        wait(&mut || guard = Some(lock.write()));
        guard.expect("it was waited for")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simply(wait: &mut dyn FnMut()) {
        wait();
    }

    #[test]
    fn who_is_alone_on_a_stripe_keeps_everybody_out_of_it_alone() {
        let stripes = Stripes::new(0, []);
        let held = stripes.hold([(3, Hold::Shared), (3, Hold::Alone), (3, Hold::Shared)], simply);
        assert!(stripes.stripes[3].lock.try_read().is_none());
        assert!(stripes.stripes[4].lock.try_write().is_some());
        assert!(stripes.everything.try_write().is_none());
        drop(held);
        let _shared = stripes.hold([(3, Hold::Shared)], simply);
        assert!(stripes.stripes[3].lock.try_read().is_some());
    }

    #[test]
    fn who_holds_everything_keeps_everybody_out() {
        let stripes = Stripes::new(0, []);
        let _held = stripes.hold_everything(simply);
        assert!(stripes.everything.try_read().is_none());
    }

    #[test]
    fn keys_go_to_other_stripes_under_another_seed() {
        let (one, other) = (Stripes::new(1, []), Stripes::new(2, []));
        let keys = (0..64_u32).map(u32::to_be_bytes);
        assert!(keys.filter(|key| one.of(key) == other.of(key)).count() < 8);
    }
}
