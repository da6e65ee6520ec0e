//! Write-back of the page cache: where puts do not wait for a sync, they are admitted as fast as the device writes.
//!
//! ```text
//!   put ─▶ admission: less than `max` is dirty? ─▶ group ─▶ page cache ─▶ answered
//!             ▲                                                      │ a piece, or half of `max`
//!             └──────────────── bytes are durable ◀───────── sync, two pieces at a time
//! ```
//! A disk that gets each group at once loses a turn for each: between the end of one write and the beginning of the
//! next, the sector has passed by. A cache that takes everything until it is full makes puts fast first, and then
//! stalls all of them. So write-back runs all the time, in pieces that are worth the seek from one open file to
//! another. Puts wait in a queue, each for about as long as a piece takes.
//!
//! [`Store::tend`](super::Store::tend) writes back. Where it does not keep pace, or does not run, the first put in the
//! queue does.
//!
//! The store tracks dirty bytes file by file, with their smallest sequence: so it knows which records are durable.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use volume::{ErrorKind, Result};

use super::format::Layout;
use super::merge::{LOOK, PAUSE};
use super::state::LogState;
use super::writer::Writer;
use super::{FileId, Inner, WRITE};

/// Whether a crash could lose a record that counts.
pub(super) enum Doubt {
    /// No record.
    None,
    /// Such records are all being synced.
    OnItsWay,
    /// Some of them wait for a sync.
    Waits,
    /// A sync of this file failed, and its records are not copied elsewhere yet.
    Failed(FileId),
}

/// A put's share of the dirty bytes, from its request for it until the put has ended.
pub(super) struct Let<'a> {
    inner: &'a Inner,
    member: usize,
    /// `None` if it was admitted at once.
    ticket: Option<u64>,
    bytes: u64,
}

impl Drop for Let<'_> {
    fn drop(&mut self) {
        let woken = self.inner.state().members[self.member].dirty.leave(self.ticket, self.bytes);
        woken.into_iter().for_each(Waker::wake);
    }
}

/// The dirty bytes of a file that one task syncs. If the sync fails, the bytes are dirty again.
pub(super) struct Claim<'a> {
    inner: &'a Inner,
    member: usize,
    file: FileId,
    /// Bytes, and the smallest sequence among them.
    claimed: (u64, u64),
    is_piece: bool,
    is_durable: bool,
}

impl Claim<'_> {
    /// The bytes are durable.
    pub(super) fn end(mut self) {
        self.is_durable = true;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let woken = self.inner.state().members[self.member].dirty.settle(
            self.file,
            self.claimed,
            self.is_piece,
            self.is_durable,
        );
        woken.into_iter().for_each(Waker::wake);
        self.inner.notify.notify_all();
    }
}

impl LogState {
    /// Whether a crash could lose a record that counts, has at most this sequence and is of this partition, or of any;
    /// file `but` does not matter.
    fn doubt(&self, upto: u64, layout: Option<Layout>, but: FileId) -> Doubt {
        let is_of = |of: Layout| layout.is_none_or(|layout| layout == of);
        let failed = self.members.iter().flat_map(|member| &member.doubtful).find(|&&id| {
            let facts = &self.files[&id];
            id != but && facts.is_unsafe() && facts.sequence_min <= upto && is_of(facts.layout)
        });
        if let Some(&failed) = failed {
            return Doubt::Failed(failed);
        }
        let mut is_syncing = false;
        for member in &self.members {
            let (waits, syncing) = member.dirty.has(upto, is_of);
            if waits {
                return Doubt::Waits;
            }
            is_syncing |= syncing;
        }
        if self.is_under_way(upto, is_of) {
            return Doubt::Waits;
        }
        if is_syncing { Doubt::OnItsWay } else { Doubt::None }
    }
}

impl Inner {
    /// Writes back each piece that is due, until the store is closed.
    pub(super) async fn write_back_always(&self, member: usize) {
        while !self.is_closing() {
            let seen = self.notify.count();
            match self.write_back_due(member).await {
                Ok(true) => {}
                Ok(false) => self.notify.after(seen).await,
                Err(error) => {
                    // Callers that wait for durability get the error, and so does the next put.
                    tracing::warn!(volume = %self.disks[member].label, %error, "writing back failed");
                    if error.kind() != ErrorKind::Poisoned {
                        self.pass(PAUSE).await;
                    }
                }
            }
        }
    }

