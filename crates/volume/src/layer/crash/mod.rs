//! A power cut: a volume that knows what was synced, and loses any part of the rest.
//!
//! A journal keeps every change since an object's last sync. After the [`Power`] goes off, every call fails;
//! [`Crash::survivor`] then shows a volume as the next start may find it. Each seed is one possible outcome, so a test
//! tries many.
//!
//! # Which faults are modelled
//!
//! - **Writes** are kept or lost in pieces of 4 KiB pages, each independently: a later write may survive without an
//!   earlier one.
//! - **A page may tear**: each of its 512-byte sectors has the old or the new bytes. Bytes that a rewrite of a page
//!   leaves the same are safe.
//! - **The length** may be any that the object had since its last sync, whichever bytes survive; lost bytes read as
//!   zeros. Changes of the length are kept or lost like writes.
//! - **A new object** may be missing until its first sync; if it is there, it may have any part of its bytes.
//! - **A removed object** may be back, with any part of its unsynced changes, until another object was synced after the
//!   removal.
//! - **The operation in flight** at the cut fails for its caller, and may have taken effect in any part, like one that
//!   ended without a sync.
//! - **Logs** are no exception: this is the death of the machine. For the death of the process see
//!   [`Crash::after_process_death`].
//!
//! - **Bytes that rot** do so when a test says it: see [`Crash::damage`].
//!
//! Not modelled here: bytes that are misplaced or unreadable ([`crate::layer::fault`] models those), and a device
//! that reports a sync it did not make. Sectors never mix old and new bytes, and stale bytes of other objects never
//! show.

mod journal;

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use self::journal::{Change, Id, Journal};
use crate::mem::{Born, Bytes, Mem};
use crate::{
    Check, Error, ErrorKind, Extent, Intent, Io, IoBuf, IoBufMut, Limits, Listed, Name, Object,
    Pending, ReadTime, Result, Space, Volume, Zeros, extent, ready, unsupported, whole,
};

/// The power supply of several volumes of one machine. Clones share it.
///
/// A *step* is a call that changes what may survive: create, remove, write, zero, set_len or sync. A test
/// runs its work once to count the [`Power::steps`], then again with a cut at each of them.
#[derive(Clone)]
pub struct Power(Arc<Mutex<Supply>>);

struct Supply {
    on: bool,
    steps: u64,
    /// How many more steps end before the cut.
    left: Option<u64>,
}

impl Power {
    /// Power that stays on until it is cut.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Supply { on: true, steps: 0, left: None })))
    }

    /// `steps` more steps succeed; the cut hits the one after them.
    pub fn cut_after(&self, steps: u64) {
        self.0.lock().left = Some(steps);
    }

    /// Cuts the power now, between two steps.
    pub fn cut(&self) {
        self.0.lock().on = false;
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        !self.0.lock().on
    }

    /// Steps begun so far, including the one that the cut hit.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.0.lock().steps
    }
}

impl Default for Power {
    fn default() -> Self {
        Self::new()
    }
}

impl Supply {
    /// Counts a step; false if the cut hits it.
    fn step(&mut self) -> bool {
        self.steps += 1;
        self.on = self.left != Some(0);
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.on
    }
}

/// A volume in memory that a power cut can hit. Clones share one volume.
///
/// It is a leaf: layers go around it. A process that dies and starts again opens the same `Crash`; a later cut can
/// still lose what it had not synced.
#[derive(Clone)]
pub struct Crash {
    power: Power,
    /// The view of the running machine: every answered call, page cache included.
    live: Mem,
    /// The view of the device. Locked after the power, never without it.
    journal: Arc<Mutex<Journal>>,
}

impl Crash {
    /// A volume with the content of `mem`, all of it durable. Room set aside for new objects is as durable as their
    /// names. The caller must not change `mem` any more: the journal would miss it.
    #[must_use]
    pub fn new(mem: Mem, power: &Power) -> Self {
        let journal = Arc::new(Mutex::new(Journal::of(mem.image(), &mem.born())));
        Self { power: power.clone(), live: mem, journal }
    }

    /// The volume after a power cut (or after one now): everything synced, and a part of the rest that depends on
    /// `seed` alone. It has the same capacity, and is full if more than that survives.
    #[must_use]
    pub fn survivor(&self, seed: u64) -> Mem {
        let _power = self.power.0.lock();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (image, born) = self.journal.lock().survivor(&mut rng);
        Mem::recovered(self.live.label(), self.live.capacity(), image, &born)
    }

    /// The volume after the process died and the machine lives: everything that was issued. It has the same capacity.
    #[must_use]
    pub fn after_process_death(&self) -> Mem {
        let _power = self.power.0.lock();
        let (image, born) = (self.live.image(), self.live.born());
        Mem::recovered(self.live.label(), self.live.capacity(), image, &born)
    }

    /// Changes a durable byte of an object without a write, as a device does that rots. The running machine reads it, and
    /// every survivor has it, unless an unsynced change covers it. Returns the byte as it was, or `None` if the object has
    /// no such durable byte, or `change` leaves it as it is.
    pub fn damage(&self, name: &Name, offset: u64, change: impl Fn(u8) -> u8) -> Option<u8> {
        let _power = self.power.0.lock();
        self.live.open_now(name).ok()?;
        let mut journal = self.journal.lock();
        let (durable, is_covered) = journal.durable_byte(name, offset)?;
        let found = *durable;
        *durable = change(found);
        if *durable == found {
            return None;
        }
        if !is_covered {
            self.live.damage(name, offset, |byte| *byte = change(*byte));
        }
        Some(found)
    }

