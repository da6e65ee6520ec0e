//! Plimsoll, the program: stores on volumes, loaded exactly to their contract.

mod command;
mod descriptors;
#[cfg(test)]
mod guide;
mod members;
mod program;
mod settings;
mod wiring;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// Loads storage volumes exactly to their line: every I/O per second that was paid for, and never
/// more.
#[derive(Parser)]
#[command(name = "plimsoll", version, after_help = "Start with: plimsoll demo")]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// The filter of the log on standard error: a level, or directives such as `info,volume=debug`
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    Serve(command::serve::Args),
    Demo(command::demo::Args),
    Check(command::check::Args),
    Probe(command::probe::Args),
    Bench(command::bench::Args),
    Top(command::top::Args),
    #[command(subcommand)]
    Volume(command::volume::Command),
    #[command(subcommand)]
    Block(command::block::Command),
    #[command(subcommand)]
    Tier(command::tier::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let usual = match cli.command {
        // These commands show a picture or figures, so they log errors only.
        Command::Demo(_) | Command::Bench(_) | Command::Probe(_) | Command::Top(_) => "error",
        _ => "info",
    };
    let started = start_log(cli.log.as_deref(), usual).map(|()| descriptors::raise());
    let ran = started.and_then(|()| match cli.command {
        Command::Serve(args) => command::serve::run(&args),
        Command::Demo(args) => command::demo::run(&args),
        Command::Check(args) => Ok(command::check::run(&args)),
        Command::Probe(args) => command::probe::run(&args),
        Command::Bench(args) => command::bench::run(&args),
        Command::Top(args) => command::top::run(&args),
        Command::Volume(args) => command::volume::run(args),
        Command::Block(args) => command::block::run(&args),
        Command::Tier(args) => command::tier::run(&args),
    });
    ran.unwrap_or_else(|error| {
        eprintln!("plimsoll: {}", command::chain(&error));
        ExitCode::FAILURE
    })
}

/// Logs to standard error; the command line takes precedence over `RUST_LOG`.
fn start_log(filter: Option<&str>, usual: &str) -> anyhow::Result<()> {
    let from_environment = std::env::var(EnvFilter::DEFAULT_ENV).ok();
    let filter = filter.or(from_environment.as_deref()).unwrap_or(usual);
    let filter = EnvFilter::builder()
        .parse(filter)
        .map_err(|error| anyhow::anyhow!("{filter:?} is not a filter for the log: {error}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}
