//! What a bench brings: its cases, and the figures of their outcomes.

use super::{Cell, Figure, Side};
use crate::drive::{Driven, Operation};
use crate::report::{Plot, Report};

/// A case to measure under every scheme. Equal cases are measured once.
pub trait Case: Clone + PartialEq {
    /// The result of one run of one scheme.
    type Outcome: Outcome;

    /// The name in reports.
    fn name(&self) -> &str;

    /// Checks that the stores of all cells gave right answers.
    fn sound(report: &mut Report, cells: &[&Cell<Self::Outcome>]);
}

/// The result of one run of one scheme.
pub trait Outcome: Sized + 'static {
    /// The figures of every scheme.
    const FIGURES: &'static [Figure<Self>];

    /// The columns of the table that readers see of a cell; none for no table.
    const COLUMNS: &'static [Figure<Self>] = Self::FIGURES;

    /// Whether a cell's figures are told under every row that needs it, or under the first one only.
    const TOLD_AGAIN: bool = false;

    /// Adds what a report has of a scheme besides its figures.
    fn tell_more(_report: &mut Report, _id: &str, _case: &str, _side: &Side<Self>) {}

    /// The plots of a cell.
    #[must_use]
    fn plots(_id: &str, _cell: &Cell<Self>) -> Vec<Plot> {
        Vec::new()
    }
}

/// What counts a run's operations below the gate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CountedBy {
    /// The simulated provider.
    Simulator,
    /// The kernel, for the block device of a real volume.
    Kernel,
    /// A real volume on no visible block device.
    Nothing,
}

/// The tokens for each operation that the kernel counted. A gate that charges less overdraws its contract, of which its
/// budget uses 98 %. Requests under way when a run begins and ends are counted on one side only: 128 threads on six
/// volumes make that half a percent of a run of 20 s.
const CHARGED: [f64; 2] = [0.98, 1.005];

/// The outcome of a load on a key-value store.
pub trait StoreOutcome: Outcome {
    /// What its threads did.
    fn driven(&self) -> &Driven;

    /// The requests that the simulated provider made wait, and all that it saw; `None` on a real volume.
    fn overdrawn(&self) -> Option<[u64; 2]>;

    /// The requests that the simulated provider made wait; NaN on a real volume.
    fn overdrafts(&self) -> f64 {
        self.overdrawn().map_or(f64::NAN, |[waited, _]| waited as f64)
    }

    /// The tokens of all requests, and the operations that the kernel counted; `None` unless it did.
    fn charged(&self) -> Option<[u64; 2]>;

    /// The tokens for each operation that the kernel counted; NaN unless it did.
    fn tokens_per_operation(&self) -> f64 {
        self.charged().map_or(f64::NAN, |[tokens, counted]| tokens as f64 / counted as f64)
    }

    /// The tokens of reads that users wait for.
    fn read_tokens(&self) -> u64;

    /// Operations a second.
    fn qps(&self) -> f64 {
        self.driven().operations() as f64 / self.driven().elapsed.as_secs_f64()
    }

    /// The mean latency of all operations in microseconds.
    fn mean_us(&self) -> f64 {
        let all = self.driven().latencies.all();
        if all.is_empty() { f64::NAN } else { all.mean() / 1e3 }
    }

    /// The quantile `part` of latencies, in microseconds.
    fn quantile_us(&self, part: f64) -> f64 {
        let all = self.driven().latencies.all();
        if all.is_empty() { f64::NAN } else { all.value_at_quantile(part) as f64 / 1e3 }
    }

    /// Operations of the device for each operation that reads.
    fn ios_per_read(&self) -> f64 {
        let reads: u64 = Operation::ALL
            .iter()
            .filter(|operation| !operation.only_writes())
            .map(|operation| self.driven().latencies.count(*operation))
            .sum();
        self.read_tokens() as f64 / reads as f64
    }
}

/// Checks that every answer was right, and that no request of the schemes in `keepers` (empty: of any) overdrew its
/// provider; `what` names that check, from the number of requests. Real volumes do not report overdrafts. There it
/// checks that each keeper charged what the kernel counted.
pub fn sound<O: StoreOutcome>(
    report: &mut Report,
    cells: &[&Cell<O>],
    keepers: &[&str],
    what: impl Fn(u64) -> String,
) {
    let (mut overdrafts, mut wrong, mut requests) = (0, 0, 0);
    let (mut example, mut simulated) = (None, true);
    let mut charged: Vec<(&str, [u64; 2])> = Vec::new();
    for side in cells.iter().flat_map(|cell| &cell.sides) {
        for run in side.runs.iter().chain(&side.open) {
            wrong += run.driven().wrong;
            example = example.or_else(|| run.driven().example.clone());
            if !keepers.is_empty() && !keepers.contains(&&*side.scheme) {
                continue;
            }
            let overdrawn = run.overdrawn();
            simulated &= overdrawn.is_some();
            let [waited, all] = overdrawn.unwrap_or_default();
            overdrafts += waited;
            requests += all;
            let Some([tokens, counted]) = run.charged() else { continue };
            match charged.iter_mut().find(|(scheme, _)| *scheme == side.scheme) {
                Some((_, sums)) => *sums = [sums[0] + tokens, sums[1] + counted],
                None => charged.push((&side.scheme, [tokens, counted])),
            }
        }
    }
    let answers = "answers that were not what was stored, all schemes";
    report.check("all", answers, wrong as f64, [0.0, 0.0]);
    report.notes.extend(example.map(|example| format!("a wrong answer: {example}")));
    if simulated {
        report.check("all", &what(requests), overdrafts as f64, [0.0, 0.0]);
    }
    for (scheme, [tokens, counted]) in charged {
        let what = format!("{scheme}: tokens / operations the kernel counted, all runs");
        report.check("all", &what, tokens as f64 / counted as f64, CHARGED);
    }
}
