//! What a volume was found to give, kept in its directory over restarts.
//!
//! A hint, not data: it is not synced, and one that is missing, damaged or of another contract is ignored. The gate then
//! finds out again.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use policy::contract::Contract;
use policy::estimate::Learned;
use volume::Volume;
use volume::layer::gate::Gate;

/// The file's name in the directory.
const FILE: &str = "plimsoll.learned";

/// The first line: the format.
const FORMAT: &str = "plimsoll learned 1";

/// The file, and what it says or would say.
pub(super) struct LearnedFile {
    path: PathBuf,
    text: Mutex<String>,
}

impl LearnedFile {
    /// The file in `dir`. Tells `gate` what it says.
    pub(super) fn open<V: Volume>(dir: &Path, gate: &Gate<V>) -> Self {
        let path = dir.join(FILE);
        let contract = gate.meter().contract;
        let mut text = fs::read_to_string(&path).unwrap_or_default();
        match parse(&text, &contract) {
            Some(learned) => gate.resume(&learned),
            // Nothing is written until something is learned.
            None => text = gate.learned().map_or(text, |nothing| show(&nothing, &contract)),
        }
        Self { path, text: Mutex::new(text) }
    }

    /// Writes what `gate` has learned, if that changed.
    pub(super) fn keep<V: Volume>(&self, gate: &Gate<V>) {
        let Some(learned) = gate.learned() else { return };
        let mut text = self.text.lock();
        let now = show(&learned, &gate.meter().contract);
        if now != *text {
            match fs::write(&self.path, &now) {
                Ok(()) => *text = now,
                // A full or failed volume says so elsewhere.
                Err(error) => tracing::debug!("{} is not written: {error}", self.path.display()),
            }
        }
    }
}

fn show(learned: &Learned, contract: &Contract) -> String {
    let Learned { rate, depth, bad, bad_for } = learned;
    let (limits, seconds) = (limits(contract), bad_for.as_secs());
    format!(
        "{FORMAT}\n{limits}\nrate {rate:.4}\ndepth {depth:.4}\nbad {bad:.4}\nbad-for {seconds}\n"
    )
}

fn parse(text: &str, contract: &Contract) -> Option<Learned> {
    let lines: Vec<_> = text.lines().collect();
    let [FORMAT, of, rate, depth, bad, bad_for] = lines[..] else { return None };
    let part = |line: &str, name: &str| {
        let part: f64 = line.strip_prefix(name)?.trim().parse().ok()?;
        (part >= 0.0).then_some(part)
    };
    let seconds: u64 = bad_for.strip_prefix("bad-for ")?.parse().ok()?;
    (of == limits(contract)).then_some(())?;
    Some(Learned {
        rate: part(rate, "rate ")?,
        depth: part(depth, "depth ")?,
        bad: part(bad, "bad ")?,
        bad_for: Duration::from_secs(seconds),
    })
}

/// The contract's limits in one line.
fn limits(contract: &Contract) -> String {
    let mut text = "limits".to_owned();
    for limit in &contract.limits {
        let (rate, depth) = (limit.rate_per_sec, limit.depth);
        write!(text, " {:?} {rate} {depth}", limit.counts).expect("a string takes any text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::contract;

    #[test]
    fn it_comes_back_as_it_was_for_the_same_contract_only() {
        let (gp3, st1) = (contract("gp3").expect("it is there"), Contract::unlimited());
        let some = Learned {
            rate: 0.875,
            depth: 0.0625,
            bad: f64::INFINITY,
            bad_for: Duration::from_secs(60),
        };
        for learned in [some, Learned { bad: 0.5, ..some }] {
            let text = show(&learned, &gp3);
            assert_eq!(parse(&text, &gp3), Some(learned), "{text}");
            assert_eq!(parse(&text, &st1), None);
            for wrong in [&text[..40], "", "plimsoll learned 2", &text.replace("0.875", "-1")] {
                assert_eq!(parse(wrong, &gp3), None, "{wrong}");
            }
            assert_eq!(parse(&text.replace("0.0625", "NaN"), &gp3), None);
        }
    }
}
