//! The findings as a contract file: every figure with its confidence interval.

use std::fmt::Write;

use policy::contract::Percentiles;

use super::{Bound, Estimate, Found, Measured, Rate, Sharing, Writes};

const KIB: u64 = 1024;
const MIB: f64 = 1_048_576.0;

/// A depth that differs by more than this from one second of the rate is written down.
const DEPTH_OFF: f64 = 0.1;

/// A machine busier than this share of its processors delays every process on it.
const BUSY: f64 = 0.95;

/// The smallest depth that is written down.
const DEPTH_SECS_MIN: f64 = 0.01;

/// The texts of a file besides figures.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// The contract's name.
    pub name: &'a str,
    /// Where it was measured.
    pub place: &'a str,
    /// When, as `year-month-day`.
    pub date: &'a str,
}

impl Found {
    /// A contract file. A limit that was not seen is left out, with a comment that says so; guesses are listed as
    /// assumed.
    #[must_use]
    pub fn contract(&self, labels: Labels<'_>) -> String {
        let Labels { name, place, date } = labels;
        let mut text = String::new();
        let mut line = |words: String| {
            text.push_str(&words);
            text.push('\n');
        };
        line(format!(
            "# Measured by `plimsoll probe` in {:.0} s. In brackets: 95 % intervals.",
            self.secs
        ));
        for note in self.notes() {
            line(format!("# {note}"));
        }
        line(format!("name = {}", quoted(name)));
        line(format!("about = {}", quoted(&format!("measured at {place}"))));
        line(r#"source = "plimsoll probe""#.into());
        line(format!("date = {}", quoted(date)));
        let assumed: Vec<_> = self.assumed().into_iter().map(quoted).collect();
        line(format!("assumed = [{}]", assumed.join(", ")));
        line(String::new());
        line(format!("# {}", self.operation_in_words()));
        line(format!("op_kib_max = {}", self.op_kib_max()));
        let limits = self.iops_limits();
        line(String::new());
        if limits.is_empty() {
            line(format!("# IOPS: {}", absent(&self.iops, 1.0, "a second", "bandwidth")));
        }
        for (key, rate) in &limits {
            self.rate(&mut line, key, rate, 1.0, "a second");
        }
        line(String::new());
        if self.bandwidth_limits() {
            if self.bandwidth.bound == Bound::OtherLimit {
                line(
                    "# As much as the IOPS allow in the largest I/O: what was bought may be more."
                        .into(),
                );
            }
            self.rate(&mut line, "mib_per_s", &self.bandwidth, MIB, "MiB/s");
        } else {
            line(format!("# Bandwidth: {}", absent(&self.bandwidth, MIB, "MiB/s", "IOPS")));
        }
        let reads = &self.base;
        let writes = self.writes.as_ref().map_or(reads, |writes| &writes.base);
        for (kind, measured) in [("read", reads), ("write", writes)] {
            let assumed = kind == "write" && self.writes.is_none();
            latency(&mut line, kind, measured, assumed);
        }
        text
    }

    /// What a reader needs to know besides the figures.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(writes) = &self.writes {
            let [reads, beside] = writes.mixed_per_sec;
            let figures = format!(
                "reads {:.0}/s, writes {:.0}/s; together {reads:.0} + {beside:.0}",
                self.iops.per_sec.value, writes.per_sec.value
            );
            notes.push(match writes.sharing {
                Sharing::Shared => format!("reads and writes share one limit: {figures}"),
                Sharing::Separate => {
                    format!("reads and writes have limits of their own: {figures}")
                }
                Sharing::Unclear => {
                    format!("whether reads and writes share a limit is unclear: {figures}")
                }
            });
        }
        for (what, rate) in [("IOPS", &self.iops), ("bandwidth", &self.bandwidth)] {
            match rate.bound {
                Bound::Machine => {
                    notes.push(format!("{what}: limited by this machine, not by the volume"))
                }
                Bound::Requests => notes.push(format!(
                    "{what}: {} requests at once were not enough to find a limit",
                    self.over.at_once
                )),
                Bound::Volume | Bound::OtherLimit => {}
            }
        }
        if self.iops.burst.is_none() {
            notes.push(format!(
                "a burst that ends was not seen within {:.0} s of full load: credits that last longer \
                 (gp2: up to half an hour and more) look like this, too",
                self.iops.watched_secs
            ));
        }
        if self.machine_busy > BUSY && self.iops.bound != Bound::Machine {
            notes.push(
                "this machine was busy with something else: the figures may be too low".into(),
            );
        }
        if let Some(others) =
            self.others_per_sec.filter(|others| *others > self.iops.per_sec.value / 100.0)
        {
            notes.push(format!(
                "others did {others:.0} I/Os a second meanwhile: the figures are too low by as much"
            ));
        }
        if let Some(ios) = self.device_ios_per_request.filter(|ios| *ios > 1.2) {
            notes.push(format!("the kernel did {ios:.1} I/Os for each read of 4 KiB"));
        }
        notes
    }

    /// The limits of operations for the contract, by key: one for reads and one for writes if they do not share it, or the
    /// smaller of both if they seem to share one.
    fn iops_limits(&self) -> Vec<(&'static str, Rate)> {
        let reads = (self.iops.bound == Bound::Volume).then(|| self.iops.clone());
        let writes = self.writes.as_ref();
        let writes = writes
            .filter(|writes| writes.bound == Bound::Volume && self.iops.bound != Bound::OtherLimit);
        let limit = |writes: &Writes| Rate {
            per_sec: writes.per_sec,
            bound: Bound::Volume,
            burst: None,
            depth: None,
            watched_secs: self.iops.watched_secs,
            course: Vec::new(),
            naive_per_sec: writes.per_sec.value,
        };
        match (reads, writes) {
            (Some(reads), Some(writes)) if writes.sharing == Sharing::Separate => {
                vec![("read_iops", reads), ("write_iops", limit(writes))]
            }
            (Some(reads), Some(writes)) => {
                let slower = writes.per_sec.high < 0.95 * reads.per_sec.value;
                vec![("iops", if slower { limit(writes) } else { reads })]
            }
            (None, Some(writes)) => vec![("iops", limit(writes))],
            (reads, None) => reads.into_iter().map(|reads| ("iops", reads)).collect(),
        }
    }

    fn bandwidth_limits(&self) -> bool {
        matches!(self.bandwidth.bound, Bound::Volume | Bound::OtherLimit)
    }

    fn assumed(&self) -> Vec<&'static str> {
        let mut assumed = Vec::new();
        if !self.operation_is_largest {
            assumed.push("op_kib_max");
        }
        if self.writes.is_none() {
            assumed.push("latency.write");
        }
        assumed
    }

    fn op_kib_max(&self) -> u64 {
        let seen = self.operation_bytes / KIB;
        let usual = policy::contract::OP_BYTES_MAX / KIB;
        if self.operation_is_largest { seen } else { seen.max(usual) }
    }

    fn operation_in_words(&self) -> String {
        let seen = self.operation_bytes / KIB;
        if self.operation_is_largest {
            format!("{seen} KiB count as one operation, more as several.")
        } else {
            format!(
                "{seen} KiB count as one operation; bandwidth ends before it shows whether more do."
            )
        }
    }

    fn rate(&self, line: &mut impl FnMut(String), key: &str, rate: &Rate, unit: f64, words: &str) {
        let Estimate { value, low, high } = rate.per_sec;
        line(format!("[{key}]"));
        let [value, low, high] = [value, low, high].map(|figure| figure / unit);
        line(format!(
            "included = {:<12} # {} {words} [{} to {}], watched for {:.0} s",
            value.round().max(1.0),
            shown(value),
            shown(low),
            shown(high),
            rate.watched_secs,
        ));
        let highest = rate.burst.map_or(rate.per_sec.value, |burst| burst.per_sec);
        if let Some(burst) = rate.burst {
            line(format!(
                "burst = {{ rate = {}, credits = {} }} # seen to end after {:.0} s; there may have been more",
                (burst.per_sec / unit).round(),
                (burst.credits / unit).round(),
                burst.lasted_secs,
            ));
        }
        let sure = |depth: &Estimate| depth.high - depth.low < (depth.value + 0.1 * highest) / 2.0;
        match rate.depth {
            None if rate.bound == Bound::OtherLimit => {}
            None => {
                line("# How much can be saved up was not seen: a second's worth is assumed.".into())
            }
            // The depth is uncertain but below the usual: the usual one would certainly be too high.
            Some(depth) if !sure(&depth) && depth.high < highest => line(format!(
                "depth_s = {:<13.2} # at most {:.2} s of it can be saved up",
                (depth.value / highest).max(DEPTH_SECS_MIN),
                depth.high / highest
            )),
            Some(depth) if !sure(&depth) => {
                line("# How much can be saved up is unclear: a second's worth is assumed.".into())
            }
            Some(depth) => {
                let [value, low, high] = [depth.value, depth.low, depth.high].map(|d| d / highest);
                let words = format!("[{low:.2} to {high:.2}] s of it can be saved up");
                if (value - 1.0).abs() > DEPTH_OFF {
                    line(format!("depth_s = {:<13.2} # {words}", value.max(DEPTH_SECS_MIN)));
                } else {
                    line(format!("# {value:.2} {words}, as usual."));
                }
            }
        }
    }
}

