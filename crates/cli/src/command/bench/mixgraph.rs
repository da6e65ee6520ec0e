//! `plimsoll bench mixgraph`.

mod alone;
mod watch;

use std::f64::consts::TAU;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::Context;
use bench::drive::{Driven, Operation, Rate, Wave};
use bench::mixgraph::{self, Bench, Keys as Popular, Lengths, Load, Power, Settings, TwoTerms};
use bench::report::Report;
use bench::ycsb::{self, Phase, Shape, Tally, Volume};
use engine::kv::KeyValue;
use policy::units::Bytes;
use volume::Clock;
use volume::dir::BlockDevice;

use self::alone::Alone;
use self::watch::{Watch, kernel_row};
use super::fixture::{compact, load_bar, load_takes};
use super::mark::{Keys, Mark};
use super::place::{Place, volumes};
use super::{Common, announce};
use crate::command::interrupt::Interrupt;
use crate::settings;

/// mixgraph against one store: your volumes under a settings file, or RocksDB alone on a file system
///
/// The load of RocksDB's users at Facebook, as db_bench has it: hot key ranges, and a rate that follows a
/// sine, here one period a run. Threads share the rate, and what a slow store prevents is never made up for.
/// To compare, run it twice at the same time: with -c, and with --rocksdb on a file system of equal volumes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench mixgraph -c plimsoll.toml --keep --html run.html     # load once, run again
  plimsoll bench mixgraph --rocksdb /mnt/raid0 --cache 64MiB          # RocksDB alone, direct I/O
  plimsoll bench mixgraph -c plimsoll.toml --mean 800 --amplitude 300 --time 10m")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    stage: Stage,

    /// The store's name in the pool; it must not hold other data
    #[arg(long, value_name = "NAME", default_value = "mixgraph", requires = "file")]
    store: String,

    /// RocksDB's block cache
    #[arg(
        long, value_name = "SIZE", default_value = "64MiB", conflicts_with = "file",
        value_parser = size
    )]
    cache: Bytes,

    /// Leave the store there; the next run with as many records need not load them
    #[arg(long)]
    keep: bool,

    /// Records of 272 bytes to load [default: 20000 smoke, 8000000 short, 100000000 paper]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(100..))]
    records: Option<u64>,

    /// The share of reads, in percent; the others update
    #[arg(
        long, value_name = "PERCENT", default_value_t = 80,
        value_parser = clap::value_parser!(u32).range(0..=100)
    )]
    reads: u32,

    /// The mean of the sine, in operations a second
    #[arg(long, value_name = "OPS", default_value_t = 1600.0, value_parser = positive)]
    mean: f64,

    /// Its amplitude, in operations a second
    #[arg(long, value_name = "OPS", default_value_t = 725.0, value_parser = positive)]
    amplitude: f64,

    /// Threads, each with one operation under way
    #[arg(
        long, value_name = "COUNT", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=4096)
    )]
    threads: u64,

    /// How long it runs [default: 1s smoke, 1m short, 15m paper]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
}

/// Where the store is.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Stage {
    /// The settings file of the volumes
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    file: Option<PathBuf>,

    /// A directory for RocksDB alone, without any of our parts
    #[arg(long, value_name = "DIR")]
    rocksdb: Option<PathBuf>,
}

fn size(text: &str) -> Result<Bytes, String> {
    settings::size(text).map(Bytes).ok_or_else(|| "a size with its unit, such as 64MiB".into())
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "a number that is not negative".into())
}

/// The sizes of db_bench's default records, with values of the papers (Calcspar, ATC 2023).
const SHAPE: Shape = Shape { key_bytes: 16, value_bytes: 256 };
const VALUES: Lengths = Lengths::Fixed(SHAPE.value_bytes);

/// Records in the papers' tests, for which the skew inside a range is published.
const PUBLISHED_RECORDS: f64 = 100e6;

/// db_bench's noise on the rate, and its interval of constant rate.
const NOISE: f64 = 0.3;
const INTERVAL: Duration = Duration::from_millis(50);

/// Loading threads.
const LOADERS: usize = 2;

/// What a report says of a store of an earlier run.
const LOADED: &str = "the records were loaded by an earlier run";

/// The row's id in reports.
const ID: &str = "mixgraph";

/// The size and length of a run.
struct Scale {
    records: u64,
    time: Duration,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = args.common.options(&[]);
    let scale = args.scale(options.profile);
    let work = format!(
        "{} records to load, unless they are there, then {} ± {} operations a second",
        scale.records, args.mean, args.amplitude
    );
    announce("mixgraph", load_takes(scale.records) + scale.time, &work);
    let interrupt = Interrupt::listen().context("listen to signals")?;
    let mut report = Report::new("mixgraph", &options);
    args.describe(&mut report, &scale);
    let run =
        Run { args, scale, seed: options.seed, stop: interrupt.asked(), clock: Clock::real() };
    match (&args.stage.file, &args.stage.rocksdb) {
        (Some(file), _) => run.ours(file, &mut report)?,
        (None, Some(dir)) => run.alone(dir, &mut report)?,
        (None, None) => unreachable!("the command line asks for one of them"),
    }
    args.common.end(&mut report, &interrupt, "the run is not whole")
}

