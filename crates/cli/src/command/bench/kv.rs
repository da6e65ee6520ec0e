//! `plimsoll bench kv`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use bench::Profile;
use bench::report::Report;
use bench::ycsb::{
    self, Bench, Distribution, KEY_BYTES_MIN, Phase, Settings, Shape, VALUE_BYTES_MIN, Workload,
};
use clap::builder::PossibleValuesParser;
use indicatif::ProgressBar;
use plimsoll::kv::{Db, Store};
use policy::contract::catalogue;
use policy::units::Bytes;
use rust_rocksdb::{ErrorKind, WaitForCompactOptions};
use volume::Clock;

use super::mark::{Keys, Mark};
use super::place::{Place, Simulated, caches, volumes};
use super::{Common, announce};
use crate::command::interrupt::Interrupt;
use crate::settings::PLACEMENTS;

/// YCSB's core workloads against the embedded store, each volume against its line
///
/// Loads the records, then runs the workloads one after the other: A updates heavily, B reads mostly, C
/// only reads, D reads the latest, E scans short ranges, F reads, modifies and writes. Latencies have
/// percentiles by workload and operation; each value that is read is verified to be its key's.
///
/// The store is on simulated volumes in a temporary directory, of which nothing is left, or with -c in the
/// pool of a settings file, beside whatever else is there.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench kv --profile smoke
  plimsoll bench kv --workloads a,c --threads 64 --json kv.json --html kv.html
  plimsoll bench kv --volumes 6 --contract gp3 --placement stripe
  plimsoll bench kv --target 5000 --workloads b     # latencies at a rate, from the intended start
  plimsoll bench kv -c plimsoll.toml --keep         # your volumes; load once, run again")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,

    /// The workloads after the load, in their order; D and E insert records
    #[arg(
        long, value_delimiter = ',', value_name = "LETTERS", default_value = "a,b,c,f,d,e",
        value_parser = ["a", "b", "c", "d", "e", "f"], hide_possible_values = true
    )]
    workloads: Vec<String>,

    /// Records to load [default: 50000 smoke, 2000000 short, 50000000 paper]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    records: Option<u64>,

    /// Operations of each workload [default: 10000000 paper, else --time ends it]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,

    /// The longest a workload takes [default: 1s smoke, 30s short, unless --operations ends it]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    time: Option<Duration>,

    /// Threads, each with one operation under way
    #[arg(
        long, value_name = "COUNT", default_value_t = 32,
        value_parser = clap::value_parser!(u64).range(1..=4096)
    )]
    threads: u64,

    /// Bytes of a key
    #[arg(
        long, value_name = "BYTES", default_value_t = 16,
        value_parser = clap::value_parser!(u64).range(KEY_BYTES_MIN as u64..=65_536)
    )]
    key_size: u64,

    /// Bytes of a value
    #[arg(
        long, value_name = "BYTES", default_value_t = 256,
        value_parser = clap::value_parser!(u64).range(VALUE_BYTES_MIN as u64..=16_777_216)
    )]
    value_size: u64,

    /// Operations a second to start, whatever those before take; also counts latencies from the intended
    /// start [default: each thread starts one when its last ended]
    #[arg(long, value_name = "OPS", value_parser = clap::value_parser!(u64).range(1..))]
    target: Option<u64>,

    /// Which records are popular [default: zipfian, in workload D latest]
    #[arg(long, value_parser = PossibleValuesParser::new(Distribution::ALL.map(Distribution::name)))]
    distribution: Option<String>,

    /// The settings file of volumes to use instead of simulated ones
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    file: Option<PathBuf>,

    /// The store's name in the pool; it must not hold other data
    #[arg(long, value_name = "NAME", default_value = "bench", requires = "file")]
    store: String,

    /// Leave the store there; the next run with as many records of the same sizes need not load them
    #[arg(long, requires = "file")]
    keep: bool,

    /// Simulated volumes
    #[arg(
        long, value_name = "COUNT", default_value_t = 3, conflicts_with = "file",
        value_parser = clap::value_parser!(u64).range(1..=64)
    )]
    volumes: u64,

    /// The contract of each
    #[arg(
        long, value_name = "NAME", default_value = "gp3", conflicts_with = "file",
        value_parser = PossibleValuesParser::new(catalogue::names())
    )]
    contract: String,

    /// Where tables go
    #[arg(
        long, default_value = "least-overlap", conflicts_with = "file",
        value_parser = PossibleValuesParser::new(PLACEMENTS)
    )]
    placement: String,

    /// The store's memory [default: 32MiB smoke, 64MiB short, 512MiB paper]
    #[arg(long, value_name = "SIZE", conflicts_with = "file")]
    memory: Option<String>,

    /// Where the directory of the simulated volumes is made [default: the system's temporary one]
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    dir: Option<PathBuf>,
}

