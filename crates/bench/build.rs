//! Records the commit of a release build: a figure without its commit cannot be compared. Other builds are for tests, which
//! need not be compiled again after each commit. Nor need a build whose caller names it in the variable `PLIMSOLL_COMMIT`.

use std::env;
use std::process::Command;

fn main() {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let named = match is_release {
        true => env::var("PLIMSOLL_COMMIT").ok().filter(|named| !named.is_empty()),
        false => Some("not a release build".to_owned()),
    };
    let watches = named.is_none();
    let commit = named.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo::rustc-env=PLIMSOLL_COMMIT={}", commit.unwrap_or_else(|| "unknown".into()));
    if is_release {
        println!("cargo::rerun-if-env-changed=PLIMSOLL_COMMIT");
    }
    // Changes with every commit and checkout; without a repository it never changes.
    let watched = watches.then(|| git(&["rev-parse", "--git-path", "logs/HEAD"])).flatten();
    println!("cargo::rerun-if-changed={}", watched.unwrap_or_else(|| "build.rs".into()));
}
