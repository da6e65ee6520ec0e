//! Block devices over a tier that keeps writes back: what survives, what is lost with the fast side, and how it is said.

use std::fs;

use serde_json::Value;
use serve::nbd::wire::{Command, Errno};

use super::{count, figures, make};
use crate::health::health;
use crate::nbd::Nbd;
use crate::place::{Place, Server, until};
use crate::pools::run;

const MIB: usize = 1 << 20;
/// An extent, of which all slots of checksums are in use.
const SIZE: usize = 64 * MIB;
const WRITTEN: usize = 16 * MIB;
const BLOCK: usize = 4096;

/// Block devices on `main` over `cached`, which has `nvme` before `ebs`.
fn settings(place: &Place, writes: &str) -> String {
    let volume = |name| format!("[volume.{name}]\npath = \"{name}\"\ncontract = \"unlimited\"\n\n");
    format!(
        "{}{}[pool.cached]\nlayout = \"tiered\"\nfast = \"nvme\"\nslow = \"ebs\"\nsize = \"64MiB\"\nwrites = \"{writes}\"\n\n\
         [pool.main]\nvolumes = [\"cached\"]\n\n[block]\npool = \"main\"\nlisten = \"127.0.0.1:0\"\n\n\
         [admin]\nlisten = \"unix:{}\"\n",
        volume("nvme"),
        volume("ebs"),
        place.path("admin").display()
    )
}

fn open(server: &Server) -> Nbd {
    Nbd::open(server.nbd.expect("a listener for NBD clients"), "vm").expect("the export")
}

/// Writes the first part of a device, and its first MiB again once all is flushed: only that stays on the fast side. All of it is durable.
fn dirtied(place: &Place, server: &Server) -> Vec<u8> {
    run(place, &["block", "create", "vm", "64MiB"]);
    let mut nbd = open(server);
    let mut model = vec![0; SIZE];
    model[..WRITTEN].fill(1);
    model[..WRITTEN]
        .chunks(MIB)
        .enumerate()
        .for_each(|(at, data)| nbd.write((at * MIB) as u64, data));
    flush(&mut nbd);
    run(place, &["tier", "flush", "cached"]);
    assert_eq!(count(server, "dirty_bytes"), 0);
    for (at, block) in model[..MIB].chunks_mut(BLOCK).enumerate() {
        block.fill(at as u8 | 2);
        nbd.write((at * BLOCK) as u64, block);
    }
    flush(&mut nbd);
    assert!(count(server, "dirty_bytes") >= MIB as u64, "{}", figures(server));
    assert!(count(server, "kept_writes") > 0 && count(server, "kept_bytes") >= MIB as u64);
    model
}

fn flush(nbd: &mut Nbd) {
    assert_eq!(nbd.ask(Command::Flush, 0, 0, &[]), None);
}

fn check(server: &Server, model: &[u8]) {
    let mut nbd = open(server);
    for (at, expected) in model.chunks(MIB).enumerate() {
        assert!(nbd.read((at * MIB) as u64, MIB) == expected, "MiB {at}");
    }
}

fn lose(place: &Place) {
    fs::remove_dir_all(place.path("nvme")).expect("it was there");
    make(place, &["nvme"]);
}

