//! `plimsoll bench path`: the two compared databases, and their loads.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use bench::Profile;
use bench::path::{self, Case, Meter, Sample, Side};
use policy::budget::Share;
use policy::contract::Contract;
use policy::placement::Single;
use policy::units::MIB;
use pool::spread::{Opening, Spread};
use pool::{Member, PoolId};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rust_rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompressionType,
    Options as RocksOptions, WaitForCompactOptions,
};
use volume::Clock;
use volume::dir::{Dir, DirOptions};
use volume::io_pool::{IoPool, THREADS};
use volume::layer::deadline::{Deadline, LIMIT};
use volume::layer::gate::Gate;
use volume::task::block_on;

use super::Common;
use crate::command::scratch::Scratch;

/// What our way to a device costs RocksDB, beside its own with direct I/O: fill and random reads
///
/// Same options, same file system, a contract without limits; ratios of pairs that take turns.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench path --profile smoke
  plimsoll bench path --dir /mnt/ebs-a --pairs 30 --json path.json --html path.html")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,

    /// Where both databases lie: a directory of the file system to measure
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,

    /// How many pairs count; below 6 there is no interval
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pairs: Option<u64>,

    /// Make each of our calls on a thread, as where the kernel forbids io_uring
    #[arg(long)]
    threads: bool,
}

const VALUE_BYTES: usize = 256;

/// How long a log may stay unsynced: as long as the kernel keeps dirty pages, which is all that the other side
/// guarantees.
const SYNC_INTERVAL: Duration = Duration::from_secs(30);

/// How much each profile measures.
struct Scale {
    pairs: u64,
    keys: u64,
    read_secs: u64,
}

impl Scale {
    const fn of(profile: Profile) -> Self {
        match profile {
            Profile::Smoke => Self { pairs: 2, keys: 100_000, read_secs: 1 },
            Profile::Short => Self { pairs: 15, keys: 500_000, read_secs: 2 },
            Profile::Paper => Self { pairs: 30, keys: 5_000_000, read_secs: 10 },
        }
    }
}

/// The number of reading threads, by case.
const READERS: [u64; 2] = [1, 4];

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = args.common.options(&[]);
    let scale = Scale::of(options.profile);
    let pairs = args.pairs.unwrap_or(scale.pairs);
    let scratch = Scratch::new(&args.dir, "path")?;
    let dir = scratch.path();
    let clock = Clock::real();
    let io = if args.threads { IoPool::threads(THREADS) } else { IoPool::apart(THREADS) };
    let load = Load { keys: scale.keys, seed: options.seed };
    let loaded = Side::ALL.map(|side| {
        eprintln!("storing {} keys: {}", load.keys, side.name());
        let database = Database::create(side, &dir.join(side.name()), &clock, &io)?;
        load.store(&database)?;
        database.compact()?;
        anyhow::Ok(database)
    });
    let [ours, stock] = loaded;
    let loaded = Arc::new([ours?, stock?]);
    let mut cases: Vec<Box<dyn Case>> =
        vec![Box::new(Fill { dir: dir.into(), clock: clock.clone(), keys: scale.keys, io })];
    for readers in READERS {
        let (loaded, clock) = (Arc::clone(&loaded), clock.clone());
        cases.push(Box::new(Reads { loaded, clock, load, readers, secs: scale.read_secs }));
    }
    let mut report = path::run(&options, pairs, &mut cases)?;
    drop(cases);
    report.notes.extend(notes(&args.dir, &load, &loaded)?);
    let loaded = Arc::into_inner(loaded).expect("the cases are gone");
    loaded.into_iter().try_for_each(Database::close)?;
    args.common.give(&report)
}

