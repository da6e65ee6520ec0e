//! The rows B31 to B34, their bands, and the report.
//!
//! Bands are as first specified in the model of the paper's costs. A workload is never changed to meet one.

use anyhow::bail;
use policy::units::{KIB, MIB};

use super::cluster::{ROUND_TRIP, hdd};
use super::device::{APPEND, FLASH_BYTES_PER_SEC, HOLD_MAX, Medium};
use super::epochs::{self, Full, Speculated};
use super::layout::{BLOCK, SERVERS, STRIP};
use super::load::Operation;
use super::rebuild::{self, Rebuilt};
use super::run::{Order, Run, Setup, run};
use super::scheme::Scheme;
use crate::report::{Axis, Curve, Plot, Report, Stroke};
use crate::stats::median;
use crate::{Options, Profile};

/// The rows.
const ROWS: [&str; 4] = ["B31", "B32", "B33", "B34"];

const DEPTHS: [usize; 3] = [1, 16, 64];

/// The schemes of random writes.
const RANDOM: [Scheme; 8] = [
    Scheme::Plain,
    Scheme::Copies,
    Scheme::Incremental,
    Scheme::LOG,
    Scheme::MISS,
    Scheme::KNOWN,
    Scheme::HIT,
    Scheme::Logged,
];

/// The schemes of writes to groups side by side.
const NEAR: [Scheme; 5] =
    [Scheme::Copies, Scheme::Incremental, Scheme::LOG, Scheme::HIT, Scheme::Logged];

/// The schemes of sequential writes.
const SEQUENTIAL: [Scheme; 10] = [
    Scheme::Plain,
    Scheme::Copies,
    Scheme::Incremental,
    Scheme::LOG,
    Scheme::LOG_AHEAD,
    Scheme::MISS,
    Scheme::KNOWN,
    Scheme::HIT,
    Scheme::HIT_BACK,
    Scheme::Logged,
];

/// How much each profile measures.
struct Scale {
    /// Writes of a run.
    writes: u64,
    /// Blocks of the working set of random writes.
    blocks: u64,
    reads: u64,
    /// Writes of a run of B33, and the sizes of its working sets.
    overwrites: u64,
    sets: &'static [u64],
    /// Bytes that B34's journals hold, and its groups.
    journals: &'static [u64],
    groups: u64,
}

impl Scale {
    const fn of(profile: Profile) -> Self {
        match profile {
            Profile::Smoke => Self {
                writes: 400,
                blocks: 1024,
                reads: 4000,
                overwrites: 600,
                sets: &[256],
                journals: &[MIB, 4 * MIB],
                groups: 32,
            },
            Profile::Short => Self {
                writes: 4000,
                blocks: 4096,
                reads: 20_000,
                overwrites: 6000,
                sets: &[1024, 4096],
                journals: &[64 * MIB, 128 * MIB, 256 * MIB],
                groups: 128,
            },
            Profile::Paper => Self {
                writes: 20_000,
                blocks: 16_384,
                reads: 100_000,
                overwrites: 40_000,
                sets: &[1024, 4096, 16_384],
                journals: &[64 * MIB, 256 * MIB, 1024 * MIB],
                groups: 512,
            },
        }
    }
}

/// Measures rows in virtual time.
///
/// # Errors
/// There is no such row, or bytes at the end of a run are not what they have to be. A check that does not hold is not an error.
pub fn measure(options: &Options) -> anyhow::Result<Report> {
    if let Some(unknown) = options.rows.iter().find(|row| !ROWS.contains(&row.as_str())) {
        bail!("there is no row {unknown}; there are {}", ROWS.join(", "));
    }
    let scale = Scale::of(options.profile);
    let seeds: Vec<u64> =
        (0..options.profile.runs()).map(|run| options.seed.wrapping_add(run)).collect();
    let mut report = Report::new("parity", options);
    if options.wants("B31") {
        random(&mut report, &scale, &seeds)?;
        near(&mut report, &scale, &seeds)?;
        reads(&mut report, &scale, &seeds)?;
    }
    if options.wants("B32") {
        sequential(&mut report, &scale, &seeds)?;
    }
    if options.wants("B33") {
        speculation(&mut report, &scale, &seeds)?;
    }
    if options.wants("B34") {
        rebuilds(&mut report, &scale, &seeds)?;
    }
    describe(&mut report)?;
    Ok(report)
}

/// One scheme's runs.
struct Runs {
    scheme: Scheme,
    runs: Vec<Run>,
}

