//! The only way to a device: every I/O is charged to the volume's budget before it is issued, and requests that must
//! wait go in the order of the scheduler.
//!
//! A gate sits directly above a leaf, or above [`Simulate`](super::simulate::Simulate) above a leaf; each device has
//! one. Costs:
//!
//! - Objects other than logs: each read and write is device I/O. One larger than the contract's largest operation is
//!   split into pieces. Each piece is charged and issued as its own I/O, with several in flight. A sync is free: its
//!   bytes were charged when they were written.
//! - Logs: writes go into the page cache and are free. A sync is charged, in class commit, for all bytes that are
//!   unsynced when it is granted, and keeps its place in the queue while the log grows. A write that would leave more
//!   unsynced than a budget can pay for at once syncs first: the kernel never has more to write back than was, or can
//!   be, charged.
//! - A durable write: as a write, and its bytes need no sync.
//! - Creating, opening, removing, listing, cutting, making zeros, asking for extents: free.
//! - The file system's journal: where [`Gate::set_journal_ops`] was told that there is one, each sync after a change of
//!   the object's length is charged for its writes too, at a table in the class of the sync. Bytes written over others
//!   change nothing that the journal holds, so their sync adds nothing. A hole that is filled below the end would. So logs of small syncs
//!   are [written ahead](Gate::set_writes_ahead), and their syncs are charged for the journal once in a while.
//!
//! This file is a shell: policy is in [`policy::sched`]. A request that need not wait takes one lock and no allocation
//! beyond its future. For waiting requests the gate sets an alarm on the [`Clock`], with itself as the waker. The alarm
//! polls the scheduler under the lock, and wakes the granted requests after releasing it.

mod admission;
mod answers;
mod purposes;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesOrdered, FuturesUnordered, StreamExt};
use parking_lot::{Mutex, MutexGuard};
use policy::ahead::Ahead;
use policy::budget::Share;
use policy::contract::{Contract, Cost};
use policy::estimate::{Finding, IoKind, Learned};
use policy::latency::Times;
use policy::purpose::{Class, Pressure, Purpose, Tenant};
use policy::sched::{Figures, Policy, QUEUE_MAX, TenantFigures};

use self::admission::{AdmissionQueue, Passed, Passing, RequestContext, Tried};
use self::answers::Answers;
use crate::task::block_on;
use crate::{
    Check, Clock, Extent, Intent, Io, IoBuf, IoBufMut, Limits, Listed, Name, Object, Pending,
    ReadTime, Result, Space, Volume, Zeros, blocking, durable,
};

/// Pieces of one request in flight at the same time: enough to keep a network volume busy, few enough that other
/// requests go between them.
const PIECES_IN_FLIGHT: usize = 8;

/// A volume that keeps within its contract. See the [module](self).
pub struct Gate<V> {
    inner: V,
    admission: Arc<AdmissionQueue>,
    /// The state of each log, as long as it has its name.
    logs: Mutex<HashMap<Name, Arc<Mutex<Log>>>>,
}

/// What a gate knows of a log.
#[derive(Debug, Default)]
struct Log {
    /// What it owes.
    unsynced: Unsynced,
    ahead: Ahead,
}

/// What happened to a log since it was last synced.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Unsynced {
    /// The bytes that were written.
    bytes: usize,
    /// Whether its length changed, which the file system's journal records.
    is_resized: bool,
}

