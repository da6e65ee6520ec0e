//! The output of a probe on standard error: its progress, and a picture of its findings.

use std::fmt::Write;
use std::time::Duration;

use bench::probe::{Bound, Found, Progress, Rate, Sharing};
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use policy::time::Instant;

/// The width of the picture.
const WIDTH: usize = 60;

const MIB: f64 = 1_048_576.0;

/// A progress bar with an estimated duration.
pub(super) struct Bar {
    bar: ProgressBar,
    started: Instant,
    measuring: Duration,
    state: Mutex<State>,
}

struct State {
    /// The estimated total time.
    takes: Duration,
    /// The time passed so far.
    passed: Duration,
    parts: usize,
    what: String,
}

impl Bar {
    pub(super) fn new(now: Instant, filling: Duration, measuring: Duration) -> Self {
        let takes = filling + measuring;
        let style = ProgressStyle::with_template("{bar:30} {msg}").expect("the template is right");
        let bar = ProgressBar::new(millis(takes)).with_style(style);
        let state = State { takes, passed: Duration::ZERO, parts: 0, what: String::new() };
        Self { bar, started: now, measuring, state: Mutex::new(state) }
    }

    fn draw(&self, state: &State) {
        let left = state.takes.saturating_sub(state.passed).as_secs_f64().ceil();
        self.bar.set_length(millis(state.takes));
        self.bar.set_position(millis(state.passed));
        self.bar.set_message(format!("{left:.0} s left: {}", state.what));
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Progress for Bar {
    fn begins(&self, what: &str) {
        let mut state = self.state.lock();
        state.what = what.into();
        state.parts += 1;
        // Filling may take less time than estimated, or more.
        if state.parts == 2 {
            state.takes = state.passed + self.measuring;
        }
        self.draw(&state);
    }

    fn passes(&self, now: Instant) {
        let mut state = self.state.lock();
        state.passed = now.since(self.started);
        self.draw(&state);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The findings, for a terminal.
pub(super) fn picture(found: &Found) -> String {
    let mut text = String::new();
    let mut line = |words: &str| writeln!(text, "{words}").expect("a string takes any text");
    line(&format!("IOPS       {}", figures(&found.iops, 1.0, "/s")));
    line(&format!("bandwidth  {}", figures(&found.bandwidth, MIB, " MiB/s")));
    let us = |time: Duration| time.as_micros();
    let mut latencies = vec![("reads", &found.base)];
    latencies.extend(found.writes.as_ref().map(|writes| ("writes", &writes.base)));
    for (what, measured) in latencies {
        let p = measured.percentiles;
        line(&format!("{what:<10} p50 {} us, p99 {} us below the line", us(p.p50), us(p.p99)));
    }
    let p = found.over.percentiles;
    line(&format!(
        "           p50 {} us, p99 {} us above it, {} at once",
        us(p.p50),
        us(p.p99),
        found.over.at_once
    ));
    if let Some(writes) = &found.writes {
        let words = match writes.sharing {
            Sharing::Shared => "share one limit with reads",
            Sharing::Separate => "have a limit of their own",
            Sharing::Unclear => "may or may not share the reads' limit",
        };
        line(&format!("writes     {:.0}/s, {words}", writes.per_sec.value));
    }
    line(&format!(
        "{} {:.0} s of all there is",
        found.line_of_blocks(WIDTH),
        found.iops.watched_secs
    ));
    for note in found.notes() {
        line(&format!("note: {note}"));
    }
    text
}

fn figures(rate: &Rate, unit: f64, words: &str) -> String {
    let [value, low, high] =
        [rate.per_sec.value, rate.per_sec.low, rate.per_sec.high].map(|figure| figure / unit);
    let mut text = format!("{value:.0}{words} [{low:.0} to {high:.0}]");
    if let Some(depth) = rate.depth {
        let highest = rate.burst.map_or(rate.per_sec.value, |burst| burst.per_sec);
        write!(text, ", {:.2} s of it can be saved up", depth.value / highest)
            .expect("a string takes it");
    }
    if let Some(burst) = rate.burst {
        let (rate, secs) = (burst.per_sec / unit, burst.lasted_secs);
        write!(text, ", after {rate:.0}{words} for {secs:.0} s").expect("a string takes it");
    }
    match rate.bound {
        Bound::Volume => {}
        Bound::OtherLimit => text.push_str(", where the other limit caps it"),
        Bound::Machine => text.push_str(", limited by this machine"),
        Bound::Requests => text.push_str(", no limit found"),
    }
    text
}
