//! A power cut: a volume that knows what was synced, and forgets any part of the rest.
//!
//! Everything since an object's last sync is kept in a journal. When the [`Power`] goes off, every
//! call fails; [`Crash::survivor`] then shows a volume as the next start may find it. One seed is one
//! possible outcome, so a test tries many.
//!
//! # Which faults are modelled
//!
//! - **Writes** are kept or lost in pieces of 4 KiB pages, each by itself, whatever was written
//!   before or after: a later write may be there without an earlier one.
//! - **A page may tear**: of each of its 512-byte sectors the old or the new bytes are there. Bytes
//!   that a rewritten page shares with its older self are in no danger.
//! - **The length** may be any the object had since its last sync, whichever bytes were kept; bytes
//!   nobody kept read as zeros. Changes of the length are kept or lost like writes.
//! - **A new object** is there or not until its first sync; if it is, with any part of its bytes.
//! - **A removed object** may be back, as it was or with any part of what was not synced, until
//!   another object was synced after the removal.
//! - **The operation under way** as the power goes fails at its caller, and may have happened in any
//!   part, as if it had ended and not been synced.
//! - **Logs** are no exception: this is the death of the machine. What the death of the process
//!   leaves is [`Crash::after_process_death`].
//!
//! Not modelled here: bytes that rot, are misplaced, or cannot be read back
//! ([`crate::layer::fault`] does that), and a device that lies about a sync. Sectors never hold a
//! mixture, and stale bytes of other objects never show.

mod journal;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use self::journal::{Change, Id, Journal};
use crate::mem::{Bytes, Mem};
use crate::{
    Error, ErrorKind, Intent, Io, IoBuf, IoBufMut, Listed, Name, Object, Pending, Result, Space,
    Volume, ready,
};

/// What several volumes of one machine are plugged into. Clones are the same socket.
///
/// A *step* is a call that changes what may survive: create, remove, write, set_len or sync. A test
/// runs its work once to count the [`Power::steps`], then again with a cut at each of them.
#[derive(Clone)]
pub struct Power(Arc<Mutex<Supply>>);

struct Supply {
    on: bool,
    steps: u64,
    /// How many more steps end before the power goes.
    left: Option<u64>,
}

impl Power {
    /// Power that stays on until it is cut.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Supply { on: true, steps: 0, left: None })))
    }

    /// `steps` more steps end well; the one after them is under way as the power goes.
    pub fn cut_after(&self, steps: u64) {
        self.0.lock().left = Some(steps);
    }

    /// The power goes off now, between two steps.
    pub fn cut(&self) {
        self.0.lock().on = false;
    }

    /// Whether the power went off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        !self.0.lock().on
    }

    /// Steps begun so far, the one the power went off in included.
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
    /// Counts a step; false if the power goes while it is under way.
    fn step(&mut self) -> bool {
        self.steps += 1;
        self.on = self.left != Some(0);
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.on
    }
}

/// A volume in memory that a power cut can hit. Clones are handles to the same one.
///
/// It is a leaf: layers go around it. A process that dies and starts again opens the same `Crash`;
/// what it had not synced can still be lost in a later cut.
#[derive(Clone)]
pub struct Crash {
    power: Power,
    /// What a running machine sees: every call that was answered, page cache and all.
    live: Mem,
    /// What is behind it on the device. Locked after the power, never without it.
    journal: Arc<Mutex<Journal>>,
}

impl Crash {
    /// A volume that holds what `mem` holds, all of it durable. Room set aside for new objects is as durable as
    /// their names. It takes `mem` over: whoever else
    /// changes it goes behind the journal's back.
    #[must_use]
    pub fn new(mem: Mem, power: &Power) -> Self {
        let journal = Arc::new(Mutex::new(Journal::of(mem.image(), &mem.set_aside())));
        Self { power: power.clone(), live: mem, journal }
    }

    /// What is there after the power went off (or would go off now): everything synced and a part of
    /// the rest that depends on `seed` alone. It has as much room, and is full if more than that came back.
    #[must_use]
    pub fn survivor(&self, seed: u64) -> Mem {
        let _power = self.power.0.lock();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (image, set_aside) = self.journal.lock().survivor(&mut rng);
        Mem::recovered(self.live.label(), self.live.capacity(), image, &set_aside)
    }

    /// What is there after the process died and the machine lives: everything that was issued. It
    /// has as much room.
    #[must_use]
    pub fn after_process_death(&self) -> Mem {
        let _power = self.power.0.lock();
        let (image, set_aside) = (self.live.image(), self.live.set_aside());
        Mem::recovered(self.live.label(), self.live.capacity(), image, &set_aside)
    }

    /// Keeps the power as it is for the length of one call, if it is on.
    fn powered(&self) -> Result<MutexGuard<'_, Supply>> {
        let power = self.power.0.lock();
        if power.on { Ok(power) } else { Err(self.off()) }
    }

    fn off(&self) -> Error {
        Error::new(ErrorKind::Unavailable, format!("{}: power is off", self.live.label()))
    }

    /// Journals one step that already happened to the live volume.
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
        let set_aside = intent.len.unwrap_or(0);
        ready((|| {
            let power = self.powered()?;
            let bytes = self.live.create_now(name, set_aside)?;
            let id = self.journal.lock().create(name, set_aside);
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

    fn expected_wait(&self) -> Duration {
        Duration::ZERO
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

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        crate::blocking::read_at(self, offset, into, io)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        crate::blocking::write_at(self, offset, data, io)
    }

    fn len(&self) -> u64 {
        self.bytes.len()
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

    fn sync(&self, _io: Io) -> Pending<'_, ()> {
        ready((|| {
            let mut power = self.volume.powered()?;
            if !power.step() {
                // Not even begun, half done, done: every one of them is among the survivors.
                return Err(self.volume.off());
            }
            self.volume.journal.lock().sync(self.id);
            Ok(())
        })())
    }
}

#[cfg(test)]
mod tests;
