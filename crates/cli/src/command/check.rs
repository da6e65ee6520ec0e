//! `plimsoll check`: settings, volumes, and what is on them, without serving.

mod log;
mod path;
mod pool;
mod series;
mod served;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::pool::tier::Marks;
use anyhow::Context;
use plimsoll::volumes::Devices;
use policy::units::Bytes;
use serde::Serialize;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Volume};

use crate::members::{Members, TierFound};
use crate::program::certificates;
use crate::settings::{self, Settings};
use crate::wiring;

/// Checks a settings file, its volumes and what is on them: the pool's manifest, the store of time series
///
/// With PATH, checks what lies on the volumes in these directories, without settings: it finds out whether that is
/// a pool, a store of time series or a log store.
///
/// Of a pool, it compares the manifest with the objects on the volumes, and with --scrub every copy of every table and
/// log with its checksum; a running server reads block devices, too. Of a store of time series, it reads the write-ahead log and the blocks' hints, and with
/// --scrub every block. It names each problem by volume, object and offset.
///
/// Changes nothing, except that --scrub opens the pool as serving would, and --repair makes it open
/// again. Exits with status 0 if all is well, 1 if it found a problem, 2 if it could not check:
/// volumes that a server has open cannot be checked, but --scrub makes that server scrub its pools now, at its admin
/// listener. The server replaces a damaged copy where another is good. Where stores are on several pools, it checks one
/// after the other.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll check -c plimsoll.toml
  plimsoll check -c plimsoll.toml --scrub --json    # a running server does it
  plimsoll check -c plimsoll.toml --repair    # volumes are lost for good
  plimsoll check /mnt/a /mnt/b --scrub        # what is on two volumes")]
pub(crate) struct Args {
    /// The directories of all the volumes of a pool or a store
    #[arg(value_name = "PATH", conflicts_with_all = ["file", "repair"])]
    paths: Vec<PathBuf>,

    /// Check only the store of this name, with which its objects' names begin
    #[arg(long, value_name = "NAME", requires = "paths")]
    name: Option<String>,

    /// The settings file
    #[arg(short = 'c', long = "config", value_name = "FILE", required_unless_present = "paths")]
    file: Option<PathBuf>,

    /// Also read back every table, block or record, and compare it with its checksum
    #[arg(long)]
    scrub: bool,

    /// With --scrub: the admin listener of the server that has the pool open: an address and port, or unix:<path>
    /// [default: as the settings file says]
    #[arg(long, value_name = "ADDRESS", requires_all = ["scrub", "file"])]
    admin: Option<String>,

    /// Open the pool with the newest manifest that can be read, even if a newer one was lost: the last resort.
    /// What only lost volumes held stays lost; objects that the manifest does not know are named and left alone.
    /// With --scrub, also drop damaged copies where another is good, and make the missing copies
    #[arg(long)]
    repair: bool,

    /// Print one JSON document, for scripts
    #[arg(long)]
    json: bool,
}

/// The status if the check itself failed, as with `grep` and `diff`.
const TROUBLE: u8 = 2;

pub(crate) fn run(args: &Args) -> ExitCode {
    let say = |line: String| args.say(line);
    let checked = match &args.file {
        Some(file) => check(args, file),
        None => path::check(&args.paths, args.name.as_deref(), args.scrub, &say),
    };
    match checked.and_then(|found| print(args, &found)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("plimsoll: {}", super::chain(&error));
            ExitCode::from(TROUBLE)
        }
    }
}

/// Prints the findings if JSON was requested; returns whether all is well.
fn print(args: &Args, document: &Document) -> anyhow::Result<bool> {
    if args.json {
        println!("{}", serde_json::to_string_pretty(document)?);
    }
    Ok(document.good)
}

impl Args {
    fn say(&self, line: String) {
        if !self.json {
            println!("{line}");
        }
    }
}

