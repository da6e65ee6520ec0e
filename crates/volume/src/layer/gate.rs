//! The one way to a device: every I/O is charged to the volume's budget before it goes, and those
//! that must wait go in the order the scheduler says.
//!
//! A gate sits directly above a leaf, or above [`Simulate`](super::simulate::Simulate) above a leaf;
//! there is one for each device. What costs what:
//!
//! - Objects that are no logs: each read and write is device I/O. One larger than the contract's
//!   largest operation is split into pieces, each charged and issued as an I/O of its own, several in
//!   flight. A sync costs nothing: the bytes were paid for when they were written.
//! - Logs: writes go into the page cache and cost nothing; a sync costs the operations for the bytes
//!   written since the last one, in class commit. It pays for all that is unsynced when its turn comes, and keeps
//!   its place in the queue while the log grows. A write that would leave more unsynced than a budget
//!   can pay for at once syncs first: the kernel never has more to write back than was, or can be, paid.
//! - Creating, opening, removing, listing, cutting: nothing.
//!
//! This file is a shell: policy is in [`policy::sched`]. A request that need not wait takes one lock and
//! no allocation beyond its future. For those that wait the gate sets an alarm on the [`Clock`] whose
//! waker is the gate itself: it polls the scheduler, under the lock, and wakes those granted, outside it.

mod answers;
mod turnstile;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesOrdered, FuturesUnordered, StreamExt};
use parking_lot::{Mutex, MutexGuard};
use policy::budget::Share;
use policy::contract::{Contract, Cost};
use policy::latency::Times;
use policy::purpose::{Class, Pressure};
use policy::sched::{Figures, Policy, QUEUE_MAX};

use self::answers::Answers;
use self::turnstile::{Asked, Errand, Passed, Passing, Turnstile};
use crate::task::block_on;
use crate::{
    Clock, Intent, Io, IoBuf, IoBufMut, Listed, Name, Object, Pending, Result, Space, Volume,
    blocking,
};

/// Pieces of one request in flight at the same time: enough to keep a network volume busy, few
/// enough that others get their turn between them.
const PIECES_IN_FLIGHT: usize = 8;

/// A volume that keeps to its contract. See the [module](self).
pub struct Gate<V> {
    inner: V,
    turnstile: Arc<Turnstile>,
    /// What is unsynced of each log, as long as it has its name.
    logs: Mutex<HashMap<Name, Arc<Mutex<usize>>>>,
}

/// What a gate shows.
#[derive(Clone, Debug)]
pub struct Meter {
    /// The terms it goes by.
    pub contract: Contract,
    /// The share of them that it uses if the volume gives it.
    pub share: Share,
    /// The share of each paid rate that it uses now: less where the volume gave less.
    pub rho: f64,
    /// The part of its contract that the volume was found to give, while that seems less than all.
    pub available: Option<f64>,
    /// The burst credits it counts on, as a part of those that can be saved up; `None` if the contract
    /// has none.
    pub credits: Option<f64>,
    /// What happened in each class, indexed as [`Class::ALL`].
    pub classes: [Figures; Class::ALL.len()],
    /// How long the device took to answer in each class, waits at this gate left out.
    pub answers: [Times; Class::ALL.len()],
    /// Spending of the last ten whole tenths of a second.
    pub last_second: Cost,
    /// The same as a part of what was paid for, of the limit that is used most: 1 is the line.
    pub used: f64,
}

impl Meter {
    /// All tokens spent so far, in all classes: what the device's own count of I/Os must equal.
    #[must_use]
    pub fn spent(&self) -> Cost {
        self.classes.iter().fold(Cost::default(), |sum, class| Cost {
            ops: sum.ops + class.spent.ops,
            bytes: sum.bytes + class.spent.bytes,
        })
    }
}