/// The figures of a gate.
#[derive(Clone, Debug)]
pub struct Meter {
    /// The terms in force.
    pub contract: Contract,
    /// The share of them to use while the volume gives all it should.
    pub share: Share,
    /// The share of each paid rate in use now: lower while the volume gives less.
    pub rho: f64,
    /// The part of a second's tokens that is saved up at most, now: less while bursts make the volume slow.
    pub beta: f64,
    /// The part of what was bought that the volume was found to give; `None` while it seems to give all.
    pub available: Option<f64>,
    /// Why `rho` and `beta` are what they are; `None` while the gate does not adapt.
    pub finding: Option<Finding>,
    /// The burst credits that the gate assumes, as a part of their capacity; `None` if the contract has none.
    pub credits: Option<f64>,
    /// The writes that are charged for the file system's journal at each sync of a changed length.
    pub journal_ops: u64,
    /// What happened in each class, indexed as [`Class::ALL`].
    pub classes: [Figures; Class::ALL.len()],
    /// What was let through for each purpose, indexed as [`Purpose::ALL`].
    pub purposes: [PurposeFigures; Purpose::ALL.len()],
    /// How long the device took to answer in each class, without waits at this gate.
    pub answers: [Times; Class::ALL.len()],
    /// What the device usually takes for a small read: the median since the opening, or what the contract says before there
    /// were enough; zero if neither is known.
    pub usual_read: Duration,
    /// What the device usually takes for a read or write: the median since the opening of the kind that takes longest, syncs
    /// apart; `None` before there were enough.
    pub usual_io: Option<Duration>,
    /// What was granted to each store, in the order of their numbers.
    pub tenants: Vec<(Tenant, TenantFigures)>,
    /// Spending of the last ten whole tenths of a second.
    pub last_second: Cost,
    /// The same relative to what was paid for, for the limit that is used most: 1 is the line.
    pub used: f64,
}

/// What was let through for a purpose.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PurposeFigures {
    /// Requests granted.
    pub granted: u64,
    /// Their charges.
    pub spent: Cost,
    /// Their waits together.
    pub waited: Duration,
}

impl PurposeFigures {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: Self) -> Self {
        Self {
            granted: self.granted + other.granted,
            spent: self.spent.plus(other.spent),
            waited: self.waited + other.waited,
        }
    }
}

impl Meter {
    /// What copies took of the users' classes: those for relief and rebuilds run there.
    #[must_use]
    pub fn copies(&self) -> PurposeFigures {
        let [relief, rebuild] =
            [Purpose::Relief, Purpose::Rebuild].map(|purpose| self.purposes[purpose.index()]);
        relief.plus(rebuild)
    }

    /// All tokens spent so far, in all classes. A simulated device's own count of I/Os must equal it; the kernel's count of
    /// a real one also has what the file system writes for itself.
    #[must_use]
    pub fn spent(&self) -> Cost {
        self.classes.iter().fold(Cost::default(), |sum, class| sum.plus(class.spent))
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
        let admission = Arc::new(AdmissionQueue::new(label, contract, share, scheduler, clock));
        Self { inner, admission, logs: Mutex::default() }
    }

    /// The volume behind the gate.
    pub const fn inner(&self) -> &V {
        &self.inner
    }

    /// Uses new terms from now on, also for waiting requests: the volume is bought with other ones. No token is lost or
    /// given. What was [learned](Gate::learned) stays only if the terms are the same.
    pub fn set_contract(&self, contract: &Contract) {
        self.set_contract_at_most(contract, contract);
    }

    /// The same, but uses only `most` of `contract`.
    pub fn set_contract_at_most(&self, contract: &Contract, most: &Contract) {
        self.admission.set_contract(Some(contract), most);
    }

    /// Uses only `most` of what was bought from now on, also for waiting requests. No token is lost or given, and what
    /// was learned stays.
    pub fn set_at_most(&self, most: &Contract) {
        self.admission.set_contract(None, most);
    }

    /// What the volume was bought with. The terms in force may be less: [`Meter::contract`].
    #[must_use]
    pub fn bought(&self) -> Contract {
        self.admission.bought()
    }

    /// Uses another share of the terms from now on. Saved tokens stay, up to what the new share can save up.
    pub fn set_share(&self, share: Share) {
        self.admission.set_share(share);
    }

    /// Gives a store this weight beside others, above 0: its part of the tokens where several stores wait in a class. 1 at
    /// first.
    pub fn set_io_weight(&self, tenant: Tenant, weight: f64) {
        self.admission.set_weight(tenant, weight);
    }

    /// Classes flushes and compactions by `pressure` from now on, waiting ones too.
    pub fn set_pressure(&self, pressure: Pressure) {
        self.admission.set_pressure(pressure);
    }