/// All findings.
#[derive(Default, Serialize)]
struct Document {
    /// Whether all is well.
    good: bool,
    /// The volumes of a settings file.
    volumes: Vec<VolumeFound>,
    /// Each pool by its name, those below others before them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pools: Vec<pool::Named>,
    /// The manifest of the last of them compared with the volumes; `None` if the pool was not made yet.
    pool: Option<pool::Found>,
    /// Tables compared with their checksums, if they were read.
    scrub: Option<pool::Found>,
    /// Tiers of which the slow side alone is not whole.
    tiers: Vec<TierShown>,
    /// Stores of time series.
    series: Vec<series::Found>,
    /// Log stores that belong to neither.
    logs: Vec<log::Found>,
}

#[derive(Serialize)]
struct TierShown {
    name: String,
    /// Objects with units that may be newer on the fast side, and the bytes of these units.
    dirty_objects: u64,
    dirty_bytes_max: u64,
    /// Whether the fast side is the one that has the newest bytes.
    fast_has_them: bool,
    /// Bytes that were lost with a fast side.
    stale_bytes: u64,
}

#[derive(Serialize)]
struct VolumeFound {
    name: String,
    size_bytes: Option<u64>,
    free_bytes: Option<u64>,
    /// Why it is away; `None` if it is here.
    away: Option<String>,
}

fn check(args: &Args, file: &Path) -> anyhow::Result<Document> {
    let say = |line: String| args.say(line);
    let settings = Settings::load(file)?;
    say(format!("settings: {} is valid", file.display()));
    if let Some(files) = settings.kv.as_ref().and_then(|kv| kv.tls.as_ref()) {
        certificates(files).context("kv.tls")?;
        say("kv.tls: certificate and key belong together".into());
    }
    if let Some(files) = settings.series.as_ref().and_then(|(_, http)| http.tls.as_ref()) {
        certificates(files).context("http.tls")?;
        say("http.tls: certificate and key belong together".into());
    }
    if let Some(files) = settings.block.as_ref().and_then(|block| block.tls.as_ref()) {
        certificates(files).context("block.tls")?;
        say("block.tls: certificate and key belong together".into());
    }
    let mut document = Document { good: true, ..Document::default() };
    let mut is_served = false;
    for pool in settings.roots() {
        let good = match check_pool(args, &settings, pool, &mut document) {
            Err(error) if args.scrub && is_held(&error) => {
                is_served = true;
                served::check(args, &pool.name, &mut document)?
            }
            checked => checked?,
        };
        document.good &= good;
    }
    // The server has the store of time series, too.
    if let Some((series, _)) = settings.series.as_ref().filter(|_| !is_served) {
        let is_made = |name: &str| {
            document.pools.iter().any(|named| named.name == name && named.pool.is_some())
        };
        let (volumes, store) = series::check(&settings, series, is_made, args.scrub, &say)?;
        document.good &= volumes.iter().all(|volume| volume.away.is_none());
        document.good &= store.as_ref().is_none_or(|store| store.good);
        document.volumes.extend(volumes);
        document.series.extend(store);
    }
    Ok(document)
}

/// Whether another process has the volumes open.
fn is_held(error: &anyhow::Error) -> bool {
    let volume = error.downcast_ref::<plimsoll::Error>();
    matches!(volume, Some(plimsoll::Error::Volume { source, .. }) if source.kind() == ErrorKind::Fenced)
}

