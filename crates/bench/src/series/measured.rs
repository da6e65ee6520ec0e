//! One run of one rule: what was put, what it cost, and how full it was.

use std::time::Duration;

use engine::log::{Counts, Figures};
use policy::units::{KIB, MIB};

/// How the store was at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Since the store was opened.
    pub at: Duration,
    /// Bytes of values that were answered so far.
    pub answered: u64,
    /// The fullest disk: U.
    pub fill: f64,
    /// Bytes of records that were copied so far.
    pub copied: u64,
    /// Files that were merged so far, and that died whole.
    pub merged: u64,
    /// See `merged`.
    pub died_whole: u64,
    /// Bytes that nothing leads to and somebody has open, as the store counts them.
    pub dying: u64,
}

/// What one run gave. Figures are those behind the lead, where nothing else is said.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// How long it took.
    pub elapsed: Duration,
    /// What happened in it.
    pub counts: Counts,
    /// Bytes of values answered in it.
    pub answered: u64,
    /// Bytes the disks moved in it; none of a directory.
    pub moved: u64,
    /// What they can at most, in bytes a second; none of a directory.
    pub line: Option<f64>,
    /// Samples from the opening of the store on, [`Measured::TICKS`] in a scaled minute.
    pub samples: Vec<Sample>,
    /// Where in them the lead ends.
    pub lead: usize,
    /// Bytes of all disks.
    pub capacity: u64,
    /// Bytes at which files are sealed.
    pub file_bytes: u64,
    /// Puts refused since the store was opened, for lack of room.
    pub refused: u64,
    /// Nothing could be put any more.
    pub is_stuck: bool,
    /// A second after the last put: bytes nothing leads to that are open, as the store and as what is below
    /// it count them.
    pub unlinked: [u64; 2],
    /// Values that were read, and those that were not their key's.
    pub read: u64,
    /// See `read`.
    pub wrong: u64,
    /// Processor time of the whole run, and how long that was.
    pub processor: Duration,
    /// See `processor`.
    pub whole: Duration,
}

impl Measured {
    /// Samples in a scaled minute.
    pub const TICKS: u32 = 8;

    /// MiB of values a second.
    #[must_use]
    pub fn mib_per_s(&self) -> f64 {
        self.answered as f64 / MIB as f64 / self.elapsed.as_secs_f64()
    }

    /// What the disks moved of what they can, in percent.
    #[must_use]
    pub fn of_line_percent(&self) -> f64 {
        let line = self.line.unwrap_or(f64::NAN);
        100.0 * self.moved as f64 / self.elapsed.as_secs_f64() / line
    }

    /// Bytes written for each byte put.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        self.counts.write_amplification()
    }

    /// The fill at its highest, in percent.
    #[must_use]
    pub fn peak_percent(&self) -> f64 {
        100.0 * self.peak()
    }

    pub(super) fn peak(&self) -> f64 {
        let samples = self.samples.get(self.lead..).unwrap_or_default();
        samples.iter().map(|sample| sample.fill).fold(f64::NAN, f64::max)
    }

    /// Files that died whole, in percent of those that were removed.
    #[must_use]
    pub fn whole_percent(&self) -> f64 {
        let Counts { died_whole, merged, .. } = self.counts;
        100.0 * died_whole as f64 / (died_whole + merged) as f64
    }

    /// What was dead in the files that were merged, in percent in the mean; not a number if none was.
    #[must_use]
    pub fn eaten_percent(&self) -> f64 {
        let files = self.counts.merged as f64 * self.file_bytes as f64;
        100.0 * (1.0 - self.counts.copied_bytes as f64 / files)
    }

    /// KiB of records that were written together, in the mean.
    #[must_use]
    pub fn group_kib(&self) -> f64 {
        self.counts.put_bytes as f64 / KIB as f64 / self.counts.groups as f64
    }

    /// Processor time for each second of the run.
    #[must_use]
    pub fn processors(&self) -> f64 {
        self.processor.as_secs_f64() / self.whole.as_secs_f64()
    }

    /// MiB of values a second in each scaled minute from the opening on, and when it began, in disk-fills
    /// that were put.
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
        // Each ends where the next begins; the last one is not whole.
        windows.filter_map(|at| of(self.samples.get(at..=at + ticks)?)).collect()
    }

    /// The slowest scaled minute beside the first, which begins with an empty disk. Zero where nothing was
    /// answered in the first: that is the slowest then, and nothing to measure others by.
    #[must_use]
    pub fn flatness(&self) -> f64 {
        let minutes = self.minutes();
        let rates = minutes.iter().map(|(_, rate)| *rate);
        let Some((_, first)) = minutes.first() else { return f64::NAN };
        if *first == 0.0 { 0.0 } else { rates.fold(f64::NAN, f64::min) / first }
    }

    /// How often all disks were filled since the target was reached, or since the end of the first filling
    /// if it never was.
    #[must_use]
    pub fn fills_after_first(&self) -> f64 {
        let answered = self.samples.last().map_or(0, |sample| sample.answered);
        answered as f64 / self.capacity as f64 - 1.0
    }

    /// When the first file was removed that died whole, and when the first was merged, in seconds.
    #[must_use]
    pub fn starts(&self) -> [Option<f64>; 2] {
        let at = |is: fn(&Sample) -> bool| {
            let first = self.samples.iter().find(|sample| is(sample))?;
            Some(first.at.as_secs_f64())
        };
        [at(|sample| sample.died_whole > 0), at(|sample| sample.merged > 0)]
    }
}

/// What happened on all disks.
pub(super) fn sum(figures: &Figures) -> Counts {
    figures.volumes.iter().map(|volume| volume.counts).fold(Counts::default(), |sum, counts| {
        Counts {
            put_bytes: sum.put_bytes + counts.put_bytes,
            copied_bytes: sum.copied_bytes + counts.copied_bytes,
            read_bytes: sum.read_bytes + counts.read_bytes,
            died_whole: sum.died_whole + counts.died_whole,
            merged: sum.merged + counts.merged,
            failed: sum.failed + counts.failed,
            groups: sum.groups + counts.groups,
            delayed: sum.delayed + counts.delayed,
            delay: sum.delay + counts.delay,
            refused: sum.refused + counts.refused,
            ..sum
        }
    })
}

/// What happened between two looks.
pub(super) fn since(after: &Counts, before: &Counts) -> Counts {
    Counts {
        put_bytes: after.put_bytes - before.put_bytes,
        copied_bytes: after.copied_bytes - before.copied_bytes,
        read_bytes: after.read_bytes - before.read_bytes,
        died_whole: after.died_whole - before.died_whole,
        merged: after.merged - before.merged,
        failed: after.failed - before.failed,
        groups: after.groups - before.groups,
        delayed: after.delayed - before.delayed,
        delay: after.delay.saturating_sub(before.delay),
        refused: after.refused - before.refused,
        ..Counts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 MiB a second for four scaled minutes of a second, then half of it; the disk is full at 400.
    fn run() -> Measured {
        let mut run = Measured { capacity: 400 * MIB, ..Measured::default() };
        let tick = Duration::from_secs(1) / Measured::TICKS;
        let mut answered = 0;
        for at in 0..=6 * Measured::TICKS {
            let fill = (answered as f64 / run.capacity as f64).min(0.8);
            let merged = u64::from(fill >= 0.8);
            run.samples.push(Sample { at: tick * at, answered, fill, merged, ..Sample::default() });
            let rate = if at < 4 * Measured::TICKS { 100 } else { 50 };
            answered += rate * MIB / u64::from(Measured::TICKS);
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
        for sample in &mut run.samples[..=Measured::TICKS as usize] {
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
