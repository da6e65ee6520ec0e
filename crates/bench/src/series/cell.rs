//! Measures a case: every scheme with every seed, several runs at a time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use policy::merge::Rule;

use super::run::run;
use super::{Cell, Home, Run, Scheme, Shape, check};
use crate::compare::{self, Side, at_once};
use crate::machine;
use crate::report::Report;

/// The tolerance for equal peaks of two rules, as a share of the disk: 1 % more space can save 5 % of the copies.
const NEAR: f64 = 0.002;
/// A rule whose fill peaks here has filled the disk: no target gives another rule the same peak.
const FULL: f64 = 0.98;
/// The number of targets to try.
const TRIES: usize = 6;

/// A shape under several rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The name in reports.
    pub name: String,
    /// What is run.
    pub shape: Shape,
    /// The rules. A scheme compared at equal peaks comes after its reference.
    pub schemes: Vec<Scheme>,
}

impl compare::Case for Case {
    type Outcome = Run;

    fn name(&self) -> &str {
        &self.name
    }

    fn sound(report: &mut Report, cells: &[&Cell]) {
        check::sound(report, cells);
    }
}

/// Measures cases.
pub struct Bencher<'b> {
    /// Where stores are.
    pub home: Home,
    /// Runs of each scheme, each with its own seed.
    pub runs: u64,
    /// The first seed.
    pub seed: u64,
    /// Set to end the measurement.
    pub stop: &'b AtomicBool,
}

impl Bencher<'_> {
    /// Measures a case. In virtual time as many runs as there are processors go on at once; they do not affect each
    /// other.
    ///
    /// # Errors
    /// A store failed for another reason than lack of space.
    pub fn measure(&self, case: &Case) -> anyhow::Result<Cell> {
        let mut cell = Cell::of(&case.name, case.schemes.iter().map(Scheme::name));
        // A scheme compared at the peak of another runs after it.
        for dependent in [false, true] {
            let now = |(_, scheme): &(usize, &Scheme)| scheme.at_peak_of.is_some() == dependent;
            let schemes: Vec<_> = case.schemes.iter().enumerate().filter(now).collect();
            let jobs: Vec<_> = (0..self.runs)
                .flat_map(|seed| schemes.iter().map(move |&(at, scheme)| (at, scheme, seed)))
                .collect();
            let results = self.all(&jobs, |&(_, scheme, seed)| {
                let seed_of = self.seed.wrapping_add(seed);
                match scheme.at_peak_of {
                    None => self.run(&case.shape, scheme, case.shape.target, seed_of),
                    Some(other) => {
                        let other = peak_of(&case.schemes, &cell.sides, other, seed);
                        other.map_or(Ok(None), |peak| {
                            self.at_peak(&case.shape, scheme, peak, seed_of)
                        })
                    }
                }
            })?;
            for ((at, ..), measured) in jobs.into_iter().zip(results) {
                cell.sides[at].runs.extend(measured);
            }
        }
        Ok(cell)
    }

    fn run(
        &self,
        shape: &Shape,
        scheme: &Scheme,
        target: f64,
        seed: u64,
    ) -> anyhow::Result<Option<Run>> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        run(&self.home, shape, scheme, target, seed, self.stop)
    }

    /// Runs with the target whose fill peaks at `peak`: the nearest of those tried. `None` if the other rule filled the
    /// disk.
    fn at_peak(
        &self,
        shape: &Shape,
        scheme: &Scheme,
        peak: f64,
        seed: u64,
    ) -> anyhow::Result<Option<Run>> {
        if peak > FULL {
            return Ok(None);
        }
        let mut target = peak;
        let mut nearest: Option<Run> = None;
        for _ in 0..TRIES {
            let Some(measured) = self.run(shape, scheme, target, seed)? else { break };
            let off = measured.peak() - peak;
            if nearest.as_ref().is_none_or(|best| off.abs() < (best.peak() - peak).abs()) {
                nearest = Some(measured);
            }
            if off.abs() <= NEAR {
                break;
            }
            target = (target - off).clamp(0.05, 0.99);
        }
        Ok(nearest)
    }

    /// Does all `jobs` and returns the results in their order.
    fn all<J: Sync, T: Send>(
        &self,
        jobs: &[J],
        work: impl Fn(&J) -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        let workers = match self.home {
            Home::Simulated => machine::processor_count().min(jobs.len()),
            Home::Directory(_) => 1,
        };
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(jobs.len()));
        at_once(workers, |_| {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(at) else { return Ok(()) };
                let result = work(job)?;
                done.lock().push((at, result));
            }
        })?;
        let mut done = done.into_inner();
        done.sort_by_key(|(at, _)| *at);
        Ok(done.into_iter().map(|(_, result)| result).collect())
    }
}

/// The peak fill of a rule in the run of a seed.
fn peak_of(schemes: &[Scheme], sides: &[Side<Run>], rule: Rule, seed: u64) -> Option<f64> {
    let is_it = |scheme: &Scheme| scheme.rule == rule && scheme.at_peak_of.is_none();
    let at = schemes.iter().position(is_it)?;
    let run = sides[at].runs.get(usize::try_from(seed).ok()?)?;
    Some(run.peak())
}

/// The approximate duration of a case: its bytes at the rate one processor moves through a store.
#[must_use]
pub fn takes(case: &Case, runs: u64, home: &Home) -> Duration {
    let shape = &case.shape;
    let fills = shape.fills[0] + shape.fills[1];
    let one = |scheme: &Scheme| {
        // Copies are read and written; rules compared at a peak are tried several times.
        let copies = if shape.planes() { 1.0 } else { 4.0 };
        let tries = if scheme.at_peak_of.is_some() { 4.0 } else { 1.0 };
        shape.total() as f64 * fills * copies * tries
    };
    let bytes: f64 = case.schemes.iter().map(one).sum::<f64>() * runs as f64;
    let per_sec = match home {
        Home::Simulated => SIMULATED_PER_SEC * machine::processor_count() as f64,
        Home::Directory(_) => DIRECTORY_PER_SEC,
    };
    Duration::from_secs_f64(bytes / per_sec)
}

/// Bytes per second that one processor simulates, and that a disk takes.
const SIMULATED_PER_SEC: f64 = 500e6;
const DIRECTORY_PER_SEC: f64 = 80e6;

#[cfg(test)]
mod tests {
    use super::super::case::tests::shape;
    use super::super::load::Load;
    use super::*;

    #[test]
    fn greed_is_compared_where_its_fill_peaks_as_high() {
        let stop = AtomicBool::new(false);
        let bencher = Bencher { home: Home::Simulated, runs: 1, seed: 1, stop: &stop };
        let shape = Shape { load: Load::Random, live: 0.6, fills: [1.0, 1.0], ..shape() };
        let schemes =
            vec![Scheme::greedy_at_peak_of(Rule::Fisherman), Scheme::new(Rule::Fisherman, 1)];
        let case = Case { name: "random".into(), shape, schemes };
        let cell = bencher.measure(&case).expect("memory does not fail");
        let peak = |scheme: usize| cell.sides[scheme].median(Run::peak);
        assert!((peak(0) - peak(1)).abs() < 0.03, "{} beside {}", peak(0), peak(1));
        assert!(cell.sides[0].median(Run::WRITE_AMPLIFICATION.of) > 1.0);
    }
}
