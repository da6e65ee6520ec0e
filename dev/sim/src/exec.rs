//! The executor: one thread, one seed, simulated time only.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::Clock;

use crate::Log;

/// A run with more steps than this counts as endless.
const STEPS_MAX: u64 = 20_000_000;

/// Alarms that ring after a run: more than any program leaves.
const ALARMS_MAX: u64 = 100_000;

/// Where alarms may be late, one in this many is.
const LATE_ONE_IN: u32 = 50;

/// A simulated machine. Clones are handles to the same one.
///
/// Tasks run until they wait. The seed draws the next of the ready tasks; when none is ready, the clock
/// moves to the next alarm.
#[derive(Clone)]
pub struct Sim(Rc<Machine>);

struct Machine {
    seed: u64,
    clock: Clock,
    log: Log,
    order: RefCell<Xoshiro256PlusPlus>,
    late_max: Cell<Duration>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    /// Woken tasks, each once. Shared, because any thread may call a waker.
    ready: Arc<Mutex<Vec<u64>>>,
    spawned: Cell<u64>,
    steps: Cell<u64>,
}

struct Task {
    name: Rc<str>,
    future: Pin<Box<dyn Future<Output = ()>>>,
    wake: Arc<WakeTask>,
}

struct WakeTask {
    id: u64,
    woken: AtomicBool,
    ready: Arc<Mutex<Vec<u64>>>,
}

impl Wake for WakeTask {
    fn wake(self: Arc<Self>) {
        if !self.woken.swap(true, Ordering::Relaxed) {
            self.ready.lock().push(self.id);
        }
    }
}

impl Sim {
    /// A machine without tasks, at the origin of its clock.
    #[must_use]
    pub fn new(seed: u64, log: Log) -> Self {
        Self(Rc::new(Machine {
            seed,
            clock: Clock::simulated(),
            log,
            order: RefCell::new(stream(seed, "order")),
            late_max: Cell::default(),
            tasks: RefCell::default(),
            ready: Arc::default(),
            spawned: Cell::default(),
            steps: Cell::default(),
        }))
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Its log.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.0.log
    }

    /// An independent stream of random numbers for each purpose: draws for one do not affect others.
    #[must_use]
    pub fn random(&self, purpose: &str) -> Xoshiro256PlusPlus {
        stream(self.0.seed, purpose)
    }

    /// From now on alarms may be up to `most` late, as on a machine that was suspended.
    pub fn ring_late(&self, most: Duration) {
        self.0.late_max.set(most);
    }

    /// Logs that `who` does `what` now.
    pub fn note(&self, who: &str, what: fmt::Arguments<'_>) {
        self.0.log.note(self.0.clock.now(), who, what);
    }

    /// Spawns a task; `name` is for the log, and for reports of deadlocks.
    pub fn spawn(&self, name: &str, future: impl Future<Output = ()> + 'static) {
        let id = self.0.spawned.get();
        self.0.spawned.set(id + 1);
        let wake = Arc::new(WakeTask {
            id,
            woken: AtomicBool::new(false),
            ready: Arc::clone(&self.0.ready),
        });
        Arc::clone(&wake).wake();
        let task = Task { name: name.into(), future: Box::pin(future), wake };
        self.0.tasks.borrow_mut().insert(id, task);
    }

    /// Runs until every task has ended.
    ///
    /// # Panics
    /// When all tasks wait and there is no alarm; the message names them.
    pub fn run(&self) {
        while self.step() {}
    }

    /// One step: polls a ready task, or advances the clock. False when every task has ended.
    ///
    /// # Panics
    /// As [`Sim::run`].
    pub fn step(&self) -> bool {
        let steps = self.0.steps.get() + 1;
        self.0.steps.set(steps);
        assert!(steps < STEPS_MAX, "no end after {STEPS_MAX} steps; {}", self.waiting());
        if let Some(id) = self.pick() {
            self.poll(id);
        } else if self.0.tasks.borrow().is_empty() {
            return false;
        } else {
            self.advance();
        }
        true
    }

    /// Ends every task where it is, as when the power fails.
    pub fn end_all_tasks(&self) {
        // Dropping a task may wake or spawn others, so it happens outside of the borrow.
        loop {
            let Some((_, task)) = self.0.tasks.borrow_mut().pop_first() else { break };
            drop(task);
        }
        self.0.ready.lock().clear();
    }

    /// Ends the calls that a layer left to themselves: they wait for the clock, which holds them, and hold it. To be called
    /// last, since the clock runs on.
    pub fn ring_out(&self) {
        for _ in 0..ALARMS_MAX {
            if self.0.clock.advance().is_none() {
                return;
            }
        }
    }

