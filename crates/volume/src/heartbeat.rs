//! The record that a background task keeps of its rounds, for health checks.
//!
//! A task that is alive may do nothing: a volume that hangs blocks it, or each round fails. So each task records the
//! rounds it completed and those that failed, and a health check judges the record.
//!
//! ```text
//! started ──▶ completed, completed, failed, failed, failed ──▶ a problem until the next completed round
//!         └─▶ no round completed for `silence_max`         ──▶ a problem until the next completed round
//!         └─▶ a panic                                      ──▶ a problem until it starts again
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use policy::time::Instant;

use crate::clock::Clock;

/// Failed rounds in a row from which on a task has a problem. Fewer may be a volume that was busy for a moment.
pub const FAILURES_MAX: u64 = 3;

/// The usual limit on the time without a completed round, for tasks whose rounds take at most seconds.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The record of one background task. Clones share it.
#[derive(Clone, Debug)]
pub struct Heartbeat(Arc<Record>);

struct Record {
    task: String,
    silence_max: Duration,
    clock: Clock,
    state: Mutex<TaskState>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("task", &self.task).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct TaskState {
    /// The end of the last completed round, or the start; `None` before the start.
    completed: Option<Instant>,
    /// Failed rounds since then.
    failures: u64,
    /// The error of the last failed one.
    error: Option<String>,
    /// Why the task does not run any more.
    stopped: Option<String>,
    /// Pieces of work under way that may take any time.
    long: u64,
}

/// A task at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TaskHealth {
    /// Its name, for people.
    pub task: String,
    /// The time since the last completed round, or since the start; zero before it.
    pub since_completed: Duration,
    /// Failed rounds in a row.
    pub failures: u64,
    /// The error of the last failed round; `None` after a completed one.
    pub error: Option<String>,
    /// The problem with the task, with its name; `None` while it works.
    pub problem: Option<String>,
}

/// Work under way that may take any time: see [`Heartbeat::begin_long`].
#[derive(Debug)]
pub struct LongWork(Heartbeat);

impl Drop for LongWork {
    fn drop(&mut self) {
        let now = self.0.0.clock.now();
        let mut state = self.0.0.state.lock();
        state.long -= 1;
        state.completed = Some(now);
    }
}

impl Heartbeat {
    /// A task that has not started. From `silence_max` without a completed round on it has a problem.
    #[must_use]
    pub fn new(task: impl Into<String>, silence_max: Duration, clock: &Clock) -> Self {
        let (task, clock) = (task.into(), clock.clone());
        Self(Arc::new(Record { task, silence_max, clock, state: Mutex::default() }))
    }

    /// The task's name, for people.
    #[must_use]
    pub fn task(&self) -> &str {
        &self.0.task
    }

    /// The task starts, or starts again. Earlier failures stay until a round is completed.
    pub fn started(&self) {
        let mut state = self.0.state.lock();
        state.completed.get_or_insert_with(|| self.0.clock.now());
        state.stopped = None;
    }

    /// A round was completed, whether there was work or not.
    pub fn completed(&self) {
        let completed = Some(self.0.clock.now());
        let mut state = self.0.state.lock();
        *state = TaskState { completed, long: state.long, ..TaskState::default() };
    }

    /// A round failed, and the task tries again.
    pub fn failed(&self, error: &dyn fmt::Display) {
        let mut state = self.0.state.lock();
        state.failures += 1;
        state.error = Some(error.to_string());
    }

    /// Records the end of a round.
    pub fn record<T, E: fmt::Display>(&self, round: &Result<T, E>) {
        match round {
            Ok(_) => self.completed(),
            Err(error) => self.failed(error),
        }
    }

    /// The task stopped, for the reason `why`.
    pub fn stopped(&self, why: impl Into<String>) {
        self.0.state.lock().stopped = Some(why.into());
    }

    /// The task ended in order: its silence is no problem.
    pub fn ended(&self) {
        self.0.state.lock().completed = None;
    }

