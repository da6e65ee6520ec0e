//! Order among changes of overlapping byte ranges of one object.
//!
//! ```text
//!   claims, oldest first:   [0, 4096) held   [4096, 8192) held   [0, 8192) waits for both
//! ```
//! A change claims its range before it begins, and holds the claim until its I/O has ended, even if its caller gave up.
//! Overlapping claims are granted in the order in which they were made.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// The claims on one object. Clones share them.
#[derive(Clone, Default)]
pub struct Ranges(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The number of claims, so that readers of an object without any take no lock.
    count: AtomicUsize,
    claims: Mutex<Claims>,
}

#[derive(Default)]
struct Claims {
    next: u64,
    /// By age: a claim waits for older ones that overlap it.
    by_age: BTreeMap<u64, Entry>,
}

struct Entry {
    range: Range<u64>,
    waiting: Option<Waker>,
    /// Woken when a younger claim waits for this one.
    wanted: Option<Waker>,
}

/// A claim on a range; it ends when this is dropped.
pub struct Claim {
    shared: Arc<Shared>,
    age: u64,
}

impl Ranges {
    /// Claims `range` at once, and waits until every older claim that overlaps it has ended.
    pub fn claim(&self, range: Range<u64>) -> impl Future<Output = Claim> + Send + use<> {
        let claim = Claim { age: self.0.enter(range), shared: Arc::clone(&self.0) };
        async move {
            poll_fn(|cx| claim.shared.poll(claim.age, cx.waker())).await;
            claim
        }
    }

    /// Waits until every change of bytes of `range` that was claimed before this call has ended.
    pub async fn settled(&self, range: Range<u64>) {
        if !self.is_idle() {
            self.claim(range).await;
        }
    }

    /// Whether no claim overlaps `range`.
    #[must_use]
    pub fn is_free(&self, range: &Range<u64>) -> bool {
        self.is_idle() || {
            let claims = self.0.claims.lock();
            !claims.by_age.values().any(|entry| overlap(&entry.range, range))
        }
    }

    /// Whether there is no claim.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.0.count.load(Ordering::Acquire) == 0
    }
}

impl Shared {
    fn enter(&self, range: Range<u64>) -> u64 {
        let mut claims = self.claims.lock();
        self.count.fetch_add(1, Ordering::AcqRel);
        claims.next += 1;
        let age = claims.next;
        let older = claims.by_age.values_mut().filter(|entry| overlap(&entry.range, &range));
        let wanted: Vec<_> = older.filter_map(|entry| entry.wanted.take()).collect();
        claims.by_age.insert(age, Entry { range, waiting: None, wanted: None });
        drop(claims);
        wanted.into_iter().for_each(Waker::wake);
        age
    }

    /// Ready once a younger claim waits for this one.
    fn poll_wanted(&self, age: u64, waker: &Waker) -> Poll<()> {
        let mut claims = self.claims.lock();
        let range = claims.by_age[&age].range.clone();
        if claims.by_age.range(age + 1..).any(|(_, younger)| overlap(&younger.range, &range)) {
            return Poll::Ready(());
        }
        if let Some(entry) = claims.by_age.get_mut(&age) {
            entry.wanted = Some(waker.clone());
        }
        Poll::Pending
    }

    fn poll(&self, age: u64, waker: &Waker) -> Poll<()> {
        let mut claims = self.claims.lock();
        let range = claims.by_age[&age].range.clone();
        if !claims.by_age.range(..age).any(|(_, older)| overlap(&older.range, &range)) {
            return Poll::Ready(());
        }
        if let Some(entry) = claims.by_age.get_mut(&age) {
            entry.waiting = Some(waker.clone());
        }
        Poll::Pending
    }

