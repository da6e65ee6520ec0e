//! `plimsoll bench ingest`: the rows and their order; servers, loader and queries are in the modules below.

mod ask;
mod client;
mod known;
mod load;
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use bench::Profile;
use bench::ingest::rows::{Load, Readings, devops, lorries};
use bench::ingest::{Band, ReportWriter};
use bench::report::Report;
use bench::stats::median;
use volume::Clock;

use self::ask::Ask;
use self::server::{How, Kind, Server};
use super::{Common, SOME_ROWS};
use crate::command::interrupt::Interrupt;
use crate::command::scratch::Scratch;

/// Rows into `plimsoll serve`, beside InfluxDB and VictoriaMetrics: rate, bytes, processor, queries
///
/// Starts each server with an empty directory on loopback, sends it the same bytes over HTTP, counts back what it stored, and
/// compares. Debian's packages `influxdb` and `victoria-metrics` are measured if they are installed. Servers are
/// measured one at a time, and take turns.
#[derive(clap::Args)]
#[command(after_help = "Rows:
  devops    TSBS cpu-only: rows/s over one and over four connections, and processor time
  iot       TSBS iot, a tenth of the rows late
  always    every answer survives the machine
  iops-200  a simulated volume of 200 operations a second (ours only)
  disk      bytes a point on disk: integers, two decimals, doubles
  queries   TSBS queries after a load
  known     what series cost that are known: memory, start, rate (ours only)

Examples:
  plimsoll bench ingest --profile smoke
  plimsoll bench ingest --rows devops,disk --html ingest.html
  plimsoll bench ingest --rows known --sources 10000000 --fields 1
  plimsoll bench ingest --dir /mnt/disk --json ingest.json      # nothing is left of it")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,

    /// The rows to measure [default: all]
    #[arg(long, value_delimiter = ',', value_name = "IDS", value_parser = ROWS)]
    rows: Vec<String>,

    /// Rounds of each load [default: 1 smoke, 3 short, 5 paper]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,

    /// Where the servers keep their data: a directory below this one
    #[arg(long, default_value = ".", value_name = "PATH")]
    dir: PathBuf,

    /// Row known: the number of measurements with tags [default: 20,000 smoke, 1,000,000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(10_000..))]
    sources: Option<u64>,

    /// Row known: fields of each, which are series
    #[arg(long, default_value_t = 10, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10))]
    fields: u64,
}

const ROWS: [&str; 7] = ["devops", "iot", "always", "iops-200", "disk", "queries", "known"];

/// How much a profile measures.
struct Scale {
    rounds: u64,
    hosts: u64,
    /// Rows of each host.
    steps: u64,
    /// Repetitions of a query.
    queries: u64,
    sources: u64,
}

impl Scale {
    const fn of(profile: Profile) -> Self {
        let rounds = profile.runs();
        match profile {
            Profile::Smoke => Self { rounds, hosts: 100, steps: 300, queries: 10, sources: 20_000 },
            // Twelve hours.
            Profile::Short => {
                Self { rounds, hosts: 100, steps: 4320, queries: 100, sources: 1_000_000 }
            }
            Profile::Paper => {
                Self { rounds, hosts: 100, steps: 25_920, queries: 500, sources: 1_000_000 }
            }
        }
    }
}

/// The state that every row needs.
struct Bench<'a> {
    scale: Scale,
    seed: u64,
    fields: u64,
    kinds: Vec<Kind>,
    dir: &'a Path,
    clock: Clock,
    interrupt: &'a Interrupt,
}

/// One load, and how to send it.
#[derive(Clone, Copy)]
struct Case<'a> {
    /// The row it belongs to.
    id: &'a str,
    load: &'a Load,
    connections: usize,
    how: How,
}

/// A column for each server, empty.
fn columns(kinds: &[Kind]) -> Vec<(&'static str, Vec<f64>)> {
    kinds.iter().map(|kind| (kind.name(), Vec::new())).collect()
}

/// The result of one load of one server.
struct Loaded {
    rows_per_sec: f64,
    cpu_per_million: f64,
    bytes_per_point: f64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = args.common.options(&args.rows);
    let mut scale = Scale::of(options.profile);
    scale.rounds = args.runs.unwrap_or(scale.rounds);
    scale.sources = args.sources.unwrap_or(scale.sources);
    let scratch = Scratch::new(&args.dir, "ingest")?;
    let interrupt = Interrupt::listen().context("listen to signals")?;
    let mut report = Report::new("ingest", &options);
    let mut kinds = Vec::new();
    for kind in Kind::ALL {
        match kind.version() {
            Some(version) => {
                report.notes.push(format!("{}: {version}", kind.name()));
                kinds.push(kind);
            }
            None => report.notes.push(format!("{}: not installed", kind.name())),
        }
    }
    describe(&mut report, &scratch, &scale)?;
    let bench = Bench {
        scale,
        seed: options.seed,
        fields: args.fields,
        kinds,
        dir: scratch.path(),
        clock: Clock::real(),
        interrupt: &interrupt,
    };
    let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    let mut writer = ReportWriter::new(&mut report, &names);
    for row in ROWS.iter().filter(|row| options.wants(row)) {
        if interrupt.is_asked() {
            break;
        }
        eprintln!("{row}");
        bench.row(row, &mut writer).with_context(|| format!("row {row}"))?;
    }
    args.common.end(&mut report, &interrupt, SOME_ROWS)
}

