//! `plimsoll probe`: measures a volume and prints its contract.

pub(super) mod in_use;
mod show;

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use bench::probe::{BYTES_MIN, Found, Interrupted, Labels, Probe, TIME_MIN, Time};
use bytesize::ByteSize;
use policy::units::{Bytes, GIB};
use volume::dir::{BlockDevice, Dir, DirOptions};
use volume::task::block_on;
use volume::{Clock, Intent, Name, Volume};

use self::show::Bar;
use super::interrupt::{self, Interrupt};
use super::scratch::Scratch;

/// The default of --size: more than a provider caches for a volume.
const SIZE: u64 = GIB;

/// Measures a volume and prints its contract
///
/// PATH is a directory on the volume. The probe fills a file there, and reads and writes it as fast as the
/// volume allows. It finds latency below and above the paid rate, paid IOPS, bandwidth, the largest I/O that
/// counts as one, how much can be saved up and how fast, credits that end within the time, and whether reads
/// and writes share a limit. It prints the contract as TOML, for `contract = "FILE"` under a volume of the
/// settings; limits that it did not see are not in it, and a comment says why. It leaves nothing on the
/// volume, and removes the file of a probe that was killed.
///
/// While it runs, other users of the volume are slow, and the figures are too low: so it refuses to run on a
/// volume in use.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll probe /mnt/ebs-a
  plimsoll probe /mnt/ebs-a --out ebs-a.toml --html ebs-a.html
  plimsoll probe /mnt/ebs-a --time 45m        # long enough to see gp2's credits end
  plimsoll probe /mnt/ebs-a --time 20s --size 256MiB --writes no")]
pub(crate) struct Args {
    /// A directory on the volume
    path: PathBuf,

    /// How long to measure, at least 5s; filling the file takes up to a quarter of it more
    #[arg(long, value_name = "DURATION", default_value = "90s", value_parser = time)]
    time: Duration,

    /// How large the file is, at least 16MiB [default: 1GiB, or half of the free space]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,

    /// Whether to measure writes, too; the file is filled in any case
    #[arg(long, value_name = "YES|NO", default_value = "yes", value_parser = ["yes", "no"], hide_possible_values = true)]
    writes: String,

    /// Run although something else seems to use the volume
    #[arg(long, visible_alias = "force")]
    in_use: bool,

    /// Write the contract to this file instead of standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Also write all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Also write figures and plots as one self-contained page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let too_short =
        || format!("give at least {} s: a shorter probe finds nothing", TIME_MIN.as_secs());
    (time >= TIME_MIN).then_some(time).ok_or_else(too_short)
}

fn size(text: &str) -> Result<u64, String> {
    let ByteSize(bytes) = text.parse()?;
    let too_small = || {
        format!(
            "give at least {}: in a smaller file all reads meet the same places",
            Bytes(BYTES_MIN)
        )
    };
    (bytes >= BYTES_MIN).then_some(bytes).ok_or_else(too_small)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let place = args.path.display().to_string();
    let interrupt = Interrupt::listen().context("listen to signals")?;
    match args.measure(&place, &interrupt) {
        Ok(found) => args.give(&found, &place),
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("plimsoll: interrupted: no contract was found, and no file is left behind");
            Ok(ExitCode::from(interrupt::STATUS))
        }
        Err(error) => Err(error),
    }
}

impl Args {
    fn measure(&self, place: &str, interrupt: &Interrupt) -> anyhow::Result<Found> {
        let clock = Clock::real();
        check_directory(&self.path)?;
        if !self.in_use {
            in_use::refuse(&self.path, &clock)?;
        }
        // Dropped last: the directory is removed however the probe ends.
        let scratch = Scratch::new(&self.path, "probe").with_context(|| {
            format!("{place} cannot be written to: see that it is mounted for writing, and yours")
        })?;
        let volume = Dir::open(scratch.path(), DirOptions::default())?;
        ensure!(
            volume.is_direct(),
            "{place}: its file system refuses O_DIRECT, so the page cache would answer instead of the \
             device: probe a directory on ext4 or XFS on it"
        );
        let free = block_on(volume.space())?.free;
        let bytes = self.bytes(free).with_context(|| place.to_owned())?;
        let name = Name::new("probe.dat")?;
        let object = block_on(volume.create(&name, &Intent { len: Some(bytes), ..Intent::DATA }))?;
        let device = BlockDevice::of(&self.path);
        let probe = Probe {
            object,
            bytes,
            time: self.time,
            writes: self.writes == "yes",
            clock: clock.clone(),
            runs: Time::Real,
            seed: RandomState::new().hash_one(0),
            device,
        };
        let filling = probe.fill_time();
        eprintln!(
            "probe takes about {} s: {} s of measuring, and up to {} s before to fill {}",
            (self.time + filling).as_secs(),
            self.time.as_secs(),
            filling.as_secs(),
            Bytes(bytes)
        );
        let bar = Bar::new(clock.now(), filling, self.time);
        probe.run(interrupt.asked(), &bar)
    }

    /// The size of the file.
    fn bytes(&self, free: u64) -> anyhow::Result<u64> {
        let bytes = self.size.unwrap_or(SIZE.min(free / 2));
        if bytes < BYTES_MIN || bytes > free {
            bail!(
                "too small: {} are free, and {} are needed: make room, or give a smaller --size",
                Bytes(free),
                Bytes(self.size.unwrap_or(2 * BYTES_MIN))
            );
        }
        Ok(bytes)
    }

    fn give(&self, found: &Found, place: &str) -> anyhow::Result<ExitCode> {
        let report = found.report(place, 0);
        eprintln!("{}", show::picture(found));
        let name = self.name();
        let today = UNIX_EPOCH + Clock::real().wall();
        let today = humantime::format_rfc3339_seconds(today).to_string();
        let date = today.split('T').next().unwrap_or_default();
        let text = found.contract(Labels { name: &name, place, date });
        match &self.out {
            None => print!("{text}"),
            Some(path) => {
                fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
                eprintln!("the contract is in {}", path.display());
            }
        }
        if let Some(path) = &self.json {
            report.write_json(path)?;
        }
        if let Some(path) = &self.html {
            report.write_html(path)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The contract's name: that of its file, or of the volume's directory.
    fn name(&self) -> String {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let name = self.out.as_deref().and_then(Path::file_stem).or(path.file_name());
        name.map_or("probed".into(), |name| name.to_string_lossy().into_owned())
    }
}

fn check_directory(path: &Path) -> anyhow::Result<()> {
    let place = path.display();
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Ok(()),
        Ok(_) => bail!("{place} is not a directory: name the one the volume is mounted at"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("{place}: there is no such directory: mount the volume, or make it")
        }
        Err(error) => Err(error).with_context(|| format!("look at {place}")),
    }
}
