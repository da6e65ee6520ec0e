//! Four threads write while another one flushes, compacts, ingests and makes checkpoints; then the power
//! goes off.
//!
//! Each writer numbers its writes. Afterwards each key has the value of its last durable write, or of a
//! later one. A write with `sync` makes durable itself and every write that was acknowledged before it
//! began, by any writer; a flush and a checkpoint make durable those acknowledged before they began. A
//! write is in both families or in none.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use pool::spread::Spread;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rocks::Db;
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{
    FlushOptions, IngestExternalFileOptions, SstFileWriter, WriteBatch, WriteOptions,
};
use volume::layer::crash::{Crash, Power};

use super::{CODED, FLAT, JOINED, MIRRORED, Shape, patient};
use crate::support::{
    names, open_families, opening, plain, pool, pool_of, rounds, try_open_families,
    try_open_families_at,
};

const WRITERS: usize = 4;
const SLOTS: u64 = 24;
const FAMILIES: [&str; 2] = ["default", "other"];

/// A moment: a counter that all threads share.
type Tick = u64;

/// The changes of one write to the slots of its writer, in both families; `None` for a deletion.
type Changes = Vec<(u64, Option<u64>)>;

struct Write {
    changes: Changes,
    sync: bool,
    began: Tick,
    /// When it was acknowledged, if it was.
    ended: Option<Tick>,
}

/// Everything that was done before the end, with acknowledgements.
#[derive(Default)]
struct History {
    /// The `n`th write of each writer, from the first.
    writers: Vec<Vec<Write>>,
    /// When flushes that were acknowledged began.
    flushed: Vec<Tick>,
    /// Ingested tables that were acknowledged.
    ingested: Vec<u64>,
    /// Checkpoints that were acknowledged, and when they began.
    checkpoints: Vec<(u64, Tick)>,
}

/// The number of durable writes of each writer.
type Floors = Vec<usize>;

fn slot_key(writer: usize, slot: u64) -> String {
    format!("w{writer}/{slot:02}")
}

fn slot_value(writer: usize, slot: u64, number: u64) -> String {
    format!("{writer}:{slot}:{number}:").repeat(8)
}

fn ingested_key(number: u64, i: u64) -> String {
    format!("x{number:04}/{i}")
}

struct Live<'a> {
    db: &'a Db,
    power: &'a Power,
    ticks: AtomicU64,
}

impl Live<'_> {
    fn tick(&self) -> Tick {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    fn write(&self, writer: usize, seed: u64) -> Vec<Write> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let other = self.db.cf_handle(FAMILIES[1]).expect("it was made");
        let mut writes = Vec::new();
        for number in 1.. {
            let count = 1 + random.next_u64() % 4;
            let changes: Changes = (0..count)
                .map(|_| {
                    let slot = random.next_u64() % SLOTS;
                    (slot, (random.next_u64() % 4 > 0).then_some(number))
                })
                .collect();
            let mut batch = WriteBatch::default();
            for &(slot, value) in &changes {
                let key = slot_key(writer, slot);
                match value {
                    Some(number) => {
                        batch.put(&key, slot_value(writer, slot, number));
                        batch.put_cf(other, &key, slot_value(writer, slot, number));
                    }
                    None => {
                        batch.delete(&key);
                        batch.delete_cf(other, &key);
                    }
                }
            }
            let sync = random.next_u64().is_multiple_of(8);
            let mut options = WriteOptions::default();
            options.set_sync(sync);
            let began = self.tick();
            let done = self.db.write_opt(&batch, &options);
            let ended = done.is_ok().then(|| self.tick());
            writes.push(Write { changes, sync, began, ended });
            if ended.is_none() {
                break;
            }
        }
        writes
    }

    /// All other work of a database, until the end.
    fn disturb(&self, history: &mut History, seed: u64) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let families = FAMILIES.map(|name| self.db.cf_handle(name).expect("it was made"));
        for number in 0.. {
            if self.power.is_off() {
                // Writers that wait for memory would wait for the power to come back.
                self.db.cancel_all_background_work(false);
                break;
            }
            match random.next_u64() % 8 {
                0..=2 => {
                    let began = self.tick();
                    let both = self.db.flush_cfs_opt(&[&families[0], &families[1]], &wait());
                    history.flushed.extend(both.is_ok().then_some(began));
                }
                // One family alone: the other still needs the log.
                3 => drop(self.db.flush_cf(families[1])),
                4 => self.db.compact_range::<&[u8], &[u8]>(None, None),
                5 => drop(self.db.flush_wal(true)),
                6 => history.ingested.extend(self.ingest(number).then_some(number)),
                _ => {
                    let began = self.tick();
                    let made = Checkpoint::new(self.db)
                        .and_then(|made| made.create_checkpoint(format!("/at-{number}")));
                    history.checkpoints.extend(made.is_ok().then_some((number, began)));
                }
            }
        }
    }

    fn ingest(&self, number: u64) -> bool {
        let mut options = patient();
        self.db.shim().install(&mut options);
        let path = format!("/import-{number}.sst");
        let mut writer = SstFileWriter::create(&options);
        let made = writer.open(&path).and_then(|()| {
            (0..5).try_for_each(|i| writer.put(ingested_key(number, i), number.to_le_bytes()))?;
            writer.finish()
        });
        let mut how = IngestExternalFileOptions::default();
        how.set_move_files(number.is_multiple_of(2));
        made.and_then(|()| self.db.ingest_external_file_opts(&how, vec![path])).is_ok()
    }
}