/// Checks a pool, after the pools below it; returns whether all is well.
fn check_pool(
    args: &Args,
    settings: &Settings,
    of: &settings::Pool,
    document: &mut Document,
) -> anyhow::Result<bool> {
    let say = |line: String| args.say(line);
    let mut good = true;
    let below = |name: &String| settings.pools.iter().find(|pool| pool.name == *name);
    for pool in of.volumes.iter().filter_map(below) {
        let pool = match &pool.tier {
            None => Some(pool),
            Some(tier) => {
                say(format!("{}: a cache, which is not checked", tier.fast));
                below(&tier.slow)
            }
        };
        if let Some(pool) = pool {
            good &= check_pool(args, settings, pool, document)?;
        }
    }
    let members = match args.scrub || args.repair {
        true => Members::open(settings, of, &Clock::real())?,
        false => Members::open_to_look(settings, of, &Clock::real())?,
    };
    for devices in members.devices() {
        document.volumes.extend(volumes(devices, &say)?);
        good &= devices.away().is_empty();
    }
    for (name, found) in members.tiers() {
        good &= tier(name, found, document, &say);
    }
    let pool = &of.name;
    if args.repair {
        let opened = members.salvage_pool(wiring::opening(settings, of))?;
        block_on(opened.close())?;
        say(format!("pool {pool}: opens again, with the volumes that are here"));
    }
    match members.inspect() {
        Ok(report) => {
            let found = pool::Found::of(&report);
            good &= found.tell(&format!("pool {pool}"), pool::BY_REPAIR, &say);
            document.pool = Some(found.clone());
            let name = pool.clone();
            document.pools.push(pool::Named { name, pool: Some(found), scrub: None });
        }
        Err(error) if error.kind() == ErrorKind::NotFound && good => {
            say(format!("pool {pool}: not made yet; `plimsoll serve` makes it"));
            return Ok(good);
        }
        Err(error) => return Err(error).with_context(|| format!("pool {pool}")),
    }
    if args.scrub {
        let (report, mended) = pool::scrub(&members, wiring::opening(settings, of), args.repair)?;
        let found = pool::Found::of(&report);
        good &= found.tell("scrub", pool::BY_REPAIR, &say);
        document.scrub = Some(found.clone());
        document.pools.last_mut().expect("it was inspected").scrub = Some(found);
        if let Some(pool::Mended { dropped, made }) = mended {
            say(format!("scrub: {dropped} bad copies dropped, {made} copies made"));
        }
    }
    members.close()?;
    Ok(good)
}

/// Says of a tier that its slow side alone is not whole; returns whether nothing is lost.
fn tier(name: &str, found: &TierFound, document: &mut Document, say: &dyn Fn(String)) -> bool {
    let TierFound { fast, slow, marks, missing } = found;
    let Marks { objects, bytes, stale_bytes } = *marks;
    if (objects, stale_bytes) == (0, 0) {
        return true;
    }
    if objects > 0 {
        let held = match missing {
            None => format!("{fast} has them; {slow} alone is not whole"),
            Some(why) => format!("{fast} does not have them: {why}"),
        };
        let most = Bytes(bytes);
        say(format!(
            "tier {name}: writes to {objects} objects, up to {most}, were not written back: {held}"
        ));
    }
    if stale_bytes > 0 {
        let lost = Bytes(stale_bytes);
        say(format!(
            "tier {name}: {lost} were lost with a fast side: reads of them fail until they are written"
        ));
    }
    document.tiers.push(TierShown {
        name: name.to_owned(),
        dirty_objects: objects,
        dirty_bytes_max: bytes,
        fast_has_them: missing.is_none(),
        stale_bytes,
    });
    missing.is_none() && stale_bytes == 0
}

fn volumes(devices: &Devices, say: &dyn Fn(String)) -> anyhow::Result<Vec<VolumeFound>> {
    let mut volumes = Vec::new();
    for device in devices.here() {
        let space = block_on(device.gate().space())?;
        let (free, total) = (Bytes(space.free), Bytes(space.total));
        say(format!("volume {}: here, {free} of {total} free", device.name()));
        volumes.push(VolumeFound {
            name: device.name().to_owned(),
            size_bytes: Some(space.total),
            free_bytes: Some(space.free),
            away: None,
        });
    }
    for away in devices.away() {
        say(away.to_string());
        let (size_bytes, free_bytes) = (None, None);
        let found = VolumeFound { name: away.name, size_bytes, free_bytes, away: Some(away.why) };
        volumes.push(found);
    }
    Ok(volumes)
}
