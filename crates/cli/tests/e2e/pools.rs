//! Volumes that join a pool, leave it, and go missing, in service or between runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::Value;

use crate::place::{Client, Place, Server, until, until_or_tell};

/// Enough for several tables on each volume.
const KEYS: usize = 12_000;
const BATCH: usize = 500;
/// From one key to the next that is read or written.
const STRIDE: usize = 7919;

/// Simulated volumes of these names, and a store without a cache of data on them.
pub(crate) fn settings(place: &Place, volumes: &[&str], more: &str) -> String {
    let mut text = String::new();
    for name in volumes {
        writeln!(
            text,
            "[volume.{name}] # one of ours\npath = \"{name}\"\nsimulate = true\n\
             contract = {{ iops = 20000, mib_per_s = 400 }}\n"
        )
        .expect("a string takes any text");
    }
    let admin = place.path("admin");
    text + &format!(
        "[pool.main]\nvolumes = {volumes:?}\n\n[admin]\nlisten = \"unix:{}\"\n\n[kv]\npool = \"main\"\n\
         memory = \"32MiB\"\nlisten = \"127.0.0.1:0\"\ncache_data = false\ncompression = \"none\"\n\
         compression_last = \"none\"\n{more}",
        admin.display()
    )
}

/// A value that names its key and version, and does not compress.
fn value(key: usize, version: usize) -> String {
    let mut state = (key * 31 + version + 1) as u64;
    let mut text = format!("{key}-{version}-");
    while text.len() < 1000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        write!(text, "{:08x}", state >> 32).expect("a string takes any text");
    }
    text
}

fn send(client: &mut Client, text: &str) {
    client.stream.get_mut().write_all(text.as_bytes()).expect("it reads");
}

/// Stores every key; with a `stride` of 1 in key order, so that tables do not overlap.
fn store_by(client: &mut Client, version: usize, stride: usize) {
    for first in (0..KEYS).step_by(BATCH) {
        let mut text = String::new();
        for at in first..first + BATCH {
            let key = at * stride % KEYS;
            writeln!(text, "set {key:05} {}\r", value(key, version))
                .expect("a string takes any text");
        }
        send(client, &text);
        for _ in 0..BATCH {
            assert_eq!(client.reply().as_deref(), Some("+OK"));
        }
    }
}

/// Stores every key, with neighbours far apart: every table covers the whole range.
pub(crate) fn store(client: &mut Client, version: usize) {
    store_by(client, version, STRIDE);
}

/// The reply for each key. Neighbours are read far apart, so that no part of a table is read in order.
fn read(client: &mut Client) -> Vec<String> {
    let mut replies = vec![String::new(); KEYS];
    let key = |at: usize| at * STRIDE % KEYS;
    for first in (0..KEYS).step_by(BATCH) {
        let mut text = String::new();
        for at in first..first + BATCH {
            writeln!(text, "get {:05}\r", key(at)).expect("a string takes any text");
        }
        send(client, &text);
        for at in first..first + BATCH {
            replies[key(at)] = client.reply().expect("it answers");
        }
    }
    replies
}

pub(crate) fn check_all(client: &mut Client, version: usize) {
    for (key, reply) in read(client).into_iter().enumerate() {
        assert!(reply == value(key, version), "key {key}: {}", &reply[..reply.len().min(200)]);
    }
}

/// The output of the program, which must succeed.
pub(crate) fn run(place: &Place, args: &[&str]) -> String {
    let ended = place.run(&[args, &["-c", "plimsoll.toml"]].concat());
    assert!(ended.status.success(), "{args:?}: {}{}", ended.out, ended.err);
    ended.out
}

/// The error output of the program, which must fail.
fn refused(place: &Place, args: &[&str]) -> String {
    let ended = place.run(&[args, &["-c", "plimsoll.toml"]].concat());
    assert_eq!(ended.status.code(), Some(1), "{args:?}: {}", ended.out);
    ended.err
}

fn list(place: &Place) -> BTreeMap<String, Value> {
    let list: Value =
        serde_json::from_str(&run(place, &["volume", "list", "--json"])).expect("JSON");
    let volumes = list["volumes"].as_array().expect("a list").iter();
    volumes
        .map(|volume| (volume["name"].as_str().expect("a name").into(), volume.clone()))
        .collect()
}