impl<V: Volume> Gate<V> {
    /// Puts a gate in front of `inner` that keeps it to `share` of `contract`, with the usual
    /// scheduler; `label` names the volume in errors. The budget is empty at first.
    pub fn new(inner: V, label: &str, contract: &Contract, share: Share, clock: Clock) -> Self {
        Self::with_policy(inner, label, contract, share, Policy::default(), clock)
    }

    /// The same with another scheduler.
    pub fn with_policy(
        inner: V,
        label: &str,
        contract: &Contract,
        share: Share,
        policy: Policy,
        clock: Clock,
    ) -> Self {
        let scheduler = policy.build(contract, share, QUEUE_MAX, clock.now());
        let turnstile = Arc::new(Turnstile::new(label, contract, share, scheduler, clock));
        Self { inner, turnstile, logs: Mutex::default() }
    }

    /// What is behind the gate.
    pub const fn inner(&self) -> &V {
        &self.inner
    }

    /// Goes by new terms from now on, for those who wait already too. No token is lost or given.
    pub fn set_contract(&self, contract: &Contract) {
        self.turnstile.set_contract(contract);
    }

    /// Uses another share of the terms from now on. No token is lost, but for what a smaller share
    /// cannot save up.
    pub fn set_share(&self, share: Share) {
        self.turnstile.set_share(share);
    }

    /// Sorts flushes and compactions by `pressure` from now on, those that wait already too.
    pub fn set_pressure(&self, pressure: Pressure) {
        self.turnstile.set_pressure(pressure);
    }

    /// Whether to use less than the share for as long as the volume gives less, as
    /// [`policy::estimate`] finds out. At first it does not.
    pub fn set_adapt(&self, adapt: bool) {
        self.turnstile.set_adapt(adapt);
    }

    /// Lets nobody in any more: those who wait, and every later request, fail with `Fenced`. What is at
    /// the device already ends as it does.
    pub fn close(&self) {
        self.turnstile.close();
    }

    /// What happened so far.
    #[must_use]
    pub fn meter(&self) -> Meter {
        self.turnstile.meter()
    }

    fn object(&self, name: &Name, inner: Arc<dyn Object>) -> Arc<dyn Object> {
        let unsynced =
            name.is_log().then(|| Arc::clone(self.logs.lock().entry(name.clone()).or_default()));
        Arc::new(GatedObject { inner, turnstile: Arc::clone(&self.turnstile), unsynced })
    }
}

#[deny(clippy::missing_trait_methods)]
impl<V: Volume> Volume for Gate<V> {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move {
            self.turnstile.check_open()?;
            Ok(self.object(&name, self.inner.create(&name, &intent).await?))
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move {
            self.turnstile.check_open()?;
            Ok(self.object(&name, self.inner.open(&name).await?))
        })
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        let name = name.clone();
        Box::pin(async move {
            self.turnstile.check_open()?;
            self.inner.remove(&name).await?;
            self.logs.lock().remove(&name);
            Ok(())
        })
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        Box::pin(async move {
            self.turnstile.check_open()?;
            self.inner.list().await
        })
    }

    fn space(&self) -> Pending<'_, Space> {
        Box::pin(async move {
            self.turnstile.check_open()?;
            self.inner.space().await
        })
    }

    fn expected_wait(&self) -> Duration {
        self.turnstile.expected_wait()
    }
}

struct GatedObject {
    inner: Arc<dyn Object>,
    turnstile: Arc<Turnstile>,
    /// Of a log: the bytes written since its last sync, shared by all its handles. Calls to the layer
    /// below are made under the lock, so that it finds unsynced what this says; they are awaited
    /// without it.
    unsynced: Option<Arc<Mutex<usize>>>,
}

