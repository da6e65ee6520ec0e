//! One thread of a workload: chooses operations, performs and times them, and verifies the answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use engine::kv::{Change, KeyRange, Scan};
use policy::time::Instant;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::task::block_on;

use super::latency::Dot;
use super::meter::Done;
use super::pace::{Pace, Turn};
use super::plan::Drive;
use super::{Driven, Operation};

/// The longest sleep between two checks of the stop flag.
const NAP: Duration = Duration::from_millis(100);

/// Chooses records.
pub(crate) trait Choose: Send {
    /// The number of a stored record; there are `records`.
    fn record(&mut self, records: u64, random: &mut Xoshiro256PlusPlus) -> u64;
}

/// The state of one thread.
pub(super) struct Worker<'w> {
    pub(super) drive: &'w Drive<'w>,
    pub(super) chooser: Box<dyn Choose + 'w>,
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) done: &'w Done,
    /// Another thread failed.
    pub(super) failed: &'w AtomicBool,
}

/// When a thread ends: at whichever comes first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enough {
    pub(super) operations: u64,
    pub(super) at: Instant,
}

/// A prepared operation.
enum Task {
    Read(Bytes),
    Put { key: Bytes, value: Bytes, inserts: Option<u64> },
    Scan { key: Bytes, entries: usize },
    ReadModifyWrite { key: Bytes, value: Bytes },
}

impl Worker<'_> {
    /// Works until `enough` is reached, the stop flag is set, or another thread fails.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn work(mut self, enough: Enough, mut pace: impl Pace) -> anyhow::Result<Driven> {
        let mut found = Driven::default();
        for _ in 0..enough.operations {
            let operation = Operation::of(self.drive.mix, self.random.random_range(0..100));
            let turn = pace.turn(operation, self.drive.clock.now());
            if !self.wait(turn, enough.at) {
                break;
            }
            let task = self.prepare(operation);
            let start = self.drive.clock.now();
            let answer = self.perform(&task);
            let end = self.drive.clock.now();
            let answer = answer
                .with_context(|| format!("workload {}, {}", self.drive.name, operation.name()))?;
            if self.drive.told.contains(&end) {
                let mut took = end.since(start);
                found.latencies.record(operation, took);
                if let Turn::Intended(intended) = turn {
                    took = end.since(intended);
                    found.open.record(operation, took);
                }
                if self.drive.dots {
                    found.dots.push(Dot::new(end.since(self.drive.start), took));
                }
            }
            self.done.one_more();
            self.verify(&task, &answer, &mut found);
        }
        Ok(found)
    }

    /// Waits for the intended start of an operation, if it has one. Returns whether the operation should still run.
    fn wait(&self, turn: Turn, end: Instant) -> bool {
        loop {
            let now = self.drive.clock.now();
            let due = match turn {
                Turn::Now => now,
                Turn::At(at) | Turn::Intended(at) => at,
            };
            if [self.drive.stop, self.failed].iter().any(|stop| stop.load(Ordering::Relaxed))
                || due >= end
            {
                return false;
            }
            if due <= now {
                return now < end;
            }
            block_on(self.drive.clock.sleep_until(due.min(now + NAP)));
        }
    }

    fn prepare(&mut self, operation: Operation) -> Task {
        if operation == Operation::Insert {
            let record = self.drive.counter.next();
            let value = self.drive.records.value(record, &mut self.random);
            return Task::Put { key: self.drive.records.key(record), value, inserts: Some(record) };
        }
        let record = self.chooser.record(self.drive.counter.records(), &mut self.random);
        let key = self.drive.records.key(record);
        match operation {
            Operation::Read => Task::Read(key),
            Operation::Scan => Task::Scan { key, entries: self.drive.scans.draw(&mut self.random) },
            Operation::Update | Operation::Insert => {
                let value = self.drive.records.value(record, &mut self.random);
                Task::Put { key, value, inserts: None }
            }
            Operation::ReadModifyWrite => Task::ReadModifyWrite {
                key,
                value: self.drive.records.value(record, &mut self.random),
            },
        }
    }

    /// Performs the operation and returns what it read.
    fn perform(&self, task: &Task) -> engine::kv::Result<Vec<(Bytes, Bytes)>> {
        let get = |key: &Bytes| {
            let value = self.drive.store.get_many(std::slice::from_ref(key))?.pop().flatten();
            Ok(value.map(|value| (key.clone(), value)).into_iter().collect())
        };
        let put = |key: &Bytes, value: &Bytes| {
            self.drive.store.apply(&[Change::Put(key.clone(), value.clone())])
        };
        match task {
            Task::Read(key) => get(key),
            Task::Put { key, value, inserts } => {
                put(key, value)?;
                if let Some(record) = inserts {
                    self.drive.counter.acknowledge(*record);
                }
                Ok(Vec::new())
            }
            Task::Scan { key, entries } => self.drive.store.scan(&Scan {
                range: KeyRange { from: key.clone(), to: None },
                reverse: false,
                entries_max: *entries,
                bytes_max: usize::MAX,
            }),
            Task::ReadModifyWrite { key, value } => {
                let read = get(key)?;
                put(key, value)?;
                Ok(read)
            }
        }
    }

    /// Every requested record must exist, and every value must belong to its key.
    fn verify(&self, task: &Task, answer: &[(Bytes, Bytes)], found: &mut Driven) {
        let asked = match task {
            Task::Put { .. } => return,
            Task::Read(key) | Task::Scan { key, .. } | Task::ReadModifyWrite { key, .. } => key,
        };
        if answer.first().is_none_or(|(key, _)| key != asked) {
            found.wrong(|| format!("there was no record {}", asked.escape_ascii()));
        }
        if !answer.is_sorted_by(|(one, _), (next, _)| one < next) {
            found.wrong(|| format!("a scan from {} was out of order", asked.escape_ascii()));
        }
        for (key, value) in answer {
            if !self.drive.records.belongs(key, value) {
                let bytes = value.len();
                found.wrong(|| format!("{} held {bytes} bytes not its own", key.escape_ascii()));
            }
        }
    }
}
