//! What a volume was found to give, kept in its directory over restarts.
//!
//! One that is missing, damaged or of another contract is ignored. The gate then finds out again.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use policy::contract::Contract;
use policy::estimate::{IoKind, Learned};
use volume::Volume;
use volume::layer::gate::Gate;

use super::hint_file::HintFile;

/// The file's name in the directory.
const FILE: &str = "plimsoll.learned";

/// The first line: the format.
const FORMAT: &str = "plimsoll learned 2";

const WRITES: &str = "a string takes any text";

/// The file.
pub(super) struct LearnedFile(HintFile);

impl LearnedFile {
    /// The file in `dir`. Tells `gate` what it says.
    pub(super) fn open<V: Volume>(dir: &Path, gate: &Gate<V>) -> Self {
        let file = HintFile::open(dir, FILE);
        let contract = gate.bought();
        match parse(&file.text(), &contract) {
            Some(learned) => gate.resume(&learned),
            // Nothing is written until something is learned.
            None => {
                gate.learned()
                    .into_iter()
                    .for_each(|nothing| file.assume(show(&nothing, &contract)));
            }
        }
        Self(file)
    }

    /// Writes what `gate` has learned, if that changed: see [`HintFile::keep`].
    pub(super) fn keep<V: Volume>(&self, gate: &Gate<V>) {
        if let Some(learned) = gate.learned() {
            self.0.keep(show(&learned, &gate.bought()));
        }
    }
}

fn show(learned: &Learned, contract: &Contract) -> String {
    let Learned { rate, depth, bad, bad_for, usual, credits } = learned;
    let (limits, seconds) = (limits(contract), bad_for.as_secs());
    let mut text = format!(
        "{FORMAT}\n{limits}\nrate {rate:.4}\ndepth {depth:.4}\nbad {bad:.4}\nbad-for {seconds}\n"
    );
    for (kind, time) in IoKind::ALL.into_iter().zip(usual) {
        if let Some(time) = time {
            writeln!(text, "usual {} {}", kind.name(), time.as_nanos()).expect(WRITES);
        }
    }
    if let Some(credits) = credits {
        // In whole percents, so that they rarely change; rounded down, since some are spent until the end.
        writeln!(text, "credits {:.2}", (credits * 100.0).floor() / 100.0).expect(WRITES);
    }
    text
}

fn parse(text: &str, contract: &Contract) -> Option<Learned> {
    let lines: Vec<_> = text.lines().collect();
    let [FORMAT, of, rate, depth, bad, bad_for, ref rest @ ..] = lines[..] else { return None };
    let part = |line: &str, name: &str| {
        let part: f64 = line.strip_prefix(name)?.trim().parse().ok()?;
        (part >= 0.0).then_some(part)
    };
    let seconds: u64 = bad_for.strip_prefix("bad-for ")?.parse().ok()?;
    (of == limits(contract)).then_some(())?;
    let mut learned = Learned {
        rate: part(rate, "rate ")?,
        depth: part(depth, "depth ")?,
        bad: part(bad, "bad ")?,
        bad_for: Duration::from_secs(seconds),
        usual: [None; IoKind::COUNT],
        credits: None,
    };
    for line in rest {
        match line.strip_prefix("usual ") {
            Some(usual) => {
                let (name, nanos) = usual.split_once(' ')?;
                let kind = IoKind::ALL.into_iter().find(|kind| kind.name() == name)?;
                learned.usual[kind.index()] = Some(Duration::from_nanos(nanos.parse().ok()?));
            }
            None => learned.credits = Some(part(line, "credits ")?),
        }
    }
    Some(learned)
}

