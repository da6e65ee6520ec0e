//! `plimsoll check` of a pool: compares its manifest with its volumes, and its tables with their checksums.

use indicatif::{ProgressBar, ProgressStyle};
use policy::purpose::{Io, Origin, Step};
use policy::units::Bytes;
use pool::spread::{Opening, Report};
use serde::Serialize;
use serve::admin::scrub::{Finding, Pass};
use volume::task::block_on;

use crate::members::Members;
use crate::program::finding;

/// What a bad copy beside a good one needs.
pub(super) const BY_REPAIR: &str = "--scrub --repair drops this one";

#[derive(Clone, Serialize)]
pub(super) struct Found {
    objects: u64,
    bytes: u64,
    /// Objects of block devices that were not read: a server reads them.
    left_out: u64,
    findings: Vec<Finding>,
}

/// The findings of one of several pools.
#[derive(Serialize)]
pub(super) struct Named {
    /// The pool's name.
    pub(super) name: String,
    /// The manifest compared with the volumes; `None` if the pool was not made yet, or a server has it open.
    pub(super) pool: Option<Found>,
    /// Tables compared with their checksums, if they were read.
    pub(super) scrub: Option<Found>,
}

/// The repairs of a scrub's findings.
pub(super) struct Mended {
    pub(super) dropped: u64,
    pub(super) made: u64,
}

pub(super) fn scrub(
    members: &Members,
    opening: Opening,
    repair: bool,
) -> anyhow::Result<(Report, Option<Mended>)> {
    let pool = members.open_pool(opening)?;
    let bar = bar()?;
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

/// Shows the progress of a scrub.
pub(super) fn bar() -> anyhow::Result<ProgressBar> {
    let style =
        ProgressStyle::with_template("scrub {bar:40} {bytes} of {total_bytes}, {eta} left")?;
    Ok(ProgressBar::new(0).with_style(style))
}

impl Found {
    pub(super) fn of(report: &Report) -> Self {
        let findings = report.findings.iter().map(finding).collect();
        Self { objects: report.objects, bytes: report.bytes, left_out: report.left_out, findings }
    }

    /// The findings of a server's pass.
    pub(super) fn served(pass: &Pass) -> Self {
        let Pass { objects, bytes, ref findings, .. } = *pass;
        Self { objects, bytes, left_out: 0, findings: findings.clone() }
    }

    /// Prints the findings; returns whether all are harmless. `way_out` says what happens to a bad copy beside a good one.
    pub(super) fn tell(&self, what: &str, way_out: &str, say: &dyn Fn(String)) -> bool {
        say(format!("{what}: {} objects, {}", self.objects, Bytes(self.bytes)));
        if self.left_out > 0 {
            let left_out = self.left_out;
            say(format!(
                "{what}: {left_out} objects of block devices were not read: a server that has them open does it"
            ));
        }
        for Finding { volume, object, problem, elsewhere, .. } in &self.findings {
            let way_out = match elsewhere {
                true => format!("; another copy is good, {way_out}"),
                false => String::new(),
            };
            say(format!("{what}: volume {volume}: {object} {problem}{way_out}"));
        }
        self.findings.iter().all(|finding| finding.harmless)
    }
}