fn wait() -> FlushOptions {
    let mut options = FlushOptions::default();
    options.set_wait(true);
    options
}

/// Runs a database until the power goes off.
fn run(pool: &Spread, power: &Power, seed: u64) -> History {
    let Ok(db) = try_open_families(pool, &FAMILIES, patient()) else { return History::default() };
    let live = Live { db: &db, power, ticks: AtomicU64::new(0) };
    let mut history = History::default();
    std::thread::scope(|scope| {
        let live = &live;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || live.write(writer, 31 * seed + writer as u64)))
            .collect();
        live.disturb(&mut history, seed);
        history.writers = writers.into_iter().map(|w| w.join().expect("a writer")).collect();
    });
    history
}

impl History {
    /// The writes acknowledged before `began`.
    fn answered_before(&self, began: Tick) -> Floors {
        let answered = |write: &Write| write.ended.is_some_and(|end| end < began);
        let writers = self.writers.iter();
        writers.map(|writes| writes.iter().take_while(|write| answered(write)).count()).collect()
    }

    /// The writes that were synced or flushed, by themselves or by later ones.
    fn durable(&self) -> Floors {
        let synced = |write: &&Write| write.sync && write.ended.is_some();
        let all = self.writers.iter().flatten().filter(synced);
        let last = all.map(|write| write.began).chain(self.flushed.iter().copied()).max();
        let mut floors = self.answered_before(last.unwrap_or(0));
        for (floor, writes) in floors.iter_mut().zip(&self.writers) {
            let own = writes.iter().rposition(|write| synced(&write));
            *floor = own.map_or(0, |own| own + 1).max(*floor);
        }
        floors
    }

    fn acknowledged(&self) -> Floors {
        let writers = self.writers.iter();
        writers.map(|writes| writes.iter().filter(|w| w.ended.is_some()).count()).collect()
    }

    /// Checks that every key has the value of the last durable write or of a later one, in both families.
    fn check(&self, db: &Db, floors: &Floors, what: &str) {
        let other = db.cf_handle(FAMILIES[1]).expect("it was made");
        for (writer, (writes, &floor)) in self.writers.iter().zip(floors).enumerate() {
            let (promised, later) = writes.split_at(floor);
            for slot in 0..SLOTS {
                let of_slot = |writes: &[Write]| {
                    let changes = writes.iter().flat_map(|write| write.changes.clone());
                    changes.filter(|(of, _)| *of == slot).map(|(_, n)| n).collect::<Vec<_>>()
                };
                let mut allowed = vec![of_slot(promised).last().copied().flatten()];
                allowed.extend(of_slot(later));
                let key = slot_key(writer, slot);
                let found = db.get(&key).expect("a get");
                assert_eq!(found, db.get_cf(other, &key).expect("a get"), "{what}: torn apart");
                let is_found = |number: &Option<u64>| {
                    let value = number.map(|number| slot_value(writer, slot, number));
                    found.as_deref() == value.as_ref().map(String::as_bytes)
                };
                assert!(
                    allowed.iter().any(is_found),
                    "{what}: slot {slot} of writer {writer} is {found:?}, not one of {allowed:?}"
                );
            }
        }
    }
}

