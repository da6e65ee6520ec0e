//! The scrubs of the pools, as the admin listener shows them.

use ::pool::scrubber;
use ::pool::spread::{self, Problem};
use serve::admin::Error;
use serve::admin::scrub::{Finding, Pass, Scrub, Scrubs};

use super::Program;
use super::stores::Opened;

impl Program {
    /// The scrub of the pool of this name, or of all pools.
    pub(super) fn show_scrubs(&self, pool: Option<&str>) -> Result<Scrubs, Error> {
        let pools = self.scrubbed(pool)?.into_iter().map(shown).collect();
        Ok(Scrubs { pools })
    }

    /// Begins a pass of each; they are the current ones of the answer.
    pub(super) fn start_scrubs(&self, pool: Option<&str>) -> Result<Scrubs, Error> {
        let begun = self.scrubbed(pool)?.into_iter().map(|root| {
            let begun = pass(root.pool.scrubs().begin());
            Scrub { current: Some(begun), ..shown(root) }
        });
        Ok(Scrubs { pools: begun.collect() })
    }

    /// The pools that a request is about.
    fn scrubbed(&self, pool: Option<&str>) -> Result<Vec<Opened<'_>>, Error> {
        let Some(name) = pool else { return self.pools() };
        Ok(vec![self.root_called(name)?])
    }
}

fn shown(of: Opened<'_>) -> Scrub {
    let passes = of.pool.scrubs();
    Scrub {
        pool: of.name.to_owned(),
        current: passes.current().map(pass),
        last: passes.last().map(pass),
        age_s: passes.figures().age.map(|age| age.as_secs()),
    }
}

fn pass(of: scrubber::Pass) -> Pass {
    Pass {
        number: of.number,
        on_demand: of.is_on_demand,
        began_unix_s: of.began.as_secs(),
        ended_unix_s: of.ended.map(|ended| ended.as_secs()),
        objects: of.at.objects,
        bytes: of.at.done,
        bytes_of: of.at.of,
        damaged: of.damaged,
        repaired: of.repaired,
        unread: of.unread,
        findings: of.findings.iter().map(finding).collect(),
    }
}

/// A finding as JSON has it.
pub(crate) fn finding(of: &spread::Finding) -> Finding {
    let spread::Finding { volume, name, problem, elsewhere, .. } = of;
    Finding {
        volume: volume.clone(),
        object: name.clone(),
        problem: words(problem),
        lost: problem.is_loss(),
        harmless: matches!(problem, Problem::Orphan | Problem::Foreign),
        elsewhere: *elsewhere,
    }
}

fn words(problem: &Problem) -> String {
    match problem {
        Problem::Away => "is on a volume that is away".into(),
        Problem::Missing => "is missing: its bytes are lost".into(),
        Problem::Short { found, expected } => {
            format!("has {found} bytes of {expected}: the rest is lost")
        }
        Problem::Damaged => "is damaged: its bytes are not those that were written".into(),
        Problem::Repaired => {
            "was damaged: its bytes were not those that were written, and were repaired from others"
                .into()
        }
        Problem::Lost(what) => format!("is damaged: {what}"),
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
