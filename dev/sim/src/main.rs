//! The command: tries a program with many seeds, or replays one of them.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use sim::{PROGRAMS, Program, replay, search};

/// Searches whole stacks in virtual time for orders of events in which something breaks.
///
/// A seed decides everything. A search prints the command that replays each seed that failed; a
/// replay prints every event.
#[derive(Parser)]
#[command(name = "sim", version)]
struct Arguments {
    /// What to run.
    #[arg(value_parser = programs())]
    program: &'static Program,
    /// How many seeds to try.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Replay this seed instead, with a log of every event.
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Give up after this many failures.
    #[arg(long, default_value_t = 3)]
    failures: usize,
    /// Print what the rules of `merge` cost instead, line by line. Takes half a minute
    /// of processor time.
    #[arg(long, conflicts_with_all = ["seeds", "first", "seed"])]
    table: bool,
}

fn programs() -> impl TypedValueParser<Value = &'static Program> {
    let named = PROGRAMS.map(|program| PossibleValue::new(program.name).help(program.about));
    PossibleValuesParser::new(named).map(|name| {
        let chosen = PROGRAMS.into_iter().find(|program| program.name == name);
        chosen.expect("the parser lets only names of programs through")
    })
}

fn main() -> ExitCode {
    let Arguments { program, seeds, first, seed, failures, table } = Arguments::parse();
    if table {
        if program.name != sim::merge::PROGRAM.name {
            eprintln!("only `merge` has a table");
            return ExitCode::FAILURE;
        }
        sim::merge::table(|line| print!("{line}"));
        return ExitCode::SUCCESS;
    }
    if let Some(seed) = seed {
        let (log, ending) = replay(program, seed);
        print!("{log}");
        return match ending {
            Ok(ending) => {
                println!("# {ending}");
                ExitCode::SUCCESS
            }
            Err(failure) => {
                eprintln!("{failure}");
                ExitCode::FAILURE
            }
        };
    }
    let started = Instant::now();
    let report = search(program, first..first.saturating_add(seeds), failures);
    let secs = started.elapsed().as_secs_f64();
    for failure in &report.failures {
        eprintln!("{failure}");
    }
    println!(
        "{}: {} seeds, {} different endings, {} failures, {secs:.1} s ({:.0} seeds/s)",
        program.name,
        report.seeds,
        report.distinct,
        report.failures.len(),
        report.seeds as f64 / secs
    );
    if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