fn tables(place: &Place, volume: &str) -> usize {
    let objects = std::fs::read_dir(place.path(volume).join("objects")).expect("a volume");
    let names = objects.map(|object| object.expect("a file").file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".tab")).count()
}

fn in_use(server: &Server, volume: &str) -> u64 {
    let figures: Value = serde_json::from_str(&server.admin("GET /figures").1).expect("JSON");
    let volumes = figures["volumes"].as_array().expect("a list");
    let volume = volumes.iter().find(|found| found["name"] == volume).expect("it is there");
    let classes = volume["classes"].as_array().expect("a list");
    let users = classes.iter().find(|class| class["name"] == "foreground").expect("a class");
    users["granted"].as_u64().expect("a number")
}

#[test]
fn a_volume_joins_takes_tables_and_reads_is_emptied_and_leaves() {
    let place = Place::new();
    place.write(&settings(&place, &["s1", "s2", "s3", "s4", "s5"], ""));
    let server = place.serve();
    let mut client = server.client();
    store(&mut client, 1);

    let add = ["volume", "add", "s6", "--path", "s6", "--contract", "gp3"];
    let add = [&add[..], &["--set", "simulate=true", "--set", "iops=16000", "--write"]].concat();
    let told = run(&place, &add);
    assert!(told.contains("volume s6: joined pool main with gp3, 16000 IOPS"), "{told}");
    assert!(told.contains("plimsoll.toml is changed, too"), "{told}");
    let file = std::fs::read_to_string(place.file()).expect("it is there");
    assert!(file.contains("[volume.s1] # one of ours") && file.contains("[volume.s6]"), "{file}");
    assert!(refused(&place, &add).contains("has one of that name"));

    store(&mut client, 2);
    check_all(&mut client, 2);
    assert!(tables(&place, "s6") > 0, "it takes tables");
    assert!(in_use(&server, "s6") > 0, "it takes reads");
    // A compaction may have replaced all of its tables meanwhile.
    let has_objects = (0..10).any(|_| {
        let has_objects = list(&place)["s6"]["objects"].as_u64() > Some(0);
        if !has_objects {
            store(&mut client, 2);
        }
        has_objects
    });
    assert!(has_objects, "the list shows them");

    assert!(refused(&place, &["volume", "remove", "s6"]).contains("plimsoll volume drain s6"));
    let told = run(&place, &["volume", "drain", "s6"]);
    assert!(told.contains("volume s6: empty"), "{told}");
    check_all(&mut client, 2);
    store(&mut client, 3);
    assert_eq!(tables(&place, "s6"), 0, "nothing new goes there");
    run(&place, &["volume", "remove", "s6", "--write"]);
    assert_eq!(list(&place).len(), 5);
    check_all(&mut client, 3);
    server.stop();

    std::fs::remove_dir_all(place.path("s6")).expect("it was there");
    let checked = run(&place, &["check", "--scrub"]);
    assert!(checked.contains("scrub: ") && !checked.contains("s6"), "{checked}");
    let server = place.serve();
    check_all(&mut server.client(), 3);
    server.stop();
}

#[test]
fn a_volume_that_joined_is_there_after_a_kill_and_a_drain_goes_on() {
    let place = Place::new();
    place.write(&settings(&place, &["s1", "s2"], ""));
    let server = place.serve();
    // Its section is in the file already, but the server has not read it yet.
    let file = std::fs::read_to_string(place.file()).expect("it is there");
    let section =
        "[volume.s3]\npath = \"s3\"\nsimulate = true\ncontract = \"unlimited\"\n\n[pool.main]";
    place.write(&file.replace("[pool.main]", section));
    let told = run(&place, &["volume", "add", "s3", "--write"]);
    assert!(told.contains("joined"), "{told}");
    let mut client = server.client();
    store(&mut client, 1);
    assert_eq!(client.ask("get 00007"), value(7, 1));
    // Starts a drain, and does not wait for its end.
    assert_eq!(server.admin("POST /volumes/s1/drain").0, "HTTP/1.1 202 Accepted");
    server.kill();

    let server = place.serve();
    let told = run(&place, &["volume", "drain", "s1"]);
    assert!(told.contains("volume s1: empty"), "{told}");
    run(&place, &["volume", "remove", "s1", "--write"]);
    check_all(&mut server.client(), 1);
    server.stop();
    run(&place, &["check", "--scrub"]);
}

