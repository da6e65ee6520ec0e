//! Background work, in tasks that do not wait for each other: syncs at intervals, upkeep, a scrub, and the upkeep of the log
//! store for each volume.
//!
//! A task that panics is logged, reported by [`Store::health`](super::Store::health) and started again.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use volume::Clock;
use volume::heartbeat::{Heartbeat, SILENCE_MAX};

use super::{Inner, Store};
use crate::health::{StoreHealth, TaskHealth};
use crate::log::Durability;
use crate::series::Result;

/// How often a task looks for work, and how soon it retries a failed sync.
const TICK: Duration = Duration::from_millis(100);
/// How long upkeep waits after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// The shortest and the longest pause before a panicked task is restarted.
const RESTARTS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// A round of upkeep may write many blocks at the pace of a busy volume.
const UPKEEP_SILENCE_MAX: Duration = Duration::from_secs(600);

const SYNC: &str = "syncs of points";
const WATCH: &str = "trying the failed log of points again";
const UPKEEP: &str = "upkeep of points";
const LOG: &str = "upkeep of the log store";
const SCRUB: &str = "scrub of points";

/// A task of a store: it ends when the store is closed.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The records of the tasks.
#[derive(Debug)]
pub(super) struct Heartbeats {
    sync: Heartbeat,
    pub(super) watch: Heartbeat,
    upkeep: Heartbeat,
    /// Panics of the log store's upkeep; its rounds have records of their own.
    log: Heartbeat,
    pub(super) scrub: Heartbeat,
}

impl Heartbeats {
    /// For a store that syncs as `durability` says.
    pub(super) fn new(durability: Durability, clock: &Clock) -> Self {
        let interval = match durability {
            Durability::Interval(interval) => interval,
            _ => Duration::ZERO,
        };
        let of = |task: &str, silence_max| Heartbeat::new(task, silence_max, clock);
        Self {
            sync: of(SYNC, interval.saturating_add(SILENCE_MAX)),
            watch: of(WATCH, SILENCE_MAX),
            upkeep: of(UPKEEP, UPKEEP_SILENCE_MAX),
            log: of(LOG, Duration::MAX),
            scrub: of(SCRUB, SILENCE_MAX),
        }
    }

    fn health(&self) -> impl Iterator<Item = TaskHealth> {
        let all = [&self.sync, &self.watch, &self.upkeep, &self.log, &self.scrub];
        all.into_iter().map(Heartbeat::health)
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
            store.0.supervise(&store.0.heartbeats.sync, || store.0.sync_regularly()).await;
        }));
        let store = self.clone();
        tasks.push(Box::pin(async move {
            store.0.supervise(&store.0.heartbeats.watch, || store.0.watch_log()).await;
        }));
        let store = self.clone();
        tasks.push(Box::pin(async move {
            store.0.supervise(&store.0.heartbeats.upkeep, || store.0.keep_up()).await;
        }));
        if let Some(period) = self.0.options.scrub_every {
            let store = self.clone();
            tasks.push(Box::pin(async move {
                let scrub = || store.0.scrub_regularly(period);
                store.0.supervise(&store.0.heartbeats.scrub, scrub).await;
            }));
        }
        for volume in 0..self.0.log.volumes() {
            let store = self.clone();
            tasks.push(Box::pin(async move {
                store.0.supervise(&store.0.heartbeats.log, || store.0.log.tend(volume)).await;
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
        health.tasks.extend(self.0.heartbeats.health());
        health.writes_refused = self.0.log_refuses().or(health.writes_refused);
        if self.0.is_closing() {
            health.writes_refused = Some(format!("store {} is closed", self.0.options.name));
        }
        health
    }
}

impl Inner {
    /// Runs a task, and restarts it after a pause when it panics.
    async fn supervise<F: Future<Output = ()>>(&self, heartbeat: &Heartbeat, run: impl Fn() -> F) {
        let (shortest, longest) = RESTARTS;
        let mut pause = shortest;
        loop {
            let began = self.clock.now();
            heartbeat.started();
            let Err(panic) = AssertUnwindSafe(run()).catch_unwind().await else {
                heartbeat.ended();
                return;
            };
            if self.clock.now().since(began) > longest {
                pause = shortest;
            }
            let (why, store, task) = (words(&*panic), &self.options.name, heartbeat.task());
            tracing::error!(
                store,
                "{task} panicked: {why}; started again in {} ms",
                pause.as_millis()
            );
            heartbeat
                .stopped(format!("{task} panicked: {why}; if it goes on, restart the program"));
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
        let heartbeat = &self.heartbeats.sync;
        let mut due = self.clock.now() + interval;
        while !self.is_closing() {
            let now = self.clock.now();
            if now < due {
                self.clock.sleep_until(due.min(now + TICK)).await;
                continue;
            }
            due = now + interval;
            match self.sync().await {
                Ok(()) => heartbeat.completed(),
                Err(error) => {
                    let why = format!(
                        "{error}; points acknowledged since may be lost if the machine stops"
                    );
                    tracing::warn!(store = %self.options.name, "syncing points fails: {why}");
                    heartbeat.failed(&why);
                    due = self.clock.now() + TICK.min(interval);
                }
            }
        }
    }

    /// Runs upkeep until the store is closed.
    async fn keep_up(&self) {
        while !self.is_closing() {
            let done = self.tend_once().await;
            self.heartbeats.upkeep.record(&done);
            let pause = match done {
                Ok(did) => (!did).then_some(TICK),
                Err(error) => {
                    tracing::warn!(store = %self.options.name, %error, "writing blocks failed, and is tried again");
                    Some(RETRY)
                }
            };
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
