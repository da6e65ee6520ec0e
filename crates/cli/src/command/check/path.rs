//! `plimsoll check PATH`: checks these volumes without settings, and without opening the store.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use engine::log::{self as log_store, Member};
use engine::series::store;
use policy::units::Bytes;
use pool::spread::Spread;
use pool::tier::{dirty_marks, has_newest};
use volume::dir::{Dir, DirOptions};
use volume::task::block_on;

use super::series::Members;
use super::{Document, log, pool as pools, series};

/// Checks a pool, stores of time series, and log stores; of log stores only `name`, if given.
pub(super) fn check(
    paths: &[PathBuf],
    name: Option<&str>,
    scrub: bool,
    say: &dyn Fn(String),
) -> anyhow::Result<Document> {
    let members = open(paths)?;
    let mut document = Document { good: true, ..Document::default() };
    let of_pool = pool_members(&members)?;
    if name.is_none() && !of_pool.is_empty() {
        if scrub {
            bail!(
                "{}: these volumes belong to a pool, and its tables can be read only with its settings: run \
                 `plimsoll check -c FILE --scrub`",
                shown(paths)
            );
        }
        let report = block_on(Spread::inspect(&of_pool)).context("the pool on these volumes")?;
        let found = pools::Found::of(&report);
        document.good &= found.tell("pool", pools::BY_REPAIR, say);
        document.pool = Some(found);
    }
    let of_log: Vec<_> = members
        .iter()
        .map(|(label, volume)| Member::new(label.clone(), Arc::clone(volume)))
        .collect();
    for (label, volume) in &members {
        let marks = block_on(dirty_marks(&**volume))?;
        let is_held = || {
            members
                .iter()
                .any(|(_, fast)| block_on(has_newest(&**volume, &**fast)).is_ok_and(|has| has))
        };
        if marks.stale_bytes > 0 || marks.objects > 0 && !is_held() {
            say(format!(
                "{label}: not whole: writes to {} objects are only on the fast volume of its tier, and {} were lost with one",
                marks.objects,
                Bytes(marks.stale_bytes)
            ));
            document.good = false;
        }
    }
    let series = block_on(store::stores_on(&members))?;
    for store in series.iter().filter(|store| name.is_none_or(|name| name == *store)) {
        let found = series::inspect(&members, store, scrub, say)?;
        document.good &= found.good;
        document.series.push(found);
    }
    let is_blocks = |log: &str| series.iter().any(|store| log == format!("{store}-blocks"));
    let logs = block_on(log_store::stores_on(&of_log))?;
    let wanted = |log: &&String| match name {
        Some(name) => **log == name,
        None => !is_blocks(log),
    };
    for log in logs.iter().filter(wanted) {
        let found = log::Found::of(log, block_on(log_store::inspect(&of_log, log, scrub))?);
        found.tell(say);
        document.good &= found.good;
        document.logs.push(found);
    }
    if document.pool.is_none() && document.series.is_empty() && document.logs.is_empty() {
        let paths = shown(paths);
        let there: Vec<_> = series.iter().chain(&logs).map(String::as_str).collect();
        match name {
            Some(name) if there.is_empty() => bail!("{paths}: no log store called {name}"),
            Some(name) => {
                bail!("{paths}: no log store called {name}; there are {}", there.join(", "))
            }
            None => bail!(
                "{paths}: neither a pool nor a store of time series nor a log store is on these volumes"
            ),
        }
    }
    Ok(document)
}

fn open(paths: &[PathBuf]) -> anyhow::Result<Members> {
    let mut members = Members::new();
    for path in paths {
        // Opening a directory would make it a volume.
        if !path.join("objects").is_dir() {
            bail!(
                "{}: there is no volume in this directory: give the `path` of a [volume.NAME]",
                path.display()
            );
        }
        let dir = Dir::open(path, DirOptions::default())
            .context("a volume that a program has open cannot be checked")?;
        members.push((path.display().to_string(), Arc::new(dir)));
    }
    Ok(members)
}

/// The volumes that belong to a pool, by their names in it.
fn pool_members(members: &Members) -> anyhow::Result<Vec<pool::Member>> {
    let mut found = Vec::new();
    for (path, volume) in members {
        let label = block_on(Spread::label_on(&**volume)).with_context(|| path.clone())?;
        found.extend(label.map(|label| pool::Member::new(label, Arc::clone(volume))));
    }
    Ok(found)
}

fn shown(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}