    /// Whether to use less than the share while the volume gives less, as [`policy::estimate`] finds out. Off at first.
    pub fn set_adapt(&self, adapt: bool) {
        self.admission.set_adapt(adapt);
    }

    /// What was found out of the volume; `None` if the gate does not [adapt](Gate::set_adapt).
    #[must_use]
    pub fn learned(&self) -> Option<Learned> {
        self.admission.learned()
    }

    /// Begins with what another gate [learned](Gate::learned) of the volume, if this one adapts.
    pub fn resume(&self, learned: &Learned) {
        self.admission.resume(learned);
    }

    /// An I/O of this kind was seen to take so long while nothing else was asked of the volume: the measure until the
    /// gate, if it [adapts](Gate::set_adapt), knows better.
    pub fn resume_usual(&self, kind: IoKind, time: Duration) {
        self.admission.resume_usual(kind, time);
    }

    /// The writes that the file system adds, for its journal, to each sync of an object whose length changed: 2 on ext4.
    /// They are charged from now on. 0 at first.
    pub fn set_journal_ops(&self, ops: u64) {
        self.admission.set_journal_ops(ops);
    }

    /// Whether to write ahead logs of small syncs, [`Object::sync_ahead`]: where bytes over others cost the file system no journal. Off at
    /// first.
    pub fn set_writes_ahead(&self, writes_ahead: bool) {
        self.admission.set_writes_ahead(writes_ahead);
    }

    /// Fails all waiting requests and every later one with `Fenced`. I/O already at the device ends as it does.
    pub fn close(&self) {
        self.admission.close();
    }

    /// The figures so far.
    #[must_use]
    pub fn meter(&self) -> Meter {
        self.admission.meter()
    }

    fn object(&self, name: &Name, inner: Arc<dyn Object>) -> Arc<dyn Object> {
        let log = inner.is_log().then(|| {
            let log = Arc::clone(self.logs.lock().entry(name.clone()).or_default());
            if Arc::strong_count(&log) == 2 {
                // No other handle: the volume has cut at this opening what it had written ahead.
                log.lock().ahead = Ahead::default();
            }
            log
        });
        let admission = Arc::clone(&self.admission);
        Arc::new(GatedObject { inner, admission, log, is_resized: AtomicBool::new(false) })
    }
}

#[deny(clippy::missing_trait_methods)]
impl<V: Volume> Volume for Gate<V> {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move {
            self.admission.check_open()?;
            Ok(self.object(&name, self.inner.create(&name, &intent).await?))
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move {
            self.admission.check_open()?;
            Ok(self.object(&name, self.inner.open(&name).await?))
        })
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        let name = name.clone();
        Box::pin(async move {
            self.admission.check_open()?;
            self.inner.remove(&name).await?;
            self.logs.lock().remove(&name);
            Ok(())
        })
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        Box::pin(async move {
            self.admission.check_open()?;
            self.inner.list().await
        })
    }

    fn space(&self) -> Pending<'_, Space> {
        Box::pin(async move {
            self.admission.check_open()?;
            self.inner.space().await
        })
    }

    fn expected_read(&self) -> ReadTime {
        self.admission.expected_read()
    }

    fn users_load(&self) -> f64 {
        self.admission.users_load()
    }

    fn limits(&self) -> Limits {
        let inner = self.inner.limits();
        inner.and(Limits { io_max: Some(self.admission.piece_len() as u64), ..inner })
    }

    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        crate::whole::write(self, name, intent, data, io)
    }

    crate::forward! {
        self => self.inner;
        fn rename(from: &Name, to: &Name) -> Pending<'_, ()>;
        fn link(from: &Name, to: &Name) -> Pending<'_, ()>;
    }
}

struct GatedObject {
    inner: Arc<dyn Object>,
    admission: Arc<AdmissionQueue>,
    /// Of a log: its state, shared by all its handles. The gate calls the layer below under this lock, so that the
    /// layer finds as many unsynced bytes as this says; it awaits the call without the lock.
    log: Option<Arc<Mutex<Log>>>,
    /// Of any other object: whether its length was changed through this handle since it was last synced.
    is_resized: AtomicBool,
}

