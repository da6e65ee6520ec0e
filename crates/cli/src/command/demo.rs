//! `plimsoll demo`: plain RocksDB and Plimsoll at the same time, on equal simulated volumes.
//!
//! ```text
//! load both ── flat out, no limit: what can the machine do? ── size the volumes ── both under one load
//!                                                              (sizing)            (load, picture, verdict)
//! ```

mod load;
mod picture;
mod side;
mod sizing;
mod verdict;

use std::io::{ErrorKind, IsTerminal};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bench::compare::Late;
use serve::admin::Control;

use self::load::{Load, Tally};
use self::picture::Picture;
use self::side::{Plain, Side};
use self::sizing::Sizing;
use self::verdict::Outcome;
use super::interrupt::{self, Interrupt};
use super::serve::Serving;
use crate::settings::{Listen, Settings};

/// Compares plain RocksDB and Plimsoll side by side, each on a volume that is loaded to its paid IOPS
///
/// Both stores hold the same keys on simulated io2 volumes with the same paid IOPS, and get the same reads
/// and writes at the same time. Each second prints the 99th percentile of reads and how much of the paid
/// IOPS each store uses. First the demo measures what this machine can do, and sizes the volumes to it. It
/// takes about a minute.
///
/// Plimsoll's volume is a directory under --dir, with the settings file beside it: `plimsoll serve -c` serves
/// the same store later.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll demo
  plimsoll demo --once --dir /tmp/plimsoll-data")]
pub(crate) struct Args {
    /// End after the comparison, instead of serving Plimsoll's store
    #[arg(long)]
    once: bool,

    /// How long the stores are compared
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    time: Duration,

    /// How long the machine is measured before
    #[arg(long, value_name = "DURATION", default_value = "4s", value_parser = humantime::parse_duration, hide = true)]
    flat_out: Duration,

    /// Keys of each store, of 1 KiB
    #[arg(long, value_name = "COUNT", default_value_t = 150_000, hide = true)]
    keys: u64,

    /// The directory for the volumes and the settings file
    #[arg(long, value_name = "DIR", default_value = "plimsoll-data")]
    dir: PathBuf,
}

/// How both stores run under the load before figures count: caches and queues settle.
const LEAD: Duration = Duration::from_secs(5);

/// From the start of the threads to the first request.
const GAP: Duration = Duration::from_millis(100);

