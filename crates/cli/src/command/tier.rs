//! `plimsoll tier`: takes the fast side of a cache tier in use or out of use while the server runs, and flushes it.

use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::bail;
use policy::units::Bytes;
use serve::admin::Snapshot;
use serve::admin::tiers::Tier;

use super::admin::{Endpoint, Where};

/// Takes the fast side of a cache tier in use or out of use while the server runs, and writes it back
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Attach(AttachArgs),
    Flush(FlushArgs),
    Detach(DetachArgs),
}

/// Takes the fast side of a tier in use again, empty
///
/// The directory of a volume is opened again, so its device may be a new one. A fast side that is in use and does not
/// answer any more is given up first, unless it has the only copy of some writes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll tier attach cached
  plimsoll tier attach cached -c plimsoll.toml")]
pub(crate) struct AttachArgs {
    /// The name of the tiered pool
    name: String,

    #[command(flatten)]
    at: Where,
}

/// Writes back everything that only the fast side of a tier has
///
/// Returns once the slow side has it durably, and says how many bytes that were. Until then it says each second how many
/// are left. Writes go on meanwhile, and may stay on the fast side again: to end that, set writes = "through" and restart,
/// or detach the tier.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll tier flush cached
  plimsoll tier flush cached -c plimsoll.toml")]
pub(crate) struct FlushArgs {
    /// The name of the tiered pool
    name: String,

    #[command(flatten)]
    at: Where,
}

/// Writes back what only the fast side of a tier has, and gives up what it holds: the slow side serves everything
///
/// Nothing is lost: if something cannot be written back, the fast side stays in use, and the command fails. What the fast
/// side holds never counts again. A restart takes it in use, empty.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll tier detach cached
  plimsoll tier detach cached -c plimsoll.toml
  plimsoll tier detach cached --lost    # the fast device is gone for good")]
pub(crate) struct DetachArgs {
    /// The name of the tiered pool
    name: String,

    /// Give up the fast side without a flush: what only it has is lost for good, and reads of that fail until it is written
    #[arg(long)]
    lost: bool,

    #[command(flatten)]
    at: Where,
}

/// Time between two lines about what is left.
const EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let (name, at, verb) = match command {
        Command::Attach(args) => (&args.name, &args.at, "attach"),
        Command::Flush(args) => (&args.name, &args.at, "flush"),
        Command::Detach(args) if args.lost => (&args.name, &args.at, "detach/lost"),
        Command::Detach(args) => (&args.name, &args.at, "detach"),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(plain) {
        bail!("tier {name}: names have letters, digits, - and _ only");
    }
    let endpoint = at.endpoint()?.patient();
    let tier = asked(&endpoint, name, &format!("/tiers/{name}/{verb}"))?;
    let Tier { fast, slow, flushed_bytes, lost_bytes, .. } = &tier;
    let (flushed, lost) = (Bytes(*flushed_bytes), Bytes(*lost_bytes));
    match command {
        Command::Attach(_) => println!("tier {name}: {fast} is in use before {slow}, and empty"),
        Command::Flush(_) => println!("tier {name}: {flushed} written back to {slow}"),
        Command::Detach(_) => {
            println!("tier {name}: {slow} serves everything, {fast} is not in use");
            if *flushed_bytes > 0 {
                println!("{flushed} written back to {slow}");
            }
            if *lost_bytes > 0 {
                println!("{lost} lost: reads of them fail until they are written");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends a request that may take long, and says meanwhile how much is dirty.
fn asked(endpoint: &Endpoint, name: &str, path: &str) -> anyhow::Result<Tier> {
    std::thread::scope(|scope| {
        let (done, is_done) = mpsc::channel();
        scope.spawn(move || done.send(endpoint.post::<Tier>(path, None::<&()>)));
        loop {
            match is_done.recv_timeout(EVERY) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("{path}: the request was given up"),
            }
            // Without an answer there is nothing to say.
            if let Ok(figures) = endpoint.get::<Snapshot>("/figures")
                && let Some(tier) = figures.tiers.iter().find(|tier| tier.name == *name)
            {
                eprintln!("tier {name}: {} left to write back", Bytes(tier.dirty_bytes));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_is_refused_before_anybody_is_asked() {
        let at = Where { file: None, admin: Some("unix:/nowhere/at/all".into()) };
        let command = Command::Detach(DetachArgs { name: "../reload".into(), lost: false, at });
        let error = run(&command).expect_err("no name").to_string();
        assert!(error.contains("letters, digits"), "{error}");
    }
}
