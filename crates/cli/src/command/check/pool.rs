//! `plimsoll check` of a pool: compares its manifest with its volumes, and its tables with their checksums.

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::volumes::Devices;
use policy::purpose::{Io, Origin, Step};
use policy::units::Bytes;
use pool::spread::{Finding, Opening, Problem, Report};
use serde::Serialize;
use volume::task::block_on;

#[derive(Serialize)]
pub(super) struct Found {
    objects: u64,
    bytes: u64,
    findings: Vec<FindingFound>,
}

#[derive(Serialize)]
struct FindingFound {
    volume: String,
    object: String,
    /// The problem, for readers.
    problem: String,
    /// Whether bytes are lost.
    lost: bool,
    /// Whether it needs no action.
    harmless: bool,
    /// Whether another copy is good.
    elsewhere: bool,
}

/// The repairs of a scrub's findings.
pub(super) struct Mended {
    pub(super) dropped: u64,
    pub(super) made: u64,
}

pub(super) fn scrub(
    devices: &Devices,
    opening: Opening,
    repair: bool,
) -> anyhow::Result<(Report, Option<Mended>)> {
    let pool = devices.open_pool(opening)?;
    let style =
        ProgressStyle::with_template("scrub {bar:40} {bytes} of {total_bytes}, {eta} left")?;
    let bar = ProgressBar::new(0).with_style(style);
    let report = block_on(pool.scrub(|progress| {
        bar.set_length(progress.of);
        bar.set_position(progress.done);
    }))?;
    bar.finish_and_clear();
    let mended = if repair {
        let dropped = block_on(pool.mend(&report))?;
        let made = block_on(pool.repair(Io::new(Origin::Copy, Step::Data), |_| ()))?.made;
        Some(Mended { dropped, made })
    } else {
        None
    };
    block_on(pool.close())?;
    Ok((report, mended))
}

/// Prints the findings of a check; returns whether all are harmless.
pub(super) fn tell(what: &str, report: &Report, say: &dyn Fn(String)) -> bool {
    say(format!("{what}: {} objects, {}", report.objects, Bytes(report.bytes)));
    for Finding { volume, name, problem, elsewhere } in &report.findings {
        let way_out =
            if *elsewhere { "; another copy is good, --scrub --repair drops this one" } else { "" };
        say(format!("{what}: volume {volume}: {name} {}{way_out}", words(problem)));
    }
    report.findings.iter().all(|finding| is_harmless(&finding.problem))
}

impl Found {
    pub(super) fn of(report: &Report) -> Self {
        let findings =
            report.findings.iter().map(|Finding { volume, name, problem, elsewhere }| {
                FindingFound {
                    volume: volume.clone(),
                    object: name.clone(),
                    problem: words(problem),
                    lost: problem.is_loss(),
                    harmless: is_harmless(problem),
                    elsewhere: *elsewhere,
                }
            });
        Self { objects: report.objects, bytes: report.bytes, findings: findings.collect() }
    }
}

const fn is_harmless(problem: &Problem) -> bool {
    matches!(problem, Problem::Orphan | Problem::Foreign)
}

fn words(problem: &Problem) -> String {
    match problem {
        Problem::Away => "is on a volume that is away".into(),
        Problem::Missing => "is missing: its bytes are lost".into(),
        Problem::Short { found, expected } => {
            format!("has {found} bytes of {expected}: the rest is lost")
        }
        Problem::Damaged => "is damaged: its bytes are not those that were written".into(),
        Problem::Unlike => {
            "differs from another copy in its last bytes; the store finds out which is right".into()
        }
        Problem::Unreadable(why) => format!("cannot be read: {why}"),
        Problem::Unread(why) => format!("was not read, and may be whole: {why}"),
        Problem::Orphan => "is not needed any more: the pool removes it when it opens".into(),
        Problem::Foreign => "is not the pool's: it is left alone".into(),
        _ => "is not as it should be".into(),
    }
}