    /// Locks the power for one call, if it is on.
    fn powered(&self) -> Result<MutexGuard<'_, Supply>> {
        let power = self.power.0.lock();
        if power.on { Ok(power) } else { Err(self.off()) }
    }

    fn off(&self) -> Error {
        Error::new(ErrorKind::Unavailable, format!("{}: power is off", self.live.label()))
    }

    /// Ends a step that already happened to the live volume and the journal.
    fn step<T>(&self, mut power: MutexGuard<'_, Supply>, done: T) -> Result<T> {
        if power.step() { Ok(done) } else { Err(self.off()) }
    }

    fn object(&self, id: Id, bytes: Arc<Bytes>) -> Arc<dyn Object> {
        Arc::new(CrashObject { volume: self.clone(), id, bytes })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Volume for Crash {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let born = Born::of(intent);
        ready((|| {
            let power = self.powered()?;
            let bytes = self.live.create_now(name, born)?;
            let id = self.journal.lock().create(name, born);
            self.step(power, self.object(id, bytes))
        })())
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        ready((|| {
            let _power = self.powered()?;
            let bytes = self.live.open_now(name)?;
            Ok(self.object(self.journal.lock().id(name), bytes))
        })())
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        ready((|| {
            let power = self.powered()?;
            self.live.remove_now(name)?;
            self.journal.lock().remove(name);
            self.step(power, ())
        })())
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        ready(self.powered().map(|_power| self.live.list_now()))
    }

    fn space(&self) -> Pending<'_, Space> {
        ready(self.powered().map(|_power| self.live.space_now()))
    }

    fn expected_read(&self) -> ReadTime {
        ReadTime::default()
    }

    fn users_load(&self) -> f64 {
        0.0
    }

    fn limits(&self) -> Limits {
        Limits::PAGES
    }

    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        whole::write(self, name, intent, data, io)
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        unsupported::call(format_args!("rename {from} to {to}"))
    }

    fn link(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        unsupported::call(format_args!("link {from} to {to}"))
    }
}

struct CrashObject {
    volume: Crash,
    id: Id,
    bytes: Arc<Bytes>,
}

impl CrashObject {
    fn change(&self, apply: impl FnOnce(&Bytes) -> Result<Change>) -> Result<()> {
        let power = self.volume.powered()?;
        let change = apply(&self.bytes)?;
        self.volume.journal.lock().change(self.id, change);
        self.volume.step(power, ())
    }
}

#[deny(clippy::missing_trait_methods)]
impl Object for CrashObject {
    fn read_at(&self, offset: u64, into: IoBufMut, _io: Io) -> Pending<'_, IoBufMut> {
        ready(self.volume.powered().map(|_power| self.bytes.read_at(offset, into)))
    }

    fn write_at(&self, offset: u64, data: IoBuf, _io: Io) -> Pending<'_, ()> {
        ready(self.change(|bytes| {
            bytes.write_at(offset, &data)?;
            Ok(Change::Write { offset, data })
        }))
    }

    fn write_durable(&self, offset: u64, data: IoBuf, _io: Io) -> Pending<'_, ()> {
        ready((|| {
            let mut power = self.volume.powered()?;
            self.bytes.write_at(offset, &data)?;
            let mut journal = self.volume.journal.lock();
            if !power.step() {
                // Nothing, a part or all of it reached the device.
                journal.change(self.id, Change::Write { offset, data });
                return Err(self.volume.off());
            }
            journal.write_durable(self.id, offset, data);
            Ok(())
        })())
    }

    fn zero(&self, offset: u64, len: u64, _room: Zeros, _io: Io) -> Pending<'_, ()> {
        ready(self.change(|bytes| {
            let zeroed = bytes.zero(offset, len);
            let data = IoBufMut::zeroed((zeroed.end - zeroed.start) as usize).freeze();
            Ok(Change::Write { offset: zeroed.start, data })
        }))
    }

    fn extents(&self, offset: u64, len: u64) -> Pending<'_, Vec<Extent>> {
        extent::all_data(self, offset, len)
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        crate::blocking::read_at(self, offset, into, io)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        crate::blocking::write_at(self, offset, data, io)
    }

    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn is_log(&self) -> bool {
        self.bytes.is_log()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        ready(self.change(|bytes| {
            bytes.set_len(len)?;
            Ok(Change::SetLen(len))
        }))
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

    fn align(&self, _offset: u64, _len: u64, _io: Io) -> Pending<'_, ()> {
        ready(Ok(()))
    }

    fn expected_read(&self, _offset: u64, _len: u64) -> ReadTime {
        ReadTime::default()
    }

    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        crate::ahead::sync(self, more, io)
    }

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        self.sync(io)
    }

    fn sync(&self, _io: Io) -> Pending<'_, ()> {
        ready((|| {
            let mut power = self.volume.powered()?;
            if !power.step() {
                // The sync may have had no effect, a part of it, or all: survivors include each.
                return Err(self.volume.off());
            }
            self.volume.journal.lock().sync(self.id);
            Ok(())
        })())
    }
}

#[cfg(test)]
mod tests;