#[test]
fn what_cannot_be_done_says_which_volume_and_what_to_do() {
    let place = Place::new();
    place.write(&settings(&place, &["s1", "s2"], "meta = [\"s1\"]\n"));
    let server = place.serve();
    let add = |name, path| ["volume", "add", name, "--path", path, "--contract", "gp3"];
    for (args, words) in [
        (&add("s3", "s1")[..], &["volume.s3.path", "the path of volume.s1"][..]),
        (&add("s3", "nowhere"), &["volume s3", "no such directory"]),
        (&["volume", "add", "s3"], &["no section [volume.s3]", "--path"]),
        (&["volume", "drain", "s9"], &["volume s9", "s1, s2"]),
        (&["volume", "drain", "s1"], &["volume s1", "kv.meta"]),
        (&["volume", "remove", "s2", "--write"], &["volume s2", "drain"]),
    ] {
        let said = refused(&place, args);
        assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
    }
    // The volume holds a file that does not belong to the pool.
    std::fs::create_dir(place.path("s3")).expect("room for a directory");
    std::fs::create_dir(place.path("s3/objects")).expect("room for a directory");
    std::fs::write(place.path("s3/objects/mine"), "mine").expect("room for a file");
    let said = refused(&place, &add("s3", "s3"));
    assert!(said.contains("volume s3") && said.contains("not empty"), "{said}");
    assert_eq!(list(&place).len(), 2);
    server.stop();
}

#[test]
fn without_a_volume_its_tables_are_named_and_it_serves_or_says_why() {
    let place = Place::new();
    place.write(&settings(&place, &["s1", "s2", "s3", "s4"], "meta = [\"s1\"]\n"));
    let server = place.serve();
    // A read must look into every new table that covers its key.
    store_by(&mut server.client(), 1, 1);
    server.stop();
    // The second opening turns the log of the first into a table.
    place.serve().stop();
    let file = std::fs::read_to_string(place.file()).expect("it is there");
    for volume in ["s2", "s3", "s4"] {
        let lost = tables(&place, volume);
        assert!(lost > 0);
        std::fs::rename(place.path(volume), place.path("elsewhere")).expect("a rename");
        // A simulated volume's directory would be created.
        let path = format!("path = \"{volume}\"\n");
        place.write(&file.replace(&format!("{path}simulate = true\n"), &path));

        let ended = place.run(&["check", "-c", "plimsoll.toml", "--json"]);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.err);
        let found: Value = serde_json::from_str(&ended.out).expect("JSON");
        let findings = found["pool"]["findings"].as_array().expect("a list");
        let (named, others): (Vec<_>, Vec<_>) =
            findings.iter().partition(|found| found["volume"] == volume);
        let is_table = |name: &Value| name.as_str().is_some_and(|name| name.ends_with(".sst"));
        assert_eq!(named.len(), lost, "{}", ended.out);
        assert!(named.iter().all(|found| is_table(&found["object"])), "{}", ended.out);
        // Objects removed while another volume was away remain there until it is back.
        assert!(others.iter().all(|found| found["harmless"] == true), "{}", ended.out);

        match place.try_serve() {
            Ok(server) => {
                without(&place, &server, volume, lost);
                server.stop();
            }
            // The missing table may hold the record of the keys' format: until RocksDB compacts, that may be on any
            // volume.
            Err(log) => {
                let named = format!("volume {volume} is away");
                assert!(log.contains("the keys of the store") && log.contains(&named), "{log}");
            }
        }
        std::fs::rename(place.path("elsewhere"), place.path(volume)).expect("a rename");
    }
    place.write(&file);
    let server = place.serve();
    check_all(&mut server.client(), 1);
    server.stop();
}

/// Whether every object has two copies now.
pub(crate) fn all_have_two(server: &Server) -> bool {
    let list: Value = serde_json::from_str(&server.admin("GET /volumes").1).expect("JSON");
    list["short_objects"] == 0
}

/// Waits until every object has two copies.
pub(crate) fn until_all_have_two(server: &Server) {
    let ask = |what| server.admin(what).1;
    until_or_tell(
        || all_have_two(server),
        || format!("{}\n{}\n{}", ask("GET /health"), ask("GET /volumes"), ask("GET /figures")),
    );
}

