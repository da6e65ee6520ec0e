//! Limits of open files.

use std::process::Command;

use crate::place::{Ended, Place};

/// The program under limits of open files, as a shell starts it.
fn limited(place: &Place, soft: u64, hard: u64) -> Command {
    let mut shell = Command::new("sh");
    let limits = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"");
    shell.args(["-c", &limits, env!("CARGO_BIN_EXE_plimsoll")]).current_dir(place.dir.path());
    shell
}

/// The soft limit of 1024 was once left as it was: tables and clients took all of it.
#[test]
fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let place = Place::new();
    let server = place.serve_by(limited(&place, 200, 4000));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).expect("limits");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    assert_eq!(files.split_whitespace().nth(3), Some("4000"), "{files}");
    assert_eq!(server.client().ask("set ship plimsoll"), "+OK");
    server.stop();
}

#[test]
fn settings_that_need_more_open_files_are_refused_with_the_arithmetic() {
    let place = Place::new();
    let mut command = limited(&place, 500, 1024);
    let ended = Ended::of(command.args(["serve", "-c", "plimsoll.toml"]));
    assert!(!ended.status.success());
    for part in [
        "may have 1024 files open",
        "1000 for kv.clients_max",
        "1000 for the admin listener",
        "384 for tables",
        "ulimit -n",
    ] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
}
