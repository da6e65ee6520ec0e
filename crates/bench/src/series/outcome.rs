//! One run of one rule: its puts, its cost, its fill, and its figures.

use std::time::Duration;

use engine::log::{Counts, Figures};
use policy::units::{KIB, MIB};

use crate::compare::{Figure, Outcome, Side};
use crate::report::Report;

/// The state of the store at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Since the store was opened.
    pub at: Duration,
    /// Bytes of acknowledged values so far.
    pub answered: u64,
    /// The fullest disk: U.
    pub fill: f64,
    /// Bytes of records copied so far.
    pub copied: u64,
    /// Files merged so far.
    pub merged: u64,
    /// Files that died whole so far.
    pub died_whole: u64,
    /// Bytes of unlinked files that are still open, as the store counts them.
    pub dying: u64,
}

/// The result of one run. Unless stated otherwise, figures exclude the lead.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The duration.
    pub elapsed: Duration,
    /// The store's counts in it.
    pub counts: Counts,
    /// Bytes of values acknowledged in it.
    pub answered: u64,
    /// Bytes that the disks moved in it; zero in a directory.
    pub moved: u64,
    /// The disks' bandwidth in bytes per second; `None` in a directory.
    pub line: Option<f64>,
    /// Samples since the store was opened, [`Run::TICKS`] per scaled minute.
    pub samples: Vec<Sample>,
    /// The index of the first sample after the lead.
    pub lead: usize,
    /// Bytes of all disks.
    pub capacity: u64,
    /// Bytes at which files are sealed.
    pub file_bytes: u64,
    /// Puts refused since the store was opened, for lack of space.
    pub refused: u64,
    /// Whether every put was refused.
    pub is_stuck: bool,
    /// A second after the last put: bytes of unlinked open files, as the store and as the layer below count them.
    pub unlinked: [u64; 2],
    /// Values read back.
    pub read: u64,
    /// Values read back that did not belong to their key.
    pub wrong: u64,
    /// Processor time of the whole run.
    pub processor: Duration,
    /// The duration of the whole run.
    pub whole: Duration,
}

impl Outcome for Run {
    const FIGURES: &'static [Figure<Self>] = &[
        Self::SPEED,
        Figure::new("of the line", "%", Self::of_line_percent),
        Figure::new("written together", "KiB", Self::group_kib),
        Self::WRITE_AMPLIFICATION,
        Self::PEAK,
        Figure::new("files that died whole", "%", Self::whole_percent),
        Self::EATEN,
        Figure::new("puts delayed", "", |run| run.counts.delayed as f64),
        Figure::new("puts refused", "", |run| run.refused as f64),
        Figure::new("processor", "s/s", Self::processors),
    ];

    // Rows with many cells have a grid instead.
    const COLUMNS: &'static [Figure<Self>] = &[];

    fn tell_more(report: &mut Report, id: &str, case: &str, side: &Side<Self>) {
        if side.runs.is_empty() {
            // Refused by its own check, or because its reference was.
            let line = format!("{id}, {case}, {}: would run out of space, not run", side.scheme);
            report.notes.push(line);
        }
    }
}

impl Run {
    /// Samples in a scaled minute.
    pub const TICKS: u32 = 8;

    /// MiB of values a second.
    pub const SPEED: Figure<Self> = Figure::new("", "MiB/s", Self::mib_per_s);
    /// Bytes written for each byte put.
    pub const WRITE_AMPLIFICATION: Figure<Self> =
        Figure::new("write amplification", "x", |run| run.counts.write_amplification());
    /// The peak fill.
    pub const PEAK: Figure<Self> = Figure::new("peak fill", "%", |run| 100.0 * run.peak());
    /// The mean dead share of merged files; NaN if none was merged.
    pub const EATEN: Figure<Self> =
        Figure::new("dead in files that were merged", "%", Self::eaten_percent);

    /// MiB of values a second.
    #[must_use]
    pub fn mib_per_s(&self) -> f64 {
        self.answered as f64 / MIB as f64 / self.elapsed.as_secs_f64()
    }

    /// Bytes that the disks moved, in percent of their bandwidth.
    pub(super) fn of_line_percent(&self) -> f64 {
        let line = self.line.unwrap_or(f64::NAN);
        100.0 * self.moved as f64 / self.elapsed.as_secs_f64() / line
    }

    pub(super) fn peak(&self) -> f64 {
        let samples = self.samples.get(self.lead..).unwrap_or_default();
        samples.iter().map(|sample| sample.fill).fold(f64::NAN, f64::max)
    }

    /// Files that died whole, in percent of all removed files.
    fn whole_percent(&self) -> f64 {
        let Counts { died_whole, merged, .. } = self.counts;
        100.0 * died_whole as f64 / (died_whole + merged) as f64
    }

    /// The mean dead share of merged files, in percent; NaN if none was merged.
    fn eaten_percent(&self) -> f64 {
        let files = self.counts.merged as f64 * self.file_bytes as f64;
        100.0 * (1.0 - self.counts.copied_bytes as f64 / files)
    }

    /// The mean size of a group of records written together, in KiB.
    fn group_kib(&self) -> f64 {
        self.counts.put_bytes as f64 / KIB as f64 / self.counts.groups as f64
    }

