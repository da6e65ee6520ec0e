//! `plimsoll check`: settings, volumes and manifests, or a log store, without serving.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::volumes::Devices;
use policy::purpose::{Io, Origin, Step};
use policy::units::Bytes;
use pool::spread::{Finding, Problem, Report, Spread};
use serde::Serialize;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Volume};

use super::check_log;
use crate::program::certificates;
use crate::settings::Settings;
use crate::wiring;

/// Checks a settings file, its volumes, and what the pool's manifest says against what they hold; or a log store
///
/// With PATH, it is the log store in these directories that is checked: its hints, and with --scrub every record;
/// what is bad is named by file, offset and key.
///
/// Changes nothing, except that --scrub opens the pool as serving would, and --repair makes it open
/// again. Exits with status 0 if all is well, 1 if anything is not, 2 if that could not be found out:
/// volumes that a server has open cannot be checked.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll check -c plimsoll.toml
  plimsoll check -c plimsoll.toml --scrub --json
  plimsoll check -c plimsoll.toml --repair    # volumes are lost for good
  plimsoll check /mnt/a /mnt/b --scrub        # a log store on two volumes")]
pub(crate) struct Args {
    /// The directories of a log store's volumes, all of them
    #[arg(value_name = "PATH", conflicts_with_all = ["file", "repair"])]
    paths: Vec<PathBuf>,

    /// What the names of the log store's objects begin with
    #[arg(long, value_name = "NAME", default_value = "log", requires = "paths")]
    name: String,

    /// The settings file
    #[arg(short = 'c', long = "config", value_name = "FILE", required_unless_present = "paths")]
    file: Option<PathBuf>,

    /// Also read back every table, or record, and compare it with its checksum
    #[arg(long)]
    scrub: bool,

    /// With --scrub: drop damaged copies where another is good, and make the copies that are missing.
    /// Go on with the newest manifest that can be read, even if a newer one was lost: the last resort.
    /// What only lost volumes held stays lost; what the manifest does not know is left alone and named
    #[arg(long)]
    repair: bool,

    /// Print one JSON document, for scripts
    #[arg(long)]
    json: bool,
}

/// The status where nothing could be found out, as that of `grep` and `diff`.
const TROUBLE: u8 = 2;

pub(crate) fn run(args: &Args) -> ExitCode {
    let checked = match &args.file {
        Some(file) => check(args, file).and_then(|found| print(args, found.good, &found)),
        None => check_log::check(&args.paths, &args.name, args.scrub, &|line| args.say(line))
            .and_then(|found| print(args, found.good, &found)),
    };
    match checked {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("plimsoll: {}", super::chain(&error));
            ExitCode::from(TROUBLE)
        }
    }
}

/// Prints what was found, if it is wanted in JSON; passes on whether it is good.
fn print(args: &Args, good: bool, document: &impl Serialize) -> anyhow::Result<bool> {
    if args.json {
        println!("{}", serde_json::to_string_pretty(document)?);
    }
    Ok(good)
}

impl Args {
    fn say(&self, line: String) {
        if !self.json {
            println!("{line}");
        }
    }
}

/// All that was found.
#[derive(Serialize)]
struct Document {
    /// Whether all is well.
    good: bool,
    volumes: Vec<VolumeFound>,
    /// The manifest against the volumes; none if the pool was not made yet.
    pool: Option<Found>,
    /// Tables against their checksums, if they were read.
    scrub: Option<Found>,
}

#[derive(Serialize)]
struct VolumeFound {
    name: String,
    size_bytes: Option<u64>,
    free_bytes: Option<u64>,
    /// Why it is away; none if it is here.
    away: Option<String>,
}

#[derive(Serialize)]
struct Found {
    objects: u64,
    bytes: u64,
    findings: Vec<FindingFound>,
}

#[derive(Serialize)]
struct FindingFound {
    volume: String,
    object: String,
    /// What is the matter, for people.
    problem: String,
    /// Whether bytes are lost.
    lost: bool,
    /// Whether it is nothing to worry about.
    harmless: bool,
    /// Whether another copy is good.
    elsewhere: bool,
}

fn check(args: &Args, file: &Path) -> anyhow::Result<Document> {
    let say = |line: String| args.say(line);
    let settings = Settings::load(file)?;
    say(format!("settings: {} is right", file.display()));
    if let Some(files) = &settings.kv.tls {
        certificates(files).context("kv.tls")?;
        say("kv.tls: certificate and key belong together".into());
    }
    let devices = wiring::devices(&settings, &Clock::real())?;
    let volumes = volumes(&devices, &say)?;
    let mut document =
        Document { good: devices.away().is_empty(), volumes, pool: None, scrub: None };
    if args.repair {
        let pool = devices.salvage_pool(wiring::opening(&settings))?;
        block_on(pool.close())?;
        say(format!("pool {}: opens again, with what is here", settings.kv_pool().name));
    }
    let pool = &settings.kv_pool().name;
    match block_on(Spread::inspect(&devices.members())) {
        Ok(report) => {
            document.good &= tell(&format!("pool {pool}"), &report, &say);
            document.pool = Some(Found::of(&report));
        }
        Err(error) if error.kind() == ErrorKind::NotFound && document.good => {
            say(format!("pool {pool}: not made yet; `plimsoll serve` makes it"));
            return Ok(document);
        }
        Err(error) => return Err(error).with_context(|| format!("pool {pool}")),
    }
    if args.scrub {
        let (report, mended) = scrub(&devices, &settings, args.repair)?;
        document.good &= tell("scrub", &report, &say);
        document.scrub = Some(Found::of(&report));
        if let Some(Mended { dropped, made }) = mended {
            say(format!("scrub: {dropped} bad copies dropped, {made} copies made"));
        }
    }
    Ok(document)
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

/// What a repair did about what a scrub found.
struct Mended {
    dropped: u64,
    made: u64,
}

fn scrub(
    devices: &Devices,
    settings: &Settings,
    repair: bool,
) -> anyhow::Result<(Report, Option<Mended>)> {
    let pool = devices.open_pool(wiring::opening(settings))?;
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

/// Prints what a check found; whether it is nothing to worry about.
fn tell(what: &str, report: &Report, say: &dyn Fn(String)) -> bool {
    say(format!("{what}: {} objects, {}", report.objects, Bytes(report.bytes)));
    for Finding { volume, name, problem, elsewhere } in &report.findings {
        let way_out =
            if *elsewhere { "; another copy is good, --scrub --repair drops this one" } else { "" };
        say(format!("{what}: volume {volume}: {name} {}{way_out}", words(problem)));
    }
    report.findings.iter().all(|finding| is_harmless(&finding.problem))
}

impl Found {
    fn of(report: &Report) -> Self {
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
    matches!(problem, Problem::Leftover | Problem::Foreign)
}

fn words(problem: &Problem) -> String {
    match problem {
        Problem::Away => "is on a volume that is away".into(),
        Problem::Missing => "is missing: its bytes are lost".into(),
        Problem::Short { found, expected } => {
            format!("has {found} bytes of {expected}: the rest is lost")
        }
        Problem::Damaged => "is damaged: its bytes are not those that were written".into(),
        Problem::Unreadable(why) => format!("cannot be read: {why}"),
        Problem::Leftover => "is not needed any more, and goes when the pool is opened".into(),
        Problem::Foreign => "is not the pool's: it is left alone".into(),
        _ => "is not as it should be".into(),
    }
}
