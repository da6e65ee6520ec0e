//! What the comparison came to, in a table and a sentence.

use std::time::Duration;

use bench::compare::Late;
use comfy_table::{CellAlignment, Table, presets};

use super::load::Latencies;

/// Two p99 count as equal up to this ratio: two runs of the same store differ as much.
const SAME: f64 = 1.25;
/// A volume is at its line from this part of what is paid for on. Gates use 98 % at most.
const AT_LINE: f64 = 0.9;

/// Sleeps that are late by this part of a p99 are told as a reason for it.
const LATE_PART: f64 = 0.4;
/// From here on a volume below its line is put down to the processors.
const BUSY_PERCENT: f64 = 90.0;

/// What one store did in the seconds that count.
pub(super) struct Figures {
    pub(super) name: &'static str,
    pub(super) latencies: Latencies,
    /// Operations of its volume.
    pub(super) ios: u64,
    /// Those of them that the provider made wait.
    pub(super) overdrafts: u64,
}

/// What both did.
pub(super) struct Outcome {
    pub(super) plain: Figures,
    pub(super) ours: Figures,
    /// Operations a second that are paid for, of each volume.
    pub(super) iops: u64,
    /// How long they were compared.
    pub(super) time: Duration,
}

/// The figures that the sentence is about.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Short {
    p99_ms: f64,
    /// The part of what is paid for that was used.
    used: f64,
    overdrafts: u64,
}