#[deny(clippy::missing_trait_methods)]
impl Object for GatedObject {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        let piece_len = self.admission.piece_len();
        if into.len() <= piece_len {
            Box::pin(self.read_piece(offset, into, io))
        } else {
            Box::pin(self.read_pieces(offset, into, io, piece_len))
        }
    }

    fn expected_read(&self, _offset: u64, _len: u64) -> ReadTime {
        self.admission.expected_read()
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        if let Some(log) = &self.log {
            return Box::pin(self.append(log, offset, data, io));
        }
        if self.grows(offset, data.len()) {
            self.is_resized.store(true, Ordering::Relaxed);
        }
        let piece_len = self.admission.piece_len();
        if data.len() <= piece_len {
            Box::pin(self.write_piece(offset, data, io))
        } else {
            Box::pin(self.write_pieces(offset, data, io, piece_len))
        }
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        if into.len() > self.admission.piece_len() {
            return blocking::read_at(self, offset, into, io);
        }
        let passed = block_on(self.admission.pass(RequestContext::read(io), into.len()))?;
        let read = self.inner.blocking_read_at(offset, into, io);
        self.admission.answered(passed);
        read
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        let Some(log) = &self.log else {
            return blocking::write_at(self, offset, data, io);
        };
        for piece in pieces(data.len(), self.admission.unsynced_max()) {
            let start = offset + piece.start as u64;
            let _counted = block_on(self.count(log, start, piece.len(), io))?;
            self.inner.blocking_write_at(start, &data[piece], io)?;
        }
        Ok(())
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        if self.log.is_some() || data.len() > self.admission.piece_len() {
            return durable::write(self, offset, data, io);
        }
        Box::pin(async move {
            let is_resized = self.is_resized.swap(false, Ordering::Relaxed);
            if is_resized || self.grows(offset, data.len()) {
                self.admission.pass_journal(io).await?;
            }
            let passed = self.admission.pass(RequestContext::write(io), data.len()).await?;
            let written = self.inner.write_durable(offset, data, io).await;
            self.admission.answered(passed);
            written
        })
    }

    fn zero(&self, offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            self.admission.check_open()?;
            self.change_allocation();
            self.inner.zero(offset, len, room, io).await
        })
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        Box::pin(async move {
            self.admission.check_open()?;
            if len != self.inner.len() {
                self.change_allocation();
            }
            self.inner.set_len(len).await
        })
    }

    fn read_again(
        &self,
        offset: u64,
        into: IoBufMut,
        io: Io,
        check: Check,
    ) -> Pending<'_, IoBufMut> {
        crate::again::read(self, offset, into, io, check)
    }

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            self.admission.check_open()?;
            match &self.log {
                None => {
                    self.settle_journal(io).await?;
                    self.inner.seal(io).await
                }
                Some(log) => {
                    {
                        let mut log = log.lock();
                        // The volume cuts off what was written ahead.
                        log.unsynced.is_resized |= log.ahead.cut();
                    }
                    self.sync_log(log, io, Sealing::Yes).await
                }
            }
        })
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            self.admission.check_open()?;
            match &self.log {
                None => {
                    self.settle_journal(io).await?;
                    self.inner.sync(io).await
                }
                Some(log) => self.sync_log(log, io, Sealing::No).await,
            }
        })
    }

    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        crate::ahead::sync(self, more, io)
    }

    crate::forward! {
        self => self.inner;
        fn len() -> u64;
        fn is_log() -> bool;
        fn is_empty() -> bool;
        fn align(offset: u64, len: u64, io: Io) -> Pending<'_, ()>;
        fn extents(offset: u64, len: u64) -> Pending<'_, Vec<Extent>>;
    }
}

impl GatedObject {
    /// The next sync makes the file system write its journal.
    fn change_allocation(&self) {
        match &self.log {
            Some(log) => {
                let mut log = log.lock();
                log.ahead.cut();
                log.unsynced.is_resized = true;
            }
            None => self.is_resized.store(true, Ordering::Relaxed),
        }
    }

