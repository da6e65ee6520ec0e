//! `plimsoll demo`: six simulated volumes, the server, a real load, and each volume against its line.

mod load;
mod picture;

use std::io::IsTerminal;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use volume::Clock;

use self::load::{Load, Outcome};
use self::picture::Picture;
use super::serve::Serving;
use crate::program::Program;
use crate::settings::{AdminListen, Settings};

/// Shows it: six simulated gp3 volumes, the server, a load, and each volume against its line
///
/// The volumes are directories under --dir, with the settings file beside them: `plimsoll serve -c` serves
/// the same store later. The load comes through real connections: first it stores keys, then it reads them
/// at random, with more memory in the keys than in the cache, so that reads reach the volumes. It takes
/// about half a minute.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll demo
  plimsoll demo --once --dir /tmp/plimsoll-data")]
pub(crate) struct Args {
    /// End by itself after the load instead of serving on
    #[arg(long)]
    once: bool,

    /// How long keys are read and written at random
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = humantime::parse_duration)]
    mix: Duration,

    /// Where the volumes are
    #[arg(long, value_name = "DIR", default_value = "plimsoll-data")]
    dir: PathBuf,
}

/// The settings of the demo. The cache holds a fifth of what the load stores.
const SETTINGS: &str = r#"# Six volumes, throttled as their provider would throttle them.
[volume.s1]
path = "s1"
contract = "gp3"
simulate = true

[volume.s2]
path = "s2"
contract = "gp3"
simulate = true

[volume.s3]
path = "s3"
contract = "gp3"
simulate = true

[volume.s4]
path = "s4"
contract = "gp3"
simulate = true

[volume.s5]
path = "s5"
contract = "gp3"
simulate = true

[volume.s6]
path = "s6"
contract = "gp3"
simulate = true

[pool.main]
layout = "spread"
migrate_interval = "1s"  # default 10s: who looks on for half a minute would see no copies
volumes = ["s1", "s2", "s3", "s4", "s5", "s6"]

[kv]
pool = "main"
memory = "128MiB"
memtable = "4MiB"        # so little data in tables of 64 MiB would be on few volumes
table_size = "2MiB"
listen = "127.0.0.1:6380"

[admin]
listen = "127.0.0.1:9180"
"#;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let file = settings_file(&args.dir)?;
    let mut settings = Settings::load(&file)?;
    settings.kv.listen = free(settings.kv.listen);
    if let Some(AdminListen::Tcp(address)) = settings.admin.as_mut().map(|admin| &mut admin.listen)
    {
        *address = free(*address);
    }
    println!("{} volumes under {}, opening them", settings.volumes.len(), args.dir.display());
    let clock = Clock::real();
    let serving = Serving::start(settings, file)?;
    let load = Load::new(serving.redis, clock.clone());
    let picture = Picture::new(serving.program(), clock, std::io::stderr().is_terminal());
    let stored = picture.beside("storing keys", || load.store())?;
    println!("{stored}");
    let before = issued(serving.program());
    let mixed = picture.beside("reading and writing them at random", || load.mix(args.mix))?;
    println!("{mixed}");
    summary(serving.program(), before, &mixed);
    if args.once {
        serving.stop()?;
        return Ok(ExitCode::SUCCESS);
    }
    // Until here Ctrl-C just ends the process, which loses nothing that was acknowledged.
    let signals = serving.signals()?;
    println!("\nServing on. Try:");
    println!("  redis-cli -p {} set ship plimsoll", serving.redis.port());
    println!("  redis-cli -p {} get ship", serving.redis.port());
    if let Some(admin) = serving.admin() {
        println!("  curl http://{admin}/metrics");
    }
    println!("Ctrl-C stops it; the data stay in {}.", args.dir.display());
    serving.until(signals)?;
    Ok(ExitCode::SUCCESS)
}

/// The settings file in `dir`, made if it is not there.
fn settings_file(dir: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    let file = dir.join("plimsoll.toml");
    if !file.exists() {
        std::fs::write(&file, SETTINGS).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(file)
}

/// The address, or the same with any free port if somebody has that one.
fn free(address: SocketAddr) -> SocketAddr {
    match TcpListener::bind(address) {
        Ok(_) => address,
        Err(_) => SocketAddr::new(address.ip(), 0),
    }
}

/// I/Os that went to the volumes so far, as their contracts count them.
fn issued(program: &Program) -> u64 {
    program.store.devices().here().iter().map(|device| device.gate().meter().spent().ops).sum()
}

/// What the load got of what was paid for, and whether it ever went over.
fn summary(program: &Program, before: u64, outcome: &Outcome) {
    let devices = program.store.devices().here();
    let paid: u64 = devices.iter().filter_map(|d| d.gate().meter().contract.paid_iops()).sum();
    let throttled: u64 = devices.iter().filter_map(|d| Some(d.seen_by_provider()?.throttled)).sum();
    let used = (issued(program) - before) as f64 / outcome.elapsed.as_secs_f64();
    println!(
        "the volumes did {used:.0} I/Os a second of {paid} that are paid for ({:.0} %); \
         over the line: {throttled}",
        100.0 * used / paid.max(1) as f64,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_the_demo_are_right() {
        let settings = Settings::parse(Path::new("plimsoll.toml"), SETTINGS).expect("they are");
        assert_eq!(settings.kv_pool().volumes.len(), 6);
    }
}