#[deny(clippy::missing_trait_methods)]
impl Object for GatedObject {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        let piece_len = self.turnstile.piece_len();
        if into.len() <= piece_len {
            Box::pin(self.read_piece(offset, into, io))
        } else {
            Box::pin(self.read_pieces(offset, into, io, piece_len))
        }
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        if let Some(unsynced) = &self.unsynced {
            return Box::pin(self.append(unsynced, offset, data, io));
        }
        let piece_len = self.turnstile.piece_len();
        if data.len() <= piece_len {
            Box::pin(self.write_piece(offset, data, io))
        } else {
            Box::pin(self.write_pieces(offset, data, io, piece_len))
        }
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        if into.len() > self.turnstile.piece_len() {
            return blocking::read_at(self, offset, into, io);
        }
        let passed = block_on(self.turnstile.pass(Errand::read(io), into.len()))?;
        let read = self.inner.blocking_read_at(offset, into, io);
        self.turnstile.answered(passed);
        read
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        let Some(unsynced) = &self.unsynced else {
            return blocking::write_at(self, offset, data, io);
        };
        for piece in pieces(data.len(), self.turnstile.unsynced_max()) {
            let start = offset + piece.start as u64;
            let _counted = block_on(self.count(unsynced, piece.len(), io))?;
            self.inner.blocking_write_at(start, &data[piece], io)?;
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        Box::pin(async move {
            self.turnstile.check_open()?;
            self.inner.set_len(len).await
        })
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            self.turnstile.check_open()?;
            match &self.unsynced {
                None => self.inner.sync(io).await,
                Some(unsynced) => self.sync_log(unsynced, io).await,
            }
        })
    }
}

impl GatedObject {
    async fn read_piece(&self, offset: u64, into: IoBufMut, io: Io) -> Result<IoBufMut> {
        let passed = self.turnstile.pass(Errand::read(io), into.len()).await?;
        let read = self.inner.read_at(offset, into, io).await;
        self.turnstile.answered(passed);
        read
    }

    async fn write_piece(&self, offset: u64, data: IoBuf, io: Io) -> Result<()> {
        let passed = self.turnstile.pass(Errand::write(io), data.len()).await?;
        let written = self.inner.write_at(offset, data, io).await;
        self.turnstile.answered(passed);
        written
    }

    async fn read_pieces(
        &self,
        offset: u64,
        mut into: IoBufMut,
        io: Io,
        piece_len: usize,
    ) -> Result<IoBufMut> {
        let mut pieces = pieces(into.len(), piece_len);
        let mut reads = FuturesOrdered::new();
        let mut filled = 0;
        loop {
            for piece in pieces.by_ref().take(PIECES_IN_FLIGHT - reads.len()) {
                let part = IoBufMut::zeroed(piece.len());
                reads.push_back(self.read_piece(offset + piece.start as u64, part, io));
            }
            let Some(part) = reads.next().await.transpose()? else { break };
            into[filled..filled + part.len()].copy_from_slice(&part);
            filled += part.len();
            if part.len() < piece_len {
                // The object ends here; pieces behind its end, if they still wait, need not go.
                break;
            }
        }
        into.resize(filled);
        Ok(into)
    }

    async fn write_pieces(&self, offset: u64, data: IoBuf, io: Io, piece_len: usize) -> Result<()> {
        let mut pieces = pieces(data.len(), piece_len);
        let mut writes = FuturesUnordered::new();
        let mut outcome = Ok(());
        loop {
            if outcome.is_ok() {
                for piece in pieces.by_ref().take(PIECES_IN_FLIGHT - writes.len()) {
                    let start = offset + piece.start as u64;
                    writes.push(self.write_piece(start, data.slice(piece), io));
                }
            }
            // After an error the others in flight are waited for: once this returns, none of them
            // may still overwrite what the caller writes next.
            let Some(written) = writes.next().await else { return outcome };
            outcome = outcome.and(written);
        }
    }

    async fn append(
        &self,
        unsynced: &Mutex<usize>,
        offset: u64,
        data: IoBuf,
        io: Io,
    ) -> Result<()> {
        for piece in pieces(data.len(), self.turnstile.unsynced_max()) {
            let start = offset + piece.start as u64;
            let write = {
                let _counted = self.count(unsynced, piece.len(), io).await?;
                self.inner.write_at(start, data.slice(piece), io)
            };
            write.await?;
        }
        Ok(())
    }