impl Runs {
    fn each(&self, figure: fn(&Run) -> f64) -> Vec<f64> {
        self.runs.iter().map(figure).collect()
    }
}

fn runs(schemes: &[Scheme], seeds: &[u64], setup: &Setup) -> anyhow::Result<Vec<Runs>> {
    let one = |&scheme: &Scheme| {
        let runs = seeds.iter().map(|&seed| run(&Setup { scheme, seed, ..*setup }));
        Ok(Runs { scheme, runs: runs.collect::<anyhow::Result<_>>()? })
    };
    schemes.iter().map(one).collect()
}

fn of(all: &[Runs], scheme: Scheme) -> &Runs {
    all.iter().find(|runs| runs.scheme == scheme).expect("it was run")
}

/// The median over seeds of the ratio of two schemes.
fn ratio(all: &[Runs], one: Scheme, other: Scheme, figure: fn(&Run) -> f64) -> f64 {
    let pairs = of(all, one).each(figure).into_iter().zip(of(all, other).each(figure));
    median(&pairs.map(|(one, other)| one / other).collect::<Vec<_>>())
}

/// A figure of a run: what it is, its unit, and how the run gives it.
type Figure = (&'static str, &'static str, fn(&Run) -> f64);

/// Until clients are answered.
const ANSWERED: [Figure; 5] = [
    ("IOPS", "op/s", |run| run.iops),
    ("mean", "ms", |run| ms(run.mean)),
    ("p50", "ms", |run| ms(run.p50)),
    ("p99", "ms", |run| ms(run.p99)),
    ("disks busy for each operation", "ms", |run| ms(run.disk_time)),
];

/// Of writes: what was put off is counted, too.
const WRITES: [Figure; 6] = [
    ("IOPS, until logs are merged", "op/s", |run| run.merged_iops),
    ("disks busy, until logs are merged", "ms", |run| ms(run.merged_time)),
    ("reads", "for each write", |run| run.each(run.counts.reads)),
    ("writes in place", "for each write", |run| run.each(run.counts.writes)),
    ("syncs of journals", "for each write", |run| run.each(run.counts.appends)),
    ("I/Os of merges", "for each write", |run| run.each(run.of_merges)),
];

fn tell(report: &mut Report, id: &str, case: &str, all: &[Runs], figures: &[Figure]) {
    for Runs { scheme, runs } in all {
        for (what, unit, figure) in figures {
            let values: Vec<f64> = runs.iter().map(figure).collect();
            report.median(id, &format!("{case}: {what}"), scheme.name(), &values, unit);
        }
    }
}

/// B31: random writes.
fn random(report: &mut Report, scale: &Scale, seeds: &[u64]) -> anyhow::Result<()> {
    let mechanics = hdd()?.disk.expect("a disk has mechanics");
    let mut curves: Vec<(Scheme, Vec<(f64, f64)>)> = RANDOM.map(|it| (it, Vec::new())).into();
    for medium in Medium::ALL {
        for depth in DEPTHS {
            let setup = Setup {
                scheme: Scheme::Plain,
                medium,
                operation: Operation::Write,
                order: Order::Random { blocks: scale.blocks },
                count: scale.writes,
                depth,
                seed: 0,
            };
            let all = runs(&RANDOM, seeds, &setup)?;
            let case = format!("random, {}, depth {depth}", medium.name());
            tell(report, "B31", &case, &all, &ANSWERED);
            tell(report, "B31", &case, &all, &WRITES);
            if medium != Medium::Flash {
                continue;
            }
            for (scheme, points) in &mut curves {
                points.push((depth as f64, median(&of(&all, *scheme).each(|run| run.iops))));
            }
            let iops = |one, other| ratio(&all, one, other, |run: &Run| run.iops);
            let mut check = |what: &str, value: f64, band: [f64; 2]| {
                report.check("B31", &format!("random, depth {depth}: {what}"), value, band);
            };
            let least = |value: f64| [value, f64::INFINITY];
            match depth {
                1 => {
                    check("IOPS, hit / 3 copies", iops(Scheme::HIT, Scheme::Copies), least(0.95));
                    check("IOPS, miss / parity log", iops(Scheme::MISS, Scheme::LOG), least(0.95));
                    let positioning = 1.0 / mechanics.random_iops(BLOCK);
                    let bytes = super::machines::LARGE.record_bytes(BLOCK) as f64;
                    let append = APPEND.as_secs_f64() + bytes / FLASH_BYTES_PER_SEC as f64;
                    let mean = median(&of(&all, Scheme::HIT).each(|run| run.mean.as_secs_f64()));
                    let what = "mean latency of a hit / (an append, then one positioning)";
                    check(what, mean / (append + positioning), [0.0, 1.1]);
                }
                16 => {
                    check("IOPS, hit / parity log", iops(Scheme::HIT, Scheme::LOG), least(1.6));
                    check("IOPS, hit / 3 copies", iops(Scheme::HIT, Scheme::Copies), least(2.0));
                    check("IOPS, miss / parity log", iops(Scheme::MISS, Scheme::LOG), least(0.95));
                }
                _ => {}
            }
        }
    }
    let curves =
        curves.into_iter().map(|(scheme, points)| Curve::new(scheme.name(), Stroke::Line, points));
    report.plots.push(Plot {
        x_axis: Axis::Log,
        y_axis: Axis::Log,
        ..Plot::new(
            "B31: durable random writes of 4 KiB, journals on flash",
            ["writes under way", "IOPS"],
            curves,
        )
    });
    Ok(())
}