/// How much each profile measures.
struct Scale {
    records: u64,
    operations: Option<u64>,
    time: Option<Duration>,
    memory: &'static str,
    sample_every: Duration,
}

impl Scale {
    const fn of(profile: Profile) -> Self {
        match profile {
            Profile::Smoke => Self {
                records: 50_000,
                operations: None,
                time: Some(Duration::from_secs(1)),
                memory: "32MiB",
                sample_every: Duration::from_millis(200),
            },
            Profile::Short => Self {
                records: 2_000_000,
                operations: None,
                time: Some(Duration::from_secs(30)),
                memory: "64MiB",
                sample_every: Duration::from_secs(1),
            },
            // As many as in TANGO's evaluation (TANGO).
            Profile::Paper => Self {
                records: 50_000_000,
                operations: Some(10_000_000),
                time: None,
                memory: "512MiB",
                sample_every: Duration::from_secs(1),
            },
        }
    }
}

/// Rates for estimates of the duration: the least that two cores with three gp3 volumes reached.
const LOADS_PER_SEC: u64 = 50_000;
const OPERATIONS_PER_SEC: u64 = 10_000;

/// The length of one wait for compactions, between two checks of the stop flag.
const SETTLE_STEP: Duration = Duration::from_millis(200);

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = args.common.options(&[]);
    let scale = Scale::of(options.profile);
    let settings = args.settings(&scale, options.seed);
    let place = args.place(&scale)?;
    let interrupt = Interrupt::listen().context("listen to signals")?;
    let clock = Clock::real();
    let (store, there) = place.open(&clock, settings.records, settings.shape, Keys::Hashed)?;
    let (takes, work) = args.plan(&settings, there);
    announce("kv", takes, &work);

    let mut report = Report::new("kv", &options);
    describe(&mut report, &settings, &place);
    let (volumes, caches) = (volumes(&store), caches(&store));
    let bench = Bench::new(&**store.db(), &clock, &volumes, &settings, there, interrupt.asked());
    let bench = bench.caches(&caches);
    let measured = args.measure(&bench, &store, &interrupt, &mut report);
    if let Ok(phases) = &measured {
        let scheme = place.pool().placement.name();
        ycsb::add_to(&mut report, "YCSB", phases, &volumes, scheme);
    }
    if let Some(overdrawn) = overdrawn(&store) {
        let what = "I/Os that the simulated provider made wait: over the line";
        report.check("YCSB", what, overdrawn as f64, [0.0, 0.0]);
    }
    let records = bench.records();
    drop((volumes, caches));
    let closed = if measured.is_ok() && records >= settings.records {
        let (loaded, shape) = (settings.records, settings.shape);
        place.close(store, Mark { loaded, records: Some(records), shape, keys: Keys::Hashed })
    } else {
        place.remove(store)
    };
    measured?;
    let missing = "the last workload, and those after it, are not whole";
    let status = args.common.end(&mut report, &interrupt, missing)?;
    // The measurements are shown even if closing the store fails.
    closed.map(|()| status)
}

impl Args {
    fn settings(&self, scale: &Scale, seed: u64) -> Settings {
        let (operations, time) = match (self.operations, self.time) {
            (None, None) => (scale.operations, scale.time),
            asked => asked,
        };
        let size = |bytes| usize::try_from(bytes).expect("the command line takes some megabytes");
        let named = |name: &String| Distribution::ALL.into_iter().find(|one| one.name() == *name);
        Settings {
            records: self.records.unwrap_or(scale.records),
            shape: Shape { key_bytes: size(self.key_size), value_bytes: size(self.value_size) },
            threads: size(self.threads),
            operations,
            time,
            target_per_sec: self.target,
            distribution: self.distribution.as_ref().and_then(named),
            seed,
            sample_every: scale.sample_every,
        }
    }