    /// Waits until `bytes` may be written to the page cache; the first waiting put writes back meanwhile.
    pub(super) async fn hold_back(&self, member: usize, bytes: u64) -> Result<Let<'_>> {
        let ticket = self.state().members[member].dirty.come(bytes);
        let place = Let { inner: self, member, ticket, bytes };
        let Some(ticket) = ticket else { return Ok(place) };
        loop {
            let is_first = self.state().members[member].dirty.is_first(ticket);
            if is_first && self.write_back_due(member).await? {
                continue;
            }
            let is_in = poll_fn(|cx| {
                let mut state = self.state();
                let Some(waiter) = state.members[member].dirty.waiter(ticket) else {
                    return Poll::Ready(true);
                };
                if std::mem::take(&mut waiter.is_called) {
                    return Poll::Ready(false);
                }
                waiter.waker = Some(cx.waker().clone());
                Poll::Pending
            });
            if is_in.await {
                return Ok(place);
            }
        }
    }

    /// Admits puts after bytes were [forgotten](Dirty::forget).
    pub(super) fn let_in(&self, member: usize) {
        let woken = self.state().members[member].dirty.let_in();
        woken.into_iter().for_each(Waker::wake);
    }

    /// Writes back one piece; says whether one was due.
    async fn write_back_due(&self, member: usize) -> Result<bool> {
        let due = {
            let state = self.state();
            let stream = state.members[member].dirty.due();
            stream.and_then(|stream| state.writers.get(&stream).map(Arc::clone))
        };
        let Some(writer) = due else { return Ok(false) };
        self.write_back(&writer, true).await?;
        Ok(true)
    }

    /// Claims the dirty bytes of a file for a sync by the caller.
    pub(super) fn claim(&self, member: usize, file: FileId, is_piece: bool) -> Claim<'_> {
        let claimed = self.state().members[member].dirty.claim(file, is_piece);
        Claim { inner: self, member, file, claimed, is_piece, is_durable: false }
    }

    /// Writes the queued puts of a stream, and syncs its open file. Other tasks go on writing while the device works.
    pub(super) async fn write_back(&self, writer: &Writer, is_piece: bool) -> Result<()> {
        let member = writer.stream.member;
        let (file, until, claim) = {
            let mut output = writer.output.lock().await;
            while !writer.is_idle() || !output.group.is_empty() {
                self.write_group(writer, &mut output).await;
            }
            let Some(open) = output.open.as_mut() else { return Ok(()) };
            let claim = self.claim(member, open.file.id, is_piece);
            if !open.is_dirty() {
                claim.end();
                return Ok(());
            }
            let until = open.close_page();
            open.counts();
            (Arc::clone(&open.file), until, claim)
        };
        let synced = self.sync_object(member, &*file.object, WRITE).await;
        match &synced {
            Ok(()) => claim.end(),
            Err(_) => drop(claim),
        }
        let mut output = writer.output.lock().await;
        if let Some(open) = output.open.as_mut().filter(|open| Arc::ptr_eq(&open.file, &file)) {
            match &synced {
                Ok(()) => {
                    open.synced_until(until);
                    self.synced_open(&writer.stream, open);
                }
                Err(error) if error.kind() == ErrorKind::Poisoned => {
                    self.abandon(writer, &mut output);
                }
                Err(_) => {}
            }
        }
        synced
    }

    /// Makes records durable that count and have at most this sequence, of a partition or of all; file `but` does not
    /// matter. For the time of `patience` it waits for regular write-back: an extra sync of a part of a file costs a
    /// disk a turn.
    ///
    /// # Errors
    /// `Poisoned`: a sync failed, and the records it was for are not copied elsewhere yet.
    pub(super) async fn make_durable(
        &self,
        upto: u64,
        layout: Option<Layout>,
        but: FileId,
        patience: Duration,
    ) -> Result<()> {
        let until = self.clock.now() + patience;
        let mut synced = false;
        loop {
            let seen = self.notify.count();
            let doubt = self.state().doubt(upto, layout, but);
            match doubt {
                Doubt::None => return Ok(()),
                Doubt::OnItsWay => self.wait(seen, LOOK).await,
                // Another task has to go on first.
                Doubt::Waits if std::mem::take(&mut synced) => self.wait(seen, LOOK).await,
                Doubt::Waits => match until.since(self.clock.now()) {
                    Duration::ZERO => {
                        self.sync_partition(layout).await?;
                        synced = true;
                    }
                    left => self.wait(seen, left).await,
                },
                Doubt::Failed(file) => return Err(self.unsafe_error(file)),
            }
        }
    }
}
