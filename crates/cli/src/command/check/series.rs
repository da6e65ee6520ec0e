//! `plimsoll check` of a store of time series: its blocks, and its write-ahead log.

use std::sync::Arc;

use anyhow::Context;
use engine::series::store::{self, Damage, Inspected};
use plimsoll::volumes::{Device, Devices};
use policy::units::Bytes;
use serde::Serialize;
use volume::Clock;
use volume::task::block_on;

use super::{VolumeFound, log, volumes};
use crate::settings::{On, Pool, Series, Settings};
use crate::wiring;

/// Volumes with their names for readers.
pub(super) type Members = Vec<(String, Arc<dyn volume::Volume>)>;

/// All findings of a store.
#[derive(Serialize)]
pub(super) struct Found {
    /// Whether all is well.
    pub(super) good: bool,
    /// The prefix of its objects' names.
    store: String,
    /// Blocks and catalogue.
    blocks: log::Found,
    wal: WalFound,
}

#[derive(Serialize)]
struct WalFound {
    segments: u64,
    /// Whole records, and their bytes.
    records: u64,
    bytes: u64,
    /// Segments cut by a crash: they miss nothing that was acknowledged.
    torn: Vec<String>,
    gaps: Vec<Gap>,
}

/// Bytes that are no record, followed by whole records.
#[derive(Serialize)]
struct Gap {
    segment: String,
    /// In bytes, from the segment's beginning.
    offset: u64,
    /// Where the next whole record begins.
    resumes: u64,
}

/// The store of a settings file: its volumes and contents. `is_made` says whether a pool was made. No contents if it was not made yet, or a volume is away.
pub(super) fn check(
    settings: &Settings,
    series: &Series,
    is_made: impl Fn(&str) -> bool,
    scrub: bool,
    say: &dyn Fn(String),
) -> anyhow::Result<(Vec<VolumeFound>, Option<Found>)> {
    let names = match &series.on {
        On::Volumes(names) => names,
        On::Pool(pool) if is_made(pool) => {
            let pool = settings.pool(pool).expect("the settings were checked: stores name pools");
            let store = check_on_pool(settings, pool, &series.options.name, scrub, say)?;
            return Ok((Vec::new(), store));
        }
        On::Pool(_) => return Ok((Vec::new(), not_made(say))),
    };
    let recipes = wiring::series_volumes(settings, names);
    let devices = Devices::open(&recipes, &Clock::real()).context("series.volumes")?;
    let found = volumes(&devices, say)?;
    if !devices.away().is_empty() {
        say("series: not checked: bring back all of series.volumes, the store needs them".into());
        return Ok((found, None));
    }
    let member = |device: &Arc<Device>| (device.name().to_owned(), device.volume());
    let members: Members = devices.here().iter().map(member).collect();
    let store = inspect_if_made(&members, &series.options.name, scrub, say)?;
    Ok((found, store))
}

fn not_made(say: &dyn Fn(String)) -> Option<Found> {
    say("series: not made yet; `plimsoll serve` makes it".into());
    None
}

/// The contents of the store on this pool, which is opened for it.
fn check_on_pool(
    settings: &Settings,
    pool: &Pool,
    name: &String,
    scrub: bool,
    say: &dyn Fn(String),
) -> anyhow::Result<Option<Found>> {
    let below = crate::members::Members::open(settings, pool, &Clock::real())?;
    let spread = below.open_pool(wiring::opening(settings, pool))?;
    let members: Members = vec![(pool.name.clone(), Arc::new(spread.clone()) as _)];
    let store = inspect_if_made(&members, name, scrub, say)?;
    block_on(spread.close())?;
    below.close()?;
    Ok(store)
}

fn inspect_if_made(
    members: &Members,
    name: &String,
    scrub: bool,
    say: &dyn Fn(String),
) -> anyhow::Result<Option<Found>> {
    if !block_on(store::stores_on(members)).context("series")?.contains(name) {
        return Ok(not_made(say));
    }
    Ok(Some(inspect(members, name, scrub, say).context("series")?))
}

/// Checks the contents of this store.
pub(super) fn inspect(
    members: &Members,
    name: &str,
    scrub: bool,
    say: &dyn Fn(String),
) -> anyhow::Result<Found> {
    let found = Found::of(name, block_on(store::inspect(members, name, scrub))?);
    found.tell(say);
    Ok(found)
}

impl Found {
    fn of(name: &str, found: Inspected) -> Self {
        let blocks = log::Found::of(&format!("{name}-blocks"), found.blocks);
        let gap = |Damage { what, offset, resumes }| Gap { segment: what, offset, resumes };
        let wal = WalFound {
            segments: found.segments,
            records: found.records,
            bytes: found.record_bytes,
            torn: found.torn,
            gaps: found.damage.into_iter().map(gap).collect(),
        };
        let good = blocks.good && wal.gaps.is_empty();
        Self { good, store: name.to_owned(), blocks, wal }
    }

    fn tell(&self, say: &dyn Fn(String)) {
        self.blocks.tell(say);
        let Self { store, wal, .. } = self;
        say(format!(
            "write-ahead log of {store}: {} records of {} in {} segments",
            wal.records,
            Bytes(wal.bytes),
            wal.segments,
        ));
        for torn in &wal.torn {
            say(format!("{torn}: a crash cut it short; no synced record is missing"));
        }
        for Gap { segment, offset, resumes } in &wal.gaps {
            say(format!(
                "{segment}: byte {offset} to {resumes}: no readable record, but whole records follow: these \
                 bytes are damaged, or were not synced when the machine died. The store opens without the \
                 records that follow"
            ));
        }
    }
}
