//! `plimsoll check --scrub` of a pool that a server has open: the server scrubs it.

use std::time::Duration;

use anyhow::{Context, bail};
use serve::admin::scrub::{Pass, Scrub, Scrubs};
use serve::admin::volumes::List;
use volume::Clock;
use volume::task::block_on;

use super::{Args, Document, VolumeFound, pool};
use crate::command::admin::Where;

/// The polling interval of a scrub.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Makes the server scrub this pool, shows the progress, and adds the findings; returns whether all is well.
pub(super) fn check(args: &Args, name: &str, document: &mut Document) -> anyhow::Result<bool> {
    let say = |line: String| args.say(line);
    let file = args.file.clone().filter(|_| args.admin.is_none());
    let endpoint = Where { file, admin: args.admin.clone() }.endpoint()?;
    let mut list: List = endpoint.get("/volumes")?;
    let mut lists = std::mem::take(&mut list.more);
    lists.insert(0, list);
    let Some(at) = lists.iter().position(|list| list.pool == name) else {
        let served: Vec<_> = lists.iter().map(|list| &*list.pool).collect();
        bail!(
            "{endpoint}: this server has pool {}, and another program has the volumes of {name} open",
            served.join(", ")
        );
    };
    let volumes = lists.swap_remove(at).volumes;
    say(format!("pool {name}: a server has it open, and scrubs it"));
    // Names in settings need no encoding.
    let path = format!("/scrub?pool={name}");
    let Scrubs { mut pools } = endpoint.post(&path, None::<&()>)?;
    let begun = pools.pop().and_then(|scrub| scrub.current);
    let mut pass = begun.context("the server did not begin a scrub")?;
    let bar = pool::bar()?;
    let clock = Clock::real();
    let ended = loop {
        bar.set_length(pass.bytes_of);
        bar.set_position(pass.bytes);
        block_on(clock.sleep(LOOK_EVERY));
        let Scrubs { mut pools } = endpoint.get(&path)?;
        let Scrub { current, last, .. } = pools.pop().context("the server has no such pool")?;
        let is_it = |other: &Pass| other.number == pass.number;
        match (current.filter(is_it), last.filter(is_it)) {
            (_, Some(ended)) => break ended,
            (Some(current), None) => pass = current,
            (None, None) => {
                bar.abandon();
                bail!("pool {name}: the server was restarted; `GET /scrub` shows the progress");
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
    document.volumes.extend(volumes);
    document.scrub = Some(found.clone());
    document.pools.push(pool::Named { name: name.to_owned(), pool: None, scrub: Some(found) });
    Ok(good && all_here)
}
