//! `plimsoll tier`: takes the fast side of a cache tier in use or out of use while the server runs.

use std::process::ExitCode;

use anyhow::bail;
use serve::admin::tiers::Tier;

use super::admin::Where;

/// Takes the fast side of a cache tier in use or out of use while the server runs
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Attach(AttachArgs),
    Detach(DetachArgs),
}

/// Takes the fast side of a tier in use again, empty
///
/// The directory of a volume is opened again, so its device may be a new one. A fast side that is in use and does not
/// answer any more is given up first.
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

/// Gives up what the fast side of a tier holds: the slow side serves everything
///
/// Nothing is lost, since every acknowledged write is on the slow side. What the fast side holds never counts again. A
/// restart takes it in use, empty.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll tier detach cached
  plimsoll tier detach cached -c plimsoll.toml")]
pub(crate) struct DetachArgs {
    /// The name of the tiered pool
    name: String,

    #[command(flatten)]
    at: Where,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let (name, at, verb) = match command {
        Command::Attach(args) => (&args.name, &args.at, "attach"),
        Command::Detach(args) => (&args.name, &args.at, "detach"),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(plain) {
        bail!("tier {name}: names have letters, digits, - and _ only");
    }
    let Tier { fast, slow, attached, .. } =
        at.endpoint()?.post(&format!("/tiers/{name}/{verb}"), None::<&()>)?;
    match attached {
        true => println!("tier {name}: {fast} is in use before {slow}, and empty"),
        false => println!("tier {name}: {slow} serves everything, {fast} is not in use"),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_is_refused_before_anybody_is_asked() {
        let at = Where { file: None, admin: Some("unix:/nowhere/at/all".into()) };
        let command = Command::Detach(DetachArgs { name: "../reload".into(), at });
        let error = run(&command).expect_err("no name").to_string();
        assert!(error.contains("letters, digits"), "{error}");
    }
}