impl Outcome {
    /// One line for each store.
    pub(super) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["", "reads/s", "p50", "p99", "p99.9", "writes/s", "p99", "line", "over"]);
        for side in [&self.plain, &self.ours] {
            let Latencies { reads, writes } = &side.latencies;
            let rate = |count: u64| format!("{:.0}", count as f64 / self.time.as_secs_f64());
            table.add_row([
                side.name.to_owned(),
                rate(reads.len()),
                ms(ms_of(reads.value_at_quantile(0.5))),
                ms(ms_of(reads.value_at_quantile(0.99))),
                ms(ms_of(reads.value_at_quantile(0.999))),
                rate(writes.len()),
                ms(ms_of(writes.value_at_quantile(0.99))),
                format!("{:.0} %", 100.0 * self.short(side).used),
                side.overdrafts.to_string(),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// Who was better, in a sentence.
    pub(super) fn verdict(&self) -> String {
        sentence(self.short(&self.plain), self.short(&self.ours))
    }

    fn short(&self, side: &Figures) -> Short {
        Short {
            p99_ms: ms_of(side.latencies.reads.value_at_quantile(0.99)),
            used: side.ios as f64 / (self.iops as f64 * self.time.as_secs_f64()),
            overdrafts: side.overdrafts,
        }
    }
}

fn sentence(plain: Short, ours: Short) -> String {
    let ratio = plain.p99_ms / ours.p99_ms;
    let p99 =
        format!("{} with Plimsoll and {} with plain RocksDB", ms(ours.p99_ms), ms(plain.p99_ms));
    let mut text = if ratio >= SAME {
        format!("The p99 of reads was {ratio:.1} times shorter with Plimsoll ({p99})")
    } else if ratio > 1.0 / SAME {
        format!("Plimsoll made no difference to the p99 of reads ({p99})")
    } else if ratio > 0.0 {
        let times = 1.0 / ratio;
        format!("Plimsoll was worse: the p99 of reads was {times:.1} times longer ({p99})")
    } else {
        "No reads were answered, so nothing can be said of their p99".into()
    };
    let percent = |used: f64| format!("{:.0} %", 100.0 * used);
    let (of_ours, of_plain) = (percent(ours.used), percent(plain.used));
    text.push_str(&if ours.used >= AT_LINE && plain.used >= AT_LINE {
        format!(", while both volumes were at their line ({of_ours} and {of_plain} of it used)")
    } else {
        format!(", but not both volumes were at their line ({of_ours} and {of_plain} of it used)")
    });
    let over = |count: u64| if count == 0 { "no".into() } else { count.to_string() };
    let (of_ours, of_plain) = (over(ours.overdrafts), over(plain.overdrafts));
    text.push_str(&format!(
        "; the provider held back {of_ours} I/Os of Plimsoll and {of_plain} of plain RocksDB."
    ));
    text
}

/// How the machine was meanwhile, and whether latencies are its own, in a line.
pub(super) fn machine(late: &Late, outcome: &Outcome) -> String {
    let machine = Machine {
        late_ms: late.us(0.99) / 1000.0,
        busy_percent: late.machine_percent(),
        demo_percent: late.busy_percent(),
    };
    machine.told(outcome.short(&outcome.plain), outcome.short(&outcome.ours))
}

/// The machine while stores were compared.
#[derive(Clone, Copy, Debug)]
struct Machine {
    /// How late bare sleeps were: their 99th percentile.
    late_ms: f64,
    /// Processor time of all processes, and of this demo.
    busy_percent: f64,
    demo_percent: f64,
}

impl Machine {
    fn told(self, plain: Short, ours: Short) -> String {
        let Self { late_ms, busy_percent, demo_percent } = self;
        let what = format!(
            "Processors were {busy_percent:.0} % busy ({demo_percent:.0} % by this demo), and 1 in 100 bare \
             sleeps was more than {} late",
            ms(late_ms),
        );
        if busy_percent > BUSY_PERCENT && plain.used.min(ours.used) < AT_LINE {
            format!(
                "{what}: the processors were the limit, not the volumes. Run the demo again when the machine \
                 is less busy."
            )
        } else if late_ms > ours.p99_ms * LATE_PART {
            format!("{what}: the machine causes much of Plimsoll's p99.")
        } else {
            format!("{what}.")
        }
    }
}

fn ms_of(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// Milliseconds for people: two digits at least.
pub(super) fn ms(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 10_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.0} s", ms / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Short = Short { p99_ms: 2.0, used: 0.97, overdrafts: 0 };
    const PLAIN: Short = Short { p99_ms: 50.0, used: 1.0, overdrafts: 812 };

    #[test]
    fn a_shorter_p99_is_told_with_its_conditions() {
        assert_eq!(
            sentence(PLAIN, OURS),
            "The p99 of reads was 25.0 times shorter with Plimsoll (2.0 ms with Plimsoll and 50 ms with \
             plain RocksDB), while both volumes were at their line (97 % and 100 % of it used); the provider \
             held back no I/Os of Plimsoll and 812 of plain RocksDB."
        );
    }

    #[test]
    fn what_is_no_better_is_told_as_such() {
        let same = sentence(Short { p99_ms: 2.2, ..PLAIN }, OURS);
        assert!(same.starts_with("Plimsoll made no difference"), "{same}");
        let worse = sentence(Short { p99_ms: 1.0, ..PLAIN }, OURS);
        assert!(worse.starts_with("Plimsoll was worse: the p99 of reads was 2.0 times"), "{worse}");
        let idle = sentence(PLAIN, Short { used: 0.5, ..OURS });
        assert!(
            idle.contains("but not both volumes were at their line (50 % and 100 % of it"),
            "{idle}"
        );
        let over = sentence(PLAIN, Short { overdrafts: 3, ..OURS });
        assert!(over.contains("held back 3 I/Os of Plimsoll"), "{over}");
        let none = sentence(Short { p99_ms: 0.0, ..PLAIN }, Short { p99_ms: 0.0, ..OURS });
        assert!(none.starts_with("No reads were answered"), "{none}");
    }

    #[test]
    fn a_machine_that_is_the_limit_is_told_as_such() {
        let calm = Machine { late_ms: 0.31, busy_percent: 99.0, demo_percent: 25.0 };
        assert_eq!(
            calm.told(PLAIN, OURS),
            "Processors were 99 % busy (25 % by this demo), and 1 in 100 bare sleeps was more than 0.3 ms late."
        );
        let late = Machine { late_ms: 1.5, ..calm }.told(PLAIN, OURS);
        assert!(
            late.ends_with("1.5 ms late: the machine causes much of Plimsoll's p99."),
            "{late}"
        );
        let below = Short { used: 0.6, ..OURS };
        let limit = calm.told(PLAIN, below);
        assert!(limit.contains("the processors were the limit"), "{limit}");
        let idle = Machine { busy_percent: 40.0, ..calm }.told(PLAIN, below);
        assert!(idle.ends_with("0.3 ms late."), "{idle}");
    }

    #[test]
    fn use_is_a_part_of_what_is_paid_for() {
        let figures =
            |name, ios| Figures { name, latencies: Latencies::none(), ios, overdrafts: 0 };
        let outcome = Outcome {
            plain: figures("plain", 12_000),
            ours: figures("ours", 11_640),
            iops: 400,
            time: Duration::from_secs(30),
        };
        assert_eq!(outcome.short(&outcome.plain).used, 1.0);
        assert_eq!(outcome.short(&outcome.ours).used, 0.97);
    }
}
