//! Records the commit of a release build: a figure without its commit cannot be compared. Other builds are for tests, which
//! need not be compiled again after each commit.

use std::process::Command;

fn main() {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = match is_release {
        true => git(&["rev-parse", "--short=12", "HEAD"]),
        false => Some("not a release build".to_owned()),
    };
    println!("cargo::rustc-env=PLIMSOLL_COMMIT={}", commit.unwrap_or_else(|| "unknown".into()));
    // Changes with every commit and checkout; without a repository it never changes.
    let watched = is_release.then(|| git(&["rev-parse", "--git-path", "logs/HEAD"])).flatten();
    println!("cargo::rerun-if-changed={}", watched.unwrap_or_else(|| "build.rs".into()));
}
