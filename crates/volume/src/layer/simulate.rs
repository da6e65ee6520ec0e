//! A volume that answers as its provider would: throttled to its contract, with the latency of a network volume or of a
//! spinning disk.
//!
//! It belongs right above the leaf and below the gate, where the device would be. Every `read_at` is one request to the
//! device, and so is every `write_at` of an object other than a log. Writes to a log go through the page cache and are
//! free; a sync is one request for the bytes written since the last. Every other call is free.
//!
//! A request reaches the volume inside at once and is answered when the provider would answer it
//! (Calcspar's traces, ATC 2023), or later if the volume inside takes longer than that.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use policy::contract::{Contract, Cost, Direction};
use policy::disk::{Busy, Disk, Runs};
use policy::latency;
use policy::provider::Provider;
use policy::time::{Instant, NANOS_PER_SEC};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{
    Check, Clock, Intent, Io, IoBuf, IoBufMut, Limits, Listed, Name, Object, Pending, ReadTime,
    Space, Volume, Zeros, durable,
};

/// How many seconds [`Meter::seconds`] goes back.
const SECONDS_KEPT: usize = 3600;

/// A volume under a provider's contract.
///
/// The volume inside decides what is durable or ordered, and every error.
pub struct Simulate<V> {
    inner: V,
    device: Arc<Device>,
}

impl<V: Volume> Simulate<V> {
    /// Puts `inner` under `contract`. Time passes on `clock`. Latencies are drawn from `seed`: the same requests at the
    /// same times get the same ones.
    ///
    /// # Panics
    /// When the contract could admit nothing: a limit of zero, a disk that does not turn.
    pub fn new(inner: V, contract: &Contract, clock: Clock, seed: u64) -> Self {
        let now = clock.now();
        let state = State {
            terms: Terms::new(contract, now),
            next_free: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            meter: Meter::default(),
            objects: HashMap::new(),
        };
        let device = Device { clock, state: Mutex::new(state) };
        Self { inner, device: Arc::new(device) }
    }

    /// Uses other terms from now on, as after a modification at the provider: the limits are those of a fresh volume.
    /// Earlier requests keep their time of answer.
    ///
    /// # Panics
    /// As [`Simulate::new`].
    pub fn set_contract(&self, contract: &Contract) {
        let mut state = self.device.state.lock();
        state.terms = Terms::new(contract, self.device.clock.now());
    }

    /// The provider's figures so far.
    #[must_use]
    pub fn meter(&self) -> Meter {
        let state = self.device.state.lock();
        let disk = state.terms.disk.as_ref().map(Disk::busy);
        Meter { disk, ..state.meter.clone() }
    }
}

/// Figures of one volume at its provider. Requests count when they arrive.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Meter {
    /// Since the start.
    pub total: Count,
    /// The sum of all waits for tokens.
    pub wait_total: Duration,
    /// The longest wait for tokens.
    pub wait_max: Duration,
    /// The last hour, by seconds of the clock, without idle seconds.
    pub seconds: VecDeque<(u64, Count)>,
    /// How a spinning disk spent its time; `None` for other devices.
    pub disk: Option<Busy>,
}

/// Requests to a device, and what they cost.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Count {
    /// Requests.
    pub requests: u64,
    /// Operations they were charged as.
    pub ops: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Requests that had to wait for tokens: overdrafts.
    pub throttled: u64,
}

impl Meter {
    fn count(&mut self, now: Instant, cost: Cost, wait: Duration) {
        self.wait_total += wait;
        self.wait_max = self.wait_max.max(wait);
        let second = now.as_nanos() / NANOS_PER_SEC;
        if self.seconds.back().is_none_or(|&(last, _)| last < second) {
            self.seconds.push_back((second, Count::default()));
        }
        if self.seconds.len() > SECONDS_KEPT {
            self.seconds.pop_front();
        }
        let this_second = self.seconds.back_mut().map(|(_, count)| count);
        for count in this_second.into_iter().chain([&mut self.total]) {
            count.requests += 1;
            count.ops += cost.ops;
            count.bytes += cost.bytes;
            count.throttled += u64::from(!wait.is_zero());
        }
    }
}

struct Device {
    clock: Clock,
    state: Mutex<State>,
}

/// A contract and its state.
struct Terms {
    contract: Contract,
    provider: Provider,
    disk: Option<Disk>,
}

impl Terms {
    fn new(contract: &Contract, now: Instant) -> Self {
        Self {
            provider: Provider::new(contract, now),
            disk: contract.disk.as_ref().map(|mechanics| Disk::new(mechanics, now)),
            contract: contract.clone(),
        }
    }
}

struct State {
    terms: Terms,
    /// The first address of the disk that no object has.
    next_free: u64,
    random: Xoshiro256PlusPlus,
    meter: Meter,
    /// State that all handles of an object share, as long as it has its name.
    objects: HashMap<Name, Arc<Mutex<Extent>>>,
}

/// What the device knows of an object. Locked after the device's state, never before.
#[derive(Default)]
struct Extent {
    /// Where the object lies on a disk.
    runs: Runs,
    /// Dirty bytes of a log: as many as were written since the last sync, from the first of them on.
    dirty: Range<u64>,
}

impl Extent {
    fn soil(&mut self, offset: u64, len: u64) {
        let bytes = self.dirty.end - self.dirty.start + len;
        let from = if self.dirty.is_empty() { offset } else { self.dirty.start.min(offset) };
        self.dirty = from..from.saturating_add(bytes);
    }
}

