//! Clients of the devices, and an operator who makes, resizes and deletes them.

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use engine::block::store::Store;
use engine::block::{BlockDevice, BlockDevices, Durable, Error, Result, Zeros};
use futures_util::future::{Either, select};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::{IoBuf, IoBufMut};

use super::disk::{Disk, Ended, SECTOR, islands};
use super::narrow::{BLOCK, EXTENT};
use super::weather::Weather;
use super::world::World;

/// The most devices.
const DISKS_MAX: usize = 3;

/// A client of one device, in one life of the store.
pub(super) struct Client {
    pub(super) world: Rc<World>,
    pub(super) disk: Rc<Disk>,
    pub(super) random: Xoshiro256PlusPlus,
    /// Where it mostly reads and writes: less is more contention.
    pub(super) hot: usize,
}

/// A call that has begun: what may excuse its failure.
struct Begun {
    at: u64,
    resizes: u64,
}

impl Client {
    /// Reads and writes for a while.
    pub(super) async fn work(mut self, store: Store) {
        let Ok(device) = BlockDevices::open(&store, &self.disk.name).await else {
            assert!(self.disk.is_going.get(), "{}: it is not there", self.disk.name);
            return;
        };
        for _ in 0..self.random.random_range(0..60) {
            let pause = self.random.random_range(0..6_000);
            self.world.sim.clock().sleep(Duration::from_micros(pause)).await;
            if self.world.finishes.get() {
                return;
            }
            self.act(&*device).await;
        }
    }

    async fn act(&mut self, device: &dyn BlockDevice) {
        match self.random.random_range(0..100) {
            0..32 => {
                let range = self.range(device);
                self.read(device, range).await;
            }
            32..62 => self.write(device, Durable::Later).await,
            62..70 => self.write(device, Durable::Now).await,
            70..77 => self.flush(device).await,
            77..90 => {
                let is_large = self.random.random_bool(0.3);
                let range = if is_large { self.large(device) } else { self.range(device) };
                self.zero(device, range).await;
            }
            90..96 => self.extents(device).await,
            _ => {
                let (range, begun) = (self.large(device), self.begin());
                if let Some(Err(error)) = self.call(device.prefetch(range)).await {
                    self.excuse(&begun, &error);
                }
            }
        }
    }

    pub(super) async fn read(&mut self, device: &dyn BlockDevice, range: Range<u64>) {
        let begun = self.begin();
        let into = IoBufMut::zeroed((range.end - range.start) as usize);
        match self.call(device.read(range.start, into)).await {
            Some(Ok(read)) => {
                let now = self.world.tick();
                self.note("read", &range, begun.at, &"ok");
                self.disk.found(&range, &read, begun.at, now);
            }
            Some(Err(error)) => {
                self.note("read", &range, begun.at, &error);
                self.excuse(&begun, &error);
            }
            None => {}
        }
    }

    async fn write(&mut self, device: &dyn BlockDevice, durable: Durable) {
        let (range, begun) = (self.range(device), self.begin());
        let stamp = begun.at;
        self.disk.begin(&range, stamp, begun.at);
        let data = IoBuf::from(&self.disk.bytes(&range, stamp)[..]);
        let done = self.call(device.write(range.start, data, durable)).await;
        self.end("write", &range, &begun, done, durable);
    }

    async fn zero(&mut self, device: &dyn BlockDevice, range: Range<u64>) {
        let durable = if self.random.random_bool(0.2) { Durable::Now } else { Durable::Later };
        match self.random.random_range(0..3) {
            0 => {
                let inward = range.start.next_multiple_of(BLOCK)..range.end / BLOCK * BLOCK;
                let inward = inward.start..inward.end.max(inward.start);
                let begun = self.begin();
                self.disk.begin(&inward, 0, begun.at);
                let done = self.call(device.discard(range, durable)).await;
                self.end("discard", &inward, &begun, done, durable);
            }
            room => {
                let room = if room == 1 { Zeros::Free } else { Zeros::Keep };
                let begun = self.begin();
                self.disk.begin(&range, 0, begun.at);
                let done = self.call(device.zero(range.clone(), room, false, durable)).await;
                self.end("zero", &range, &begun, done, durable);
            }
        }
    }

    async fn flush(&mut self, device: &dyn BlockDevice) {
        let begun = self.begin();
        match self.call(device.flush()).await {
            Some(Ok(())) => {
                self.note("flush", &(0..0), begun.at, &"ok");
                self.disk.flushed(begun.at);
            }
            Some(Err(error)) => {
                self.note("flush", &(0..0), begun.at, &error);
                self.disk.not_flushed();
                self.excuse(&begun, &error);
            }
            None => {}
        }
    }

    async fn extents(&mut self, device: &dyn BlockDevice) {
        let large = self.random.random_bool(0.3);
        let range = if large { self.large(device) } else { self.range(device) };
        let most = if self.random.random_bool(0.3) { 2 } else { usize::MAX };
        let begun = self.begin();
        match self.call(device.extents(range.clone(), most)).await {
            Some(Ok(found)) => {
                let now = self.world.tick();
                let mut end = range.start;
                for part in &found {
                    assert_eq!(part.range.start, end, "a gap between extents: {found:?}");
                    end = part.range.end;
                    if part.is_hole {
                        // A part of a sector is none.
                        let whole = part.range.start.next_multiple_of(SECTOR)..end;
                        self.disk.found_hole(&whole, begun.at, now);
                    }
                }
                assert!(
                    end <= range.end && found.len() <= most,
                    "too much of {range:?}: {found:?}"
                );
                assert!(end == range.end || found.len() == most, "too few: {found:?}");
            }
            Some(Err(error)) => self.excuse(&begun, &error),
            None => {}
        }
    }

