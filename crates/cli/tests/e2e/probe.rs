//! `plimsoll probe` on real devices: it finds the kernel's throttle, and leaves nothing behind.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use policy::contract::Contract;
use policy::contract::spec::{Bought, Spec};
use policy::units::MIB;

use crate::place::{Ended, Place};
use crate::throttled::{Throttled, skipped};

/// Probes the throttled device for `seconds`.
fn probe(device: &Throttled, seconds: &str, more: &[&str]) -> Ended {
    let path = device.path();
    let path = path.to_str().expect("a path of letters");
    let args = [&["probe", path, "--time", seconds], more].concat();
    let mut inside = device.inside(env!("CARGO_BIN_EXE_plimsoll"));
    Ended::of(inside.args(args))
}

/// A limit in a contract, its real value, and the tolerance.
type Limit = (fn(&Contract) -> Option<u64>, u64, f64);

/// Probes, several times if necessary, until the limit that `of` picks is within `by` of the `real` one.
///
/// Threads of the kernel do the throttling: on a busy machine they run late, and the device is slower than its limit.
#[track_caller]
fn finds(device: &Throttled, seconds: &str, more: &[&str], (of, real, by): Limit) -> Ended {
    let mut all = String::new();
    for _ in 0..ATTEMPTS {
        let ended = probe(device, seconds, more);
        let found = of(&contract(&ended));
        let off = found.map(|found| (found as f64 / real as f64 - 1.0).abs());
        if off.is_some_and(|off| off < by) {
            return ended;
        }
        all += &format!("{found:?} is not {real}: {}{}", ended.out, ended.err);
    }
    panic!("{all}");
}

const ATTEMPTS: usize = 5;

#[track_caller]
fn contract(ended: &Ended) -> Contract {
    assert!(ended.status.success(), "{}", ended.err);
    let spec = Spec::parse(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.out));
    spec.contract(None, Bought::default()).unwrap_or_else(|error| panic!("{error}: {}", ended.out))
}

fn left(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path)
        .expect("it is there")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    entries.filter(|name| name != "lost+found").collect()
}

#[test]
fn the_kernels_throttle_is_found() {
    let device = match Throttled::new() {
        Ok(device) => device,
        Err(why) => return skipped("the_kernels_throttle_is_found", &why),
    };
    device.limit("read_iops", 500);
    device.limit("write_iops", 500);
    let ended = finds(&device, "7s", &["--size", "32MiB"], (Contract::paid_iops, 500, 0.03));
    assert!(ended.out.contains("reads and writes have limits of their own"), "{}", ended.out);

    let reads = ["--size", "32MiB", "--writes", "no"];
    device.limit("write_iops", 0);
    device.limit("read_iops", 2000);
    finds(&device, "6s", &reads, (Contract::paid_iops, 2000, 0.03));

    device.limit("read_iops", 0);
    device.limit("read_bps", 20 * MIB);
    finds(&device, "5s", &reads, (Contract::paid_bytes_per_sec, 20 * MIB, 0.05));

    let ended = probe(&device, "5s", &["--size", "1GiB", "--in-use"]);
    assert!(ended.err.contains("too small"), "{}", ended.err);
    assert!(left(&device.path()).is_empty(), "{:?}", left(&device.path()));

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let path = device.path().join("busy");
            let mut file = fs::OpenOptions::new();
            let file = file.write(true).create(true).truncate(false).custom_flags(SYNC).open(path);
            let mut file = file.expect("room for a file");
            while !stop.load(Ordering::Relaxed) {
                file.write_all(&[7; 512]).expect("room for bytes");
            }
        });
        let ended = probe(&device, "5s", &[]);
        stop.store(true, Ordering::Relaxed);
        assert!(ended.err.contains("is in use: its device"), "{}", ended.err);
    });
}

/// `O_SYNC`, as the kernel numbers it.
const SYNC: i32 = 0o4_010_000;

/// Starts a probe of the place's directory `a`, and waits for its announcement.
fn start(place: &Place) -> Child {
    let mut command = place.command(&["probe", "a", "--in-use", "--time", "1h", "--size", "32MiB"]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut line = String::new();
    let err = child.stderr.as_mut().expect("a pipe");
    BufReader::new(err).read_line(&mut line).expect("text");
    assert!(line.starts_with("probe takes about"), "{line}");
    child
}

fn takes_direct(place: &Place) -> bool {
    let mut options = fs::OpenOptions::new();
    let direct = options.write(true).create(true).truncate(true).custom_flags(0o40_000);
    let taken = direct.open(place.path("direct")).is_ok();
    taken && fs::remove_file(place.path("direct")).is_ok()
}

#[test]
fn nothing_is_left_of_a_probe_however_it_ends() {
    let place = Place::new();
    if !takes_direct(&place) {
        return skipped("nothing_is_left_of_a_probe_however_it_ends", "no O_DIRECT under TMPDIR");
    }
    for signal in ["INT", "TERM"] {
        let mut child = start(&place);
        assert_eq!(left(&place.path("a")).len(), 1);
        let id = child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status().expect("kill is there");
        assert!(sent.success());
        assert_eq!(child.wait().expect("it ends").code(), Some(130));
        assert!(left(&place.path("a")).is_empty(), "{:?}", left(&place.path("a")));
    }
    let mut child = start(&place);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(left(&place.path("a")).len(), 1, "a killed probe removes nothing");
    let args = ["probe", "a", "--in-use", "--time", "5s", "--size", "16MiB"];
    let ended = place.run(&[&args[..], &["--out", "a.toml", "--html", "a.html"]].concat());
    assert!(ended.status.success(), "{}", ended.err);
    assert!(left(&place.path("a")).is_empty(), "{:?}", left(&place.path("a")));
    assert!(fs::read_to_string(place.path("a.html")).expect("a page").contains("<svg"));

    // The settings accept the file.
    let text = fs::read_to_string(place.file()).expect("settings");
    place.write(&text.replacen("contract = \"unlimited\"", "contract = \"a.toml\"", 1));
    let ended = place.run(&["check", "-c", "plimsoll.toml"]);
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
}

#[test]
fn what_cannot_be_probed_is_refused_with_a_reason() {
    let place = Place::new();
    fs::write(place.path("file"), "").expect("room for a file");
    for (args, expected) in [
        (&["nowhere"][..], "there is no such directory"),
        (&["file"], "is not a directory"),
        (&["a", "--time", "1s"], "at least 5 s"),
        (&["a", "--size", "1MiB"], "at least 16 MiB"),
        (&["/proc", "--in-use"], "cannot be written to"),
        (&["a", "--in-use", "--size", "9999TiB"], "too small"),
    ] {
        let ended = place.run(&[&["probe"], args].concat());
        assert!(!ended.status.success() && ended.out.is_empty(), "{args:?}: {}", ended.out);
        assert!(ended.err.contains(expected), "{args:?}: {}", ended.err);
    }
    let server = place.serve();
    let ended = place.run(&["probe", "a"]);
    assert!(ended.err.contains("is in use: process"), "{}", ended.err);
    server.stop();
    let ended = place.run(&["probe", "a"]);
    assert!(ended.err.contains("is a volume of a pool"), "{}", ended.err);
    assert!(!left(&place.path("a")).iter().any(|name| name.contains("probe")));
}