/// B31: random writes that meet again in their groups. It has no band.
fn near(report: &mut Report, scale: &Scale, seeds: &[u64]) -> anyhow::Result<()> {
    let blocks = scale.blocks / 4;
    for medium in Medium::ALL {
        let setup = Setup {
            scheme: Scheme::Plain,
            medium,
            operation: Operation::Write,
            order: Order::Near { blocks },
            count: scale.writes,
            depth: 16,
            seed: 0,
        };
        let all = runs(&NEAR, seeds, &setup)?;
        let case = format!("random among {blocks} side by side, {}, depth 16", medium.name());
        tell(report, "B31", &case, &all, &ANSWERED);
        tell(report, "B31", &case, &all, &WRITES);
    }
    Ok(())
}

/// B31: reads, which no scheme changes.
fn reads(report: &mut Report, scale: &Scale, seeds: &[u64]) -> anyhow::Result<()> {
    let schemes = [Scheme::Plain, Scheme::Copies, Scheme::HIT];
    let setup = Setup {
        scheme: Scheme::Plain,
        medium: Medium::Flash,
        operation: Operation::Read,
        order: Order::Random { blocks: scale.blocks },
        count: scale.reads,
        depth: 1,
        seed: 0,
    };
    let all = runs(&schemes, seeds, &setup)?;
    tell(report, "B31", "random reads, depth 1", &all, &ANSWERED);
    let what = "random reads, depth 1: mean latency, 4 + 2 / plain disk";
    let value = ratio(&all, Scheme::HIT, Scheme::Plain, |run| ms(run.mean));
    report.check("B31", what, value, [0.97, 1.03]);
    Ok(())
}

/// B32: sequential writes.
fn sequential(report: &mut Report, scale: &Scale, seeds: &[u64]) -> anyhow::Result<()> {
    for medium in Medium::ALL {
        let setup = Setup {
            scheme: Scheme::Plain,
            medium,
            operation: Operation::Write,
            order: Order::Sequential,
            count: scale.writes,
            depth: 1,
            seed: 0,
        };
        let all = runs(&SEQUENTIAL, seeds, &setup)?;
        let case = format!("sequential, {}, depth 1", medium.name());
        tell(report, "B32", &case, &all, &ANSWERED);
        tell(report, "B32", &case, &all, &WRITES);
        if medium == Medium::Flash {
            for log in [Scheme::LOG, Scheme::LOG_AHEAD] {
                let what = format!("sequential, depth 1: IOPS, hit, writes back / {}", log.name());
                let value = ratio(&all, Scheme::HIT_BACK, log, |run| run.iops);
                report.check("B32", &what, value, [10.0, f64::INFINITY]);
            }
        }
    }
    Ok(())
}

/// B33: how often servers speculate rightly.
fn speculation(report: &mut Report, scale: &Scale, seeds: &[u64]) -> anyhow::Result<()> {
    for &blocks in scale.sets {
        for part in [1, 4] {
            // A block takes a record of its value, and one of the value before.
            let capacity = (blocks * BLOCK / part).max(256 * KIB);
            let case = format!("zipf 0.99, {blocks} blocks, journals of {} KiB", capacity / KIB);
            let all = |full: Full| {
                let one =
                    |&seed: &u64| epochs::measure(blocks, capacity, scale.overwrites, full, seed);
                seeds.iter().map(one).collect::<anyhow::Result<Vec<Speculated>>>()
            };
            let (emptied, kept) = (all(Full::Empty)?, all(Full::KeepBases)?);
            let each = |all: &[Speculated], figure: fn(&Speculated) -> f64| {
                all.iter().map(figure).collect::<Vec<_>>()
            };
            let mut row = |scheme: &str, values: &[f64], unit: &str| {
                report.median("B33", &case, scheme, values, unit);
            };
            row("emptied by merges", &each(&emptied, Speculated::hit_rate), "hit rate");
            row("as the epochs say", &each(&emptied, Speculated::expected), "hit rate");
            row("merged values stay", &each(&kept, Speculated::hit_rate), "hit rate");
            row("emptied by merges", &each(&emptied, |it| it.epochs as f64), "epochs");
            let off = emptied.iter().map(|it| it.misses.abs_diff(it.distinct)).max().unwrap_or(0);
            let what = format!("{case}: misses more or less than different blocks of the epochs");
            report.check("B33", &what, off as f64, [0.0, 0.0]);
        }
    }
    Ok(())
}

