//! The one place that asks the time, in a real and a virtual form.
//!
//! `now` is monotonic and serves every decision; `wall` serves stored deadlines only (TTL, retention). Virtual time
//! moves only when the executor advances it, to the next moment that a task waits for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use policy::time::Instant;

use crate::task;

/// A handle to a source of time; clones share it.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    Real(Arc<Real>),
    Virtual(Arc<Virtual>),
}

struct Real {
    origin: std::time::Instant,
    timers: Arc<Timers>,
}

struct Virtual {
    state: Mutex<VirtualState>,
}

struct VirtualState {
    now: Instant,
    /// Added to `now` to make the wall clock; a test may make it jump either way.
    wall_offset: Duration,
    alarms: Alarms,
}

impl Clock {
    /// The machine's time. Its timer thread starts with the first handle and ends after the last.
    #[must_use]
    pub fn real() -> Self {
        let origin = std::time::Instant::now();
        let timers = Arc::new(Timers::default());
        let weak = Arc::downgrade(&timers);
        std::thread::Builder::new()
            .name("timer".into())
            .spawn(move || run_timers(&weak, origin))
            .expect("the system has room for one more thread");
        Self(Source::Real(Arc::new(Real { origin, timers })))
    }

    /// A clock that shows its origin until [`Clock::advance`] moves it.
    #[must_use]
    pub fn simulated() -> Self {
        let state = VirtualState {
            now: Instant::ZERO,
            wall_offset: Duration::from_secs(1_700_000_000),
            alarms: Alarms::default(),
        };
        Self(Source::Virtual(Arc::new(Virtual { state: Mutex::new(state) })))
    }

    /// The time for every decision: never goes back.
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::Real(real) => instant_after(real.origin),
            Source::Virtual(v) => v.state.lock().now,
        }
    }

    /// Time since the Unix epoch, for stored deadlines only: it may jump both ways.
    #[must_use]
    pub fn wall(&self) -> Duration {
        match &self.0 {
            Source::Real(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Source::Virtual(v) => {
                let state = v.state.lock();
                state.wall_offset + state.now.since(Instant::ZERO)
            }
        }
    }

    /// Ready at `at`, or at once if that has passed.
    #[must_use]
    pub fn sleep_until(&self, at: Instant) -> Sleep {
        Sleep { clock: self.clone(), at, armed: None }
    }

    /// Ready after `wait`.
    #[must_use]
    pub fn sleep(&self, wait: Duration) -> Sleep {
        self.sleep_until(self.now() + wait)
    }

    /// Wakes `waker` once, at `at` or as soon after as the machine can.
    pub fn wake_at(&self, at: Instant, waker: Waker) {
        match &self.0 {
            Source::Real(real) => real.timers.add(at, waker),
            Source::Virtual(v) => v.state.lock().alarms.add(at, waker),
        }
    }

    /// Moves a simulated clock to the next alarm and wakes all tasks that are due; returns the new time, or `None` if
    /// no alarm is set.
    ///
    /// # Panics
    /// On a real clock: it moves by itself.
    pub fn advance(&self) -> Option<Instant> {
        let Source::Virtual(v) = &self.0 else { panic!("only a simulated clock can be advanced") };
        let mut state = v.state.lock();
        let at = state.alarms.next()?;
        state.now = state.now.max(at);
        let now = state.now;
        let due = state.alarms.take_due(now);
        drop(state);
        due.into_iter().for_each(Waker::wake);
        Some(now)
    }

    /// Moves a simulated clock by `by` without waking any task, as when a machine was suspended: alarms that were due
    /// meanwhile ring late.
    ///
    /// # Panics
    /// On a real clock.
    pub fn jump(&self, by: Duration) {
        let Source::Virtual(v) = &self.0 else { panic!("only a simulated clock can jump") };
        let mut state = v.state.lock();
        state.now = state.now + by;
    }

    /// Runs a future to its end on this thread. Whenever it can only wait, a simulated clock moves to
    /// the next alarm.
    ///
    /// # Panics
    /// On a real clock. When the future waits for anything but time: no alarm would ever wake it.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(future);
        loop {
            while woken.0.swap(false, Ordering::Acquire) {
                let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
                if let Poll::Ready(output) = polled {
                    return output;
                }
            }
            assert!(self.advance().is_some(), "a future waits, and nothing will ever wake it");
        }
    }

    /// Sets what a simulated wall clock shows at the origin of `now`.
    ///
    /// # Panics
    /// On a real clock.
    pub fn set_wall_offset(&self, offset: Duration) {
        let Source::Virtual(v) = &self.0 else { panic!("only a simulated clock can be set") };
        v.state.lock().wall_offset = offset;
    }

    /// The machine instant at which a real clock will show `at`, for a thread that sleeps on its own.
    fn machine_time(&self, at: Instant) -> Option<std::time::Instant> {
        match &self.0 {
            Source::Real(real) => real.origin.checked_add(at.since(Instant::ZERO)),
            Source::Virtual(_) => None,
        }
    }
}

/// Records a wake, for [`Clock::run`].
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

fn instant_after(origin: std::time::Instant) -> Instant {
    Instant::ZERO + origin.elapsed()
}