/// Checks what a power cut, or a crash of the process, left.
fn check_survivors(pool: &Spread, history: &History, floors: &Floors, what: &str) {
    let db = open_families(pool, &FAMILIES);
    history.check(&db, floors, what);
    for &number in &history.ingested {
        for i in 0..5 {
            let found = db.get(ingested_key(number, i)).expect("a get");
            assert_eq!(found, Some(number.to_le_bytes().into()), "{what}: ingested {number}");
        }
    }
    if let Some(&(number, began)) = history.checkpoints.last() {
        let name = format!("kv/at-{number}");
        history.check(&open_copy(pool, &name), &history.answered_before(began), &name);
    }
    go_on(&db, pool);
}

fn open_copy(pool: &Spread, name: &str) -> Db {
    let mut options = patient();
    options.create_if_missing(false);
    try_open_families_at(pool, name, &FAMILIES, options).expect("it opens")
}

/// Checks that the database still works, and that each checkpoint opens.
fn go_on(db: &Db, pool: &Spread) {
    db.put("after", "the crash").unwrap();
    db.flush().unwrap();
    Checkpoint::new(db).unwrap().create_checkpoint("/after").unwrap();
    assert_eq!(
        open_copy(pool, "kv/after").get("after").unwrap().as_deref(),
        Some(&b"the crash"[..])
    );
    let names = names(pool, "kv/at-");
    let copies: BTreeSet<_> = names.iter().filter_map(|n| n.as_str().split('/').nth(1)).collect();
    for copy in copies.iter().filter(|copy| !copy.ends_with(".tmp")) {
        drop(open_copy(pool, &format!("kv/{copy}")));
    }
}

/// A machine under load that loses power after a number of steps, and its history until then.
fn cut_under_load(
    shape: &Shape,
    seed: u64,
    steps_max: u64,
) -> (Vec<Crash>, History, Xoshiro256PlusPlus) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let power = Power::new();
    let crash = shape.machine(&power);
    let pool = (shape.pool)(plain(&crash)).unwrap();
    power.cut_after(random.next_u64() % steps_max);
    let history = run(&pool, &power, seed);
    assert!(power.is_off());
    (crash, history, random)
}

#[test]
fn a_power_cut_under_load_loses_nothing_durable() {
    rounds(32, |seed| {
        loses_nothing_durable(&FLAT, seed);
    });
}

#[test]
fn a_power_cut_under_load_loses_nothing_durable_of_pools_of_pools() {
    rounds(8, |seed| {
        loses_nothing_durable(&JOINED, 3_000_000 + seed);
        loses_nothing_durable(&MIRRORED, 4_000_000 + seed);
    });
}

#[test]
fn a_power_cut_under_load_and_the_loss_of_two_volumes_lose_nothing_durable_in_fragments() {
    rounds(8, |seed| {
        loses_nothing_durable(&CODED, 5_000_000 + seed);
    });
}

fn loses_nothing_durable(shape: &Shape, seed: u64) {
    let (crash, history, mut random) = cut_under_load(shape, seed, 6000);
    for outcome in 0..2 {
        let survivors: Vec<_> = crash.iter().map(|v| v.survivor(random.next_u64())).collect();
        let what = format!("seed {seed}, outcome {outcome}");
        let pool = shape.survived_losses(&survivors, &mut random);
        check_survivors(&pool, &history, &history.durable(), &what);
    }
}

#[test]
fn a_second_power_cut_while_the_database_opens_loses_nothing_more() {
    rounds(16, |seed| {
        let (crash, history, mut random) = cut_under_load(&FLAT, 1_000_000 + seed, 4000);
        let mut survivors: Vec<_> = crash.iter().map(|v| v.survivor(random.next_u64())).collect();
        for _ in 0..3 {
            let power = Power::new();
            let crash: Vec<_> = survivors.iter().map(|v| Crash::new(v.clone(), &power)).collect();
            power.cut_after(random.next_u64() % 60);
            if let Ok(pool) = pool_of(plain(&crash), opening()) {
                drop(try_open_families(&pool, &FAMILIES, patient()));
            }
            survivors = crash.iter().map(|v| v.survivor(random.next_u64())).collect();
        }
        let what = format!("seed {seed}, cut again");
        check_survivors(&pool(&survivors), &history, &history.durable(), &what);
    });
}

#[test]
fn the_death_of_the_process_under_load_loses_nothing_acknowledged() {
    rounds(16, |seed| {
        let (crash, history, _) = cut_under_load(&FLAT, 2_000_000 + seed, 6000);
        let survivors: Vec<_> = crash.iter().map(Crash::after_process_death).collect();
        let what = format!("seed {seed}");
        check_survivors(&pool(&survivors), &history, &history.acknowledged(), &what);
    });
}
