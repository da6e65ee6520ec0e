//! A user of a log store, with its own keys.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use engine::log::{Edit, Store};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::crash::Power;
use volume::{Error, ErrorKind};

use super::model::{Death, Model, Seen};
use crate::Sim;

/// Keys of one user.
const KEYS: u32 = 24;

pub(crate) struct Client {
    name: String,
    number: u8,
    model: RefCell<Model>,
    random: RefCell<Xoshiro256PlusPlus>,
    operations: Cell<u32>,
    /// The keys of the last batch.
    batch: RefCell<Option<Vec<Vec<u8>>>>,
    answered: Cell<u64>,
    /// The user overwrites its keys in turn, and passes their lifetimes.
    cyclic: bool,
    /// Volumes fail, so calls may.
    pub(crate) may_fail: Cell<bool>,
}

impl Client {
    pub(crate) fn new(sim: &Sim, number: u8) -> Self {
        let name = format!("user {number}");
        let mut random = sim.random(&name);
        let cyclic = random.random();
        let keys = 0..KEYS;
        let model = keys.map(|n| (key(number, n), Default::default())).collect();
        Self {
            model: RefCell::new(model),
            random: RefCell::new(random),
            operations: Cell::default(),
            batch: RefCell::default(),
            answered: Cell::default(),
            name,
            number,
            cyclic,
            may_fail: Cell::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// The bytes and the number of live records.
    pub(crate) fn live(&self) -> (u64, u64) {
        let model = self.model.borrow();
        let alive = model.iter().filter_map(|(key, known)| Some((key, known.settled()?)));
        alive.fold((0, 0), |(bytes, keys), (key, operation)| {
            let record = 40 + key.len() + value(self.number, operation).len();
            (bytes + record.next_multiple_of(8) as u64, keys + 1)
        })
    }

    /// Checks every key after a crash.
    pub(crate) async fn witness(
        &self,
        store: &Store,
        death: Death,
        durable: bool,
        atomic: bool,
    ) -> Result<(), Error> {
        let mut found = BTreeMap::new();
        let keys: Vec<_> = self.model.borrow().keys().cloned().collect();
        for key in keys {
            let seen = self.read(store, &key).await?;
            let allowed = self.model.borrow()[&key].after(death, durable);
            assert!(
                allowed.contains(&seen),
                "{} found {seen:?} under {key:?} after the death of the {death:?}, and {allowed:?} \
                 may be there",
                self.name
            );
            found.insert(key, seen);
        }
        if let Some(batch) = self.batch.take().filter(|_| atomic) {
            let seen: Vec<_> = batch.iter().map(|key| found[key]).collect();
            let whole = self.operations.get() - 1;
            let there = seen.iter().filter(|seen| **seen == Some(whole)).count();
            assert!(there == 0 || there == seen.len(), "{}: half a batch: {seen:?}", self.name);
        }
        let mut model = self.model.borrow_mut();
        for (key, seen) in found {
            model.get_mut(&key).expect("it is one of them").witness(seen);
        }
        Ok(())
    }

    /// Works until done, or until the power goes off.
    pub(crate) async fn work(self: std::rc::Rc<Self>, sim: Sim, store: Store, power: Power) {
        let count = self.random.borrow_mut().random_range(0..400);
        for _ in 0..count {
            let pause = self.random.borrow_mut().random_range(0..2_000);
            if pause < 500 {
                sim.clock().sleep(Duration::from_micros(pause)).await;
            }
            if let Err(error) = self.step(&sim, &store).await {
                sim.note(&self.name, format_args!(". {error}"));
                let full = error.kind() == ErrorKind::OutOfSpace;
                let may_fail = full || self.may_fail.get();
                assert!(may_fail || power.is_off(), "{}: {error}", self.name);
                if power.is_off() {
                    return;
                }
            }
        }
    }

    async fn step(&self, sim: &Sim, store: &Store) -> Result<(), Error> {
        let kind = self.random.borrow_mut().random_range(0..100);
        match kind {
            0..60 => self.put(sim, store).await,
            60..75 => self.delete(sim, store).await,
            75..82 => self.put_several(sim, store).await,
            82..98 => {
                let key = self.any_key();
                let seen = self.read(store, &key).await?;
                assert!(
                    self.model.borrow()[&key].may_be(seen),
                    "{} read {seen:?} under {key:?}: {:?}",
                    self.name,
                    self.model.borrow()[&key]
                );
                Ok(())
            }
            _ => self.sync(sim, store).await,
        }
    }

    async fn put(&self, sim: &Sim, store: &Store) -> Result<(), Error> {
        let operation = self.begin();
        let (key, lives) = if self.cyclic {
            (key(self.number, operation % KEYS), Some(u64::from(KEYS) * 1_500))
        } else {
            (self.any_key(), None)
        };
        sim.note(&self.name, format_args!("> put {key:?} {operation}"));
        self.batch.take();
        self.change(&key, Some(operation));
        store.put(&key, value(self.number, operation), lives).await?;
        self.end(&key);
        sim.note(&self.name, format_args!(". put {operation}"));
        Ok(())
    }

    async fn delete(&self, sim: &Sim, store: &Store) -> Result<(), Error> {
        let key = self.any_key();
        sim.note(&self.name, format_args!("> delete {key:?}"));
        self.batch.take();
        let known = self.model.borrow()[&key].clone();
        self.change(&key, None);
        let had = store.delete(&key).await?;
        self.end(&key);
        assert!(had || known.may_be(None), "{}: {key:?} was there: {known:?}", self.name);
        sim.note(&self.name, format_args!(". deleted {had}"));
        Ok(())
    }

    async fn put_several(&self, sim: &Sim, store: &Store) -> Result<(), Error> {
        let operation = self.begin();
        let first = self.random.borrow_mut().random_range(0..KEYS);
        let count = self.random.borrow_mut().random_range(2..5);
        let keys: Vec<_> = (0..count).map(|n| key(self.number, (first + n) % KEYS)).collect();
        sim.note(&self.name, format_args!("> put together {keys:?} {operation}"));
        self.batch.replace(Some(keys.clone()));
        let edit = |key: &Vec<u8>| Edit::Put {
            key: Bytes::copy_from_slice(key),
            value: value(self.number, operation),
            lives: None,
        };
        keys.iter().for_each(|key| self.change(key, Some(operation)));
        store.write(keys.iter().map(edit).collect()).await?;
        keys.iter().for_each(|key| self.end(key));
        sim.note(&self.name, format_args!(". put together {operation}"));
        Ok(())
    }

    async fn sync(&self, sim: &Sim, store: &Store) -> Result<(), Error> {
        sim.note(&self.name, format_args!("> sync"));
        let upto: Vec<_> =
            self.model.borrow().iter().map(|(key, known)| (key.clone(), known.len())).collect();
        store.sync().await?;
        let mut model = self.model.borrow_mut();
        for (key, upto) in upto {
            model.get_mut(&key).expect("it is one of them").synced(upto);
        }
        sim.note(&self.name, format_args!(". synced"));
        Ok(())
    }

    async fn read(&self, store: &Store, key: &[u8]) -> Result<Seen, Error> {
        let Some(found) = store.get(key).await? else { return Ok(None) };
        let operation = u32::from_le_bytes(found[..4].try_into().expect("four bytes"));
        assert_eq!(*found, *value(self.number, operation), "{} under {key:?}", self.name);
        Ok(Some(operation))
    }

    fn begin(&self) -> u32 {
        self.operations.replace(self.operations.get() + 1)
    }

    fn change(&self, key: &[u8], seen: Seen) {
        self.model.borrow_mut().get_mut(key).expect("it is one of them").begin(seen);
    }

    fn end(&self, key: &[u8]) {
        self.answered.set(self.answered.get() + 1);
        self.model.borrow_mut().get_mut(key).expect("it is one of them").answered();
    }

    fn any_key(&self) -> Vec<u8> {
        key(self.number, self.random.borrow_mut().random_range(0..KEYS))
    }
}

fn key(user: u8, n: u32) -> Vec<u8> {
    [&[user], &n.to_be_bytes()[2..]].concat()
}

/// The value of an operation: its number, then bytes derived from it.
fn value(user: u8, operation: u32) -> Bytes {
    let mixed = operation.wrapping_mul(0x9e37_79b9) ^ u32::from(user);
    let len = match mixed >> 28 {
        0 => 4,
        1..12 => 4 + (mixed >> 8) % 1_500,
        _ => (mixed >> 8) % 6_000 + 4,
    };
    let mut bytes = operation.to_le_bytes().to_vec();
    bytes.resize(len as usize, mixed as u8);
    bytes.into()
}
