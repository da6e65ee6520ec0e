//! A store on a pool with two copies of everything: what one copy lost, the other gives, and the pool repairs the first.

use ::pool::PoolId;
use ::pool::spread::{Damage, Opening, Spread};
use policy::placement::RoundRobin;
use volume::layer::call::Op;
use volume::layer::trace::TraceLog;

use super::*;

const RECORDS: u64 = 6;

/// Two volumes with a pool, and a store with one file, which is sealed.
struct Copies {
    rig: Rig,
    pool: Spread,
}

impl Copies {
    fn new() -> Self {
        let mut rig = Rig::new(1);
        rig.mems = (0..2).map(|n| Mem::new(&format!("v{n}"))).collect();
        let copies = Self { pool: open_pool(&rig), rig };
        let store = copies.open().0;
        for n in 0..RECORDS {
            copies.rig.put(&store, &n.to_be_bytes(), &value(n, 100 + n as usize));
        }
        copies.rig.clock.run(store.close()).unwrap();
        copies
    }

    fn open(&self) -> (Store, Report) {
        let members = vec![Member::new("pool", self.pool.clone())];
        let (options, clock) = (self.rig.options.clone(), self.rig.clock.clone());
        self.rig.clock.run(Store::open(members, options, clock, Some(ID))).unwrap()
    }

    fn run<T>(&self, future: impl Future<Output = Result<T>>) -> T {
        self.rig.clock.run(future).unwrap()
    }

    /// The object of the store whose name ends with `end`.
    fn name(&self, end: &str) -> Name {
        let names = self.run(self.pool.list()).into_iter().map(|listed| listed.name);
        names.into_iter().find(|name| name.as_str().ends_with(end)).unwrap()
    }

    /// The leaf object of its copy on a volume.
    fn leaf(&self, end: &str, volume: usize) -> Name {
        let id = self.run(self.pool.stat(&self.name(end))).id.to_string();
        let mut leaves = self.rig.mems[volume].image().into_keys();
        leaves.find(|leaf| leaf.as_str()[1..].starts_with(&id)).unwrap()
    }

    /// Flips a bit of the copy on a volume.
    fn rot(&self, end: &str, volume: usize, offset: u64) {
        let leaf = self.leaf(end, volume);
        self.rig.mems[volume].damage(&leaf, offset, |byte| *byte ^= 4);
    }

    fn assert_alike(&self, end: &str, context: &str) {
        let bytes = |volume: usize| self.rig.mems[volume].image()[&self.leaf(end, volume)].clone();
        assert!(bytes(0) == bytes(1), "{context}: the copies differ");
    }

    fn assert_all_reads(&self, store: &Store, context: &str) {
        for n in 0..RECORDS {
            let found = self.rig.get(store, &n.to_be_bytes());
            assert_eq!(found, Some(value(n, 100 + n as usize)), "{context}: record {n}");
        }
    }
}

fn open_pool(rig: &Rig) -> Spread {
    let members = rig.mems.iter().map(|mem| ::pool::Member::new(mem.label(), mem.clone()));
    let opening = Opening::new(RoundRobin::default()).copies(2).create_if_missing(PoolId(5));
    rig.clock.run(Spread::open(members.collect(), opening)).unwrap()
}

const ONE_REPAIRED: Damage = Damage { found: 1, repaired: 1, left: 0 };

/// Half of the reads of a record failed with `Corrupt` if one of its two copies was rotten.
#[test]
fn a_record_with_one_rotten_copy_is_read_and_the_copy_repaired() {
    for volume in 0..2 {
        // In the heads, keys and values of the third record, and of the first.
        for offset in [2 * 4096 + 5, 2 * 4096 + 44, 2 * 4096 + 90, 64 + 12] {
            let context = format!("byte {offset} on volume {volume}");
            let copies = Copies::new();
            let store = copies.open().0;
            copies.rot(".seg", volume, offset);
            for _ in 0..8 {
                copies.assert_all_reads(&store, &context);
            }
            assert_eq!(store.health().damaged, 0, "{context}");
            assert_eq!(copies.pool.damage(), ONE_REPAIRED, "{context}");
            copies.assert_alike(".seg", &context);
        }
    }
}

