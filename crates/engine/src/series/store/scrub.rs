//! Reading back all blocks within a period, on volumes of the store's own: a pool reads back its objects itself.
//!
//! Passes go by the number of the log store's file, which only grows. So the position is one number, kept as a record, and a
//! restart goes on with the pass. Damage shows in [`Store::health`](super::Store::health).

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use policy::scrub::due;
use policy::time::Instant;

use super::{Inner, failed, key};
use crate::log::{Damage, Edit, FileId};
use crate::series::Result;

/// How often the task looks whether the store is being closed.
const TICK: Duration = Duration::from_millis(100);
/// The pause before a file is tried again for which there were no operations to spare.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Attempts to read a file: a volume that is busy for minutes must not keep the files of others unread.
const ATTEMPTS: u32 = 12;
/// How often the task looks which file is the next one, while none is due.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A pass over the files.
struct Pass {
    began: Instant,
    /// How far into the period it was at that time.
    elapsed: Duration,
    /// The bytes of all files when it began, and of those read.
    of: u64,
    done: u64,
    next: FileId,
}

impl Inner {
    /// Reads all files within a period, again and again, until the store is closed.
    pub(super) async fn scrub_regularly(&self, period: Duration) {
        let mut pass = self.resume_pass(period).await;
        let mut attempt = 1;
        while !self.is_closing() {
            let next = self.log.sealed().into_iter().find(|&(id, _)| id >= pass.next);
            if pass.of == 0 && next.is_some() {
                // A pass over nothing would read the first files at its end, all at once.
                pass = self.begin_pass();
            }
            let due = due(period, pass.done, next.map_or(0, |(_, len)| len), pass.of);
            let (at, now) = (pass.began + due.saturating_sub(pass.elapsed), self.clock.now());
            if now < at {
                self.pause(at.min(now + LOOK_EVERY)).await;
                continue;
            }
            let Some((id, len)) = next else {
                pass = self.begin_pass();
                continue;
            };
            let (closing, read) = (pin!(self.pause(Instant::FAR)), pin!(self.scrub_file(id)));
            match select(read, closing).await {
                Either::Left((read, _)) if read || attempt == ATTEMPTS => {
                    attempt = 1;
                    pass.next = FileId(id.0 + 1);
                    pass.done += len;
                    if let Err(error) = self.keep_position(pass.next).await {
                        tracing::debug!(store = %self.options.name, %error, "the position of the scrub is not kept");
                    }
                }
                Either::Left(_) => {
                    attempt += 1;
                    self.pause(self.clock.now() + RETRY_AFTER).await;
                }
                Either::Right(((), _)) => {}
            }
        }
    }

    /// Waits until then, or until the store is being closed.
    async fn pause(&self, until: Instant) {
        while !self.is_closing() && self.clock.now() < until {
            self.heartbeats.scrub.completed();
            self.clock.sleep_until(until.min(self.clock.now() + TICK)).await;
        }
    }

    /// Reads a file. False if there were no operations to spare for it.
    async fn scrub_file(&self, id: FileId) -> bool {
        let _long = self.heartbeats.scrub.begin_long();
        let store = &self.options.name;
        let scrubbed = match self.log.scrub_file(id).await {
            Ok(scrubbed) => scrubbed,
            Err(error) => {
                tracing::warn!(store, "scrub: a file was not read: {error}");
                return false;
            }
        };
        for why in &scrubbed.unread {
            tracing::warn!(store, "scrub: a file was not read: {why}");
        }
        for Damage { what, offset, bad } in &scrubbed.harmless {
            let bad = bad.what();
            tracing::warn!(store, "scrub: {what}, byte {offset}: {bad}; no live record has it");
        }
        true
    }

    fn begin_pass(&self) -> Pass {
        let of = self.log.sealed().iter().map(|(_, len)| len).sum();
        Pass { began: self.clock.now(), elapsed: Duration::ZERO, of, done: 0, next: FileId(0) }
    }

    /// Goes on where the last run stopped.
    async fn resume_pass(&self, period: Duration) -> Pass {
        let mut pass = self.begin_pass();
        let Ok(Some(bytes)) = self.log.get(key::SCRUB).await else { return pass };
        let Ok(next) = <[u8; 8]>::try_from(&*bytes) else { return pass };
        pass.next = FileId(u64::from_le_bytes(next));
        let sealed = self.log.sealed();
        pass.done = sealed.iter().filter(|(id, _)| *id < pass.next).map(|(_, len)| len).sum();
        // As if the files before had been read at the pace of this pass.
        pass.elapsed = due(period, pass.done, 0, pass.of);
        pass
    }

    async fn keep_position(&self, next: FileId) -> Result<()> {
        let value = Bytes::copy_from_slice(&next.0.to_le_bytes());
        let edit = Edit::Put { key: Bytes::from_static(key::SCRUB), value, lives: None };
        self.log.write_upkeep(vec![edit]).await.map_err(|error| failed(&error))
    }
}
