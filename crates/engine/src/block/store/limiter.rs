//! The limit of a device: its clients get what was sold to them, as a provider's volume gives it.

use std::time::Duration;

use parking_lot::Mutex;
use policy::budget::{Admission, Budget, Share};
use policy::contract::{Contract, Direction};
use tokio::sync::{Mutex as FairMutex, MutexGuard as FairMutexGuard};
use volume::Clock;

/// What the clients of a device may still spend.
pub(super) struct Limiter {
    state: Mutex<Option<State>>,
    /// Each held by the first call of its direction, until it ends: calls of one direction go in their order.
    reads: FairMutex<()>,
    writes: FairMutex<()>,
    /// Held by the call that goes next. At most a read and a write want it, so they take turns: a read waits for one write,
    /// and not for a burst of them.
    turn: FairMutex<()>,
    clock: Clock,
}

struct State {
    contract: Contract,
    budget: Budget,
}

impl Limiter {
    pub(super) fn new(contract: Option<Contract>, clock: Clock) -> Self {
        let limiter = Self {
            state: Mutex::new(None),
            reads: FairMutex::default(),
            writes: FairMutex::default(),
            turn: FairMutex::default(),
            clock,
        };
        limiter.set(contract);
        limiter
    }

    /// Sets the limit from now on. A new one begins with its credits; what an earlier one saved stays, up to the new depth.
    pub(super) fn set(&self, contract: Option<Contract>) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        *state = match (contract, state.take()) {
            (None, _) => None,
            (Some(contract), Some(State { mut budget, .. })) => {
                budget.set_contract(&contract, now);
                Some(State { contract, budget })
            }
            (Some(contract), None) => {
                Some(State { budget: Budget::new(&contract, share(), now), contract })
            }
        };
    }

    pub(super) fn contract(&self) -> Option<Contract> {
        self.state.lock().as_ref().map(|state| state.contract.clone())
    }

    /// Waits until a call of `len` bytes is within the limit, and charges it. Returns how long it waited; `None` if it did
    /// not.
    pub(super) async fn admit(&self, direction: Direction, len: u64) -> Option<Duration> {
        if self.state.lock().is_none() {
            return None;
        }
        let begin = self.clock.now();
        let line = match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        };
        let (_first, was_second) = lock(line).await;
        let (_turn, mut waited) = lock(&self.turn).await;
        waited |= was_second;
        let mut left = len;
        loop {
            let at = {
                let mut state = self.state.lock();
                // The limit may end while calls wait.
                let Some(State { contract, budget }) = &mut *state else { break };
                let part = left.min(contract.op_bytes_max).min(budget.largest().bytes);
                match budget.admit(self.clock.now(), contract.cost(direction, part)) {
                    Admission::Now => {
                        left -= part;
                        if left == 0 {
                            break;
                        }
                        continue;
                    }
                    Admission::At(at) => at,
                }
            };
            waited = true;
            self.clock.sleep_until(at).await;
        }
        waited.then(|| self.clock.now().since(begin))
    }
}

/// Locks it, and tells whether that had to wait.
async fn lock(lock: &FairMutex<()>) -> (FairMutexGuard<'_, ()>, bool) {
    match lock.try_lock() {
        Ok(guard) => (guard, false),
        Err(_) => (lock.lock().await, true),
    }
}

/// All of what was sold, at once if it was saved; a new device has its credits.
fn share() -> Share {
    let whole = Share::new(1.0, 1.0).and_then(|share| share.with_credits(1.0));
    whole.expect("these are parts of one")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::{join, join_all};
    use policy::contract::{Counted, Limit};
    use volume::task::block_on;

    use super::*;

    fn contract(rate_per_sec: u64) -> Contract {
        let limit = Limit { counts: Counted::Ops, rate_per_sec, depth: 1 };
        Contract { limits: vec![limit], ..Contract::unlimited() }
    }

    #[test]
    fn calls_take_the_time_that_was_sold_and_a_large_one_counts_as_several() {
        let clock = Clock::simulated();
        let limiter = Limiter::new(Some(contract(100)), clock.clone());
        clock.run(async {
            let begin = clock.now();
            for _ in 0..200 {
                limiter.admit(Direction::Read, 4096).await;
            }
            let spent = clock.now().since(begin);
            assert!(
                spent.abs_diff(Duration::from_secs(2)) < Duration::from_millis(20),
                "{spent:?}"
            );
            let begin = clock.now();
            limiter.admit(Direction::Write, 100 * (256 << 10)).await;
            let spent = clock.now().since(begin);
            assert!(
                spent.abs_diff(Duration::from_secs(1)) < Duration::from_millis(20),
                "{spent:?}"
            );
        });
    }

    #[test]
    fn a_read_waits_for_one_write_of_a_burst_and_a_write_for_one_read() {
        const PART: u64 = 256 << 10;
        for (burst, one) in
            [(Direction::Write, Direction::Read), (Direction::Read, Direction::Write)]
        {
            let clock = Clock::simulated();
            let limiter = Limiter::new(Some(contract(100)), clock.clone());
            clock.run(async {
                // What was saved.
                limiter.admit(burst, PART).await;
                let begin = clock.now();
                let after = || clock.now().since(begin);
                let all = join_all((0..50).map(|_| limiter.admit(burst, 4 * PART)));
                let one = async {
                    for _ in 0..3 {
                        limiter.admit(one, 4096).await;
                    }
                    after()
                };
                let (three, ()) = join(one, all.map(drop)).await;
                // Of the burst one call each, 4 operations of 10 ms, and its own.
                assert!(three <= Duration::from_millis(3 * 50 + 20), "{burst:?}: {three:?}");
                assert!(after() >= Duration::from_secs(2), "the burst takes what was sold");
            });
        }
    }

    #[test]
    fn a_call_larger_than_what_can_be_saved_up_waits_and_says_how_long() {
        let clock = Clock::simulated();
        let limit = Limit { counts: Counted::Bytes, rate_per_sec: 4096, depth: 4096 };
        let contract = Contract { limits: vec![limit], ..Contract::unlimited() };
        let limiter = Limiter::new(Some(contract), clock.clone());
        clock.run(async {
            let waited = limiter.admit(Direction::Read, 5 * 4096).await.unwrap();
            assert!(
                waited.abs_diff(Duration::from_secs(5)) < Duration::from_millis(20),
                "{waited:?}"
            );
        });
    }

    #[test]
    fn a_limit_changes_while_calls_wait_and_ends() {
        let clock = Clock::simulated();
        let limiter = Limiter::new(Some(contract(1)), clock.clone());
        clock.run(async {
            limiter.admit(Direction::Read, 4096).await;
            limiter.set(Some(contract(1000)));
            let begin = clock.now();
            for _ in 0..1000 {
                limiter.admit(Direction::Read, 4096).await;
            }
            let spent = clock.now().since(begin);
            assert!(
                spent.abs_diff(Duration::from_secs(1)) < Duration::from_millis(20),
                "{spent:?}"
            );
        });
        limiter.set(None);
        assert_eq!(block_on(limiter.admit(Direction::Read, 1 << 40)), None);
        assert!(limiter.contract().is_none());
    }
}
