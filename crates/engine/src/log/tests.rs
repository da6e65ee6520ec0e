use std::collections::BTreeMap;

use policy::units::{KIB, MIB};
use volume::layer::trace::Trace;
use volume::mem::Mem;
use volume::{Name, Volume};

use super::*;

mod copies;
mod damage;
mod disk;
mod emergency;
mod full;
mod hints;
mod lease;
mod merge;
mod pool;
mod store;

const ID: StoreId = StoreId([7; 16]);
const CAPACITY: u64 = 4 * MIB;

/// A store on volumes in memory, and its clock.
struct Rig {
    clock: Clock,
    mems: Vec<Mem>,
    options: Options,
}

impl Rig {
    fn new(volumes: u16) -> Self {
        let mut options = Options::new(volumes);
        options.file_bytes = 64 * KIB;
        options.live = 0.3;
        options.groups = 1;
        let mems = (0..volumes).map(|n| Mem::with_capacity(&format!("v{n}"), CAPACITY));
        Self { clock: Clock::simulated(), mems: mems.collect(), options }
    }

    fn members(&self) -> Vec<Member> {
        self.mems.iter().map(|mem| Member::new(mem.label(), mem.clone())).collect()
    }

    fn open(&self) -> (Store, Report) {
        let opening =
            Store::open(self.members(), self.options.clone(), self.clock.clone(), Some(ID));
        self.clock.run(opening).unwrap()
    }

    fn store(&self) -> Store {
        self.open().0
    }

    fn put(&self, store: &Store, key: &[u8], value: &[u8]) {
        self.clock.run(store.put(key, Bytes::copy_from_slice(value), None)).unwrap();
    }

    /// Puts a value of `len` bytes made of `n`. If the store is full, merges must make room for it.
    fn put_when_there_is_room(&self, store: &Store, key: u64, n: u64, len: usize) {
        let put = || self.clock.run(store.put(&key.to_be_bytes(), value(n, len).into(), None));
        let mut tries = 0;
        while let Err(error) = put() {
            assert_eq!(error.kind(), ErrorKind::OutOfSpace);
            self.tend(store);
            tries += 1;
            assert!(tries < 3, "{n}: {error}: {:#?}", store.figures());
        }
    }

    fn get(&self, store: &Store, key: &[u8]) -> Option<Vec<u8>> {
        self.clock.run(store.get(key)).unwrap().map(|value| value.to_vec())
    }

    /// Tends the store until there is nothing left to do.
    fn tend(&self, store: &Store) {
        for member in 0..store.volumes() {
            while self.clock.run(store.tend_once(member)).unwrap() {}
        }
    }

    /// Reads the whole store.
    fn all(&self, store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut iter = store.iter(b"");
        while let Some((key, value)) = self.clock.run(iter.next()).unwrap() {
            assert!(all.last_key_value().is_none_or(|(last, _)| last[..] < key[..]), "in order");
            all.insert(key.to_vec(), value.to_vec());
        }
        all
    }
}

fn value(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (n.wrapping_mul(31) + i as u64) as u8).collect()
}