fn notes(dir: &Path, load: &Load, loaded: &[Database; 2]) -> anyhow::Result<Vec<String>> {
    let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
    let tables =
        |database: &Database| -> anyhow::Result<usize> { Ok(database.live_files()?.len()) };
    let [ours, stock] = loaded;
    let direct = match ours {
        Database::Ours { direct: false, .. } => "the page cache: O_DIRECT is refused",
        _ => "O_DIRECT",
    };
    Ok(vec![
        format!("both in {}, through {direct}", dir.display()),
        format!(
            "{} keys of 16 bytes with values of {VALUE_BYTES}, fully compacted before reads: \
             {} tables ours, {} stock",
            load.keys,
            tables(ours)?,
            tables(stock)?
        ),
        "fill: one thread, log on, no sync asked for; its rate ends with the last write, its \
         processor time when flushes and compactions are done"
            .into(),
        format!(
            "ours syncs logs every {} s, as the kernel does for the other side",
            SYNC_INTERVAL.as_secs()
        ),
    ])
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// An open database of one side.
enum Database {
    Ours { db: Box<rocks::Db>, pool: Spread, gate: Arc<Gate<Deadline>>, direct: bool },
    Stock(Box<DB>),
}

impl Deref for Database {
    type Target = DB;

    fn deref(&self) -> &DB {
        match self {
            Self::Ours { db, .. } => db,
            Self::Stock(db) => db,
        }
    }
}

impl Database {
    fn create(side: Side, dir: &Path, clock: &Clock, io: &IoPool) -> anyhow::Result<Self> {
        match side {
            Side::Ours => Self::ours(dir, clock, io),
            Side::Stock => Self::stock(dir, takes_direct(dir)?),
        }
        .with_context(|| format!("a database in {}", dir.display()))
    }

    fn ours(dir: &Path, clock: &Clock, io: &IoPool) -> anyhow::Result<Self> {
        // As the program opens it: a device that hangs holds no thread of RocksDB.
        let io = io.clone();
        let volume = Dir::open(dir, DirOptions { create: true, io, ..DirOptions::default() })?;
        let direct = volume.is_direct();
        let volume = Deadline::new(volume, "a", LIMIT, clock.clone());
        let contract = Contract::unlimited();
        let gate = Arc::new(Gate::new(volume, "a", &contract, Share::default(), clock.clone()));
        let members = vec![Member::new("a", Arc::clone(&gate))];
        let opening = Opening::new(Single).create_if_missing(PoolId(1));
        let pool = block_on(Spread::open(members, opening))?;
        let settings =
            rocks::Settings { wal_sync_interval: SYNC_INTERVAL, ..rocks::Settings::default() };
        let db = rocks::open(pool.clone(), clock.clone(), "kv", options(), settings)?;
        Ok(Self::Ours { db: Box::new(db), pool, gate, direct })
    }

    fn stock(dir: &Path, direct: bool) -> anyhow::Result<Self> {
        let mut options = options();
        options.set_use_direct_reads(direct);
        options.set_use_direct_io_for_flush_and_compaction(direct);
        // The shim's other settings, where they do not concern the file system.
        options.set_recycle_log_file_num(rocks::Settings::default().wal_recycled);
        options.set_skip_stats_update_on_db_open(true);
        Ok(Self::Stock(Box::new(DB::open(&options, dir)?)))
    }

    /// Waits until all data are in tables and all compactions are done.
    fn settle(&self) -> anyhow::Result<()> {
        let mut options = WaitForCompactOptions::default();
        options.set_flush(true);
        Ok(self.wait_for_compact(&options)?)
    }

    /// Brings the tables into the one shape that these keys determine.
    fn compact(&self) -> anyhow::Result<()> {
        self.settle()?;
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        self.settle()
    }

    fn close(self) -> anyhow::Result<()> {
        if let Self::Ours { db, pool, gate, .. } = self {
            drop(db);
            block_on(pool.close())?;
            gate.close();
        }
        Ok(())
    }
}

/// Whether files of a new directory can be opened with `O_DIRECT`.
fn takes_direct(dir: &Path) -> anyhow::Result<bool> {
    let probe = dir.with_extension("probe");
    let direct =
        Dir::open(&probe, DirOptions { create: true, ..DirOptions::default() })?.is_direct();
    remove(&probe)?;
    Ok(direct)
}

/// The options of both sides. The cache holds a few percent of the data, so that reads reach the file system; without
/// compression they cost nothing else.
fn options() -> RocksOptions {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(&Cache::new_lru_cache(4 * MIB as usize));
    tables.set_bloom_filter(10.0, false);
    tables.set_format_version(6);
    let mut options = RocksOptions::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&tables);
    options.set_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(32 * MIB as usize);
    options.set_target_file_size_base(32 * MIB);
    options.set_max_bytes_for_level_base(128 * MIB);
    options.set_max_background_jobs(2);
    options
}

/// The keys of a database, in random order.
#[derive(Clone, Copy)]
struct Load {
    keys: u64,
    seed: u64,
}