    /// Pays for the journal before the sync of an object that is no log.
    async fn settle_journal(&self, io: Io) -> Result<()> {
        if self.is_resized.swap(false, Ordering::Relaxed) {
            self.admission.pass_journal(io).await?;
        }
        Ok(())
    }

    /// Whether a write of `len` bytes at `offset` makes the object longer.
    fn grows(&self, offset: u64, len: usize) -> bool {
        offset.saturating_add(len as u64) > self.inner.len()
    }

    async fn read_piece(&self, offset: u64, into: IoBufMut, io: Io) -> Result<IoBufMut> {
        let passed = self.admission.pass(RequestContext::read(io), into.len()).await?;
        let read = self.inner.read_at(offset, into, io).await;
        self.admission.answered(passed);
        read
    }

    async fn write_piece(&self, offset: u64, data: IoBuf, io: Io) -> Result<()> {
        let passed = self.admission.pass(RequestContext::write(io), data.len()).await?;
        let written = self.inner.write_at(offset, data, io).await;
        self.admission.answered(passed);
        written
    }

    async fn read_pieces(
        &self,
        offset: u64,
        into: IoBufMut,
        io: Io,
        piece_len: usize,
    ) -> Result<IoBufMut> {
        let mut reads = FuturesOrdered::new();
        let (mut left, mut at) = (Some(into), offset);
        let mut all: Option<IoBufMut> = None;
        loop {
            while reads.len() < PIECES_IN_FLIGHT
                && let Some(into) = left.take()
            {
                let (part, rest) = match into.len() > piece_len {
                    true => {
                        let (part, rest) = into.split(piece_len);
                        (part, Some(rest))
                    }
                    false => (into, None),
                };
                left = rest;
                let len = part.len() as u64;
                reads.push_back(self.read_piece(at, part, io));
                at += len;
            }
            let Some(part) = reads.next().await.transpose()? else { break };
            let is_short = part.len() < piece_len;
            match &mut all {
                Some(all) => all.join(part),
                None => all = Some(part),
            }
            if is_short {
                // The object ends here; pieces behind its end that still wait need not go.
                break;
            }
        }
        Ok(all.unwrap_or_else(|| IoBufMut::with_capacity(0)))
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
            // After an error, wait for the other pieces in flight: none of them may overwrite what the caller writes
            // after this returns.
            let Some(written) = writes.next().await else { return outcome };
            outcome = outcome.and(written);
        }
    }

    async fn append(&self, log: &Mutex<Log>, offset: u64, data: IoBuf, io: Io) -> Result<()> {
        for piece in pieces(data.len(), self.admission.unsynced_max()) {
            let start = offset + piece.start as u64;
            let write = {
                let _counted = self.count(log, start, piece.len(), io).await?;
                self.inner.write_at(start, data.slice(piece), io)
            };
            write.await?;
        }
        Ok(())
    }

    /// Counts `len` more bytes at `offset` as unsynced, and syncs first if the sum exceeds the limit. The caller makes the
    /// write before it drops the guard.
    async fn count<'a>(
        &self,
        log: &'a Mutex<Log>,
        offset: u64,
        len: usize,
        io: Io,
    ) -> Result<MutexGuard<'a, Log>> {
        loop {
            self.admission.check_open()?;
            {
                let mut counted = log.lock();
                let bytes = counted.unsynced.bytes;
                if bytes == 0 || bytes + len <= self.admission.unsynced_max() {
                    let end = offset.saturating_add(len as u64);
                    let is_longer = end > self.inner.len() && counted.ahead.is_longer(end);
                    counted.unsynced.bytes += len;
                    counted.unsynced.is_resized |= is_longer;
                    return Ok(counted);
                }
            }
            self.sync_log(log, io, Sealing::No).await?;
        }
    }

    /// Pays for the unsynced bytes and syncs them, in one step.
    ///
    /// Writes that arrive while this waits share the sync, so they are charged here. When it is granted and more is
    /// unsynced than it paid for, it returns the whole charge and asks for the sum. The sync keeps its place: no later
    /// request of its class overtakes it, and it waits only until the tokens for the new bytes are earned. That is
    /// bounded: a log with more unsynced than a budget can pay for at once takes no writes. The sync holds no tokens
    /// while it waits: old tokens spent beside newly earned ones could exceed what the provider has.
    async fn sync_log(&self, log: &Mutex<Log>, io: Io, sealing: Sealing) -> Result<()> {
        let mut paid = None;
        loop {
            match self.try_sync_log(log, io, sealing, paid)? {
                Attempt::Made(sync, passed) => {
                    let synced = sync.await;
                    if let Some(passed) = passed {
                        self.admission.answered(passed);
                    }
                    if !matches!(synced, Ok(true)) {
                        log.lock().ahead.failed();
                    }
                    return synced.map(drop);
                }
                Attempt::Waits(owed, passing) => paid = Some((owed, passing.await?)),
            }
        }
    }

    /// Syncs a log if its unsynced bytes are those that were `paid` for, or if all of them can be paid for now. No
    /// write comes between the payment and the sync: the lock keeps it out.
    fn try_sync_log(
        &self,
        log: &Mutex<Log>,
        io: Io,
        sealing: Sealing,
        paid: Option<(Unsynced, Passed)>,
    ) -> Result<Attempt<'_>> {
        let mut log = log.lock();
        let (covered, before) = paid.unzip();
        let unsynced = log.unsynced;
        let (len, terms) = (self.inner.len(), self.admission.ahead());
        let filling = match sealing {
            Sealing::Yes => 0,
            Sealing::No => log.ahead.wanted(len, unsynced.bytes, unsynced.is_resized, &terms),
        };
        let owed = Unsynced {
            bytes: unsynced.bytes + filling,
            is_resized: unsynced.is_resized || filling > 0,
        };
        let is_due = owed.bytes > 0 || (owed.is_resized && self.admission.has_journal());
        // Tasks may be woken only without the lock.
        let (passed, polled) = if !is_due || Some(owed) == covered {
            (before, None)
        } else {
            match self.admission.try_pass(io.tenant, owed, before)? {
                (Tried::Passed(passed), polled) => (Some(passed), Some(polled)),
                (Tried::Waits(passing), polled) => {
                    drop(log);
                    self.admission.follow_up(polled);
                    return Ok(Attempt::Waits(owed, passing));
                }
            }
        };
        log.unsynced = Unsynced::default();
        log.ahead.begin(len, unsynced.bytes, unsynced.is_resized, filling, &terms);
        let sync = match sealing {
            Sealing::Yes => self.inner.seal(io).map(|sealed| sealed.map(|()| true)).boxed(),
            Sealing::No if filling == 0 => {
                self.inner.sync(io).map(|synced| synced.map(|()| true)).boxed()
            }
            Sealing::No => self.inner.sync_ahead(filling as u64, io),
        };
        drop(log);
        if let Some(polled) = polled {
            self.admission.follow_up(polled);
        }
        // Another sync covered all of it.
        if let (false, Some(unused)) = (is_due, passed) {
            self.admission.refund(unused);
            return Ok(Attempt::Made(sync, None));
        }
        Ok(Attempt::Made(sync, passed))
    }
}

/// Whether the log changes no more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sealing {
    Yes,
    No,
}

/// The result of an attempt to sync a log.
enum Attempt<'a> {
    /// The sync was issued, with its payment. It says whether what is written ahead is there.
    Made(Pending<'a, bool>, Option<Passed>),
    /// It waits to pay for this.
    Waits(Unsynced, Passing<'a>),
}

/// The ranges of at most `piece_len` bytes that make `len`; one empty range for an empty request.
fn pieces(len: usize, piece_len: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (0..len.max(1)).step_by(piece_len);
    starts.map(move |start| start..(start + piece_len).min(len))
}

#[cfg(test)]
mod tests;