/// B34: rebuilds beside journals of different sizes.
fn rebuilds(report: &mut Report, scale: &Scale, seeds: &[u64]) -> anyhow::Result<()> {
    let mut took = Vec::new();
    for &bytes in scale.journals {
        let all = seeds.iter().map(|&seed| rebuild::measure(bytes, scale.groups, seed));
        let all: Vec<Rebuilt> = all.collect::<anyhow::Result<_>>()?;
        let case = format!("journals hold {} MiB", bytes / MIB);
        let each = |figure: fn(&Rebuilt) -> f64| all.iter().map(figure).collect::<Vec<_>>();
        let seconds = each(|it| it.took.as_secs_f64());
        report.median("B34", &case, "rebuild", &seconds, "s");
        report.median("B34", &case, "strips", &each(|it| it.strips as f64), "strips");
        let held = each(|it| it.journal_bytes as f64 / MIB as f64);
        report.median("B34", &case, "emptiest journal", &held, "MiB");
        took.push(median(&seconds));
    }
    let most = took.iter().copied().fold(f64::NAN, f64::max);
    let least = took.iter().copied().fold(f64::NAN, f64::min);
    report.check(
        "B34",
        "longest rebuild / shortest, by what journals hold",
        most / least,
        [1.0, 1.2],
    );
    Ok(())
}

fn describe(report: &mut Report) -> anyhow::Result<()> {
    report.notes.push(format!(
        "virtual time; {SERVERS} servers with a disk of 7200 rpm each (contract hdd-7200), groups of 4 + 2 with strips of {} KiB \
         over the whole disk; a round trip takes {} us; a journal on flash takes {} us for a sync, and 500 MB/s; every scheme has \
         its bytes durable on all its disks or journals when it answers",
        STRIP / KIB,
        ROUND_TRIP.as_micros(),
        APPEND.as_micros(),
    ));
    report.notes.push(format!(
        "requests of a disk are served in their order, but it keeps its arm over a range that was read to be written, for at most \
         {} ms: for every scheme that reads before it writes",
        HOLD_MAX.as_millis()
    ));
    report.notes.push(
        "3 copies and 4 + 2 use six disks, the plain disk is one; logs are merged after the last answer, in the order of groups; a \
         merge reads the values from the journal, and appends a parity range before it writes it in place"
            .into(),
    );
    report.notes.push(
        "hit, writes back: the write in place waits for the journals, and its sync does not hold the answer up; the data server \
         does not call it complete before"
            .into(),
    );
    report.notes.push(
        "logged: groups go in place after the last answer, in their order and 8 at once; before that the log is read once, since a \
         longer one would not be in memory; writes to it are synced together, one sync after the other for all clients"
            .into(),
    );
    for scheme in SEQUENTIAL {
        report.notes.push(format!(
            "{}: an answered write survives {}",
            scheme.name(),
            scheme.survives()
        ));
    }
    report.notes.push(
        "B34 rebuilds the data strips of one disk, 8 groups at once; its parity strips are encoded again from data, which does not \
         depend on journals"
            .into(),
    );
    report.assume(&hdd()?);
    Ok(())
}

fn ms(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_not_there_is_refused() {
        let options = Options { rows: vec!["B35".into()], ..Options::default() };
        let error = measure(&options).expect_err("there is none").to_string();
        assert_eq!(error, "there is no row B35; there are B31, B32, B33, B34");
    }

    #[test]
    fn a_row_says_what_it_checks() {
        let options =
            Options { profile: Profile::Smoke, rows: vec!["B34".into()], ..Options::default() };
        let report = measure(&options).expect("memory does not fail");
        assert_eq!(report.checks.len(), 1);
        assert!(report.holds(), "{:?}", report.checks);
    }
}