/// The contract's limits in one line.
fn limits(contract: &Contract) -> String {
    let mut text = "limits".to_owned();
    for limit in &contract.limits {
        let (rate, depth) = (limit.rate_per_sec, limit.depth);
        write!(text, " {:?} {rate} {depth}", limit.counts).expect(WRITES);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use policy::budget::Share;
    use policy::contract::catalogue;
    use policy::contract::spec::Bought;
    use policy::sched::Policy;
    use policy::units::Bytes;
    use volume::Clock;
    use volume::mem::Mem;

    use super::*;
    use crate::volumes::contract;

    fn some() -> Learned {
        Learned {
            rate: 0.875,
            depth: 0.0625,
            bad: f64::INFINITY,
            bad_for: Duration::from_secs(60),
            usual: [None; IoKind::COUNT],
            credits: None,
        }
    }

    #[test]
    fn a_volume_begins_with_what_was_learned_and_nothing_is_written_before() {
        let dir = tempfile::tempdir().expect("room for a directory");
        let gate = || {
            let gp3 = contract("gp3").expect("it is there");
            let (share, clock) = (Share::default(), Clock::simulated());
            let gate = Gate::with_policy(Mem::new("a"), "a", &gp3, share, Policy::default(), clock);
            gate.set_adapt(true);
            gate
        };
        let first = gate();
        let file = LearnedFile::open(dir.path(), &first);
        file.keep(&first);
        assert!(!dir.path().join(FILE).exists(), "nothing was learned");
        first.resume(&Learned { rate: 0.5, bad: 0.5, ..some() });
        let learned = first.learned().expect("it adapts");
        assert_eq!((learned.rate, learned.bad), (0.5, 0.5));
        file.keep(&first);
        let second = gate();
        LearnedFile::open(dir.path(), &second);
        assert_eq!(second.learned(), Some(learned));

        // A part of the machine's limits is another contract in force, for the same volume.
        let part = gate();
        let mut half = part.bought();
        half.limits.iter_mut().for_each(|limit| {
            limit.rate_per_sec /= 2;
            limit.depth /= 2;
        });
        part.set_at_most(&half);
        LearnedFile::open(dir.path(), &part);
        assert_eq!(part.learned(), Some(learned));

        // A volume that takes no new file keeps the old one.
        fs::create_dir(dir.path().join("plimsoll.learned.new")).expect("room for a directory");
        first.resume(&Learned { rate: 0.75, ..learned });
        file.keep(&first);
        let third = gate();
        LearnedFile::open(dir.path(), &third);
        assert_eq!(third.learned(), Some(learned));
    }

    /// Credits that were saved up for hours were assumed to be gone after a restart.
    #[test]
    fn credits_outlast_a_restart() {
        let dir = tempfile::tempdir().expect("room for a directory");
        let gate = || {
            let size = Some(Bytes(100 << 30));
            let gp2 = catalogue::find("gp2").expect("it is there");
            let gp2 = gp2.contract(size, Bought::default()).expect("a size that is sold");
            let share = Share::default();
            let gate = Gate::new(Mem::new("a"), "a", &gp2, share, Clock::simulated());
            gate.set_adapt(true);
            gate
        };
        let first = gate();
        let file = LearnedFile::open(dir.path(), &first);
        assert_eq!(first.meter().credits, Some(0.0));
        let learned = first.learned().expect("it adapts");
        first.resume(&Learned { credits: Some(0.429), ..learned });
        file.keep(&first);
        let second = gate();
        LearnedFile::open(dir.path(), &second);
        let credits = second.meter().credits.expect("a volume with credits");
        assert!((credits - 0.42).abs() < 1e-3, "{credits}: some were spent after the last writing");
    }

    #[test]
    fn it_comes_back_as_it_was_for_the_same_contract_only() {
        let (gp3, st1) = (contract("gp3").expect("it is there"), Contract::unlimited());
        let sync = Some(Duration::from_micros(660));
        let more = Learned { usual: [None, None, None, None, sync], credits: Some(0.5), ..some() };
        for learned in [some(), Learned { bad: 0.5, ..some() }, more] {
            let text = show(&learned, &gp3);
            assert_eq!(parse(&text, &gp3), Some(learned), "{text}");
            assert_eq!(parse(&text, &st1), None);
            for wrong in [&text[..40], "", "plimsoll learned 1", &text.replace("0.875", "-1")] {
                assert_eq!(parse(wrong, &gp3), None, "{wrong}");
            }
            assert_eq!(parse(&text.replace("0.0625", "NaN"), &gp3), None);
            assert_eq!(parse(&format!("{text}more\n"), &gp3), None);
        }
    }
}