    /// Counts `len` bytes more as unsynced, after a sync if they would be too many. The call that
    /// writes them is made before the guard is dropped.
    async fn count<'a>(
        &self,
        unsynced: &'a Mutex<usize>,
        len: usize,
        io: Io,
    ) -> Result<MutexGuard<'a, usize>> {
        loop {
            self.turnstile.check_open()?;
            {
                let mut counted = unsynced.lock();
                if *counted == 0 || *counted + len <= self.turnstile.unsynced_max() {
                    *counted += len;
                    return Ok(counted);
                }
            }
            self.sync_log(unsynced, io).await?;
        }
    }

    /// Pays for what is unsynced and syncs it, in one moment.
    ///
    /// Writes that arrive while this waits for its turn share the sync, so they are charged here: when the
    /// turn comes, and more is unsynced than was paid for, all is given back and the whole is asked for. The
    /// sync keeps its place: no later request of its class overtakes it, and it waits only until the tokens for
    /// what arrived are earned. That is bounded: a log that has more unsynced than a budget can pay for at once takes no
    /// writes. Nothing is paid while it waits: tokens that were kept for long would be spent beside those
    /// that were earned since, which the provider may not have.
    async fn sync_log(&self, unsynced: &Mutex<usize>, io: Io) -> Result<()> {
        let mut paid = None;
        loop {
            match self.try_sync_log(unsynced, io, paid)? {
                Attempt::Made(sync, passed) => {
                    let synced = sync.await;
                    if let Some(passed) = passed {
                        self.turnstile.answered(passed);
                    }
                    return synced;
                }
                Attempt::Waits(bytes, passing) => paid = Some((bytes, passing.await?)),
            }
        }
    }

    /// Syncs a log if what is unsynced of it is the bytes that were `paid` for, or if all of it can be paid for
    /// now. No write comes between the payment and the sync: it would wait for the lock.
    fn try_sync_log(
        &self,
        unsynced: &Mutex<usize>,
        io: Io,
        paid: Option<(usize, Passed)>,
    ) -> Result<Attempt<'_>> {
        let mut unsynced = unsynced.lock();
        let (covered, before) = paid.unzip();
        let owed = *unsynced;
        // Others may be woken only without the lock.
        let (passed, turned) = if owed == 0 || Some(owed) == covered {
            (before, None)
        } else {
            match self.turnstile.ask(owed, before)? {
                (Asked::Passed(passed), turned) => (Some(passed), Some(turned)),
                (Asked::Waits(passing), turned) => {
                    drop(unsynced);
                    self.turnstile.follow_up(turned);
                    return Ok(Attempt::Waits(owed, passing));
                }
            }
        };
        *unsynced = 0;
        let sync = self.inner.sync(io);
        drop(unsynced);
        if let Some(turned) = turned {
            self.turnstile.follow_up(turned);
        }
        // Another sync took all of it along.
        if let (0, Some(unused)) = (owed, passed) {
            self.turnstile.refund(unused);
            return Ok(Attempt::Made(sync, None));
        }
        Ok(Attempt::Made(sync, passed))
    }
}

/// What became of an attempt to sync a log.
enum Attempt<'a> {
    /// The sync was asked for, with what was paid for it.
    Made(Pending<'a, ()>, Option<Passed>),
    /// It waits to pay for these bytes.
    Waits(usize, Passing<'a>),
}

/// The ranges of at most `piece_len` bytes that make `len`; one empty range for an empty request.
fn pieces(len: usize, piece_len: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (0..len.max(1)).step_by(piece_len);
    starts.map(move |start| start..(start + piece_len).min(len))
}

#[cfg(test)]
mod tests;
