//! Tries a program with one seed after the other.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Log, Program, Sim};

/// A seed that violates an invariant.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The program.
    pub program: &'static str,
    /// The seed.
    pub seed: u64,
    /// The violated invariant.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, seed, what } = self;
        writeln!(f, "{program}: seed {seed}: {what}")?;
        write!(f, "replay: cargo run --release -p sim -- {program} --seed {seed}")
    }
}

impl std::error::Error for Failure {}

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Seeds tried.
    pub seeds: u64,
    /// The number of different endings.
    pub distinct: usize,
    /// The failures.
    pub failures: Vec<Failure>,
}

/// Tries `program` with each of `seeds`, up to `failures_max` failures.
#[must_use]
pub fn search(program: &Program, seeds: Range<u64>, failures_max: usize) -> Report {
    let mut report = Report::default();
    let mut endings = HashSet::new();
    for seed in seeds {
        report.seeds += 1;
        match attempt(program, &Sim::new(seed, Log::silent()), seed) {
            Ok(ending) => {
                endings.insert(ending);
            }
            Err(failure) => report.failures.push(failure),
        }
        if report.failures.len() >= failures_max {
            break;
        }
    }
    report.distinct = endings.len();
    report
}

/// Runs `program` with one seed; returns its log, complete up to a failure, and its ending.
pub fn replay(program: &Program, seed: u64) -> (String, Result<String, Failure>) {
    let sim = Sim::new(seed, Log::recording());
    let ending = attempt(program, &sim, seed);
    (sim.log().to_string(), ending)
}

fn attempt(program: &Program, sim: &Sim, seed: u64) -> Result<String, Failure> {
    // Unwind-safe: of a failed run only the log is used, which is complete after each note.
    let ending = catch_unwind(AssertUnwindSafe(|| (program.run)(sim)));
    if ending.is_ok() {
        sim.ring_out();
    }
    ending.map_err(|panic| {
        let what = match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(what), _) => what.clone(),
            (_, Some(what)) => (*what).into(),
            _ => "a panic without words".into(),
        };
        // Tasks may own the machine that owns them.
        sim.end_all_tasks();
        Failure { program: program.name, seed, what }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILS_AT_THREE: Program = Program {
        name: "odd",
        about: "a program that fails",
        run: |sim| {
            use rand::RngExt;
            let drawn: u32 = sim.random("test").random_range(0..10);
            sim.note("test", format_args!(". drew {drawn}"));
            assert_ne!(drawn, 3, "it drew 3");
            drawn.to_string()
        },
    };

    #[test]
    fn a_failing_seed_is_named_and_fails_again() {
        let report = search(&FAILS_AT_THREE, 0..200, 1);
        assert_eq!(report.failures.len(), 1);
        let failure = &report.failures[0];
        let (log, ending) = replay(&FAILS_AT_THREE, failure.seed);
        assert!(log.ends_with("test        . drew 3\n"), "{log}");
        let again = ending.unwrap_err().to_string();
        assert_eq!(again, failure.to_string());
        let command = format!("cargo run --release -p sim -- odd --seed {}", failure.seed);
        assert!(again.contains("it drew 3") && again.ends_with(&command), "{again}");
    }
}
