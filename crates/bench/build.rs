//! Records the commit being built: a figure without its commit cannot be compared.

use std::process::Command;

fn main() {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=PLIMSOLL_COMMIT={commit}");
    // Changes with every commit and checkout; without a repository it never changes.
    let watched = git(&["rev-parse", "--git-path", "logs/HEAD"]).unwrap_or("build.rs".into());
    println!("cargo::rerun-if-changed={watched}");
}
