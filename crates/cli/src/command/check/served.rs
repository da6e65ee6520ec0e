//! `plimsoll check --scrub` of a pool that a server has open: the server scrubs it.

use std::time::Duration;

use anyhow::bail;
use serve::admin::scrub::{Pass, Scrub};
use serve::admin::volumes::List;
use volume::Clock;
use volume::task::block_on;

use super::{Args, Document, VolumeFound, pool};
use crate::command::admin::Where;

/// The polling interval of a scrub.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Makes the server scrub this pool, shows the progress, and returns the findings.
pub(super) fn check(args: &Args, pool: &str) -> anyhow::Result<Document> {
    let say = |line: String| args.say(line);
    let file = args.file.clone().filter(|_| args.admin.is_none());
    let endpoint = Where { file, admin: args.admin.clone() }.endpoint()?;
    let List { pool: served, volumes, .. } = endpoint.get("/volumes")?;
    if served != pool {
        bail!(
            "{endpoint}: this server has pool {served}, and another program has the volumes of {pool} open"
        );
    }
    say(format!("pool {pool}: a server has it open, and scrubs it"));
    let mut pass: Pass = endpoint.post("/scrub", None::<&()>)?;
    let bar = pool::bar()?;
    let clock = Clock::real();
    let ended = loop {
        bar.set_length(pass.bytes_of);
        bar.set_position(pass.bytes);
        block_on(clock.sleep(LOOK_EVERY));
        let Scrub { current, last, .. } = endpoint.get("/scrub")?;
        let is_it = |other: &Pass| other.number == pass.number;
        match (current.filter(is_it), last.filter(is_it)) {
            (_, Some(ended)) => break ended,
            (Some(current), None) => pass = current,
            (None, None) => {
                bar.abandon();
                bail!("pool {pool}: the server was restarted; `GET /scrub` shows the progress");
            }
        }
    };
    bar.finish_and_clear();
    let all_here = volumes.iter().all(|volume| volume.problem.is_none());
    let found = pool::Found::served(&ended);
    let good = found.tell("scrub", "the server makes this one again", &say);
    let volumes = volumes.into_iter().map(|volume| VolumeFound {
        name: volume.name,
        size_bytes: volume.size_bytes,
        free_bytes: volume.free_bytes,
        away: volume.problem,
    });
    let volumes = volumes.collect();
    Ok(Document { good: good && all_here, volumes, scrub: Some(found), ..Document::default() })
}