    fn end(
        &self,
        what: &str,
        range: &Range<u64>,
        begun: &Begun,
        done: Option<Result<()>>,
        durable: Durable,
    ) {
        let now = self.world.tick();
        match &done {
            Some(Ok(())) => {
                self.note(what, range, begun.at, &"ok");
                let durable = durable == Durable::Now || self.world.options.durable;
                self.disk.end(range, begun.at, now, Ended::Acknowledged { durable });
            }
            Some(Err(error)) => {
                self.note(what, range, begun.at, error);
                // Its own flush may be the one that failed.
                self.disk.not_flushed();
                // The log of a pool with a code may have it, and then the next process finds it there.
                if self.world.coded.is_none() {
                    self.disk.end(range, begun.at, now, Ended::Unknown);
                }
                self.excuse(begun, error);
            }
            None => {
                self.note(what, range, begun.at, &"given up");
                self.disk.end(range, begun.at, now, Ended::Unknown);
            }
        }
    }

    fn begin(&self) -> Begun {
        Begun { at: self.world.tick(), resizes: self.disk.resizes.get() }
    }

    /// Waits for a call; gives some of them up.
    async fn call<T>(&mut self, call: impl Future<Output = Result<T>>) -> Option<Result<T>> {
        // A change that is given up leaves its blocks without a checksum.
        let rots = self.world.weather.get() == Weather::Rot || !self.world.rot.is_empty();
        let gives_up = !rots && self.random.random_bool(0.1);
        if !gives_up {
            return Some(call.await);
        }
        let patience = Duration::from_micros(self.random.random_range(0..4_000));
        let sleep = pin!(self.world.sim.clock().sleep(patience));
        match select(pin!(call), sleep).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }

    /// Demands that a call may fail so.
    fn excuse(&self, begun: &Begun, error: &Error) {
        self.world.refused.set(self.world.refused.get() + 1);
        let is_fine = match error {
            Error::Invalid(_) => {
                !begun.resizes.is_multiple_of(2) || begun.resizes != self.disk.resizes.get()
            }
            Error::Closed(_) | Error::NotFound(_) if self.disk.is_going.get() => true,
            Error::Closed(_) | Error::NotFound(_) => self.world.weather.get() == Weather::Storm,
            Error::Corrupt(_) if self.world.rot.may_lack(&self.disk.name) => true,
            Error::Corrupt(_) if self.world.may_refuse() => true,
            // No fragment is left out for lack of room.
            Error::OutOfSpace(_) if self.world.was_full.borrow().get() => true,
            Error::Corrupt(_) | Error::Busy(_) | Error::Unavailable(_) | Error::OutOfSpace(_) => {
                self.world.may_fail()
            }
            _ => false,
        };
        assert!(is_fine, "{}: {error}", self.disk.name);
    }

    fn note(&self, what: &str, range: &Range<u64>, begun: u64, how: &dyn std::fmt::Display) {
        let (from, to) = (range.start / SECTOR, range.end / SECTOR);
        let name = &self.disk.name;
        self.world.sim.note(name, format_args!(". {what} {from}..{to} begun {begun}: {how}"));
    }

    /// A short range near a border.
    fn range(&mut self, device: &dyn BlockDevice) -> Range<u64> {
        let islands = islands(device.geometry().size);
        let hot = self.hot % islands.len();
        let at = match self.random.random_bool(0.6) {
            true => hot,
            false => self.random.random_range(0..islands.len()),
        };
        let island = &islands[at];
        let unit = if self.random.random_bool(0.7) { BLOCK } else { SECTOR };
        let units = (island.end - island.start) / unit;
        let from = self.random.random_range(0..units);
        let count = self.random.random_range(1..=(units - from).min(4 * BLOCK / unit));
        island.start + from * unit..island.start + (from + count) * unit
    }

    /// A range over whole extents, or nearly.
    fn large(&mut self, device: &dyn BlockDevice) -> Range<u64> {
        let size = device.geometry().size;
        let from = self.random.random_range(0..size.div_ceil(EXTENT)) * EXTENT;
        let to = size.min(from + self.random.random_range(1..=2) * EXTENT);
        let cut = |random: &mut Xoshiro256PlusPlus| match random.random_bool(0.5) {
            true => 0,
            false => random.random_range(0..3 * BLOCK / SECTOR) * SECTOR,
        };
        let (first, last) = (cut(&mut self.random), cut(&mut self.random));
        (from + first).min(to)..to.saturating_sub(last).max((from + first).min(to))
    }
}

/// Makes, resizes and deletes devices.
pub(super) async fn operate(world: Rc<World>, store: Store, mut random: Xoshiro256PlusPlus) {
    for _ in 0..random.random_range(0..5) {
        let pause = random.random_range(0..60_000);
        world.sim.clock().sleep(Duration::from_micros(pause)).await;
        if world.finishes.get() {
            return;
        }
        let disks = world.disks.borrow().clone();
        let here: Vec<_> = disks.iter().filter(|disk| !disk.is_going.get()).cloned().collect();
        let chosen = match here.len() {
            0 => None,
            len => Some(Rc::clone(&here[random.random_range(0..len)])),
        };
        match (random.random_range(0..8), chosen) {
            (0, Some(disk)) if here.len() > 1 => world.delete(&store, &disk).await,
            (0..3, _) | (_, None) if disks.len() < DISKS_MAX => {
                let size = Disk::any_size(&mut random);
                world.create(&store, size).await;
            }
            (_, Some(disk)) => {
                let size = Disk::any_size(&mut random);
                world.resize(&store, &disk, size).await;
            }
            _ => {}
        }
    }
}