    /// Runs the whole task on this thread. If it panics, its health says so until the program ends.
    pub fn supervise<T>(&self, task: impl FnOnce() -> T) -> T {
        /// Reports a panic when the thread unwinds.
        struct OnPanic<'h>(&'h Heartbeat);
        impl Drop for OnPanic<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    let task = &self.0.0.task;
                    self.0.stopped(format!(
                        "{task} ended with a panic: restart, and report what the log says"
                    ));
                }
            }
        }
        let _on_panic = OnPanic(self);
        self.started();
        let done = task();
        self.ended();
        done
    }

    /// Runs a piece of work that may rightly take longer than `silence_max`. Until it ends, silence is no problem.
    pub fn long<T>(&self, work: impl FnOnce() -> T) -> T {
        let _long = self.begin_long();
        work()
    }

    /// The same for work that is a future: until the guard is dropped, silence is no problem.
    #[must_use]
    pub fn begin_long(&self) -> LongWork {
        self.0.state.lock().long += 1;
        LongWork(self.clone())
    }

    /// The task's health now.
    #[must_use]
    pub fn health(&self) -> TaskHealth {
        let Record { task, silence_max, clock, state } = &*self.0;
        let now = clock.now();
        let state = state.lock();
        let since_completed = state.completed.map_or(Duration::ZERO, |at| now.since(at));
        let TaskState { failures, error, stopped, .. } = &*state;
        let problem = match (stopped, error) {
            (Some(why), _) => Some(why.clone()),
            (None, Some(error)) if *failures >= FAILURES_MAX => {
                Some(format!("{task} failed {failures} times in a row: {error}"))
            }
            _ if state.long == 0 && since_completed >= *silence_max => {
                let seconds = since_completed.as_secs();
                Some(format!(
                    "{task} completed nothing for {seconds} s: it waits for something that hangs"
                ))
            }
            _ => None,
        };
        TaskHealth {
            task: task.clone(),
            since_completed,
            failures: *failures,
            error: error.clone(),
            problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn heartbeat() -> (Clock, Heartbeat) {
        let clock = Clock::simulated();
        let heartbeat = Heartbeat::new("repair", 10 * SECOND, &clock);
        (clock, heartbeat)
    }

    #[test]
    fn some_failures_in_a_row_are_a_problem_until_a_round_is_completed() {
        let (_clock, heartbeat) = heartbeat();
        heartbeat.started();
        for n in 1..=FAILURES_MAX {
            assert_eq!(heartbeat.health().problem, None, "after {} failures", n - 1);
            heartbeat.failed(&"no room");
        }
        let health = heartbeat.health();
        assert_eq!(health.problem.as_deref(), Some("repair failed 3 times in a row: no room"));
        heartbeat.started();
        assert_eq!(heartbeat.health(), health, "to start again is not to succeed");
        heartbeat.record(&Ok::<_, String>(()));
        let health = heartbeat.health();
        assert_eq!((health.problem, health.failures, health.error), (None, 0, None));
    }

    /// A task that is alive was once taken for one that works.
    #[test]
    fn a_task_that_completes_nothing_has_a_problem() {
        let (clock, heartbeat) = heartbeat();
        clock.jump(60 * SECOND);
        assert_eq!(heartbeat.health().problem, None, "it has not started");
        heartbeat.started();
        clock.jump(9 * SECOND);
        assert_eq!(heartbeat.health().problem, None);
        heartbeat.completed();
        clock.jump(9 * SECOND);
        assert_eq!(heartbeat.health().problem, None);
        clock.jump(SECOND);
        let health = heartbeat.health();
        assert_eq!(health.since_completed, 10 * SECOND);
        let problem = health.problem.expect("it is silent");
        assert!(problem.starts_with("repair completed nothing for 10 s"), "{problem}");
    }

    #[test]
    fn long_work_is_no_silence() {
        let (clock, heartbeat) = heartbeat();
        heartbeat.started();
        heartbeat.long(|| {
            clock.jump(60 * SECOND);
            assert_eq!(heartbeat.health().problem, None);
        });
        assert_eq!(heartbeat.health().problem, None);
        clock.jump(10 * SECOND);
        assert!(heartbeat.health().problem.is_some());
    }

    #[test]
    fn a_panic_is_a_problem_until_the_task_starts_again() {
        let (_clock, heartbeat) = heartbeat();
        let task = || heartbeat.supervise::<()>(|| panic!("a bug"));
        catch_unwind(AssertUnwindSafe(task)).expect_err("it panicked");
        let problem = heartbeat.health().problem.expect("it ended");
        assert!(problem.starts_with("repair ended with a panic"), "{problem}");
        heartbeat.supervise(|| assert_eq!(heartbeat.health().problem, None));
    }

    #[test]
    fn a_task_that_ended_in_order_may_be_silent() {
        let (clock, heartbeat) = heartbeat();
        heartbeat.supervise(|| heartbeat.completed());
        clock.jump(60 * SECOND);
        assert_eq!(heartbeat.health().problem, None);
    }
}