/// Makes a settings file recognizable as the demo's.
const MARK: &str = "# Written by `plimsoll demo`";

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let file = args.dir.join("plimsoll.toml");
    check_dir(&args.dir, &file)?;
    let interrupt = Interrupt::listen().context("listen to signals")?;
    let serving = serve(&file)?;
    let compared = compare(args, &file, &serving, interrupt.asked())?;
    let Some((outcome, late)) = compared else {
        serving.stop()?;
        return Ok(ExitCode::from(interrupt::STATUS));
    };
    println!("\n{}\n", outcome.table());
    println!("{}\n\n{}\n", verdict::machine(&late, &outcome), outcome.verdict());
    println!("Next:");
    println!(
        "  plimsoll bench contract    the same comparison under many loads, with plots (docs/guide/bench.md)"
    );
    println!(
        "  docs/guide/settings.md     your own volumes, and other schedulers than the demo's, tags"
    );
    println!("  docs/guide/kv.md           the store as a library");
    if args.once {
        println!("  plimsoll serve -c {}    serves Plimsoll's store again", file.display());
        serving.stop()?;
    } else {
        serve_on(args, serving, interrupt)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the directory; refuses one whose settings file the demo did not write.
fn check_dir(dir: &Path, file: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    match std::fs::read_to_string(file) {
        Ok(text) if !text.starts_with(MARK) => {
            let file = file.display();
            bail!(
                "{file} was not written by this demo: name another --dir, or run `plimsoll serve -c {file}`"
            )
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("read {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// The settings of Plimsoll's store. The cache holds a tenth of the keys.
fn settings(iops: u64) -> String {
    format!(
        r#"{MARK}, which writes it again each time.
[volume.line]
path = "line"
contract = "io2"
iops = {iops}
simulate = true            # throttled as the provider would

[pool.main]
volumes = ["line"]

[kv]
pool = "main"
memory = "32MiB"
compression = "none"       # the demo's values are random bytes
compression_last = "none"
listen = "127.0.0.1:6380"

[admin]
listen = "127.0.0.1:9180"
"#
    )
}

/// Opens Plimsoll's store and its listeners.
fn serve(file: &Path) -> anyhow::Result<Serving> {
    // The file is written once the volume is sized.
    let mut settings = Settings::parse(file, &settings(sizing::OPEN_IOPS))?;
    if let Some(kv) = &mut settings.kv {
        kv.listen = free(kv.listen);
    }
    if let Some(Listen::Tcp(address)) = settings.admin.as_mut().map(|admin| &mut admin.listen) {
        *address = free(*address);
    }
    let (serving, ()) = Serving::start(settings, file.to_owned(), || Ok(()))?;
    Ok(serving)
}

/// Loads both stores, measures the machine, sizes the volumes, and compares. None if it was interrupted.
fn compare(
    args: &Args,
    file: &Path,
    serving: &Serving,
    stop: &AtomicBool,
) -> anyhow::Result<Option<(Outcome, Late)>> {
    let program = serving.program();
    let store = program.kv().expect("the demo's settings have a store");
    let clock = store.pool().clock();
    let plain = Plain::open(&args.dir, store.options(), clock)?;
    let load = Load { keys: args.keys.max(1), clock, stop };
    let sides = [Side::new("plain RocksDB", &plain.store)?, Side::new("Plimsoll", store)?];
    let both = [&sides[0], &sides[1]];
    println!("Storing {} keys of 1 KiB in plain RocksDB and in Plimsoll.", load.keys);
    load.store(both)?;
    println!("Measuring what this machine can do.");
    let flat_out = load.flat_out(both, args.flat_out)?;
    let sized = Sizing::to_machine(flat_out);
    println!("{}", sized.told(flat_out));
    println!(
        "Each second shows the p99 of reads, the used share of {} paid IOPS (line), and",
        sized.iops
    );
    println!("the I/Os that the provider held back (over). Seconds up to 0 are the warm-up.\n");
    plain.enforce(&side::contract(sized.iops)?);
    std::fs::write(file, settings(sized.iops))
        .with_context(|| format!("write {}", file.display()))?;
    // As an administrator does it: contracts change while a store serves.
    program.reload().map_err(|error| anyhow!("the new contract: {error}"))?;
    let compared = side_by_side(args, &load, both, &sized)?;
    drop(sides);
    plain.close()?;
    Ok((!stop.load(Ordering::Relaxed)).then_some(compared))
}

/// Runs both stores under the same load, and prints each second. Also tells how late the machine's timers were.
fn side_by_side(
    args: &Args,
    load: &Load<'_>,
    sides: [&Side<'_>; 2],
    sized: &Sizing,
) -> anyhow::Result<(Outcome, Late)> {
    let start = load.clock.now() + GAP;
    let from = start + LEAD.min(args.time);
    let until = from + args.time;
    let tallies = [Tally::new(), Tally::new()];
    let colour = std::io::stdout().is_terminal();
    let picture = Picture { sides, tallies: &tallies, clock: load.clock, iops: sized.iops, colour };
    let (ended, going_on) = channel::<()>();
    std::thread::scope(|scope| {
        let late = scope.spawn(move || Late::watch(load.clock, &going_on));
        let running = [0, 1].map(|side: usize| {
            let (side, tally) = (sides[side], &tallies[side]);
            scope.spawn(move || load.run(side, sized, (start, until), tally))
        });
        // Both run until the end unless one fails or all are interrupted.
        let is_over = || running.iter().any(ScopedJoinHandle::is_finished);
        let (mut figures, time) = picture.watch((start, from, until), is_over);
        drop(ended);
        for ((side, figures), tally) in running.into_iter().zip(&mut figures).zip(&tallies) {
            side.join().expect("the load does not panic")?;
            // Requests that were still waiting at the end: the slowest, perhaps.
            figures.latencies.add(&tally.take());
        }
        let [plain, ours] = figures;
        let late = late.join().expect("it only sleeps");
        Ok((Outcome { plain, ours, iops: sized.iops, time }, late))
    })
}

/// Serves Plimsoll's store until a signal.
fn serve_on(args: &Args, serving: Serving, interrupt: Interrupt) -> anyhow::Result<()> {
    let signals = serving.signals()?;
    // From here on a signal stops the server.
    drop(interrupt);
    println!("\nPlimsoll's store is being served. Try:");
    if let Some(redis) = serving.redis() {
        println!("  redis-cli -p {} set ship plimsoll", redis.port());
        println!("  redis-cli -p {} get ship", redis.port());
    }
    if let Some(admin) = serving.admin() {
        println!("  plimsoll top --admin {admin}");
        println!("  curl http://{admin}/metrics");
    }
    println!("Ctrl-C stops it; the data stay in {}.", args.dir.display());
    serving.until(signals)
}

/// The address, with any free port instead if its own is in use.
fn free(address: SocketAddr) -> SocketAddr {
    match TcpListener::bind(address) {
        Ok(_) => address,
        Err(_) => SocketAddr::new(address.ip(), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_the_demo_are_right() {
        let settings = settings(400);
        let settings = Settings::parse(Path::new("plimsoll.toml"), &settings).expect("they are");
        assert_eq!(settings.roots()[0].volumes, ["line"]);
        assert_eq!(settings.volumes[0].contract.paid_iops(), Some(400));
    }
}