impl Device {
    /// Counts one request; returns when it will be answered.
    fn request(
        &self,
        extent: &Mutex<Extent>,
        direction: Direction,
        offset: u64,
        len: u64,
    ) -> Instant {
        let state = &mut *self.state.lock();
        let terms = &mut state.terms;
        // Reads the time under the lock, so that the provider's queue sees it grow.
        let now = self.clock.now();
        let cost = terms.contract.cost(direction, len);
        let admitted = terms.provider.admit(now, cost);
        state.meter.count(now, cost, admitted.at.since(now));
        let latency = &terms.contract.latency;
        let percentiles = match direction {
            Direction::Read => &latency.read,
            Direction::Write => &latency.write,
        };
        let base = percentiles.quantile(state.random.random());
        let answered_at = latency::answered_at(now, admitted, base);
        match &mut terms.disk {
            None => answered_at,
            Some(disk) => {
                let address = extent.lock().runs.address(offset, len, &mut state.next_free);
                answered_at.max(disk.serve(admitted.at, address, len) + base)
            }
        }
    }

    /// A handle of the object `name`. If its length is expected, it lies on the disk in one piece.
    fn handle(
        self: &Arc<Self>,
        name: &Name,
        expected: Option<u64>,
        inner: Arc<dyn Object>,
    ) -> Arc<dyn Object> {
        let state = &mut *self.state.lock();
        let extent = Arc::clone(state.objects.entry(name.clone()).or_default());
        if let Some(len) = expected {
            extent.lock().runs.address(0, len, &mut state.next_free);
        }
        let is_log = inner.is_log();
        Arc::new(Simulated { inner, device: Arc::clone(self), extent, is_log })
    }
}

#[deny(clippy::missing_trait_methods)]
impl<V: Volume> Volume for Simulate<V> {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let created = self.inner.create(name, intent);
        let (name, len) = (name.clone(), intent.len);
        Box::pin(async move { Ok(self.device.handle(&name, len, created.await?)) })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let opened = self.inner.open(name);
        let name = name.clone();
        Box::pin(async move { Ok(self.device.handle(&name, None, opened.await?)) })
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        let removed = self.inner.remove(name);
        let name = name.clone();
        Box::pin(async move {
            removed.await?;
            self.device.state.lock().objects.remove(&name);
            Ok(())
        })
    }

    crate::forward! {
        self => self.inner;
        fn list() -> Pending<'_, Vec<Listed>>;
        fn space() -> Pending<'_, Space>;
        fn expected_read() -> ReadTime;
        fn users_load() -> f64;
        fn limits() -> Limits;
        fn rename(from: &Name, to: &Name) -> Pending<'_, ()>;
        fn link(from: &Name, to: &Name) -> Pending<'_, ()>;
    }

    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        crate::whole::write(self, name, intent, data, io)
    }
}

/// A handle of one object.
///
/// The bytes of a log count as written, and as synced, at the call, not when its future is first polled. So a layer
/// above that counts at the call gets the same number.
struct Simulated {
    inner: Arc<dyn Object>,
    device: Arc<Device>,
    extent: Arc<Mutex<Extent>>,
    is_log: bool,
}

#[deny(clippy::missing_trait_methods)]
impl Object for Simulated {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        Box::pin(async move {
            let len = into.len() as u64;
            let at = self.device.request(&self.extent, Direction::Read, offset, len);
            let read = self.inner.read_at(offset, into, io).await;
            self.device.clock.sleep_until(at).await;
            read
        })
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        if self.is_log {
            self.extent.lock().soil(offset, data.len() as u64);
            return self.inner.write_at(offset, data, io);
        }
        Box::pin(async move {
            let len = data.len() as u64;
            let at = self.device.request(&self.extent, Direction::Write, offset, len);
            let written = self.inner.write_at(offset, data, io).await;
            self.device.clock.sleep_until(at).await;
            written
        })
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        if self.is_log {
            return durable::write(self, offset, data, io);
        }
        Box::pin(async move {
            let len = data.len() as u64;
            let at = self.device.request(&self.extent, Direction::Write, offset, len);
            let written = self.inner.write_durable(offset, data, io).await;
            self.device.clock.sleep_until(at).await;
            written
        })
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> crate::Result<usize> {
        crate::blocking::read_at(self, offset, into, io)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> crate::Result<()> {
        crate::blocking::write_at(self, offset, data, io)
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

    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        crate::ahead::sync(self, more, io)
    }

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        self.sync(io)
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        let dirty = std::mem::take(&mut self.extent.lock().dirty);
        if dirty.is_empty() {
            return self.inner.sync(io);
        }
        Box::pin(async move {
            let (start, len) = (dirty.start, dirty.end - dirty.start);
            let at = self.device.request(&self.extent, Direction::Write, start, len);
            let synced = self.inner.sync(io).await;
            self.device.clock.sleep_until(at).await;
            synced
        })
    }

    crate::forward! {
        self => self.inner;
        fn len() -> u64;
        fn is_log() -> bool;
        fn is_empty() -> bool;
        fn align(offset: u64, len: u64, io: Io) -> Pending<'_, ()>;
        fn expected_read(offset: u64, len: u64) -> ReadTime;
        fn zero(offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()>;
        fn extents(offset: u64, len: u64) -> Pending<'_, Vec<crate::Extent>>;
        fn set_len(len: u64) -> Pending<'_, ()>;
    }
}

#[cfg(test)]
mod tests;