    /// Processor time for each second of the run.
    #[must_use]
    pub fn processors(&self) -> f64 {
        self.processor.as_secs_f64() / self.whole.as_secs_f64()
    }

    /// MiB of values per second in each scaled minute since the opening, and its start in disk fills put.
    #[must_use]
    pub fn minutes(&self) -> Vec<(f64, f64)> {
        let of = |window: &[Sample]| {
            let (first, last) = (window.first()?, window.last()?);
            let bytes = (last.answered - first.answered) as f64 / MIB as f64;
            let seconds = last.at.saturating_sub(first.at).as_secs_f64();
            Some((first.answered as f64 / self.capacity as f64, bytes / seconds))
        };
        let ticks = Self::TICKS as usize;
        let windows = (0..self.samples.len()).step_by(ticks);
        // Windows share their end points; the last one is partial and dropped.
        windows.filter_map(|at| of(self.samples.get(at..=at + ticks)?)).collect()
    }

    /// The rate of the slowest scaled minute over that of the first, which begins with an empty disk. Zero if the first
    /// had no answers.
    #[must_use]
    pub fn flatness(&self) -> f64 {
        let minutes = self.minutes();
        let rates = minutes.iter().map(|(_, rate)| *rate);
        let Some((_, first)) = minutes.first() else { return f64::NAN };
        if *first == 0.0 { 0.0 } else { rates.fold(f64::NAN, f64::min) / first }
    }

    /// Fillings of all disks beyond the first.
    #[must_use]
    pub fn fills_after_first(&self) -> f64 {
        let answered = self.samples.last().map_or(0, |sample| sample.answered);
        answered as f64 / self.capacity as f64 - 1.0
    }

    /// The time of the first removal of a file that died whole, and of the first merge, in seconds.
    #[must_use]
    pub fn starts(&self) -> [Option<f64>; 2] {
        let at = |is: fn(&Sample) -> bool| {
            let first = self.samples.iter().find(|sample| is(sample))?;
            Some(first.at.as_secs_f64())
        };
        [at(|sample| sample.died_whole > 0), at(|sample| sample.merged > 0)]
    }
}

/// The counts of all disks together.
pub(super) fn sum(figures: &Figures) -> Counts {
    let each = figures.volumes.iter().map(|volume| volume.counts);
    each.fold(Counts::default(), |sum, counts| {
        let delay = sum.delay + counts.delay;
        Counts { delay, ..each_with(&sum, &counts, |sum, count| sum + count) }
    })
}

/// The difference of two counts.
pub(super) fn since(after: &Counts, before: &Counts) -> Counts {
    let delay = after.delay.saturating_sub(before.delay);
    Counts { delay, ..each_with(after, before, |after, before| after - before) }
}

/// Each counter of one with that of the other.
fn each_with(one: &Counts, other: &Counts, with: fn(u64, u64) -> u64) -> Counts {
    Counts {
        put_bytes: with(one.put_bytes, other.put_bytes),
        copied_bytes: with(one.copied_bytes, other.copied_bytes),
        read_bytes: with(one.read_bytes, other.read_bytes),
        died_whole: with(one.died_whole, other.died_whole),
        merged: with(one.merged, other.merged),
        failed: with(one.failed, other.failed),
        groups: with(one.groups, other.groups),
        delayed: with(one.delayed, other.delayed),
        refused: with(one.refused, other.refused),
        ..Counts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 MiB a second for four scaled minutes of one second each, then half of it; the disk is full at 400.
    fn run() -> Run {
        let mut run = Run { capacity: 400 * MIB, ..Run::default() };
        let tick = Duration::from_secs(1) / Run::TICKS;
        let mut answered = 0;
        for at in 0..=6 * Run::TICKS {
            let fill = (answered as f64 / run.capacity as f64).min(0.8);
            let merged = u64::from(fill >= 0.8);
            run.samples.push(Sample { at: tick * at, answered, fill, merged, ..Sample::default() });
            let rate = if at < 4 * Run::TICKS { 100 } else { 50 };
            answered += rate * MIB / u64::from(Run::TICKS);
        }
        run
    }

    #[test]
    fn the_slowest_minute_is_found_beside_the_first() {
        let run = run();
        let minutes = run.minutes();
        assert_eq!(minutes.len(), 6);
        assert!((minutes[0].1 - 100.0).abs() < 1e-6 && (minutes[4].1 - 50.0).abs() < 1e-6);
        assert!((minutes[4].0 - 1.0).abs() < 1e-9, "a filling was put before");
        assert!((run.flatness() - 0.5).abs() < 1e-9);
        assert!((run.fills_after_first() - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_store_that_answers_nothing_in_the_first_minute_is_not_flat() {
        let mut run = run();
        for sample in &mut run.samples[..=Run::TICKS as usize] {
            sample.answered = 0;
        }
        assert_eq!(run.flatness(), 0.0);
    }

    #[test]
    fn the_start_of_merging_is_the_first_file_that_was_merged() {
        let [died, merged] = run().starts();
        assert_eq!(died, None);
        assert!((merged.expect("the fill comes to 0.8") - 3.25).abs() < 0.1);
    }
}