impl Args {
    fn scale(&self, profile: ::bench::Profile) -> Scale {
        use ::bench::Profile::{Paper, Short, Smoke};
        let (records, seconds) = match profile {
            Smoke => (20_000, 1),
            Short => (8_000_000, 60),
            Paper => (100_000_000, 900),
        };
        Scale {
            records: self.records.unwrap_or(records),
            time: self.time.unwrap_or(Duration::from_secs(seconds)),
        }
    }

    fn describe(&self, report: &mut Report, scale: &Scale) {
        report.notes.push(format!(
            "{} records of {} + {} bytes; {} % reads, the others updates; {} threads, closed loop; \
             {} + {} sin operations a second, one period in {}; the skew inside a key range is scaled \
             with the number of keys",
            scale.records,
            SHAPE.key_bytes,
            SHAPE.value_bytes,
            self.reads,
            self.threads,
            self.mean,
            self.amplitude,
            humantime::format_duration(scale.time),
        ));
    }

    fn settings(&self, scale: &Scale, seed: u64) -> Settings {
        let sine = Wave::Sine {
            a: self.amplitude,
            b: TAU / scale.time.as_secs_f64(),
            c: 4.17,
            d: self.mean,
        };
        Settings {
            mix: vec![(Operation::Read, self.reads), (Operation::Update, 100 - self.reads)],
            keys: Popular::Ranges(
                TwoTerms::PUBLISHED,
                Power::PUBLISHED.shrunk(PUBLISHED_RECORDS / scale.records as f64),
            ),
            values: VALUES,
            scans: Lengths::UpTo(1),
            load: Load::Closed(Rate { wave: sine, noise: NOISE, interval: INTERVAL, seed }),
            threads: usize::try_from(self.threads).expect("the command line takes some thousands"),
            time: scale.time,
            operations: u64::MAX,
            seed,
        }
    }
}

/// A run on one store.
struct Run<'r> {
    args: &'r Args,
    scale: Scale,
    seed: u64,
    stop: &'r AtomicBool,
    clock: Clock,
}

impl Run<'_> {
    /// On the volumes of a settings file.
    fn ours(&self, file: &Path, report: &mut Report) -> anyhow::Result<()> {
        let place = Place::of_user(file, &self.args.store, self.args.keep)?;
        let records = self.scale.records;
        let (store, there) = place.open(&self.clock, records, SHAPE, Keys::Numbered)?;
        if there < records {
            self.load(&**store.db())?;
            if self.stop.load(Ordering::Relaxed) {
                return place.remove(store);
            }
            compact(&store)?;
        } else {
            report.notes.push(LOADED.into());
        }
        let watch = Watch::of(&store);
        for volume in place.settings.in_use() {
            report.notes.push(format!("volume {}: {}", volume.name, volume.terms()));
        }
        let volumes = volumes(&store);
        let (phase, seen) = watch.during(&self.clock, || self.drive(&**store.db(), &volumes))?;
        ycsb::add_to(report, ID, &[phase], &volumes, "ours");
        seen.add_to(report, ID);
        drop((volumes, watch));
        let mark =
            Mark { loaded: records, records: Some(records), shape: SHAPE, keys: Keys::Numbered };
        place.close(store, mark)
    }

    /// RocksDB alone in a directory.
    fn alone(&self, dir: &Path, report: &mut Report) -> anyhow::Result<()> {
        let records = self.scale.records;
        let (store, there) = Alone::open(dir, self.args.cache.0, records)?;
        report.notes.push(format!(
            "RocksDB alone in {}: {}",
            dir.display(),
            Alone::ABOUT.replace("CACHE", &self.args.cache.to_string())
        ));
        if there {
            report.notes.push(LOADED.into());
        } else {
            self.load(&store)?;
            if self.stop.load(Ordering::Relaxed) {
                return store.close(false);
            }
            store.compact()?;
        }
        let device = BlockDevice::of(dir);
        let before = device.as_ref().and_then(BlockDevice::ios);
        let (done, running) = channel();
        let phase = std::thread::scope(|scope| {
            let store = &store;
            scope.spawn(move || store.sync_each_second(&running));
            let phase = self.drive(store, &[]);
            drop(done);
            phase
        })?;
        let after = device.as_ref().and_then(BlockDevice::ios);
        if let Some((after, before)) = after.zip(before) {
            kernel_row(report, ID, "all", after - before);
        }
        ycsb::add_to(report, ID, &[phase], &[], "rocksdb");
        store.close(self.args.keep)
    }

    fn load(&self, store: &dyn KeyValue) -> anyhow::Result<()> {
        let bar = load_bar(self.scale.records);
        mixgraph::load(store, self.scale.records, VALUES, LOADERS, self.seed, &bar, self.stop)?;
        bar.finish_and_clear();
        Ok(())
    }

    fn drive(&self, store: &dyn KeyValue, volumes: &[Volume<'_>]) -> anyhow::Result<Phase> {
        let counts: Vec<_> =
            volumes.iter().map(|volume| Tally::new(|| (volume.ops.read)())).collect();
        let every = Duration::from_secs(1);
        let bench = Bench::new(store, &self.clock, self.scale.records, every, self.stop);
        let settings = self.args.settings(&self.scale, self.seed);
        let driven: Driven = bench.run(&settings, &counts, self.clock.now())?;
        Ok(Phase { name: ID, start: Duration::ZERO, driven, hits: Vec::new() })
    }
}
