//! A power cut at each step of a short run, which creates, renames and removes every kind of file: one
//! run for each call to a volume.
//!
//! docs/adr/0006 defines the steps of the pool: *create* is a leaf object, its bytes, its sync, a record
//! and the manifest's sync; *rename* a record and a sync; *remove* a record, a sync and the leaf object.
//! The test records the calls of a run without a cut and asserts that they contain all of these.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pool::spread::Spread;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use rocks::Db;
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{Error, IngestExternalFileOptions, Options, SstFileWriter, WriteOptions};
use volume::layer::call::Op;
use volume::layer::crash::Power;
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;
use volume::{Clock, Volume};

use super::{CODED, FLAT, JOINED, MIRRORED, Shape, patient};
use crate::support::{
    NAME, at_once, compact, key, layered, names, plain, rounds_asked, try_open_all_at,
    try_open_families, value,
};

const KEYS: u32 = 40;
const FAMILY: &str = "ships";

/// What was acknowledged until the cut.
#[derive(Default)]
struct Promised {
    /// The last version of each key that was acknowledged, and the last one tried; 0 is none.
    keys: BTreeMap<u32, [u32; 2]>,
    /// The family: created, drop tried, dropped.
    family: [bool; 3],
    ingested: bool,
    /// The keys before the checkpoint began, which it has at least.
    checkpoint: Option<BTreeMap<u32, [u32; 2]>>,
}

impl Promised {
    fn put(&mut self, db: &Db, i: u32, version: u32) -> Result<(), Error> {
        let mut sync = WriteOptions::default();
        sync.set_sync(true);
        let known = self.keys.entry(i).or_default();
        known[1] = version;
        match version {
            0 => db.delete_opt(key(i), &sync)?,
            _ => db.put_opt(key(i), value(i, version), &sync)?,
        }
        known[0] = version;
        Ok(())
    }

    fn fill(&mut self, db: &Db, version: u32) -> Result<(), Error> {
        (0..KEYS).try_for_each(|i| self.put(db, i, version))
    }

    /// Runs from a blank pool to a database that was opened again, with its pool. Stops at the first error.
    fn live(&mut self, shape: &Shape, volumes: &[Arc<dyn Volume>]) -> rocks::Result<()> {
        self.first_half(&(shape.pool)(volumes.to_vec())?)?;
        let db = open(&(shape.pool)(volumes.to_vec())?)?;
        Ok(self.fill(&db, 4)?)
    }

    fn first_half(&mut self, pool: &Spread) -> rocks::Result<()> {
        let mut db = open(pool)?;
        self.fill(&db, 1)?;
        db.flush()?;
        self.fill(&db, 2)?;
        db.flush()?;
        // Removes both tables.
        compact(&db);
        self.fill(&db, 3)?;
        let mut options = quiet();
        db.shim().install(&mut options);
        db.create_cf(FAMILY, &options)?;
        self.family[0] = true;
        db.put_cf(db.cf_handle(FAMILY).expect("it was made"), "a", "b")?;
        ingest(&db, &options)?;
        self.ingested = true;
        let before = self.keys.clone();
        Checkpoint::new(&db)?.create_checkpoint("/copy")?;
        self.checkpoint = Some(before);
        (0..KEYS / 2).try_for_each(|i| self.put(&db, i, 0))?;
        self.family[1] = true;
        db.drop_cf(FAMILY)?;
        self.family[2] = true;
        Ok(db.flush()?)
    }
}

fn quiet() -> Options {
    let mut options = patient();
    options.set_disable_auto_compactions(true);
    options
}

fn open(pool: &Spread) -> rocks::Result<Db> {
    try_open_families(pool, &["default"], quiet())
}

fn ingest(db: &Db, options: &Options) -> Result<(), Error> {
    let mut writer = SstFileWriter::create(options);
    writer.open("/import.sst")?;
    writer.put(b"zz", b"ingested")?;
    writer.finish()?;
    let mut how = IngestExternalFileOptions::default();
    how.set_move_files(true);
    db.ingest_external_file_opts(&how, vec!["/import.sst"])
}

fn check_keys(db: &Db, keys: &BTreeMap<u32, [u32; 2]>, what: &str) {
    for (&i, versions) in keys {
        let found = db.get(key(i)).expect("a get");
        let allowed = versions.map(|version| (version > 0).then(|| value(i, version)));
        assert!(allowed.contains(&found), "{what}: key {i} is {found:?}, not of {versions:?}");
    }
}

/// Opens what a cut left, and checks it.
fn check(pool: &Spread, promised: &Promised, what: &str) {
    let opened = try_open_all_at(pool, NAME, quiet());
    let (db, families) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    let [made, dropping, dropped] = promised.family;
    let there = families.iter().any(|name| name == FAMILY);
    assert!(!made || dropping || there, "{what}: a family is gone");
    assert!(!dropped || !there, "{what}: a family is back");
    check_keys(&db, &promised.keys, what);
    let ingested = db.get(b"zz").expect("a get");
    assert!(!promised.ingested || ingested.as_deref() == Some(b"ingested"), "{what}: {ingested:?}");
    // The database repeats the steps that were cut.
    db.put(b"after", b"the crash").unwrap();
    db.flush().unwrap();
    if names(pool, "kv/copy/").is_empty() {
        assert!(promised.checkpoint.is_none(), "{what}: a checkpoint is gone");
        Checkpoint::new(&db).unwrap().create_checkpoint("/copy").expect("a name that is free");
    }
    compact(&db);
    let mut options = quiet();
    options.create_if_missing(false);
    let (copy, _) = try_open_all_at(pool, "kv/copy", options).expect("a checkpoint is whole");
    if let Some(keys) = &promised.checkpoint {
        check_keys(&copy, keys, what);
    }
}