/// The reason why a limit is not in the file.
fn absent(rate: &Rate, unit: f64, words: &str, other: &str) -> String {
    let seen = shown(rate.per_sec.value / unit);
    match rate.bound {
        Bound::Machine => {
            format!("limited by this machine at {seen} {words}: the volume gives more")
        }
        Bound::Requests => format!("no limit found up to {seen} {words}"),
        Bound::Volume | Bound::OtherLimit => {
            format!("no limit of its own was seen: {other} ends first, at {seen} {words}")
        }
    }
}

fn latency(line: &mut impl FnMut(String), kind: &str, measured: &Measured, assumed: bool) {
    let Percentiles { p1, p50, p90, p99, p999 } = measured.percentiles;
    line(String::new());
    line(if assumed {
        "# Not measured: as reads.".into()
    } else {
        format!("# 4 KiB, one at a time, well below the line: {} of them.", measured.samples)
    });
    line(format!("[latency.{kind}]"));
    for (key, time) in [("p1", p1), ("p50", p50), ("p90", p90), ("p99", p99), ("p999", p999)] {
        line(format!("{key}_us = {}", time.as_nanos().div_ceil(1000)));
    }
}

/// Three significant digits, and all digits before the point.
fn shown(figure: f64) -> String {
    match figure.abs() {
        ..10.0 => format!("{figure:.2}"),
        10.0..100.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

/// As a string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                write!(quoted, "\\u{:04X}", u32::from(c)).expect("a string takes all")
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