fn describe(report: &mut Report, scratch: &Scratch, scale: &Scale) -> anyhow::Result<()> {
    let parent = scratch.path().parent().unwrap_or(scratch.path()).canonicalize()?;
    report.notes.extend([
        format!("all data in {}; one server runs at a time, but in the row queries", parent.display()),
        format!(
            "{} rounds, which begin with another server each; {} hosts with {} rows each; requests of {} rows, the same \
             bytes for all, from this program on the same processors",
            scale.rounds, scale.hosts, scale.steps, bench::ingest::rows::BATCH_ROWS
        ),
        "every load was counted back through queries of the server before it was stopped".into(),
        "answers: ours survives the process at once and the machine after 1 s (row always: the machine); InfluxDB syncs \
         its log for each request; VictoriaMetrics has none, and loses some seconds with the process"
            .into(),
        "processor time is the server's from its start to its end, work that was put off among it".into(),
        "influxdb: index tsi1, no log of requests, none of its own figures; victoria-metrics: as it comes, kept for \
         100 years, for the rows are of 2016"
            .into(),
    ]);
    Ok(())
}

impl Bench<'_> {
    fn row(&self, row: &str, writer: &mut ReportWriter<'_>) -> anyhow::Result<()> {
        match row {
            "devops" => {
                let load = self.devops(Readings::Integers);
                let case = Case { id: row, load: &load, connections: 1, how: How::USUAL };
                self.rates(writer, "1 connection", &case, &self.kinds)?;
                self.rates(writer, "4 connections", &Case { connections: 4, ..case }, &self.kinds)
            }
            "iot" => {
                let load = lorries(self.scale.hosts, self.scale.steps / 2, self.seed);
                let case = Case { id: row, load: &load, connections: 4, how: How::USUAL };
                self.rates(writer, "4 connections", &case, &self.kinds)
            }
            "always" => {
                let load = self.devops(Readings::Integers);
                let how = How { durability: "always", ..How::USUAL };
                let case = Case { id: row, load: &load, connections: 4, how };
                self.rates(writer, "4 connections", &case, &self.kinds)
            }
            "iops-200" => {
                let contract = "contract = { iops = 200, mib_per_s = 50 }\nsimulate = true";
                let load = self.devops(Readings::Integers);
                for durability in ["everysec", "always"] {
                    let how = How { durability, contract, ..How::USUAL };
                    let case = Case { id: row, load: &load, connections: 4, how };
                    self.rates(
                        writer,
                        &format!("4 connections, {durability}"),
                        &case,
                        &[Kind::Ours],
                    )?;
                }
                Ok(())
            }
            "disk" => self.disk(writer),
            "queries" => self.queries(writer),
            _ => known::row(self, writer),
        }
    }

    fn devops(&self, readings: Readings) -> Load {
        devops(self.scale.hosts, self.scale.steps, readings, self.seed)
    }

    /// Loads several servers in turn, each round in another order.
    fn rates(
        &self,
        writer: &mut ReportWriter<'_>,
        name: &str,
        case: &Case<'_>,
        kinds: &[Kind],
    ) -> anyhow::Result<()> {
        let Case { id, load, connections, how } = *case;
        let mut rates: Vec<(&str, Vec<f64>)> = columns(kinds);
        let mut times = rates.clone();
        for round in 0..self.scale.rounds {
            for turn in 0..kinds.len() {
                let kind = kinds[(turn + round as usize) % kinds.len()];
                if self.interrupt.is_asked() {
                    return Ok(());
                }
                let loaded = self.load(kind, load, connections, how)?;
                eprintln!("  {name}, {}: {:.0} rows/s", kind.name(), loaded.rows_per_sec);
                for (values, value) in
                    [(&mut rates, loaded.rows_per_sec), (&mut times, loaded.cpu_per_million)]
                {
                    let column = values.iter_mut().find(|(name, _)| *name == kind.name());
                    column.expect("every server has one").1.push(value);
                }
            }
        }
        // No band where ours is more durable than the others can be.
        let band = if how.durability == "always" { Band::None } else { Band::AtLeast };
        writer.figure(id, name, "rows/s", &rates, band);
        writer.figure(id, name, "processor seconds a million rows", &times, Band::None);
        writer.plot(&format!("{id}, {name}: rows/s"), "rows/s", &rates);
        Ok(())
    }

    /// Loads an empty server, counts the points back, and stops it.
    fn load(
        &self,
        kind: Kind,
        load: &Load,
        connections: usize,
        how: How,
    ) -> anyhow::Result<Loaded> {
        let home = self.home(kind)?;
        let server = Server::start(kind, &home, how, &self.clock)?;
        let took = load::send(&server, load, connections, &self.clock)?;
        load::verify(&server, load)?;
        if how.settles && kind != Kind::Ours {
            server.settle()?;
        }
        let (cpu, bytes) = server.stop()?;
        fs::remove_dir_all(&home)?;
        Ok(Loaded {
            rows_per_sec: load.rows as f64 / took.as_secs_f64(),
            cpu_per_million: cpu.as_secs_f64() * 1e6 / load.rows as f64,
            bytes_per_point: bytes as f64 / load.points as f64,
        })
    }

    /// Creates an empty directory for a server.
    fn home(&self, kind: Kind) -> anyhow::Result<PathBuf> {
        let home = self.dir.join(kind.name());
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        fs::create_dir_all(&home)?;
        Ok(home.canonicalize()?)
    }

    fn disk(&self, writer: &mut ReportWriter<'_>) -> anyhow::Result<()> {
        let how = How { settles: true, ..How::USUAL };
        let cases = [
            (Readings::Integers, "integers", Some(1.5)),
            (Readings::Decimals, "two decimals", Some(3.0)),
            (Readings::Doubles, "doubles", None),
        ];
        for (readings, case, most) in cases {
            let load = self.devops(readings);
            let mut values = columns(&self.kinds);
            for (kind, (_, values)) in self.kinds.iter().zip(&mut values) {
                values.push(self.load(*kind, &load, 4, how)?.bytes_per_point);
            }
            writer.figure("disk", case, "bytes a point", &values, Band::None);
            if let Some(most) = most {
                let what = format!("{case}: bytes a point on disk");
                writer.report.check("disk", &what, median(&values[0].1), [0.0, most]);
            }
        }
        Ok(())
    }

    fn queries(&self, writer: &mut ReportWriter<'_>) -> anyhow::Result<()> {
        let load = self.devops(Readings::Integers);
        let how = How { settles: true, ..How::USUAL };
        let mut servers = Vec::new();
        for &kind in &self.kinds {
            let server = Server::start(kind, &self.home(kind)?, how, &self.clock)?;
            load::send(&server, &load, 4, &self.clock)?;
            load::verify(&server, &load)?;
            server.settle()?;
            servers.push(server);
        }
        let hosts = self.scale.hosts;
        for server in &servers {
            let path = Ask::Series.path(server.kind, 0, hosts, load.end);
            let points = ask::points(server.kind, &mut server.connect()?, &path)?;
            anyhow::ensure!(
                points as u64 == self.scale.steps,
                "{}: {points} points of a series, and {} were sent",
                server.kind.name(),
                self.scale.steps
            );
        }
        for what in Ask::ALL {
            let mut values = columns(&self.kinds);
            for (server, (_, values)) in servers.iter().zip(&mut values) {
                let mut client = server.connect()?;
                let path = |turn| what.path(server.kind, turn, hosts, load.end);
                if ask::ask(&mut client, &path(0))?.is_none() {
                    let note = format!("{} cannot answer {}", server.kind.name(), what.name());
                    writer.report.notes.push(note);
                    continue;
                }
                for turn in 0..self.scale.queries {
                    let path = path(turn);
                    let start = self.clock.now();
                    let answer = client.send(&format!("GET {path}"), b"")?;
                    let took = self.clock.now().since(start);
                    anyhow::ensure!(answer.status == 200, "{path}: {}", answer.status);
                    values.push(took.as_secs_f64() * 1e3);
                }
            }
            if what == Ask::Series {
                let of = |kind: Kind| -> Vec<f64> {
                    let found = values.iter().find(|(name, _)| *name == kind.name());
                    found.map_or_else(Vec::new, |(_, values)| values.clone())
                };
                let ratio = median(&of(Kind::Ours)) / median(&of(Kind::Influx));
                if ratio.is_finite() {
                    let told = format!("{}: ms, plimsoll / influxdb", what.name());
                    writer.report.check("queries", &told, ratio, [0.0, 1.0]);
                }
            }
            // Rounds are queries here, so each server has one value: their median.
            let medians = values.into_iter().map(|(name, values)| {
                let median = median(&values);
                (name, if median.is_finite() { vec![median] } else { Vec::new() })
            });
            writer.figure(
                "queries",
                what.name(),
                "ms, median",
                &medians.collect::<Vec<_>>(),
                Band::None,
            );
        }
        for server in servers {
            server.stop()?;
        }
        Ok(())
    }
}