impl Load {
    /// The key of a number; a bijection.
    fn key(self, number: u64) -> [u8; 16] {
        // The finaliser of SplitMix64, which is a bijection (Steele et al., OOPSLA 2014).
        let mut z = number.wrapping_add(self.seed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let mut key = *b"key-----\0\0\0\0\0\0\0\0";
        key[8..].copy_from_slice(&z.to_be_bytes());
        key
    }

    fn store(self, database: &DB) -> anyhow::Result<()> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut bytes = vec![0; 64 * 1024 + VALUE_BYTES];
        random.fill_bytes(&mut bytes);
        for number in 0..self.keys {
            let at = random.random_range(0..bytes.len() - VALUE_BYTES);
            database.put(self.key(number), &bytes[at..at + VALUE_BYTES])?;
        }
        Ok(())
    }
}

/// Stores new keys in a new database.
struct Fill {
    dir: PathBuf,
    clock: Clock,
    keys: u64,
    io: IoPool,
}

impl Case for Fill {
    fn name(&self) -> String {
        "fill".into()
    }

    fn secs(&self) -> u64 {
        // An average machine stores and compacts this many per second.
        (self.keys / 150_000).max(1)
    }

    fn run(&mut self, side: Side, pair: u64) -> anyhow::Result<Sample> {
        let dir = self.dir.join("fill");
        let load = Load { keys: self.keys, seed: pair };
        let database = Database::create(side, &dir, &self.clock, &self.io)?;
        let mut meter = Meter::start(&self.clock);
        load.store(&database)?;
        meter.done();
        database.settle()?;
        let sample = meter.settled(self.keys);
        database.close()?;
        remove(&dir)?;
        Ok(sample)
    }
}

/// Reads keys of a loaded database at random.
struct Reads {
    loaded: Arc<[Database; 2]>,
    clock: Clock,
    load: Load,
    readers: u64,
    secs: u64,
}

impl Case for Reads {
    fn name(&self) -> String {
        format!("random reads, {} at once", self.readers)
    }

    fn secs(&self) -> u64 {
        self.secs
    }

    fn run(&mut self, side: Side, pair: u64) -> anyhow::Result<Sample> {
        let [ours, stock] = &*self.loaded;
        let database: &DB = if side == Side::Ours { ours } else { stock };
        let meter = Meter::start(&self.clock);
        let until = self.clock.now() + Duration::from_secs(self.secs);
        let read = |reader: u64| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(pair << 8 | reader);
            let mut ops = 0;
            while self.clock.now() < until {
                let key = self.load.key(random.random_range(0..self.load.keys));
                let value = database.get_pinned(key)?;
                let len = value.map(|value| value.len());
                ensure!(len == Some(VALUE_BYTES), "a key is lost, or its value: {len:?}");
                ops += 1;
            }
            anyhow::Ok(ops)
        };
        let ops = std::thread::scope(|scope| {
            let readers: Vec<_> =
                (0..self.readers).map(|number| scope.spawn(move || read(number))).collect();
            let ops = readers.into_iter().map(|reader| reader.join().expect("it does not panic"));
            ops.sum::<anyhow::Result<u64>>()
        })?;
        Ok(meter.settled(ops))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_are_the_same() {
        let load = Load { keys: 10_000, seed: 7 };
        let keys: std::collections::HashSet<_> = (0..load.keys).map(|n| load.key(n)).collect();
        assert_eq!(keys.len(), 10_000);
    }

    #[test]
    fn both_sides_do_the_work_they_are_given() {
        let (dir, clock) = (tempfile::tempdir().expect("a directory"), Clock::real());
        let (load, io) = (Load { keys: 1_000, seed: 3 }, IoPool::apart(THREADS));
        let loaded = Side::ALL.map(|side| {
            let database = Database::create(side, &dir.path().join(side.name()), &clock, &io);
            let database = database.expect("it can be made");
            load.store(&database).expect("it takes the keys");
            database.compact().expect("it compacts");
            database
        });
        let mut fill =
            Fill { dir: dir.path().into(), clock: clock.clone(), keys: 500, io: io.clone() };
        let mut reads = Reads { loaded: Arc::new(loaded), clock, load, readers: 2, secs: 0 };
        for side in Side::ALL {
            assert_eq!(fill.run(side, 1).expect("it fills").ops, 500);
            assert_eq!(reads.run(side, 1).expect("it reads").ops, 0);
        }
        reads.secs = 1;
        assert!(reads.run(Side::Ours, 1).expect("every key is there").ops > 0);
    }
}
