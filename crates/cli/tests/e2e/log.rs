//! A log store, inspected from outside.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use engine::log::{Member, Options, Store, StoreId};
use serde_json::Value;
use volume::Clock;
use volume::dir::{Dir, DirOptions};
use volume::task::block_on;

use crate::place::Place;

/// Makes a store in a directory, with several readings in it.
fn make(path: &Path) {
    block_on(async {
        let dir = Dir::open(path, DirOptions { create: true, ..DirOptions::default() })?;
        let mut options = Options::new(1);
        (options.live, options.quota) = (0.1, 1 << 30);
        let members = vec![Member::new("d", dir)];
        let id = Some(StoreId([7; 16]));
        let (store, _) = Store::open(members, options, Clock::real(), id).await?;
        for n in 0..20u8 {
            let key = format!("buoy-{n}");
            store.put(key.as_bytes(), Bytes::from(vec![n; 5_000]), None).await?;
        }
        store.put(b"buoy-3", Bytes::from_static(b"anew"), None).await?;
        store.close().await
    })
    .expect("a directory takes a store");
}

#[test]
fn a_flipped_byte_of_a_log_store_is_named() {
    let place = Place::new();
    let path = place.path("d");
    make(&path);
    let check = |more: &[&str]| {
        let path = path.to_str().expect("UTF-8");
        let ended = place.run(&[&["check", path, "--json"], more].concat());
        let found: Value = serde_json::from_str(&ended.out).expect("JSON");
        (ended.status.code(), found)
    };
    let (status, found) = check(&["--scrub"]);
    assert_eq!((status, &found["good"]), (Some(0), &Value::Bool(true)), "{found}");
    assert_eq!(
        (found["logs"][0]["keys"].as_u64(), found["logs"][0]["records"].as_u64()),
        (Some(20), Some(21)),
        "{found}"
    );

    let objects = fs::read_dir(path.join("objects")).expect("objects");
    let mut files = objects.map(|entry| entry.expect("an entry").path());
    let file = files.find(|path| path.to_str().is_some_and(|path| path.ends_with(".seg")));
    let file = file.expect("a file of records");
    let mut bytes = fs::read(&file).expect("it is read");
    for (key, is_lost) in [("buoy-7", true), ("buoy-3", false)] {
        // The value follows the key.
        let at = bytes.windows(key.len()).position(|w| w == key.as_bytes()).expect("it is there");
        bytes[at + 100] ^= 1;
        fs::write(&file, &bytes).expect("it is written");
        let (status, found) = check(&["--scrub"]);
        assert_eq!(status, Some(1), "{found}");
        let flaws = found["logs"][0]["flaws"].as_array().expect("a list");
        assert_eq!(flaws.len(), 1, "{found}");
        let head = 40;
        assert_eq!(flaws[0]["key"], key);
        assert_eq!(flaws[0]["offset"].as_u64(), Some(at as u64 - head), "{found}");
        assert_eq!(flaws[0]["lost"], is_lost);
        let named = flaws[0]["file"].as_str().expect("text");
        assert!(named.contains("d: log/") && named.ends_with(".seg"), "{named}");
        bytes[at + 100] ^= 1;
    }
    fs::write(&file, &bytes).expect("it is written");

    let ended = place.run(&["check", "no such directory"]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.err);
    let ended = place.run(&["check", path.to_str().expect("UTF-8"), "--name", "other"]);
    assert!(ended.err.contains("no log store called other"), "{}", ended.err);
}
