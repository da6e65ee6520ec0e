//! A server scrubs its pool: damage under it is found and repaired, on demand and by the command.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::health::health;
use crate::place::{Place, Server, until};
use crate::points;

/// Two volumes with a copy of everything, and both stores.
const SETTINGS: &str = "[volume.a]\npath = \"a\"\ncontract = \"unlimited\"\n\n\
    [volume.b]\npath = \"b\"\ncontract = \"unlimited\"\n\n\
    [pool.main]\ncopies = 2\nvolumes = [\"a\", \"b\"]\n\n\
    [series]\npool = \"main\"\n\n[http]\nlisten = \"127.0.0.1:0\"\n\n\
    [admin]\nlisten = \"127.0.0.1:0\"\n\n\
    [kv]\npool = \"main\"\nmemory = \"32MiB\"\nlisten = \"127.0.0.1:0\"\n";

/// The bytes of an object in its file. That of a log which the owner may execute is longer: the number of its last sector stands at the
/// end of the object first.
fn object_len(path: &Path) -> u64 {
    const NUMBER: usize = 16;
    let bytes = std::fs::read(path).expect("the file is there");
    let mode = path.metadata().expect("the file is there").permissions().mode();
    let Some(last) = bytes.len().checked_sub(512).filter(|_| mode & 0o100 != 0) else {
        return bytes.len() as u64;
    };
    let number = &bytes[last..last + NUMBER];
    bytes.windows(NUMBER).position(|bytes| bytes == number).expect("the last one") as u64
}

/// Flips a bit in the middle of the longest object of this kind on volume a, below the server.
fn rot(place: &Place, end: &str) {
    let objects = std::fs::read_dir(place.path("a").join("objects")).expect("a volume");
    let paths = objects.map(|object| object.expect("a file").path());
    let is_object = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'o')
            && path.extension().is_some_and(|extension| extension == end)
    };
    let objects = paths.filter(is_object).map(|path| (object_len(&path), path));
    let (len, longest) = objects.max().expect("an object");
    let file = std::fs::File::options().read(true).write(true).open(&longest);
    let file = file.expect("the file is there");
    let (middle, mut byte) = (len / 2, [0]);
    file.read_exact_at(&mut byte, middle).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], middle).expect("a byte");
    file.sync_all().expect("the file is there");
}

fn scrub(server: &Server) -> Value {
    let (status, body) = server.admin("GET /scrub");
    assert_eq!(status, "HTTP/1.1 200 OK", "{body}");
    only(&body)
}

/// The scrub of the only pool.
fn only(body: &str) -> Value {
    let all: Value = serde_json::from_str(body).expect("JSON");
    let pools = all["pools"].as_array().expect("a list");
    assert_eq!((pools.len(), &pools[0]["pool"]), (1, &"main".into()), "{all}");
    pools[0].clone()
}

/// Scrubs on demand; returns the pass at its end.
fn pass(server: &Server) -> Value {
    let (status, body) = server.admin("POST /scrub");
    assert_eq!(status, "HTTP/1.1 202 Accepted", "{body}");
    let begun = only(&body)["current"].clone();
    until(|| scrub(server)["last"]["number"] == begun["number"]);
    scrub(server)["last"].clone()
}

#[test]
fn a_server_finds_damage_and_repairs_it_while_it_serves() {
    let place = Place::new();
    place.write(SETTINGS);
    let server = place.serve();
    let mut client = server.client();
    for n in 0..1000 {
        assert_eq!(client.ask(&format!("set {n} {}", "x".repeat(1000))), "+OK");
    }
    server.stop();
    // The second opening turns the log of the first into a table.
    let server = place.serve();
    let lines: Vec<_> = (1..=5000_u64)
        .map(|time| format!("tide height={} {time}", time.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    let endpoint = server.http.expect("an endpoint of time series");
    let answer = points::ask(endpoint, "POST /write?db=sea", "", &lines.join("\n"));
    assert_eq!(answer.status, 204, "{}", answer.body);
    until(|| health(&server).0);
    // This pass gives the logs their checksums.
    let first = pass(&server);
    assert_eq!(first["findings"], Value::Array(Vec::new()), "{first}");
    assert!(first["objects"].as_u64() > Some(3), "{first}");

    rot(&place, "tab");
    rot(&place, "log");
    let check = || {
        let args = ["check", "-c", "plimsoll.toml", "--scrub", "--admin", &server.admin];
        place.run(&args)
    };
    let ended = check();
    assert_eq!(ended.status.code(), Some(1), "{}{}", ended.out, ended.err);
    let named = |line: &&str| line.contains("volume a: ") && line.contains("is damaged");
    assert_eq!(ended.out.lines().filter(named).count(), 2, "{}", ended.out);
    assert!(ended.out.contains("the server makes this one again"), "{}", ended.out);
    let (last, metrics) = (scrub(&server)["last"].clone(), server.admin("GET /metrics").1);
    assert_eq!((&last["damaged"], &last["repaired"]), (&2.into(), &2.into()), "{last}");
    assert!(metrics.contains("plimsoll_scrub_damaged_total{pool=\"main\"} 2\n"), "{metrics}");
    let log = std::fs::read_to_string(place.path("log")).expect("the log");
    let named = log.lines().filter(|line| line.contains("on volume a is damaged"));
    assert_eq!(named.count(), 2, "{log}");

    // The missing copies are made, and whole.
    until(|| health(&server).0);
    assert_eq!(health(&server).1["stores"]["kv"]["damaged"], 0);
    let ended = check();
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
    assert_eq!(server.client().ask("get 999"), "x".repeat(1000));
    server.stop();

    // A restart knows how far the scrub has come.
    let server = place.serve();
    let found = scrub(&server);
    assert!(found["age_s"].is_u64() && found["current"].is_null(), "{found}");
    server.stop();
    assert!(place.run(&["check", "-c", "plimsoll.toml", "--scrub"]).status.success());
}
