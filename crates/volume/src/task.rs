//! Running futures on threads that may block.
//!
//! RocksDB's threads, tools and tests call [`block_on`], which marks the thread as one that may
//! block. A leaf volume then makes its system call in place, and a wait for the clock is the
//! thread's own sleep. Under any other executor a leaf hands its call to the bounded threads of an
//! [`IoPool`](crate::io_pool::IoPool).

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::{Future, poll_fn};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant as MachineInstant};

use parking_lot::Mutex;

use crate::ring::{self, Ends};

/// The finest timer slack the kernel takes: sleeps end on time, not up to 50 us late.
const FINEST_SLACK: NonZeroU64 = NonZeroU64::MIN;

/// How long a thread that serves others waits before it hands them on: the usual write is over by then.
const PATIENCE: Duration = Duration::from_millis(1);

/// Hands on what else the thread does, and then waits: calls its argument once.
type Aside = fn(&mut dyn FnMut());

thread_local! {
    static ASIDE: Cell<Option<Aside>> = const { Cell::new(None) };
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
    static ALARMS: RefCell<BinaryHeap<Reverse<Alarm>>> = const { RefCell::new(BinaryHeap::new()) };
    /// This thread's, for every future it runs: a late wake costs only one spurious poll.
    static PARKER: (Arc<Parker>, Waker) = {
        let parker = Arc::new(Parker::here());
        (Arc::clone(&parker), Waker::from(parker))
    };
}

/// Runs a future to its end on this thread.
///
/// # Panics
/// When called from inside a future that `block_on` runs: it would stop that future's siblings.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let _mark = Mark::set();
    PARKER.with(|(parker, waker)| {
        let mut cx = Context::from_waker(waker);
        let mut future = pin!(future);
        let mut patience = Patience::default();
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
            while !parker.was_woken() {
                wait_for_wake_or_alarm(parker, &mut patience);
            }
            if ring::is_in_use() {
                ring::turn();
            }
        }
    })
}

/// Runs `work`, on a thread that serves others. When one of its [`block_on`]s has waited for a millisecond, the rest of the
/// wait goes through `aside`, so that the others do not wait for a device that hangs.
pub fn with_aside<T>(aside: fn(&mut dyn FnMut()), work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Aside>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ASIDE.set(self.0);
        }
    }
    let _restore = Restore(ASIDE.replace(Some(aside)));
    work()
}

/// Ready when it is polled again, after the other futures of its task had their turn.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Whether the current thread runs under [`block_on`], so that a system call may be made in place.
#[must_use]
pub fn may_block() -> bool {
    MAY_BLOCK.get()
}

/// Runs `work` as on a thread that may not block. For futures that wake others, which run at once where they are woken:
/// such a future belongs to no thread, so it must neither block this one nor leave its alarms here.
pub(crate) fn without_blocking<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            MAY_BLOCK.set(self.0);
        }
    }
    let _restore = Restore(MAY_BLOCK.replace(false));
    work()
}

/// Makes the sleeps of this thread end on time; by the kernel's default they end up to 50 us late.
pub(crate) fn sleep_precisely() {
    // Best effort: without it waits are longer, but right.
    let _ = rustix::thread::set_current_timer_slack(Some(FINEST_SLACK));
}

/// Arranges to wake `waker` at `at` on this thread, if the thread may block; says whether it did.
pub(crate) fn alarm_here(at: MachineInstant, waker: &Waker) -> bool {
    let here = may_block();
    if here {
        ALARMS.with_borrow_mut(|alarms| alarms.push(Reverse(Alarm { at, waker: waker.clone() })));
    }
    here
}

/// How long a `block_on` has waited, on a thread that serves others.
#[derive(Default)]
struct Patience(Option<MachineInstant>);

impl Patience {
    /// Waits at most for `limit`, and less while there is patience.
    fn wait(&mut self, parker: &Parker, limit: Option<Duration>) {
        let Some(aside) = ASIDE.get() else { return parker.wait(limit) };
        let now = MachineInstant::now();
        let until = *self.0.get_or_insert(now + PATIENCE);
        if now < until {
            let rest = until - now;
            return parker.wait(Some(limit.map_or(rest, |limit| limit.min(rest))));
        }
        aside(&mut || parker.wait(limit));
    }
}

/// Waits until the thread is woken, an alarm is due or a call of this thread has ended; or less.
fn wait_for_wake_or_alarm(parker: &Parker, patience: &mut Patience) {
    let Some(at) = ALARMS.with_borrow(|alarms| alarms.peek().map(|alarm| alarm.0.at)) else {
        return patience.wait(parker, None);
    };
    let now = MachineInstant::now();
    if now < at {
        return patience.wait(parker, Some(at - now));
    }
    let due = ALARMS.with_borrow_mut(BinaryHeap::pop);
    if let Some(Reverse(alarm)) = due {
        alarm.waker.wake();
    }
}

