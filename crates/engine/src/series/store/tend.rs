//! The work beside calls, in tasks that do not wait for each other: syncs at intervals, upkeep, and the log
//! store's own for each volume.
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

/// How often a task looks for something to do, and how soon a failed sync is tried again.
const TICK: Duration = Duration::from_millis(100);
/// How long upkeep waits after it failed.
const RETRY: Duration = Duration::from_secs(1);
/// The shortest and the longest pause before a task that panicked is started again.
const RESTARTS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

const SYNC: &str = "syncs of points";
const WATCH: &str = "trying the failed log of points again";
const UPKEEP: &str = "upkeep of points";
const LOG: &str = "upkeep of the log store";

/// A task of a store: it ends when the store is closed.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why tasks do not do their work at the moment, by task.
#[derive(Debug, Default)]
pub(super) struct Stopped(Mutex<BTreeMap<&'static str, String>>);

impl Stopped {
    /// What to tell about the first of them, if any stands still.
    pub(super) fn told(&self) -> Option<String> {
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
    /// Tends the store until it is closed: all of its [tasks](Store::tasks) side by side. The owner of the store
    /// runs it, or them.
    pub async fn tend(&self) {
        join_all(self.tasks()).await;
    }

    /// The work of [`Store::tend`] as separate tasks. Where an executor has several threads, each should be
    /// spawned by itself: then no task waits until another one lets go of its thread.
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
    /// What the store can do now, from memory: for a health check each second.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        let mut health = self.0.log.health();
        health.upkeep_stopped = self.0.stopped.told();
        if let Some(why) = &*self.0.refusing.lock() {
            health.writes_refused = Some(format!("the write-ahead log: {why}"));
        }
        if self.0.is_closing() {
            health.writes_refused = Some(format!("store {} is closed", self.0.options.name));
        }
        health
    }
}

impl Inner {
    /// Runs a task; when it panics, again after a pause.
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

    /// Syncs at intervals: what was answered an interval ago survives the machine.
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
                        "syncing points fails: {error}; what was answered since may be lost with the machine"
                    );
                    tracing::warn!(store = %self.options.name, "{why}");
                    self.stopped.set(SYNC, why);
                    due = self.clock.now() + TICK.min(interval);
                }
            }
        }
    }

    /// Writes blocks, regroups and expires them.
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

    /// Makes durable what was answered. Where a segment of the log failed, blocks take its place.
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

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}