#[test]
fn a_killed_server_has_what_it_kept_back() {
    let place = Place::new();
    place.write(&settings(&place, "back"));
    make(&place, &["nvme", "ebs"]);
    let server = place.serve();
    let mut model = dirtied(&place, &server);
    // No flush follows: the process alone dies, and a client that lives on takes them for written.
    let mut nbd = open(&server);
    for at in [3, 5 * MIB / BLOCK] {
        model[at * BLOCK..(at + 1) * BLOCK].fill(0xaa);
        nbd.write((at * BLOCK) as u64, &[0xaa; BLOCK]);
    }
    server.kill();

    let server = place.serve();
    assert!(count(&server, "dirty_bytes") >= MIB as u64, "{}", figures(&server));
    let (_, metrics) = server.admin("GET /metrics");
    for line in [
        "plimsoll_tier_dirty_bytes{pool=\"main\",tier=\"cached\"} ",
        "plimsoll_tier_dirty_age_seconds{pool=\"main\",tier=\"cached\"} ",
        "plimsoll_tier_stale_bytes{pool=\"main\",tier=\"cached\"} 0\n",
        "plimsoll_tier_flush_mode{pool=\"main\",tier=\"cached\",mode=\"idle\"} 1\n",
        "plimsoll_tier_policy{pool=\"main\",tier=\"cached\",policy=\"clock2q+\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let top = run(&place, &["top", "--every", "100ms"]);
    assert!(!top.contains(" dirty_bytes - "), "{top}");
    check(&server, &model);
    // The first use of a region that the death left in doubt flushes it: some more for the next start.
    let mut nbd = open(&server);
    model[..BLOCK].fill(0xbb);
    nbd.write(0, &model[..BLOCK]);
    drop(nbd);
    server.stop();

    // Written through from now on: what was kept back is taken back, and written back.
    place.write(&settings(&place, "through"));
    let server = place.serve();
    check(&server, &model);
    until(|| count(&server, "dirty_bytes") == 0);
    check(&server, &model);
    server.kill();
    let ended = place.run(&["check", "-c", "plimsoll.toml"]);
    assert!(ended.status.success() && !ended.out.contains("not written back"), "{}", ended.out);
    lose(&place);
    let server = place.serve();
    check(&server, &model);
    assert!(health(&server).0);
    server.stop();
}

#[test]
fn what_was_flushed_outlives_the_fast_side() {
    let place = Place::new();
    place.write(&settings(&place, "back"));
    make(&place, &["nvme", "ebs"]);
    let server = place.serve();
    let mut model = dirtied(&place, &server);
    let told = run(&place, &["tier", "flush", "cached"]);
    assert!(told.contains("tier cached: ") && told.contains(" written back to ebs"), "{told}");
    assert_eq!(count(&server, "dirty_bytes"), 0);
    assert!(count(&server, "flushed_bytes") >= MIB as u64);
    server.kill();
    lose(&place);
    let server = place.serve();
    assert_eq!(count(&server, "stale_bytes"), 0);
    check(&server, &model);

    // A detach flushes first.
    let mut nbd = open(&server);
    for at in [0, 5 * BLOCK] {
        model[at..at + BLOCK].fill(9);
        nbd.write(at as u64, &model[at..at + BLOCK]);
    }
    flush(&mut nbd);
    let told = run(&place, &["tier", "detach", "cached"]);
    assert!(told.contains("nvme is not in use"), "{told}");
    check(&server, &model);
    server.kill();
    lose(&place);
    let server = place.serve();
    check(&server, &model);
    server.stop();
}

#[test]
fn what_only_a_lost_fast_side_had_is_named_and_mended_by_a_write() {
    let place = Place::new();
    place.write(&settings(&place, "back"));
    make(&place, &["nvme", "ebs"]);
    let server = place.serve();
    let mut model = dirtied(&place, &server);
    server.kill();

    // The fast side is only away: nothing is given up.
    fs::rename(place.path("nvme"), place.path("elsewhere")).expect("a rename");
    let log = place.try_serve().err().expect("bytes would be lost");
    assert!(log.contains("only on the fast volume") && log.contains("back-unsafe"), "{log}");
    let ended = place.run(&["check", "-c", "plimsoll.toml"]);
    assert_eq!(ended.status.code(), Some(1), "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("nvme does not have them"), "{}", ended.out);
    make(&place, &["nvme"]);
    let log = place.try_serve().err().expect("bytes would be lost");
    assert!(log.contains("only on the fast volume"), "{log}");
    fs::remove_dir_all(place.path("nvme")).expect("it was there");
    fs::rename(place.path("elsewhere"), place.path("nvme")).expect("a rename");
    let ended = place.run(&["check", "-c", "plimsoll.toml"]);
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("nvme has them; ebs alone is not whole"), "{}", ended.out);
    let ended = place.run(&["check", "-c", "plimsoll.toml", "--scrub"]);
    assert_eq!(ended.status.code(), Some(2), "{}{}", ended.out, ended.err);
    assert!(ended.err.contains("plimsoll tier flush"), "{}", ended.err);
    let server = place.serve();
    check(&server, &model);
    // The first use of a region that the death left in doubt flushed it.
    let mut nbd = open(&server);
    model[..BLOCK].fill(0xbb);
    nbd.write(0, &model[..BLOCK]);
    drop(nbd);
    server.stop();

    // It is lost, and the settings say that it may be.
    lose(&place);
    place.write(&settings(&place, "back-unsafe"));
    let server = place.serve();
    let mut nbd = open(&server);
    assert_eq!(nbd.ask(Command::Read, 0, BLOCK, &[]), Some(Errno::Io));
    assert_eq!(nbd.ask(Command::Write, 100, 5, b"parts"), Some(Errno::Io));
    for (at, expected) in model.chunks(MIB).enumerate().skip(1) {
        assert!(nbd.read((at * MIB) as u64, MIB) == expected, "MiB {at}");
    }
    let (healthy, found) = health(&server);
    assert!(!healthy, "{found}");
    assert!(found["tiers"]["cached"]["stale_bytes"].as_u64() >= Some(MIB as u64), "{found}");
    let problem = found["tiers"]["cached"]["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("device vm") && problem.contains("write"), "{found}");
    assert_eq!(server.admin("GET /health/ready").0, "HTTP/1.1 200 OK");
    let ended = place.run(&["tier", "flush", "cached", "-c", "plimsoll.toml"]);
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);

    // It stays so until it is written.
    drop(nbd);
    server.kill();
    let server = place.serve();
    let mut nbd = open(&server);
    assert_eq!(nbd.ask(Command::Read, 0, BLOCK, &[]), Some(Errno::Io));
    model[..MIB].fill(7);
    nbd.write(0, &model[..MIB]);
    flush(&mut nbd);
    check(&server, &model);
    // Marks and checksums that were lost are written anew.
    until(|| count(&server, "stale_bytes") == 0);
    drop(nbd);
    server.stop();
    place.write(&settings(&place, "back"));
    let server = place.serve();
    check(&server, &model);
    // A pool counts an object with damage until it is opened again.
    assert!(health(&server).0, "{:?}", health(&server).1);
    server.stop();
}

#[test]
fn a_detach_gives_up_dirty_bytes_only_if_it_is_told_to() {
    let place = Place::new();
    place.write(&settings(&place, "back"));
    make(&place, &["nvme", "ebs"]);
    let server = place.serve();
    dirtied(&place, &server);
    let told = run(&place, &["tier", "detach", "cached", "--lost"]);
    assert!(told.contains("nvme is not in use") && told.contains("lost: reads"), "{told}");
    let (_, found) = health(&server);
    assert_eq!(found["tiers"]["cached"]["attached"], false, "{found}");
    let problem = found["tiers"]["cached"]["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("device vm") && !problem.contains("Nothing is lost"), "{found}");
    let mut nbd = open(&server);
    assert_eq!(nbd.ask(Command::Read, 0, BLOCK, &[]), Some(Errno::Io));
    run(&place, &["tier", "attach", "cached"]);
    assert_eq!(nbd.ask(Command::Read, 0, BLOCK, &[]), Some(Errno::Io));
    nbd.write(0, &[4; BLOCK]);
    assert_eq!(nbd.read(0, BLOCK), [4; BLOCK]);
    // A flush that covers what was lost says so once.
    assert_eq!(nbd.ask(Command::Flush, 0, 0, &[]), Some(Errno::Io));
    nbd.write(0, &[5; BLOCK]);
    flush(&mut nbd);
    assert_eq!(nbd.read(0, BLOCK), [5; BLOCK]);
    drop(nbd);
    server.stop();
    let ended = place.run(&["check", "-c", "plimsoll.toml", "--json"]);
    assert_eq!(ended.status.code(), Some(1), "{}{}", ended.out, ended.err);
    let found: Value = serde_json::from_str(&ended.out).expect("JSON");
    assert!(found["tiers"][0]["stale_bytes"].as_u64() > Some(0), "{found}");
}