#[test]
fn a_record_without_a_good_copy_is_damaged_and_counted_by_the_store_alone() {
    let copies = Copies::new();
    let store = copies.open().0;
    for volume in 0..2 {
        copies.rot(".seg", volume, 4096 + 90);
    }
    for _ in 0..4 {
        let failed = copies.rig.clock.run(store.get(&1u64.to_be_bytes())).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Corrupt);
        assert!(failed.to_string().contains(".seg: record at byte 4096"), "{failed}");
    }
    assert_eq!((store.health().damaged, copies.pool.damage().found), (1, 0));
}

/// A merge marked the file as damaged for ever, although one copy had the record.
#[test]
fn a_merge_copies_a_record_from_the_copy_that_has_it() {
    for volume in 0..2 {
        for offset in [4096 + 5, 4096 + 90] {
            let copies = Copies::new();
            let store = copies.open().0;
            copies.rot(".seg", volume, offset);
            let file = {
                let state = store.0.state();
                let place = state.index.get(&1u64.to_be_bytes()).unwrap();
                Arc::clone(&state.files[&place.file].handle)
            };
            let io = Io::new(Origin::Merge { space_pressure_percent: 50 }, Step::Data);
            assert!(copies.run(store.0.copy(0, &file, io)), "byte {offset} on {volume}");
            copies.assert_all_reads(&store, "merged");
            assert_eq!(store.figures().volumes[0].counts.damaged, 0);
            assert_eq!(copies.pool.damage().left, 0);
        }
    }
}

/// A scan took the records of a rotten copy for lost: a start without a hint, and a scrub.
#[test]
fn a_scan_asks_the_other_copy_before_it_calls_a_record_damaged() {
    for volume in 0..2 {
        // The header, a head, a value, and the last record, of which nothing says that it was durable.
        for offset in [20, 2 * 4096 + 12, 3 * 4096 + 90, 5 * 4096 + 12, 5 * 4096 + 90] {
            let context = format!("byte {offset} on volume {volume}");
            let copies = Copies::new();
            let store = copies.open().0;
            copies.rot(".seg", volume, offset);
            for _ in 0..8 {
                let scrubbed = copies.run(store.scrub());
                assert_eq!((scrubbed.lost, scrubbed.harmless), (vec![], vec![]), "{context}");
            }
            assert_eq!(copies.pool.damage(), ONE_REPAIRED, "{context}");
            copies.assert_alike(".seg", &context);
            drop(store);

            let hint = copies.name(".hint");
            for _ in 0..4 {
                copies.run(copies.pool.remove(&hint));
                copies.rot(".seg", volume, offset);
                let (store, report) = copies.open();
                assert_eq!((report.scanned, report.damage.len()), (1, 0), "{context}: {report:?}");
                assert_eq!(report.torn, Vec::<String>::new(), "{context}");
                copies.assert_all_reads(&store, &context);
                copies.rig.tend(&store);
            }
        }
    }
}

#[test]
fn a_hint_is_read_from_the_good_copy() {
    for volume in 0..2 {
        let copies = Copies::new();
        copies.rot(".hint", volume, 60);
        for _ in 0..8 {
            let (store, report) = copies.open();
            assert_eq!((report.scanned, report.damage.len()), (0, 0), "{report:?}");
            copies.assert_all_reads(&store, "hinted");
        }
        assert_eq!(copies.pool.damage(), ONE_REPAIRED);
        copies.assert_alike(".hint", "hint");
    }
}