struct Alarm {
    at: MachineInstant,
    waker: Waker,
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Alarm {}
impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Alarm {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

/// How a thread is woken.
struct Parker {
    thread: Thread,
    state: AtomicU8,
    /// Of the thread's [`ring`], while it waits there.
    bell: Mutex<Option<Arc<OwnedFd>>>,
}

const RUNS: u8 = 0;
const PARKED: u8 = 1;
const IN_RING: u8 = 2;
const WOKEN: u8 = 3;

impl Parker {
    fn here() -> Self {
        Self { thread: std::thread::current(), state: AtomicU8::new(RUNS), bell: Mutex::default() }
    }

    /// Whether the thread was woken since it last asked.
    fn was_woken(&self) -> bool {
        self.change(WOKEN, RUNS)
    }

    fn wait(&self, limit: Option<Duration>) {
        let in_ring = ring::is_in_use();
        if in_ring {
            *self.bell.lock() = ring::bell();
        }
        let how = if in_ring { IN_RING } else { PARKED };
        if !self.change(RUNS, how) {
            return;
        }
        let mut ends = None;
        match limit {
            _ if in_ring => ends = Some(ring::wait(limit)),
            None => std::thread::park(),
            Some(limit) => std::thread::park_timeout(limit),
        }
        self.change(how, RUNS);
        // Only now: a thread that runs needs no bell to be woken by them.
        ends.into_iter().for_each(Ends::tell);
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match self.state.swap(WOKEN, Ordering::AcqRel) {
            PARKED => self.thread.unpark(),
            IN_RING => self.bell.lock().iter().for_each(|bell| ring::ring(bell)),
            _ => {}
        }
    }
}

/// Marks the thread while it lives, and clears alarms that dropped futures left.
struct Mark;

impl Mark {
    fn set() -> Self {
        assert!(!MAY_BLOCK.replace(true), "block_on inside block_on");
        thread_local! {
            static PRECISE: Cell<bool> = const { Cell::new(false) };
        }
        if !PRECISE.replace(true) {
            sleep_precisely();
        }
        Self
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        ring::leave();
        MAY_BLOCK.set(false);
        ALARMS.with_borrow_mut(BinaryHeap::clear);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn runs_a_future_that_is_woken_from_another_thread() {
        let (tx, rx) = futures_channel();
        let handle = std::thread::spawn(move || tx.store_and_wake(7));
        assert_eq!(block_on(rx), 7);
        handle.join().expect("the sender does not panic");
    }

    #[test]
    fn alarms_of_one_thread_ring_in_their_order() {
        struct Ring(u64, Arc<Mutex<Vec<u64>>>);
        impl Wake for Ring {
            fn wake(self: Arc<Self>) {
                self.1.lock().push(self.0);
            }
        }
        let (_mark, rung) = (Mark::set(), Arc::default());
        let start = MachineInstant::now();
        for ms in [3, 1, 2] {
            let waker = Waker::from(Arc::new(Ring(ms, Arc::clone(&rung))));
            assert!(alarm_here(start + Duration::from_millis(ms), &waker));
        }
        // A slow thread does not matter: each call waits for, or rings, the earliest alarm.
        while rung.lock().len() < 3 {
            wait_for_wake_or_alarm(&Parker::here(), &mut Patience::default());
        }
        assert_eq!(*rung.lock(), [1, 2, 3]);
    }

    #[test]
    fn only_a_long_wait_hands_on_what_else_the_thread_does() {
        thread_local! {
            static ASIDE_CALLS: Cell<u32> = const { Cell::new(0) };
        }
        let wait = |length: Duration| {
            let (tx, rx) = futures_channel();
            let sender = std::thread::spawn(move || {
                std::thread::sleep(length);
                tx.store_and_wake(7);
            });
            ASIDE_CALLS.set(0);
            let aside = |wait: &mut dyn FnMut()| {
                ASIDE_CALLS.set(ASIDE_CALLS.get() + 1);
                wait();
            };
            let received = with_aside(aside, || block_on(rx));
            sender.join().expect("the sender does not panic");
            (received, ASIDE_CALLS.get())
        };
        let (received, calls) = wait(50 * PATIENCE);
        assert!(received == 7 && calls > 0);
        // A busy machine may make a short wait a long one, but hardly each time.
        assert!((0..100).any(|_| wait(Duration::ZERO) == (7, 0)));
        assert!(ASIDE.get().is_none());
    }

    #[test]
    fn the_mark_is_gone_when_the_future_ended() {
        block_on(async { assert!(may_block()) });
        assert!(!may_block());
    }

    #[test]
    fn work_of_others_may_not_block_the_thread_that_woke_it() {
        block_on(async {
            without_blocking(|| assert!(!may_block()));
            assert!(may_block());
        });
    }

    /// A one-value channel, small enough to see that only the waker connects its ends.
    fn futures_channel() -> (Sender, impl Future<Output = u32>) {
        let slot = Arc::new(Mutex::new((None, None::<Waker>)));
        let receiver = Arc::clone(&slot);
        let receive = poll_fn(move |cx| {
            let mut slot = receiver.lock();
            slot.1 = Some(cx.waker().clone());
            slot.0.map_or(Poll::Pending, Poll::Ready)
        });
        (Sender(slot), receive)
    }

    struct Sender(Arc<Mutex<(Option<u32>, Option<Waker>)>>);

    impl Sender {
        fn store_and_wake(self, value: u32) {
            let mut slot = self.0.lock();
            slot.0 = Some(value);
            if let Some(waker) = slot.1.take() {
                waker.wake();
            }
        }
    }
}