    fn pick(&self) -> Option<u64> {
        let mut ready = self.0.ready.lock();
        if ready.is_empty() {
            return None;
        }
        let chosen = self.0.order.borrow_mut().random_range(0..ready.len());
        Some(ready.swap_remove(chosen))
    }

    fn poll(&self, id: u64) {
        let task = self.0.tasks.borrow_mut().remove(&id);
        // A waker may outlive its task.
        let Some(mut task) = task else { return };
        task.wake.woken.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&task.wake));
        if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.0.tasks.borrow_mut().insert(id, task);
        }
    }

    fn advance(&self) {
        let late_max = self.0.late_max.get();
        if !late_max.is_zero() {
            let mut order = self.0.order.borrow_mut();
            if order.random_range(0..LATE_ONE_IN) == 0 {
                self.0.clock.jump(order.random_range(Duration::ZERO..late_max));
            }
        }
        assert!(self.0.clock.advance().is_some(), "deadlock; {}", self.waiting());
    }

    /// The waiting tasks, for a message.
    fn waiting(&self) -> String {
        let tasks = self.0.tasks.borrow();
        let names: Vec<_> = tasks.values().map(|task| &*task.name).collect();
        format!("these wait: {}", names.join(", "))
    }
}

/// Random numbers that depend only on the seed and the purpose.
fn stream(seed: u64, purpose: &str) -> Xoshiro256PlusPlus {
    // FNV-1a: any hash that is the same everywhere and for ever would do.
    let hash = purpose.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Xoshiro256PlusPlus::seed_from_u64(seed ^ hash)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn order_of_three(seed: u64) -> Vec<usize> {
        let sim = Sim::new(seed, Log::silent());
        let order = Rc::new(RefCell::new(Vec::new()));
        for task in 0..3 {
            let (order, clock) = (Rc::clone(&order), sim.clock().clone());
            sim.spawn("task", async move {
                order.borrow_mut().push(task);
                clock.sleep(Duration::from_secs(1)).await;
                order.borrow_mut().push(task);
            });
        }
        sim.run();
        order.take()
    }

    #[test]
    fn the_seed_decides_the_order_and_every_order_comes() {
        let orders: BTreeSet<_> = (0..2000).map(order_of_three).collect();
        assert_eq!(orders.len(), 6 * 6);
        assert_eq!(order_of_three(7), order_of_three(7));
    }

    #[test]
    #[should_panic(expected = "deadlock; these wait: one, other")]
    fn who_waits_for_ever_is_named() {
        let sim = Sim::new(1, Log::silent());
        sim.spawn("one", std::future::pending());
        sim.spawn("done", async {});
        sim.spawn("other", std::future::pending());
        sim.run();
    }

    #[test]
    fn a_task_may_spawn_and_power_may_fail() {
        let sim = Sim::new(1, Log::silent());
        let inner = sim.clone();
        let held = Rc::new(());
        let hold = Rc::clone(&held);
        sim.spawn("parent", async move {
            inner.spawn("child", async move {
                std::future::pending::<()>().await;
                drop(hold);
            });
        });
        while Rc::strong_count(&sim.0) > 1 {
            assert!(sim.step());
        }
        assert_eq!(Rc::strong_count(&held), 2);
        sim.end_all_tasks();
        assert_eq!(Rc::strong_count(&held), 1);
        assert!(!sim.step());
    }

    #[test]
    fn what_waits_for_the_clock_alone_ends() {
        struct Holds(Clock);
        impl Wake for Holds {
            fn wake(self: Arc<Self>) {
                let again = self.0.now() + Duration::from_secs(1);
                if again < policy::time::Instant::ZERO + Duration::from_secs(5) {
                    self.0.wake_at(again, self.clone().into());
                }
            }
        }
        let sim = Sim::new(1, Log::silent());
        let held = Arc::new(Holds(sim.clock().clone()));
        sim.clock().wake_at(sim.clock().now(), Arc::clone(&held).into());
        assert_eq!(Arc::strong_count(&held), 2);
        sim.ring_out();
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn alarms_ring_late_only_where_they_may() {
        let wakes_at = |late: bool| {
            let sim = Sim::new(3, Log::silent());
            if late {
                sim.ring_late(Duration::from_secs(5));
            }
            let clock = sim.clock().clone();
            sim.spawn("sleeper", async move {
                for _ in 0..200 {
                    clock.sleep(Duration::from_millis(1)).await;
                }
            });
            sim.run();
            sim.clock().now().since(policy::time::Instant::ZERO)
        };
        assert_eq!(wakes_at(false), Duration::from_millis(200));
        assert!(wakes_at(true) > Duration::from_millis(200));
    }
}