/// The older lease of the store was used if the newer one was rotten in one copy.
#[test]
fn the_lease_is_read_from_the_good_copy() {
    for volume in 0..2 {
        for slot in 0..2 {
            let copies = Copies::new();
            let member = Member::new("pool", copies.pool.clone());
            let names = Names::new("log").unwrap();
            let lease = || copies.run(recovery::own_object(&member, &names)).slot;
            let newest = lease();
            copies.rot("/store", volume, slot * 4096 + 20);
            for _ in 0..8 {
                assert_eq!(lease(), newest);
            }
            assert_eq!(copies.pool.damage(), ONE_REPAIRED);
            copies.assert_alike("/store", "lease");
        }
    }
}

/// Two traced volumes with a pool, and a store whose records all are in one file, which stays open.
struct Growing {
    rig: Rig,
    log: TraceLog,
}

impl Growing {
    const RECORDS: u64 = 1200;
    const VALUE: usize = 10_001;

    fn new() -> Self {
        let mut rig = Rig::new(1);
        rig.mems = (0..2).map(|n| Mem::new(&format!("v{n}"))).collect();
        (rig.options.durability, rig.options.file_bytes) = (Durability::Never, 64 * MIB);
        Self { rig, log: TraceLog::new(1_000_000) }
    }

    fn open(&self) -> (Store, Report) {
        let Self { rig, log } = self;
        let members = rig.mems.iter().map(|mem| {
            let traced = Trace::new(mem.clone(), mem.label(), log, &rig.clock);
            ::pool::Member::new(mem.label(), traced)
        });
        let opening = Opening::new(RoundRobin::default()).copies(2).create_if_missing(PoolId(5));
        let pool = rig.clock.run(Spread::open(members.collect(), opening)).unwrap();
        let (options, clock) = (rig.options.clone(), rig.clock.clone());
        let opening = Store::open(vec![Member::new("pool", pool)], options, clock, Some(ID));
        rig.clock.run(opening).unwrap()
    }

    /// Writes 12 MB, and syncs after each 120 kB.
    fn fill(&self, store: &Store) {
        for n in 0..Self::RECORDS {
            self.rig.put(store, &n.to_be_bytes(), &value(n, Self::VALUE));
            if n % 12 == 0 {
                self.rig.clock.run(store.sync()).unwrap();
            }
        }
    }

    fn bytes_read(&self) -> u64 {
        assert_eq!(self.log.forgotten(), 0);
        let records = self.log.records();
        let reads = records.iter().filter(|record| record.call.op == Op::Read);
        reads.map(|read| read.call.len).sum()
    }
}

/// After each sync the store begins a page, which once ended the pool's checksum of the file: to seal a full file, the pool
/// read all of its copies, and after a crash it compared them from their beginnings.
#[test]
fn a_file_that_is_synced_while_it_grows_is_sealed_without_reading_it() {
    let growing = Growing::new();
    let (store, _) = growing.open();
    growing.fill(&store);
    let before = growing.bytes_read();
    growing.rig.clock.run(store.close()).unwrap();
    assert_eq!(growing.bytes_read() - before, 0, "sealing a file read it");
}

/// A start waited for the seals of the files that the last process had open, for which the pool reads all copies.
#[test]
fn a_start_after_a_crash_reads_each_open_file_once_and_the_end_of_its_copies() {
    let growing = Growing::new();
    growing.fill(&growing.open().0);
    let before = growing.bytes_read();
    let (store, report) = growing.open();
    assert_eq!((report.scanned, report.damage.len()), (1, 0));
    let read = growing.bytes_read() - before;
    // The pool records a checksum for each 4 MiB, and compares what follows; besides, the manifest and headers are read.
    assert!((12_000_000..12_000_000 + 2 * 5 * MIB).contains(&read), "{read} bytes were read");
    for n in 0..Growing::RECORDS {
        let found = growing.rig.get(&store, &n.to_be_bytes());
        assert_eq!(found, Some(value(n, Growing::VALUE)));
    }
}
