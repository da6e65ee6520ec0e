//! Background work, in tasks that do not wait for each other: syncs at intervals, upkeep, and that of the log store for
//! each volume.
//!
//! A task that panics is logged, reported by [`Store::health`](super::Store::health) and started again.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use parking_lot::Mutex;

use super::{Inner, Store};
use crate::health::StoreHealth;
use crate::log::Durability;
use crate::series::Result;

/// How often a task looks for work, and how soon it retries a failed sync.
const TICK: Duration = Duration::from_millis(100);
/// How long upkeep waits after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// The shortest and the longest pause before a panicked task is restarted.
const RESTARTS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

const SYNC: &str = "syncs of points";
const WATCH: &str = "trying the failed log of points again";
const UPKEEP: &str = "upkeep of points";
const LOG: &str = "upkeep of the log store";

/// A task of a store: it ends when the store is closed.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks that fail at the moment, and why.
#[derive(Debug, Default)]
pub(super) struct Stopped(Mutex<BTreeMap<&'static str, String>>);

impl Stopped {
    /// The reason of one failing task, if there is one.
    pub(super) fn reason(&self) -> Option<String> {
        self.0.lock().values().next().cloned()
    }

    fn set(&self, task: &'static str, why: String) {
        self.0.lock().insert(task, why);
    }

    fn clear(&self, task: &'static str) {
        self.0.lock().remove(task);
    }
}

impl Store {
    /// Tends the store until it is closed: runs all of its [tasks](Store::tasks) concurrently. The owner of the store
    /// runs this, or them.
    pub async fn tend(&self) {
        join_all(self.tasks()).await;
    }

    /// The work of [`Store::tend`] as separate tasks. On an executor with several threads, spawn each by itself, so
    /// that no task waits for another one's thread.
    #[must_use]
    pub fn tasks(&self) -> Vec<Task> {
        let mut tasks: Vec<Task> = Vec::new();
        let store = self.clone();
        tasks.push(Box::pin(async move {
            store.0.supervise(SYNC, || store.0.sync_regularly()).await;
        }));
        let store = self.clone();
        tasks.push(Box::pin(async move {
            let run = || async {
                store.0.stopped.clear(WATCH);
                store.0.watch_log().await;
            };
            store.0.supervise(WATCH, run).await;
        }));
        let store = self.clone();
        tasks.push(Box::pin(async move {
            store.0.supervise(UPKEEP, || store.0.keep_up()).await;
        }));
        for volume in 0..self.0.log.volumes() {
            let store = self.clone();
            tasks.push(Box::pin(async move {
                let run = || async {
                    store.0.stopped.clear(LOG);
                    store.0.log.tend(volume).await;
                };
                store.0.supervise(LOG, run).await;
            }));
        }
        tasks
    }
}

impl Store {
    /// The store's condition now, from memory: cheap enough for a health check each second.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        let mut health = self.0.log.health();
        health.upkeep_stopped = self.0.stopped.reason();
        if let Some(why) = &*self.0.refusing.lock() {
            health.writes_refused = Some(format!("the write-ahead log fails: {why}"));
        }
        if self.0.is_closing() {
            health.writes_refused = Some(format!("store {} is closed", self.0.options.name));
        }
        health
    }
}

impl Inner {
    /// Runs a task, and restarts it after a pause when it panics.
    async fn supervise<F: Future<Output = ()>>(&self, task: &'static str, run: impl Fn() -> F) {
        let (shortest, longest) = RESTARTS;
        let mut pause = shortest;
        loop {
            let began = self.clock.now();
            let Err(panic) = AssertUnwindSafe(run()).catch_unwind().await else { return };
            if self.clock.now().since(began) > longest {
                pause = shortest;
            }
            let (why, store) = (words(&*panic), &self.options.name);
            tracing::error!(
                store,
                "{task} panicked: {why}; started again in {} ms",
                pause.as_millis()
            );
            self.stopped
                .set(task, format!("{task} panicked: {why}; if it goes on, restart the program"));
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(longest);
            if self.is_closing() {
                return;
            }
        }
    }

    /// Syncs at intervals, so that batches answered an interval ago survive the loss of the machine.
    async fn sync_regularly(&self) {
        let Durability::Interval(interval) = self.options.durability else { return };
        let mut due = self.clock.now() + interval;
        while !self.is_closing() {
            let now = self.clock.now();
            if now < due {
                self.clock.sleep_until(due.min(now + TICK)).await;
                continue;
            }
            due = now + interval;
            match self.sync().await {
                Ok(()) => self.stopped.clear(SYNC),
                Err(error) => {
                    let why = format!(
                        "syncing points fails: {error}; points acknowledged since may be lost if the machine stops"
                    );
                    tracing::warn!(store = %self.options.name, "{why}");
                    self.stopped.set(SYNC, why);
                    due = self.clock.now() + TICK.min(interval);
                }
            }
        }
    }

    /// Runs upkeep until the store is closed.
    async fn keep_up(&self) {
        while !self.is_closing() {
            let pause = match self.tend_once().await {
                Ok(did) => (!did).then_some(TICK),
                Err(error) => {
                    tracing::warn!(store = %self.options.name, %error, "writing blocks failed, and is tried again");
                    Some(RETRY)
                }
            };
            self.stopped.clear(UPKEEP);
            if let Some(pause) = pause {
                self.clock.sleep(pause).await;
            }
        }
    }

    /// Makes answered batches durable. Where a segment of the log failed, writes its rows to blocks instead.
    pub(super) async fn sync(&self) -> Result<()> {
        let ticket = self.state().queue.ticket;
        let committed = self.commit(ticket, true).await;
        let failed = self.state().queue.failed_segments;
        if failed == self.state().queue.replaced_segments {
            return committed;
        }
        self.flush_all().await?;
        self.state().queue.replaced_segments = failed;
        Ok(())
    }
}

/// The message of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}
