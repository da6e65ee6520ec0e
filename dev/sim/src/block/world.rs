//! What outlives the store: the devices as their clients know them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use engine::block::Error;
use engine::block::store::{Options, Store};

use super::coded::Coded;
use super::disk::{Disk, Ended};
use super::history::{Keeps, Moment};
use super::rot::Rot;
use super::weather::Weather;
use crate::Sim;

/// The devices over all lives of the store.
pub(super) struct World {
    pub(super) sim: Sim,
    pub(super) options: Options,
    /// The pool keeps extents as fragments.
    pub(super) coded: Option<Coded>,
    pub(super) weather: Cell<Weather>,
    /// Some volumes are away in this life.
    pub(super) lacks_volumes: Cell<bool>,
    /// Whether a volume was full in this life.
    pub(super) was_full: RefCell<Rc<Cell<bool>>>,
    /// The process ends in order: no call is begun any more.
    pub(super) finishes: Cell<bool>,
    pub(super) disks: RefCell<Vec<Rc<Disk>>>,
    /// Devices whose creation was not acknowledged, and their sizes.
    pending: RefCell<Vec<(u64, u64)>>,
    pub(super) rot: Rot,
    serials: Cell<u64>,
    moments: Cell<Moment>,
    pub(super) refused: Cell<u64>,
}

impl World {
    pub(super) fn new(sim: &Sim, options: Options, coded: Option<Coded>) -> Self {
        Self {
            sim: sim.clone(),
            options,
            coded,
            weather: Cell::new(Weather::Calm),
            lacks_volumes: Cell::new(false),
            was_full: RefCell::default(),
            finishes: Cell::new(false),
            disks: RefCell::default(),
            pending: RefCell::default(),
            rot: Rot::default(),
            serials: Cell::new(0),
            moments: Cell::new(0),
            refused: Cell::new(0),
        }
    }

    /// The next moment.
    pub(super) fn tick(&self) -> Moment {
        self.moments.set(self.moments.get() + 1);
        self.moments.get()
    }

    /// Calls may fail.
    pub(super) fn may_fail(&self) -> bool {
        matches!(self.weather.get(), Weather::Storm | Weather::Flicker) || self.lacks_volumes.get()
    }

    pub(super) async fn create(&self, store: &Store, size: u64) {
        let serial = self.serials.get();
        self.serials.set(serial + 1);
        self.pending.borrow_mut().push((serial, size));
        let disk = Disk::new(serial, size);
        let done = store.create(&disk.name, size).await;
        self.sim.note("operator", format_args!(". {} of {size}: {done:?}", disk.name));
        match done {
            Ok(()) => {
                self.pending.borrow_mut().retain(|&(other, _)| other != serial);
                self.disks.borrow_mut().push(Rc::new(disk));
            }
            Err(error) => self.excuse(&error),
        }
    }

    pub(super) async fn delete(&self, store: &Store, disk: &Rc<Disk>) {
        disk.is_going.set(true);
        let done = store.delete(&disk.name).await;
        self.sim.note("operator", format_args!(". {} deleted: {done:?}", disk.name));
        match done {
            Ok(()) => self.disks.borrow_mut().retain(|other| !Rc::ptr_eq(other, disk)),
            Err(error) => self.excuse(&error),
        }
    }

    pub(super) async fn resize(&self, store: &Store, disk: &Rc<Disk>, size: u64) {
        let before = disk.sizes.borrow()[0];
        disk.sizes.borrow_mut().push(size);
        disk.resizes.set(disk.resizes.get() + 1);
        let cut = size.min(before)..before;
        let begun = self.tick();
        disk.begin(&cut, 0, begun);
        let done = store.resize(&disk.name, size, true).await;
        self.sim.note("operator", format_args!(". {} of {size}: {done:?}", disk.name));
        let now = self.tick();
        disk.resizes.set(disk.resizes.get() + 1);
        match done {
            Ok(()) => {
                disk.end(&cut, begun, now, Ended::Acknowledged { durable: true });
                *disk.sizes.borrow_mut() = vec![size];
            }
            Err(error) => {
                disk.not_flushed();
                disk.end(&cut, begun, now, Ended::Unknown);
                self.excuse(&error);
            }
        }
    }

    fn excuse(&self, error: &Error) {
        self.refused.set(self.refused.get() + 1);
        let is_full = matches!(error, Error::OutOfSpace(_)) && self.was_full.borrow().get();
        assert!(is_full || self.may_fail(), "operator: {error}");
    }

    /// Whether a reader may get `Corrupt`, since the parity of a fragment that rots may be wrong, too.
    pub(super) fn may_refuse(&self) -> bool {
        self.coded.as_ref().is_some_and(|coded| coded.spoiled.is_unfit())
    }

    /// The store was opened: the devices that it must have are there, and no others.
    pub(super) fn compare(&self, store: &Store) {
        let listed = store.list();
        for (serial, size) in std::mem::take(&mut *self.pending.borrow_mut()) {
            let disk = Disk::new(serial, size);
            if listed.iter().any(|info| info.name == disk.name) {
                self.disks.borrow_mut().push(Rc::new(disk));
            }
        }
        let size_of =
            |name: &str| listed.iter().find(|info| info.name == name).map(|info| info.size);
        self.disks.borrow_mut().retain(|disk| {
            let size = size_of(&disk.name);
            assert!(size.is_some() || disk.is_going.get(), "{} is not there", disk.name);
            disk.is_going.set(false);
            size.inspect(|&size| disk.settle_size(size)).is_some()
        });
        let known: BTreeSet<_> = self.disks.borrow().iter().map(|disk| disk.name.clone()).collect();
        for info in listed {
            assert!(known.contains(&info.name), "{} is back", info.name);
        }
    }

    /// The process ends.
    pub(super) fn die(&self, keeps: Keeps) {
        let now = self.tick();
        self.disks.borrow().iter().for_each(|disk| disk.die(keeps, now));
    }
}
