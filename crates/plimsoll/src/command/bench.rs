//! `plimsoll bench`: measures, and reports as a table, JSON or a page.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::report::Report;
use bench::{Options, Profile};

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
    Provider(Measure),
}

/// The simulated provider against its published trace (B01, B02), in virtual time; how late real sleeps
/// are beside it
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench provider --profile smoke
  plimsoll bench provider --rows B01 --json b01.json --html b01.html")]
struct Measure {
    /// How long to measure: smoke is under 20 s, short at most a minute a row, paper as the papers did
    #[arg(long, default_value = "short", value_parser = ["smoke", "short", "paper"])]
    profile: String,

    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The rows to measure, such as B01,B02; all if none is given
    #[arg(long, value_delimiter = ',', value_name = "ROWS")]
    rows: Vec<String>,

    /// Also write the report as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Also write the report as one self-contained page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Bench::Provider(measure) = &args.bench;
    measure.report(bench::provider::run)
}

impl Measure {
    fn report(&self, run: fn(&Options) -> anyhow::Result<Report>) -> anyhow::Result<ExitCode> {
        let profile = Profile::ALL.into_iter().find(|profile| profile.name() == self.profile);
        let profile = profile.expect("the command line takes the names of profiles only");
        let report = run(&Options { profile, seed: self.seed, rows: self.rows.clone() })?;
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