    fn leave(&self, age: u64) {
        let woken: Vec<_> = {
            let mut claims = self.claims.lock();
            let Some(gone) = claims.by_age.remove(&age) else { return };
            self.count.fetch_sub(1, Ordering::AcqRel);
            let younger = claims.by_age.range_mut(age..).map(|(_, entry)| entry);
            let freed = younger.filter(|entry| overlap(&entry.range, &gone.range));
            freed.filter_map(|entry| entry.waiting.take()).collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Claim {
    /// Waits until a younger claim waits for this one. Work that can be done later ends then, and lets that one go first.
    pub async fn wanted(&self) {
        poll_fn(|cx| self.shared.poll_wanted(self.age, cx.waker())).await;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.shared.leave(self.age);
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use proptest::prelude::*;

    use super::*;
    use crate::Clock;

    #[test]
    fn overlapping_claims_are_granted_in_their_order_and_others_at_once() {
        let ranges = Ranges::default();
        let first = ranges.claim(0..10).now_or_never().unwrap();
        let mut second = pin!(ranges.claim(5..15));
        let mut third = pin!(ranges.claim(12..20));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none(), "it overlaps one that waits");
        assert!(ranges.claim(20..30).now_or_never().is_some(), "it overlaps none");
        assert!(ranges.is_free(&(20..30)) && !ranges.is_free(&(19..30)));
        drop(first);
        let second = second.now_or_never().unwrap();
        assert!(third.as_mut().now_or_never().is_none());
        drop(second);
        assert!(third.now_or_never().is_some());
        assert!(ranges.is_idle());
    }

    #[test]
    fn a_claim_is_wanted_once_another_one_waits_for_it() {
        let ranges = Ranges::default();
        let claim = ranges.claim(0..10).now_or_never().unwrap();
        let mut wanted = pin!(claim.wanted());
        assert!(wanted.as_mut().now_or_never().is_none());
        let _other = ranges.claim(10..20).now_or_never().unwrap();
        assert!(wanted.as_mut().now_or_never().is_none(), "that one waits for none");
        let waiting = ranges.claim(5..6);
        assert!(wanted.as_mut().now_or_never().is_some());
        drop(waiting);
        assert!(claim.wanted().now_or_never().is_none(), "it was given up");
    }

    #[test]
    fn a_claim_that_is_given_up_while_it_waits_lets_younger_ones_pass() {
        let ranges = Ranges::default();
        let first = ranges.claim(0..10).now_or_never().unwrap();
        let mut third = {
            let second = ranges.claim(0..30);
            let mut third = Box::pin(ranges.claim(20..30));
            assert!(third.as_mut().now_or_never().is_none());
            drop(second);
            third
        };
        assert!(third.as_mut().now_or_never().is_some());
        drop(first);
    }

    proptest! {
        /// Each task checks that no other one holds a range that overlaps its own, and that it enters after every older one.
        #[test]
        fn holders_never_overlap_and_none_is_forgotten(
            wanted in prop::collection::vec((0u64..40, 1u64..12, 0u64..4), 1..30),
        ) {
            let (clock, ranges) = (Clock::simulated(), Ranges::default());
            let inside = Mutex::new(Vec::<(usize, Range<u64>)>::new());
            let entered = Mutex::new(Vec::new());
            let claims: Vec<_> =
                wanted.iter().map(|&(from, len, _)| Box::pin(ranges.claim(from..from + len))).collect();
            let tasks = wanted.iter().zip(claims).enumerate().map(|(task, (&(from, len, takes), claim))| {
                let (clock, inside, entered) = (clock.clone(), &inside, &entered);
                async move {
                    let claim = claim.await;
                    let range = from..from + len;
                    assert!(inside.lock().iter().all(|(_, other)| !overlap(other, &range)));
                    entered.lock().push(task);
                    inside.lock().push((task, range));
                    clock.sleep(std::time::Duration::from_millis(takes)).await;
                    inside.lock().retain(|(other, _)| *other != task);
                    drop(claim);
                }
            });
            clock.run(join_all(tasks));
            let entered = entered.into_inner();
            prop_assert_eq!(entered.len(), wanted.len());
            prop_assert!(ranges.is_idle());
            let range = |task: usize| wanted[task].0..wanted[task].0 + wanted[task].1;
            for (at, &task) in entered.iter().enumerate() {
                for &later in &entered[at + 1..] {
                    prop_assert!(task < later || !overlap(&range(task), &range(later)));
                }
            }
        }
    }
}
