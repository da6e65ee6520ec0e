//! The intent that placement gets for every table before its first byte is written.

use std::sync::Arc;

use parking_lot::Mutex;
use policy::intent::{Intent, KeyRange, Kind};
use policy::placement::{Candidate, Layout, New, Placement, RoundRobin, Tables};
use pool::PoolId;
use pool::spread::{Opening, Spread};
use rocks::{Db, Settings, Shim};
use rust_rocksdb::{DB, Options, SstFileWriter, WriteBatch};
use volume::Clock;

use crate::support::{compact, fill, key, options, plain, pool_of, try_open, value, volumes};

/// Places in turn, and records the intents.
struct Telling {
    place: RoundRobin,
    told: Arc<Mutex<Vec<Intent>>>,
}

impl Placement for Telling {
    fn choose(&mut self, new: New<'_>, on: &[Candidate], tables: &Tables) -> Option<Layout> {
        self.told.lock().push(new.intent.clone());
        self.place.choose(new, on, tables)
    }
}

/// The recorded description of a table.
#[derive(Debug, PartialEq)]
struct Told {
    family: String,
    level: Option<u8>,
    range: Option<(Vec<u8>, Vec<u8>)>,
    len: Option<u64>,
}

struct Rig {
    pool: Spread,
    told: Arc<Mutex<Vec<Intent>>>,
}

impl Rig {
    fn new() -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let placement = Telling { place: RoundRobin::default(), told: Arc::clone(&told) };
        let opening = Opening::new(placement).create_if_missing(PoolId(7));
        Self { pool: pool_of(plain(&volumes(2)), opening).unwrap(), told }
    }

    /// The tables described since the last call.
    fn tables(&self) -> Vec<Told> {
        let told = std::mem::take(&mut *self.told.lock());
        let tables = told.into_iter().filter_map(|Intent { kind, len, .. }| match kind {
            Kind::Table { family, level, range } => {
                let range = range.map(|KeyRange { first, last }| (first.into(), last.into()));
                Some(Told { family: family.0.to_string(), level, range, len })
            }
            Kind::Log | Kind::Data | Kind::InPlace => None,
        });
        tables.collect()
    }

    fn open(&self, mut options: Options) -> Db {
        let shim = Shim::new(self.pool.clone(), Clock::real(), "kv", Settings::default()).unwrap();
        options.create_missing_column_families(true);
        shim.install(&mut options);
        let families = ["default", "other"].map(|name| (name, options.clone()));
        Db::new(DB::open_cf_with_opts(&options, Shim::PATH, families).unwrap(), shim)
    }
}

fn keys(from: u32, upto: u32) -> Option<(Vec<u8>, Vec<u8>)> {
    Some((key(from).into(), key(upto).into()))
}

/// Options with which only the test flushes and compacts.
fn roomy() -> Options {
    let mut options = options();
    options.set_write_buffer_size(16 << 20);
    options.set_disable_auto_compactions(true);
    options
}

#[test]
fn a_flushed_table_is_at_level_0_and_has_the_keys_of_its_memtable() {
    let rig = Rig::new();
    let db = rig.open(roomy());
    for (name, family, keys_of) in [("default", "kv#0", 3..50), ("other", "kv#1", 20..900)] {
        let handle = db.cf_handle(name).unwrap();
        for i in keys_of.clone() {
            db.put_cf(handle, key(i), value(i, 1)).unwrap();
        }
        db.flush_cf(handle).unwrap();
        let [table] = &rig.tables()[..] else { panic!("one table") };
        assert_eq!((&*table.family, table.level), (family, Some(0)));
        assert_eq!(table.range, keys(keys_of.start, keys_of.end - 1));
        assert!(table.len.is_some());
    }
}

#[test]
fn tables_of_a_compaction_share_the_keys_out() {
    let rig = Rig::new();
    let db = rig.open(roomy());
    for version in 0..2 {
        fill(&db, 0..5000, version);
        db.flush().unwrap();
    }
    rig.tables();
    compact(&db);
    let tables = rig.tables();
    assert!(tables.len() > 3, "{tables:?}");
    let mut next = 0;
    for table in &tables {
        assert_eq!((&*table.family, table.level), ("kv#0", Some(1)));
        let (first, last) = table.range.as_ref().expect("its keys are known");
        assert_eq!(*first, key(next));
        next = String::from_utf8_lossy(&last[3..]).parse::<u32>().unwrap() + 1;
    }
    assert_eq!(next, 5000);
}

#[test]
fn a_deleted_range_counts_as_keys() {
    let rig = Rig::new();
    let db = rig.open(roomy());
    let mut batch = WriteBatch::default();
    batch.put(key(50), b"");
    batch.delete_range(key(10), key(20));
    batch.delete_range(key(60), key(90));
    db.write(&batch).unwrap();
    db.flush().unwrap();
    assert_eq!(rig.tables()[0].range, keys(10, 90));
}

#[test]
fn a_table_nobody_described_does_not_get_anothers_keys() {
    let rig = Rig::new();
    let options = roomy();
    let db = rig.open(options);
    let mut installed = roomy();
    let shim = Shim::new(rig.pool.clone(), Clock::real(), "kv", Settings::default()).unwrap();
    shim.install(&mut installed);
    fill(&db, 0..10, 1);
    db.flush().unwrap();
    rig.tables();
    let mut writer = SstFileWriter::create(&installed);
    writer.open("/import.sst").unwrap();
    writer.put(b"z", b"").unwrap();
    writer.finish().unwrap();
    let [table] = &rig.tables()[..] else { panic!("one table") };
    assert_eq!((&*table.family, table.level, &table.range), ("kv", None, &None));
}

#[test]
fn keys_in_another_order_are_not_told() {
    let rig = Rig::new();
    let mut options = roomy();
    options.set_comparator("backwards", Box::new(|a: &[u8], b: &[u8]| b.cmp(a)));
    let db = rig.open(options);
    fill(&db, 0..10, 1);
    db.flush().unwrap();
    let [table] = &rig.tables()[..] else { panic!("one table") };
    assert_eq!((&*table.family, table.level, &table.range), ("kv#0", Some(0), &None));
}

#[test]
fn a_table_that_is_streamed_is_placed_by_family_and_level() {
    let rig = Rig::new();
    let settings = Settings { table_buffers: 0, ..Settings::default() };
    let db = rocks::open(rig.pool.clone(), Clock::real(), "kv", roomy(), settings).unwrap();
    fill(&db, 0..10, 1);
    db.flush().unwrap();
    let told = Told { family: "kv#0".into(), level: Some(0), range: None, len: None };
    assert_eq!(rig.tables(), [told]);
    drop(db);
    crate::support::check(&try_open(&rig.pool, roomy()).unwrap(), 0..10, 1);
}