/// Asserts that a run made each call on each kind of file.
fn assert_every_step(calls: &TraceLog) {
    let made: BTreeSet<_> = calls
        .records()
        .iter()
        .filter_map(|record| {
            let name = record.call.name.as_ref()?.as_str();
            let kind = ["manifest-", ".tab", ".log", ".header"];
            Some((record.call.op, *kind.iter().find(|kind| name.contains(**kind))?))
        })
        .collect();
    for step in [
        (Op::Create, ".tab"),
        (Op::Write, ".tab"),
        (Op::Sync, ".tab"),
        (Op::Remove, ".tab"),
        (Op::Create, ".log"),
        (Op::Write, ".log"),
        (Op::Sync, ".log"),
        (Op::Remove, ".log"),
        (Op::Create, "manifest-"),
        (Op::Write, "manifest-"),
        (Op::Sync, "manifest-"),
        (Op::Remove, "manifest-"),
    ] {
        assert!(made.contains(&step), "{step:?} is not among {made:?}");
    }
}

/// The most leaf objects that one table got.
fn leaves_of_a_table(calls: &TraceLog) -> usize {
    let mut leaves = BTreeMap::<_, BTreeSet<_>>::new();
    for record in calls.records().iter().filter(|record| record.call.op == Op::Create) {
        let name = record.call.name.as_ref().map(|name| name.as_str().to_owned());
        let Some(name) = name.filter(|name| name.ends_with(".tab")) else { continue };
        let table = name.split(['-', '.']).next().map(str::to_owned);
        leaves.entry(table).or_default().insert(name);
    }
    leaves.values().map(BTreeSet::len).max().unwrap_or(0)
}

/// Runs with a cut after `steps`; returns whether it was cut, what was acknowledged, and two outcomes.
fn cut_after(shape: &Shape, steps: u64) -> (bool, Promised, Vec<Vec<Mem>>) {
    let power = Power::new();
    let crash = shape.machine(&power);
    power.cut_after(steps);
    let mut promised = Promised::default();
    let lived = promised.live(shape, &plain(&crash));
    assert!(lived.is_ok() || power.is_off(), "with the power on: {lived:?}");
    let outcomes = (0..2).map(|i| crash.iter().map(|v| v.survivor(2 * steps + i)).collect());
    (power.is_off(), promised, outcomes.collect())
}

/// Cuts the power at each `stride`th step.
fn cut_between_steps(shape: &Shape, stride: u64) {
    let steps = {
        let (power, clock, calls) = (Power::new(), Clock::real(), TraceLog::new(1_000_000));
        let crash = shape.machine(&power);
        let traced = layered(&crash, |volume, label| Trace::new(volume, label, &calls, &clock));
        Promised::default().live(shape, &traced).unwrap();
        assert_every_step(&calls);
        assert!(leaves_of_a_table(&calls) >= shape.table_leaves, "tables are not in fragments");
        power.steps()
    };
    // RocksDB's own threads vary the number of steps a little.
    let uncut = AtomicU64::new(0);
    at_once(0..(steps + 32) / stride + 1, |k| {
        let k = k * stride;
        let (cut, promised, outcomes) = cut_after(shape, k);
        uncut.fetch_add(u64::from(!cut), Ordering::Relaxed);
        for (i, survivors) in outcomes.iter().enumerate() {
            // Before the first promise there may be no pool on what is left.
            let pool = if promised.keys.is_empty() {
                shape.survived(survivors)
            } else {
                shape.survived_losses(survivors, &mut Xoshiro256PlusPlus::seed_from_u64(k))
            };
            check(&pool, &promised, &format!("cut at step {k}, outcome {i}"));
        }
    });
    assert!(uncut.into_inner() > 0, "the last steps of a run were not cut");
}

#[test]
fn a_power_cut_between_any_two_steps_leaves_what_was_promised() {
    cut_between_steps(&FLAT, 1);
}

#[test]
fn a_power_cut_and_the_loss_of_two_volumes_leave_what_was_promised_in_fragments() {
    cut_between_steps(&CODED, shapes_stride());
}

#[test]
fn a_power_cut_leaves_what_was_promised_by_a_pool_of_pools() {
    cut_between_steps(&JOINED, shapes_stride());
}

#[test]
fn a_power_cut_leaves_what_was_promised_by_a_pool_of_pools_with_copies() {
    cut_between_steps(&MIRRORED, shapes_stride());
}

/// Other shapes take most steps of a flat pool and the same recovery: some are enough. More by hand, down to each:
/// `PLIMSOLL_ROUNDS=1000`.
fn shapes_stride() -> u64 {
    (1000 / rounds_asked().unwrap_or(59)).max(1)
}
