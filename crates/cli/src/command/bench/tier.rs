//! `plimsoll bench tier`.

mod arms;
mod case;
mod fixture;
mod raised;
mod rows;
mod scale;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use bench::Profile;
use bench::compare::Plan;
use bench::report::Report;
use bench::tier::{self, Size, Source};
use bench::trace::{Format, StandIn};
use bytesize::ByteSize;

use self::case::Bencher;
use self::scale::Scale;
use super::{Common, SOME_ROWS};
use crate::command::interrupt::Interrupt;

/// What share of a trace's requests a fast cache tier would serve, by its policy, its unit and its size
///
/// Replays block traces through each policy of replacement, for caches of a part of the trace's footprint. This is a
/// computation: it uses no volumes, and says nothing about time. Without --trace it replays made-up loads that have
/// published statistics of known traces, and are named as stand-ins for them.
///
/// With --rows it compares a tier with the volumes that it is made of, in virtual time: a simulated gp3 volume of 3,000 IOPS
/// with a local disk of a fifth of the data, each alone, a gp3 volume of 16,000 IOPS, and demand promotion of whole objects.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench tier --profile smoke
  plimsoll bench tier --trace hm_0.csv.gz --html tier.html
  plimsoll bench tier --trace w106.trace.xz --sizes 5%,20%,640MiB
  plimsoll bench tier --trace requests.log.zst --format spc --requests 1000000
  plimsoll bench tier --rows B25,B27 --html tier.html
  plimsoll bench tier --rows all")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,

    /// A trace to replay, perhaps compressed (.gz, .xz, .zst); repeat it for several [default: stand-ins]
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,

    /// The format of every trace [default: by the name and the first bytes of each]
    #[arg(long, value_name = "FORMAT", value_parser = Format::ALL.map(Format::name), requires = "traces")]
    format: Option<String>,

    /// Requests of each trace, from its start, or of each stand-in [default: all of a trace; of a stand-in 20,000
    /// smoke, 1 million short, as many as the trace has paper]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,

    /// Sizes of the cache, in percent of the footprint or in bytes
    #[arg(long, value_delimiter = ',', value_name = "SIZES", default_value = "1%,5%,10%,20%,80%", value_parser = size)]
    sizes: Vec<Size>,

    /// Measure these rows on simulated volumes instead, by their ids in docs/guide/bench.md, as B25,zipf; or all
    #[arg(long, value_delimiter = ',', value_name = "IDS", conflicts_with_all = ["traces", "format", "requests", "sizes"])]
    rows: Vec<String>,

    /// Runs of each case of the rows, with a seed each [default: 1 smoke, 3 short, 5 paper]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..), requires = "rows")]
    runs: Option<u64>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.rows[..] {
        [] => replay(args),
        [all] if all == "all" => compare(args, &[]),
        rows => compare(args, rows),
    }
}

/// Measures rows on simulated volumes.
fn compare(args: &Args, rows: &[String]) -> anyhow::Result<ExitCode> {
    let options = args.common.options(rows);
    let scale = Scale::of(options.profile, args.runs);
    let interrupt = Interrupt::listen().context("listen to signals")?;
    let plan = Plan::new(rows::all(), &options, &rows::SMOKE)?;
    println!("bench tier measures {} in virtual time", plan.size());
    let mut report = Report::new("tier", &options);
    scale.describe(&mut report)?;
    let bencher = Bencher::new(scale, options.seed)?;
    plan.run(&mut report, interrupt.asked(), |case| bencher.measure(case, interrupt.asked()))?;
    args.common.end(&mut report, &interrupt, SOME_ROWS)
}

fn replay(args: &Args) -> anyhow::Result<ExitCode> {
    let options = args.common.options(&[]);
    let mut report = Report::new("tier", &options);
    let mut replays = Vec::new();
    for source in sources(args, &options) {
        println!("bench tier replays {}", source.name());
        replays.push(tier::replay(&source, &args.sizes).context("replay")?);
    }
    tier::describe(&mut report, &replays);
    args.common.give(&report)
}

fn sources(args: &Args, options: &bench::Options) -> Vec<Source> {
    if args.traces.is_empty() {
        let stand_in = |of: StandIn| Source::StandIn {
            of,
            requests: args.requests.unwrap_or(match options.profile {
                Profile::Smoke => 20_000,
                Profile::Short => 1_000_000,
                Profile::Paper => of.requests,
            }),
            seed: options.seed,
        };
        return StandIn::ALL.into_iter().map(stand_in).collect();
    }
    let mut formats = Format::ALL.into_iter();
    let format = formats.find(|format| Some(format.name()) == args.format.as_deref());
    let file =
        |path: &PathBuf| Source::File { path: path.clone(), format, requests_max: args.requests };
    args.traces.iter().map(file).collect()
}

/// Reads `5%` or `640MiB`.
fn size(text: &str) -> Result<Size, String> {
    let Some(percent) = text.strip_suffix('%') else {
        return text.parse().map(|ByteSize(bytes)| Size::Bytes(bytes));
    };
    match percent.trim().parse() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Size::Percent(percent)),
        _ => Err("a percentage is above 0 and at most 100".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_percent_or_bytes() {
        assert_eq!(size("5%"), Ok(Size::Percent(5.0)));
        assert_eq!(size("0.5 %"), Ok(Size::Percent(0.5)));
        assert_eq!(size("640MiB"), Ok(Size::Bytes(640 << 20)));
        assert!(["0%", "101%", "NaN%", "-1%", "many"].iter().all(|text| size(text).is_err()));
    }
}