/// A wait for a moment; see [`Clock::sleep_until`].
pub struct Sleep {
    clock: Clock,
    at: Instant,
    /// The task that an alarm will wake: a future may move from one task to another while it sleeps.
    armed: Option<Waker>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.at {
            return Poll::Ready(());
        }
        if !self.armed.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            // A thread that may block sleeps on its own: no hop through the timer thread.
            let by_itself =
                self.clock.machine_time(self.at).is_some_and(|at| task::alarm_here(at, cx.waker()));
            if !by_itself {
                self.clock.wake_at(self.at, cx.waker().clone());
            }
            self.armed = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// Wakers by their due time; equal times in order of arrival.
#[derive(Default)]
struct Alarms {
    heap: BinaryHeap<Reverse<Alarm>>,
    sequence: u64,
}

struct Alarm {
    at: Instant,
    sequence: u64,
    waker: Waker,
}

impl Alarms {
    fn add(&mut self, at: Instant, waker: Waker) {
        self.sequence += 1;
        self.heap.push(Reverse(Alarm { at, sequence: self.sequence, waker }));
    }

    fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|alarm| alarm.0.at)
    }

    fn take_due(&mut self, now: Instant) -> Vec<Waker> {
        let mut due = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            due.extend(self.heap.pop().map(|alarm| alarm.0.waker));
        }
        due
    }
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
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
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

#[derive(Default)]
struct Timers {
    alarms: Mutex<Alarms>,
    changed: Condvar,
}

impl Timers {
    fn add(&self, at: Instant, waker: Waker) {
        let mut alarms = self.alarms.lock();
        let sooner = alarms.next().is_none_or(|next| at < next);
        alarms.add(at, waker);
        drop(alarms);
        if sooner {
            self.changed.notify_one();
        }
    }
}

/// How often the timer thread checks, at the least, whether its clock still exists.
const TIMER_IDLE: Duration = Duration::from_millis(100);

fn run_timers(timers: &Weak<Timers>, origin: std::time::Instant) {
    task::sleep_precisely();
    while let Some(timers) = timers.upgrade() {
        let mut alarms = timers.alarms.lock();
        let now = instant_after(origin);
        let due = alarms.take_due(now);
        if due.is_empty() {
            let wait = alarms.next().map_or(TIMER_IDLE, |at| at.since(now).min(TIMER_IDLE));
            timers.changed.wait_for(&mut alarms, wait);
            continue;
        }
        drop(alarms);
        due.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::future::join_all;

    use super::*;

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn simulated_time_moves_only_to_the_next_alarm() {
        let clock = Clock::simulated();
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        let second = Duration::from_secs(1);
        clock.wake_at(clock.now() + 2 * second, Arc::clone(&woken).into());
        clock.wake_at(clock.now() + second, Arc::clone(&woken).into());
        assert_eq!(clock.advance(), Some(Instant::ZERO + second));
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert_eq!(clock.advance(), Some(Instant::ZERO + 2 * second));
        assert_eq!(woken.0.load(Ordering::SeqCst), 2);
        assert_eq!(clock.advance(), None);
    }

    #[test]
    fn what_was_due_during_a_jump_is_late() {
        let clock = Clock::simulated();
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        for seconds in [1, 2, 5] {
            clock.wake_at(clock.now() + Duration::from_secs(seconds), Arc::clone(&woken).into());
        }
        clock.jump(Duration::from_secs(3));
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
        assert_eq!(clock.advance(), Some(Instant::ZERO + Duration::from_secs(3)));
        assert_eq!(woken.0.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_run_takes_as_long_as_its_longest_wait() {
        let clock = Clock::simulated();
        let order = Mutex::new(Vec::new());
        let waits = [3u64, 1, 2].map(|minutes| {
            let (clock, order) = (&clock, &order);
            async move {
                clock.sleep(Duration::from_secs(60 * minutes)).await;
                order.lock().push(minutes);
            }
        });
        clock.run(join_all(waits));
        assert_eq!(*order.lock(), [1, 2, 3]);
        assert_eq!(clock.now(), Instant::ZERO + Duration::from_secs(180));
    }

    /// A future that one task gave up, and another runs to its end, was never woken.
    #[test]
    fn a_sleep_wakes_the_task_that_polled_it_last() {
        let clock = Clock::simulated();
        let counts = [(); 2].map(|()| Arc::new(Count(AtomicUsize::new(0))));
        let mut sleep = pin!(clock.sleep(Duration::from_secs(1)));
        for count in &counts {
            let waker = Waker::from(Arc::clone(count));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        clock.advance();
        assert_eq!(counts[1].0.load(Ordering::SeqCst), 1);
    }

    #[test]
    #[should_panic(expected = "nothing will ever wake it")]
    fn a_run_that_can_never_end_says_so() {
        Clock::simulated().run(std::future::pending::<()>());
    }

    #[test]
    fn the_wall_clock_may_jump_while_now_stands() {
        let clock = Clock::simulated();
        let before = clock.now();
        clock.set_wall_offset(Duration::from_secs(5));
        assert_eq!(clock.wall(), Duration::from_secs(5));
        assert_eq!(clock.now(), before);
    }

    #[test]
    fn a_real_sleep_ends_no_earlier_than_asked() {
        let clock = Clock::real();
        let at = clock.now() + Duration::from_millis(2);
        task::block_on(clock.sleep_until(at));
        assert!(clock.now() >= at);
    }

    #[test]
    fn the_timer_thread_wakes_those_that_cannot_wait_by_themselves() {
        let clock = Clock::real();
        let (tx, rx) = std::sync::mpsc::channel();
        struct Tell(std::sync::mpsc::Sender<()>);
        impl Wake for Tell {
            fn wake(self: Arc<Self>) {
                self.0.send(()).expect("the test waits for it");
            }
        }
        clock.wake_at(clock.now() + Duration::from_millis(1), Arc::new(Tell(tx)).into());
        rx.recv().expect("the timer thread lives as long as the clock");
    }
}
