//! Both stores second by second: a line for each second, which is also a plot of p99 that grows downwards.

use std::time::Duration;

use policy::time::Instant;
use ratatui::crossterm::style::{Color, Stylize};
use volume::Clock;
use volume::task::block_on;

use super::load::{Latencies, Tally};
use super::side::Side;
use super::verdict::{self, Figures};

/// Columns of a bar, and what an empty and a full one stand for. Between them lengths are logarithms: the two
/// stores differ by orders of magnitude.
const BAR: usize = 11;
/// Columns of a bar with its figure.
const WIDTH: usize = BAR + 1 + 8;
const EMPTY_MS: f64 = 0.1;
const FULL_MS: f64 = 1000.0;

/// Looks at both sides once a second.
pub(super) struct Picture<'p> {
    pub(super) sides: [&'p Side<'p>; 2],
    pub(super) tallies: &'p [Tally; 2],
    pub(super) clock: &'p Clock,
    /// Operations a second that are paid for, of each volume.
    pub(super) iops: u64,
    /// Whether the lines are for a terminal.
    pub(super) colour: bool,
}

/// The counters of a volume at one moment.
#[derive(Clone, Copy)]
struct Counters {
    ios: u64,
    overdrafts: u64,
}

impl Picture<'_> {
    /// Prints a line each second from `start` until `until`, or until `is_over`. Gives what happened from `from` on,
    /// and how long that was.
    pub(super) fn watch(
        &self,
        (start, from, until): (Instant, Instant, Instant),
        is_over: impl Fn() -> bool,
    ) -> ([Figures; 2], Duration) {
        println!("{}", self.heading());
        let mut last = self.sides.map(counters);
        let mut all = [(); 2].map(|()| Latencies::none());
        let mut begun = last;
        let (mut counted_from, mut at) = (start, start);
        while at < until && !is_over() {
            if at == from {
                (begun, counted_from) = (last, at);
                all = [(); 2].map(|()| Latencies::none());
            }
            let mark = if at < from { from } else { until };
            let next = mark.min(at + Duration::from_secs(1));
            block_on(self.clock.sleep_until(next));
            let now = self.sides.map(counters);
            let seconds = next.since(at).as_secs_f64();
            let mut line = format!("{:>4}", seconds_after(next, from));
            for side in 0..2 {
                let latencies = self.tallies[side].take();
                line.push_str(&self.part(&latencies, last[side], now[side], seconds, side));
                all[side].add(&latencies);
            }
            println!("{line}");
            (last, at) = (now, next);
        }
        let mut latencies = all.into_iter();
        let figures = [0, 1].map(|side| Figures {
            name: self.sides[side].name,
            latencies: latencies.next().expect("two of them"),
            // A token that was given back may be one of before.
            ios: last[side].ios.saturating_sub(begun[side].ios),
            overdrafts: last[side].overdrafts - begun[side].overdrafts,
        });
        (figures, at.since(counted_from))
    }

    fn heading(&self) -> String {
        let [plain, ours] = self.sides.map(|side| format!("   {:<34}", side.name));
        let columns = format!("   {:<WIDTH$} {:>6} {:>5}", "p99 of reads", "line", "over");
        format!("    {plain}{}\n   s{columns}{columns}", ours.trim_end())
    }

    /// What one side did in a second.
    fn part(
        &self,
        of: &Latencies,
        last: Counters,
        now: Counters,
        seconds: f64,
        side: usize,
    ) -> String {
        let p99_ms = of.reads.value_at_quantile(0.99) as f64 / 1000.0;
        let used = now.ios.saturating_sub(last.ios) as f64 / (self.iops as f64 * seconds);
        let p99 = if of.reads.is_empty() { "-".into() } else { verdict::ms(p99_ms) };
        let bar = format!("{:BAR$}", bar(p99_ms));
        let colour = if side == 0 { Color::Red } else { Color::Cyan };
        let bar = if self.colour { bar.with(colour).to_string() } else { bar };
        let over = now.overdrafts.saturating_sub(last.overdrafts);
        format!("   {bar} {p99:>8} {:>4.0} % {over:>5}", 100.0 * used)
    }
}

/// How many seconds `at` is after `from`; below 0 if it is before.
#[expect(clippy::cast_possible_truncation, reason = "some seconds")]
fn seconds_after(at: Instant, from: Instant) -> i64 {
    (at.since(from).as_secs_f64() - from.since(at).as_secs_f64()).round() as i64
}

fn counters(side: &Side<'_>) -> Counters {
    Counters { ios: side.ios(), overdrafts: side.overdrafts() }
}

/// A bar to an eighth of a column.
fn bar(ms: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let part = (ms / EMPTY_MS).log10() / (FULL_MS / EMPTY_MS).log10();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a bar")]
    let eighths = (part.clamp(0.0, 1.0) * (8 * BAR) as f64).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_grows_by_the_same_for_each_power_of_ten() {
        let length = |ms| bar(ms).chars().count();
        assert_eq!([0.0, 0.1, 1.0, 10.0, 100.0, 1000.0, 1e6].map(length), [0, 0, 3, 6, 9, 11, 11]);
        assert_eq!(bar(2.0), "███▋");
    }
}