/// The number of objects with fewer than two copies, as reported.
pub(crate) fn short_objects(server: &Server) -> u64 {
    let figures: Value = serde_json::from_str(&server.admin("GET /figures").1).expect("JSON");
    figures["copies"]["short_objects"].as_u64().expect("a number")
}

#[test]
fn with_two_copies_a_volume_lost_under_load_is_not_missed_and_made_up_for() {
    let place = Place::new();
    let two = "[pool.main]\ncopies = 2\nrepair_after = \"1s\"\n";
    place.write(&settings(&place, &["s1", "s2"], "").replace("[pool.main]\n", two));
    let server = place.serve();
    store(&mut server.client(), 1);
    until_all_have_two(&server);
    assert!(tables(&place, "s1") > 0 && tables(&place, "s2") > 0);

    // The volume is lost while a writer and a reader work.
    let address = server.redis();
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || store(&mut Client::connect(address), 2));
        let reader = scope.spawn(move || read(&mut Client::connect(address)));
        std::fs::rename(place.path("s2"), place.path("elsewhere")).expect("a rename");
        writer.join().expect("every write is answered well");
        for (key, reply) in reader.join().expect("it reads").into_iter().enumerate() {
            assert!(reply == value(key, 1) || reply == value(key, 2), "key {key}: {reply:.200}");
        }
    });
    check_all(&mut server.client(), 2);
    until(|| short_objects(&server) > 0);
    let told = run(&place, &["volume", "list"]);
    assert!(told.contains("2 copies of everything, except "), "{told}");
    assert!(run(&place, &["top", "--once", "--every", "100ms"]).contains(" short_objects "));
    server.kill();

    // It opens with one volume of two, which has the manifest. A simulated volume's directory would be created.
    let file = std::fs::read_to_string(place.file()).expect("it is there");
    place.write(&file.replace("path = \"s2\"\nsimulate = true\n", "path = \"s2\"\n"));
    let server = place.serve();
    check_all(&mut server.client(), 2);
    let add = ["volume", "add", "s3", "--path", "s3", "--contract", "unlimited"];
    run(&place, &[&add[..], &["--set", "simulate=true", "--write"]].concat());
    until_all_have_two(&server);
    let told = run(&place, &["volume", "list"]);
    assert!(told.contains("2 copies of everything\n"), "{told}");
    let told = run(&place, &["volume", "remove", "s2", "--write"]);
    assert!(told.contains("0 objects were only on it"), "{told}");
    store(&mut server.client(), 3);
    check_all(&mut server.client(), 3);
    until_all_have_two(&server);
    server.stop();
    std::fs::remove_dir_all(place.path("elsewhere")).expect("it was there");
    let checked = run(&place, &["check", "--scrub"]);
    assert!(checked.contains("scrub: ") && !checked.contains("s2"), "{checked}");
    // Each of them has everything.
    std::fs::remove_dir_all(place.path("s3")).expect("it was there");
    let file = std::fs::read_to_string(place.file()).expect("it is there");
    place.write(&file.replace("simulate = true\n", ""));
    let server = place.serve();
    check_all(&mut server.client(), 3);
    server.stop();
}

/// Checks the service while a volume with `lost` tables is away.
fn without(place: &Place, server: &Server, volume: &str, lost: usize) {
    let replies = read(&mut server.client());
    let is_right = |(key, reply): &(usize, &String)| **reply == value(*key, 1);
    let right = replies.iter().enumerate().filter(is_right).count();
    let failed: Vec<_> = replies.iter().filter(|reply| reply.starts_with('-')).collect();
    assert_eq!(right + failed.len(), KEYS, "no key is answered wrongly");
    assert!(right > 0 && !failed.is_empty(), "{right}");
    let named = format!("{volume} is away");
    assert!(failed.iter().all(|reply| reply.contains(&named)), "{:?}", failed[0]);
    let away = &list(place)[volume];
    let lost = Some(lost as u64);
    assert_eq!((away["state"].as_str(), away["objects"].as_u64()), (Some("away"), lost));
    // Without --lost, nothing is given up.
    let refused = refused(place, &["volume", "remove", volume]);
    assert!(refused.contains("--lost"), "{refused}");
    let named = refused.lines().filter(|line| line.trim().ends_with(".sst"));
    assert_eq!(Some(named.count() as u64), lost, "{refused}");
}