    fn place(&self, scale: &Scale) -> anyhow::Result<Place> {
        if let Some(file) = &self.file {
            return Place::of_user(file, &self.store, self.keep);
        }
        let simulated = Simulated {
            volumes: self.volumes,
            contract: &self.contract,
            placement: &self.placement,
            memory: self.memory.as_deref().unwrap_or(scale.memory),
        };
        Place::simulated(&self.dir.clone().unwrap_or_else(std::env::temp_dir), &simulated)
    }

    fn workloads(&self) -> impl Iterator<Item = Workload> {
        self.workloads.iter().map(|letter| {
            let named = |workload: &Workload| workload.name().eq_ignore_ascii_case(letter);
            Workload::ALL.into_iter().find(named).expect("the command line takes their letters")
        })
    }

    /// The planned work, and its approximate duration.
    fn plan(&self, settings: &Settings, there: u64) -> (Duration, String) {
        let missing = settings.records.saturating_sub(there);
        let load = Duration::from_secs(missing.div_ceil(LOADS_PER_SEC));
        let counted = settings.operations.map(|count| {
            let rate = settings.target_per_sec.unwrap_or(OPERATIONS_PER_SEC);
            Duration::from_secs(count.div_ceil(rate))
        });
        let each = counted.into_iter().chain(settings.time).min().unwrap_or_default();
        let all = load + each * u32::try_from(self.workloads.len()).unwrap_or(u32::MAX);
        let work = format!(
            "{missing} records to load, then workloads {} for {} each",
            self.workloads.join(", "),
            humantime::format_duration(each),
        );
        (all, work)
    }

    fn measure(
        &self,
        bench: &Bench<'_>,
        store: &Db,
        interrupt: &Interrupt,
        report: &mut Report,
    ) -> anyhow::Result<Vec<Phase>> {
        let mut phases = vec![bench.load()?];
        if phases[0].driven.operations() == 0 {
            report.notes.push("the records were loaded by an earlier run".into());
            phases.clear();
        } else {
            settle(store, interrupt)?;
        }
        for workload in self.workloads() {
            if interrupt.is_asked() {
                break;
            }
            phases.push(bench.run(workload)?);
        }
        Ok(phases)
    }
}

/// Waits until the load is compacted, so that workloads find the same store in each run.
fn settle(store: &Db, interrupt: &Interrupt) -> anyhow::Result<()> {
    let bar = ProgressBar::new_spinner().with_message("compacting what was loaded");
    bar.enable_steady_tick(SETTLE_STEP);
    let mut options = WaitForCompactOptions::default();
    options.set_flush(true);
    options.set_timeout(u64::try_from(SETTLE_STEP.as_micros()).expect("a part of a second"));
    while !interrupt.is_asked() {
        match store.wait_for_compact(&options) {
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            waited => {
                waited.context("compacting what was loaded")?;
                break;
            }
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Adds the notes that a reader of the report needs.
fn describe(report: &mut Report, settings: &Settings, place: &Place) {
    let Settings { records, shape, threads, .. } = settings;
    let loop_of = match settings.target_per_sec {
        None => "closed loop".into(),
        Some(rate) => format!("{rate} operations started a second"),
    };
    let distribution = match settings.distribution {
        None => "zipfian 0.99 (D: latest)",
        Some(distribution) => distribution.name(),
    };
    report.notes.push(format!(
        "{records} records of {} + {} bytes, {distribution}; {threads} threads, {loop_of}; after the \
         load its compactions were waited for",
        shape.key_bytes, shape.value_bytes,
    ));
    let of = &place.settings;
    report.notes.push(format!(
        "memory {}, placement {}",
        Bytes(place.kv().options.memory),
        place.pool().placement.name()
    ));
    let mut contracts = Vec::new();
    for name in place.pool().leaves(&of.pools) {
        let volume = of.volumes.iter().find(|volume| volume.name == name);
        let volume = volume.expect("the settings were checked when they were read");
        let simulated = if volume.simulate { ", simulated" } else { "" };
        report.notes.push(format!("volume {name}: {}{simulated}", volume.terms()));
        if !contracts.contains(&&volume.contract) {
            contracts.push(&volume.contract);
        }
    }
    contracts.into_iter().for_each(|contract| report.assume(contract));
}

/// The number of I/Os that the simulated providers made wait; `None` without simulated volumes.
fn overdrawn(store: &Store) -> Option<u64> {
    let devices = store.devices().here();
    let seen: Vec<_> = devices.iter().filter_map(|device| device.seen_by_provider()).collect();
    (!seen.is_empty()).then(|| seen.iter().map(|count| count.throttled).sum())
}
