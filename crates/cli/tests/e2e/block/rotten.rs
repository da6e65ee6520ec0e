//! A scrub finds and repairs bytes of a device that rot on one volume before a client reads them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use serde_json::Value;
use serve::nbd::wire::Command;

use super::{block, settings};
use crate::health::health;
use crate::nbd::Nbd;
use crate::place::{Place, Server, until};

/// Flips a bit of the device's first extent on a volume, below the server.
fn rot(place: &Place, volume: &str, offset: u64) {
    let objects = std::fs::read_dir(place.path(volume).join("objects")).expect("a volume");
    let paths = objects.map(|object| object.expect("a file").path());
    let extents = paths.filter(|path| path.extension().is_some_and(|end| end == "inp"));
    let longest = extents.max_by_key(|path| path.metadata().map_or(0, |facts| facts.len()));
    let file = File::options().read(true).write(true).open(longest.expect("an extent"));
    let (file, mut byte) = (file.expect("the file is there"), [0]);
    file.read_exact_at(&mut byte, offset).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], offset).expect("a byte");
    file.sync_all().expect("the file is there");
}

fn scrub(server: &Server) -> Value {
    let answer: Value = serde_json::from_str(&server.admin("GET /scrub").1).expect("JSON");
    answer["pools"][0].clone()
}

#[test]
fn a_scrub_repairs_blocks_that_rot_on_one_copy_and_names_those_that_none_has() {
    let place = Place::new();
    place.write(&settings(""));
    let server = place.serve();
    block(&place, &server, &["create", "vm", "64MiB"]);
    let open =
        |server: &Server| Nbd::open(server.nbd.expect("a listener"), "vm").expect("the export");
    let mut nbd = open(&server);
    nbd.write(0, &[7; 1 << 20]);
    assert_eq!(nbd.ask(Command::Flush, 0, 0, &[]), None);
    let check =
        || place.run(&["check", "-c", "plimsoll.toml", "--scrub", "--admin", &server.admin]);
    let ended = check();
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);

    rot(&place, "a", 100);
    let ended = check();
    assert_eq!(ended.status.code(), Some(1), "{}{}", ended.out, ended.err);
    let named = "volume a: block/00000000/00000000 was damaged: ";
    assert!(ended.out.contains(named), "{}", ended.out);
    let last = scrub(&server)["last"].clone();
    assert_eq!((&last["damaged"], &last["repaired"]), (&1.into(), &1.into()), "{last}");
    let ended = check();
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
    until(|| health(&server).0);
    rot(&place, "b", 101);
    assert!(nbd.read(0, 4096) == [7; 4096], "the copy on a was repaired");

    // Now on both.
    rot(&place, "a", 8192);
    rot(&place, "b", 8193);
    let (status, body) = server.admin("POST /scrub");
    assert_eq!(status, "HTTP/1.1 202 Accepted", "{body}");
    let begun: Value = serde_json::from_str(&body).expect("JSON");
    let begun = &begun["pools"][0]["current"]["number"];
    until(|| scrub(&server)["last"]["number"] == *begun);
    let last = scrub(&server)["last"].clone();
    let findings = last["findings"].as_array().expect("a list");
    let lost = findings.iter().find(|found| found["lost"] == true).expect("one without a copy");
    let problem = lost["problem"].as_str().expect("words");
    assert!(problem.contains("device vm: 4096 bytes at 8192 "), "{last}");
    let of_block = health(&server).1["stores"]["block"].clone();
    assert!(of_block["damaged"].as_u64().is_some_and(|count| count > 0), "{of_block}");
    nbd.write(8192, &[7; 4096]);
    assert!(nbd.read(0, 1 << 20) == [7; 1 << 20]);
    server.stop();

    // Without a server the store with the checksums is not open.
    let ended = place.run(&["check", "-c", "plimsoll.toml", "--scrub"]);
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("objects of block devices were not read"), "{}", ended.out);
}
