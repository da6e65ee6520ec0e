//! `plimsoll check`: settings, volumes and manifests, without serving.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::volumes::Devices;
use policy::purpose::{Io, Origin, Step};
use policy::units::Bytes;
use pool::spread::{Finding, Problem, Report, Spread};
use volume::task::block_on;
use volume::{Clock, Error, ErrorKind, Volume};

use crate::program::certificates;
use crate::settings::Settings;
use crate::wiring;

/// Checks a settings file, its volumes, and what the pool's manifest says against what they hold
///
/// Changes nothing, except that --scrub opens the pool as serving would, and --repair makes it open
/// again. Exits with status 0 if all is
/// well, 1 if anything is not. Volumes that a server has open cannot be checked.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll check -c plimsoll.toml
  plimsoll check -c plimsoll.toml --scrub
  plimsoll check -c plimsoll.toml --repair    # volumes are lost for good")]
pub(crate) struct Args {
    /// The settings file
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    file: PathBuf,

    /// Also read back every table and compare it with its checksum
    #[arg(long)]
    scrub: bool,

    /// With --scrub: drop damaged copies where another is good, and make the copies that are missing.
    /// Go on with the newest manifest that can be read, even if a newer one was lost: the last resort.
    /// What only lost volumes held stays lost; what the manifest does not know is left alone and named
    #[arg(long)]
    repair: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = Settings::load(&args.file)?;
    println!("settings: {} is right", args.file.display());
    if let Some(files) = &settings.kv.tls {
        certificates(files).context("kv.tls")?;
        println!("kv.tls: certificate and key belong together");
    }
    let devices = wiring::devices(&settings, &Clock::real())?;
    let mut good = devices.away().is_empty();
    for device in devices.here() {
        let space = block_on(device.gate().space())?;
        let (free, total) = (Bytes(space.free), Bytes(space.total));
        println!("volume {}: here, {free} of {total} free", device.name());
    }
    for line in devices.away() {
        println!("{line}");
    }
    if args.repair {
        repair(&devices, &settings)?;
    }
    let pool = &settings.kv_pool().name;
    match block_on(Spread::inspect(&devices.members())) {
        Ok(report) => good &= tell(&format!("pool {pool}"), &report),
        Err(error) if is_new(&error) && good => {
            println!("pool {pool}: not made yet; `plimsoll serve` makes it");
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(error).with_context(|| format!("pool {pool}")),
    }
    if args.scrub {
        good &= scrub(&devices, &settings, args.repair)?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn is_new(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

fn repair(devices: &Devices, settings: &Settings) -> anyhow::Result<()> {
    let pool = devices.salvage_pool(wiring::opening(settings))?;
    block_on(pool.close())?;
    println!("pool {}: opens again, with what is here", settings.kv_pool().name);
    Ok(())
}

fn scrub(devices: &Devices, settings: &Settings, repair: bool) -> anyhow::Result<bool> {
    let pool = devices.open_pool(wiring::opening(settings))?;
    let style =
        ProgressStyle::with_template("scrub {bar:40} {bytes} of {total_bytes}, {eta} left")?;
    let bar = ProgressBar::new(0).with_style(style);
    let report = block_on(pool.scrub(|progress| {
        bar.set_length(progress.of);
        bar.set_position(progress.done);
    }))?;
    bar.finish_and_clear();
    let good = tell("scrub", &report);
    if repair {
        let dropped = block_on(pool.mend(&report))?;
        let made = block_on(pool.repair(Io::new(Origin::Copy, Step::Data), |_| ()))?.made;
        println!("scrub: {dropped} bad copies dropped, {made} copies made");
    }
    block_on(pool.close())?;
    Ok(good)
}

/// Prints what a check found; whether it is nothing to worry about.
fn tell(what: &str, report: &Report) -> bool {
    println!("{what}: {} objects, {}", report.objects, Bytes(report.bytes));
    for Finding { volume, name, problem, elsewhere } in &report.findings {
        let way_out =
            if *elsewhere { "; another copy is good, --scrub --repair drops this one" } else { "" };
        println!("{what}: volume {volume}: {name} {}{way_out}", words(problem));
    }
    let worry = |problem: &Problem| !matches!(problem, Problem::Leftover | Problem::Foreign);
    !report.findings.iter().any(|finding| worry(&finding.problem))
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
