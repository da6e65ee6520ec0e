//! Every example runs, prints what it shows, and leaves no file behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The directory that examples are built into: beside that of this test.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let profile = test.parent().and_then(Path::parent).expect("tests are in deps/");
    profile.join("examples")
}

/// Runs an example with its own directory for temporary files.
fn run(name: &str) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let example = built().join(name);
    let Output { status, stdout, stderr } = Command::new(&example)
        .env("TMPDIR", dir.path())
        .current_dir(dir.path())
        .output()
        .unwrap_or_else(|error| {
            // `cargo test` builds examples; with `--test` it does not.
            panic!("{}: {error}: cargo build --workspace --examples", example.display())
        });
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(status.success(), "{name}: {status}\n{stdout}{stderr}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("it is there").collect();
    assert!(left.is_empty(), "{name} left {left:?}");
    stdout
}

#[test]
fn embed() {
    assert_eq!(run("embed"), "ship: plimsoll\n");
}

#[test]
fn families() {
    let told = run("families");
    let expected = "round 1: Cutty Sark sailed 360 miles
round 1: Thermopylae sailed 380 miles
round 2: Cutty Sark sailed 720 miles
round 2: Thermopylae sailed 760 miles
";
    assert_eq!(told, expected);
}

#[test]
fn six_volumes() {
    let told = run("six_volumes");
    for (line, volume) in told.lines().zip(["s1", "s2", "s3", "s4", "s5", "s6"]) {
        let used = line.strip_prefix(volume).and_then(|rest| rest.strip_prefix(": "));
        let used = used.and_then(|rest| rest.split(" of 3000 I/Os").next()).unwrap_or_default();
        let used: u64 = used.trim().parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(used > 0 && line.ends_with(", 0 over the line"), "{line}");
    }
    assert_eq!(told.lines().count(), 6, "{told}");
}

#[test]
fn sensors() {
    assert_eq!(run("sensors"), "3600 points are stored\ncelsius of boiler: at most 75.9 degrees\n");
}

#[test]
fn no_example_is_left_out() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names: Vec<_> = std::fs::read_dir(source)
        .expect("there are examples")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["embed", "families", "sensors", "six_volumes"], "run each of them above");
}
