//! `plimsoll check`: its findings in settings, on volumes, and without settings.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::place::{Place, settings};

/// A store of time series on volume `d`, beside that of the pool.
pub(crate) const SERIES: &str = "[volume.d]\npath = \"d\"\ncontract = \"unlimited\"\n\n\
    [series]\nvolumes = [\"d\"]\n\n[http]\nlisten = \"127.0.0.1:0\"\n\n";

fn place() -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path("d")).expect("room for a directory");
    place.write(&format!("{SERIES}{}", settings("unlimited", "")));
    place
}

/// The status of `check` with these arguments, and its findings.
fn check(place: &Place, args: &[&str]) -> (Option<i32>, Value) {
    let ended = place.run(&[&["check", "--json"], args].concat());
    let found = serde_json::from_str(&ended.out);
    (ended.status.code(), found.unwrap_or_else(|_| panic!("{}{}", ended.out, ended.err)))
}

/// The objects of a volume whose names contain `of`.
fn objects(volume: &Path, of: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(volume.join("objects")).expect("a volume");
    let files = files.map(|entry| entry.expect("an entry").path());
    files.filter(|path| path.to_string_lossy().contains(of)).collect()
}

#[test]
fn it_reads_the_store_of_time_series() {
    let place = place();
    let file = ["-c", "plimsoll.toml"];
    let (status, found) = check(&place, &file);
    assert_eq!((status, found["series"].as_array().map(Vec::len)), (Some(0), Some(0)), "{found}");
    let names = |found: &Value| -> Vec<String> {
        let volumes = found["volumes"].as_array().expect("a list").clone();
        volumes.iter().map(|volume| volume["name"].as_str().expect("a name").into()).collect()
    };
    let wanted: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
    assert_eq!(names(&found), wanted);

    let server = place.serve();
    let endpoint = server.http.expect("an endpoint of time series");
    for time in 1..=5 {
        let line = format!("tide,port=hull height=3.5 {time}");
        let answer = crate::points::ask(endpoint, "POST /write?db=sea", "", &line);
        assert_eq!(answer.status, 204, "{}", answer.body);
    }
    server.kill();
    let (status, found) = check(&place, &[&file[..], &["--scrub"]].concat());
    assert_eq!(status, Some(0), "{found}");
    let store = &found["series"][0];
    assert_eq!((store["store"].as_str(), &store["good"]), (Some("series"), &Value::Bool(true)));
    assert_eq!(store["wal"]["records"], 5, "{found}");

    // The second record follows the segment's head and the first record.
    let segment = objects(&place.path("d"), "series-wal").pop().expect("a segment");
    let mut bytes = std::fs::read(&segment).expect("it is read");
    let first = u32::from_le_bytes(bytes[64..68].try_into().expect("four bytes"));
    let second = 64 + 8 + first as usize;
    bytes[second + 10] ^= 1;
    std::fs::write(&segment, bytes).expect("it is written");
    let path = place.path("d");
    let path = path.to_str().expect("UTF-8");
    for args in [&file[..], &[path]] {
        let (status, found) = check(&place, args);
        assert_eq!(status, Some(1), "{found}");
        let gaps = found["series"][0]["wal"]["gaps"].as_array().expect("a list");
        assert_eq!((gaps.len(), gaps[0]["offset"].as_u64()), (1, Some(second as u64)), "{found}");
        let named = gaps[0]["segment"].as_str().expect("text");
        assert!(named.contains("d: series-wal/"), "{named}");
    }
}

#[test]
fn without_settings_it_finds_out_what_is_there() {
    let place = place();
    place.serve().stop();
    let (a, b, c, d) = (place.path("a"), place.path("b"), place.path("c"), place.path("d"));
    let [a, b, c, d] = [&a, &b, &c, &d].map(|path| path.to_str().expect("UTF-8"));
    let (status, found) = check(&place, &[a, b, c]);
    assert_eq!(status, Some(0), "{found}");
    assert!(found["pool"]["objects"].as_u64() > Some(0), "{found}");
    assert_eq!(found["series"].as_array().map(Vec::len), Some(0), "{found}");
    let (status, found) = check(&place, &[d]);
    assert_eq!((status, &found["pool"]), (Some(0), &Value::Null), "{found}");
    assert_eq!(found["series"][0]["store"], "series", "{found}");

    let told = |args: &[&str]| {
        let ended = place.run(&[&["check"], args].concat());
        assert_eq!(ended.status.code(), Some(2), "{}", ended.out);
        ended.err
    };
    let told_of_pool = told(&[a, b, c, "--scrub"]);
    assert!(told_of_pool.contains("plimsoll check -c FILE --scrub"), "{told_of_pool}");
    std::fs::create_dir_all(place.path("e/objects")).expect("room for a directory");
    let nothing = told(&[place.path("e").to_str().expect("UTF-8")]);
    assert!(nothing.contains("neither a pool nor a store of time series"), "{nothing}");
    let no_volume = told(&[place.dir.path().to_str().expect("UTF-8")]);
    assert!(no_volume.contains("there is no volume in this directory"), "{no_volume}");
}
