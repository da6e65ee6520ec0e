//! `plimsoll bench`: measures, and reports as a table, JSON or a page. One file for each bench.

mod background;
mod block;
mod coded;
mod contract;
mod fixture;
mod ingest;
mod kv;
mod mark;
mod mixgraph;
mod overwrite;
mod parity;
mod path;
mod place;
mod provider;
mod real;
mod series;
mod spread;
mod tier;
mod watched;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench::Profile;
use bench::compare::{Case, Cell, Plan};
use bench::report::Report;

use super::interrupt::{self, Interrupt};

/// Measures one part and reports figures beside the bands they should lie in
///
/// Exits with status 0 unless something could not be measured: a figure outside its band is reported,
/// not failed.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    Background(background::Args),
    Block(block::Args),
    Coded(coded::Args),
    Contract(contract::Args),
    Ingest(ingest::Args),
    Kv(Box<kv::Args>),
    Mixgraph(mixgraph::Args),
    Overwrite(overwrite::Args),
    Parity(parity::Args),
    Provider(provider::Args),
    Path(path::Args),
    Series(series::Args),
    Spread(spread::Args),
    Tier(tier::Args),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.bench {
        Bench::Background(args) => background::run(args),
        Bench::Block(args) => block::run(args),
        Bench::Coded(args) => coded::run(args),
        Bench::Contract(args) => contract::run(args),
        Bench::Ingest(args) => ingest::run(args),
        Bench::Kv(args) => kv::run(args),
        Bench::Mixgraph(args) => mixgraph::run(args),
        Bench::Overwrite(args) => overwrite::run(args),
        Bench::Parity(args) => parity::run(args),
        Bench::Provider(args) => provider::run(args),
        Bench::Path(args) => path::run(args),
        Bench::Series(args) => series::run(args),
        Bench::Spread(args) => spread::run(args),
        Bench::Tier(args) => tier::run(args),
    }
}

/// The options of every bench.
#[derive(clap::Args)]
struct Common {
    /// How long to measure: smoke is under 20 s, short at most a minute a row, paper as the papers did
    #[arg(long, default_value = "short", value_parser = ["smoke", "short", "paper"])]
    profile: String,

    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Also write the report as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Also write the report as one self-contained page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Common {
    /// The library's options for the given rows.
    fn options(&self, rows: &[String]) -> bench::Options {
        let profile = Profile::ALL.into_iter().find(|profile| profile.name() == self.profile);
        let profile = profile.expect("the command line takes the names of profiles only");
        bench::Options { profile, seed: self.seed, rows: rows.to_vec() }
    }

    /// Reports the rows; after an interrupt, prints only the measured ones: a file would look like a complete report.
    fn end(
        &self,
        report: &mut Report,
        interrupt: &Interrupt,
        missing: &str,
    ) -> anyhow::Result<ExitCode> {
        if interrupt.is_asked() {
            report.notes.push(format!("interrupted: {missing}"));
            report.print();
            return Ok(ExitCode::from(interrupt::STATUS));
        }
        self.give(report)
    }

    /// Prints a report, and writes the files that were requested.
    fn give(&self, report: &Report) -> anyhow::Result<ExitCode> {
        report.print();
        if let Some(path) = &self.json {
            report.write_json(path)?;
        }
        if let Some(path) = &self.html {
            report.write_html(path)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The rows of a bench that compares schemes, and its runs.
#[derive(clap::Args)]
struct Compared {
    #[command(flatten)]
    common: Common,

    /// The rows to measure, by their ids in docs/guide/bench.md, as B18,B24 [default: all; of smoke a few]
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    rows: Vec<String>,

    /// Runs of each case, with a seed each [default: 1 smoke, 3 short, 5 paper]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
}

impl Compared {
    fn options(&self) -> bench::Options {
        self.common.options(&self.rows)
    }

    /// Measures the rows of a plan, and ends the report.
    fn run<C: Case>(
        &self,
        plan: &Plan<C>,
        mut report: Report,
        interrupt: &Interrupt,
        measure: impl Fn(&C) -> anyhow::Result<Cell<C::Outcome>>,
    ) -> anyhow::Result<ExitCode> {
        plan.run(&mut report, interrupt.asked(), measure)?;
        self.common.end(&mut report, interrupt, SOME_ROWS)
    }
}

/// The duration of a bench in real time.
#[derive(clap::Args)]
struct Timed {
    /// How long all runs of a case take together [default: 1s smoke, 1m short, 15m paper]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
}

impl Timed {
    fn time(&self, profile: Profile) -> Duration {
        self.time.unwrap_or(match profile {
            Profile::Smoke => Duration::from_secs(1),
            Profile::Short => Duration::from_secs(60),
            Profile::Paper => Duration::from_secs(900),
        })
    }
}

/// What an interrupted bench lacks.
const SOME_ROWS: &str = "some rows were not measured";

/// Prints the approximate duration of a bench, and its work.
fn announce(bench: &str, takes: Duration, work: &str) {
    let takes = Duration::from_secs(takes.as_secs().max(1));
    println!("bench {bench} takes about {}: {work}", humantime::format_duration(takes));
}
