//! Stores on pools of their own in one program: each survives deaths of the process, and the others' troubles.

use serde_json::Value;

use crate::health::health;
use crate::nbd::Nbd;
use crate::place::{Place, Server, until};
use crate::points::ask;

const KEYS: usize = 500;
const SIZE: usize = 1 << 20;

/// Keys on two copies, block devices on fragments, and points on a single volume.
fn settings() -> String {
    let volume = |name| format!("[volume.{name}]\npath = \"{name}\"\ncontract = \"unlimited\"\n\n");
    let volumes: String = ["c1", "c2", "c3", "f1", "f2", "p1"].into_iter().map(volume).collect();
    volumes
        + "[pool.fast]\ncopies = 2\nvolumes = [\"f1\", \"f2\"]\n\n\
           [pool.coded]\nlayout = \"coded\"\ndata = 2\nparity = 1\nwrite_log = \"16MiB\"\n\
           volumes = [\"c1\", \"c2\", \"c3\"]\n\n\
           [pool.points]\nvolumes = [\"p1\"]\n\n\
           [admin]\nlisten = \"127.0.0.1:0\"\n\n\
           [kv]\npool = \"fast\"\nmemory = \"32MiB\"\nlisten = \"127.0.0.1:0\"\ndurability = \"always\"\n\n\
           [block]\npool = \"coded\"\nlisten = \"127.0.0.1:0\"\ndurability = \"always\"\n\n\
           [series]\npool = \"points\"\ndurability = \"always\"\n\n[http]\nlisten = \"127.0.0.1:0\"\n"
}

/// A place with these volumes, and the settings.
fn place() -> Place {
    let place = Place::new();
    for name in ["c1", "c2", "c3", "f1", "f2", "f3", "p1"] {
        std::fs::create_dir(place.path(name)).expect("room for a directory");
    }
    place.write(&settings());
    place
}

/// Runs the program against this server; returns what it printed, and panics if it failed.
fn run(place: &Place, server: &Server, args: &[&str]) -> String {
    let ended = place.run(&[args, &["--admin", &server.admin]].concat());
    assert!(ended.status.success(), "{args:?}: {}{}", ended.out, ended.err);
    ended.out
}

fn get(server: &Server, path: &str) -> Value {
    serde_json::from_str(&server.admin(&format!("GET {path}")).1).expect("JSON")
}

fn write_keys(server: &Server, round: usize) {
    let mut client = server.client();
    for key in 0..KEYS {
        assert_eq!(client.ask(&format!("set {key} {round}-{key}")), "+OK");
    }
}

fn check_keys(server: &Server, round: usize) {
    let mut client = server.client();
    for key in 0..KEYS {
        assert_eq!(client.ask(&format!("get {key}")), format!("{round}-{key}"));
    }
}

fn device(server: &Server) -> Nbd {
    Nbd::open(server.nbd.expect("a listener"), "vm").expect("the export")
}

fn bytes(round: usize) -> Vec<u8> {
    (0..SIZE).map(|at| (at / 512 * 31 + round * 7 + at) as u8).collect()
}

fn write_points(server: &Server, round: usize) {
    let lines: Vec<_> = (0..100).map(|at| format!("m f={at}i {}", round * 100 + at + 1)).collect();
    let endpoint = server.http.expect("a listener");
    let answer = ask(endpoint, "POST /write?db=db", "", &lines.join("\n"));
    assert_eq!(answer.status, 204, "{}", answer.body);
}

fn check_points(server: &Server, rounds: usize) {
    let endpoint = server.http.expect("a listener");
    let answer = ask(endpoint, "GET /query?db=db&q=SELECT+count(f)+FROM+m", "", "");
    let json: Value = serde_json::from_str(&answer.body).expect("JSON");
    let count = json["results"][0]["series"][0]["values"][0][1].as_u64();
    assert_eq!(count, Some(100 * rounds as u64), "{}", answer.body);
}

#[test]
fn stores_on_pools_of_their_own_survive_each_other() {
    let place = place();
    let server = place.serve();
    run(&place, &server, &["block", "create", "vm", "4MiB"]);
    write_keys(&server, 0);
    device(&server).write(0, &bytes(0));
    write_points(&server, 0);
    server.kill();

    let server = place.serve();
    check_keys(&server, 0);
    assert!(device(&server).read(0, SIZE) == bytes(0), "the device has its bytes");
    check_points(&server, 1);

    // Each figure of a pool is told of each pool.
    let metrics = server.admin("GET /metrics").1;
    for pool in ["fast", "coded", "points"] {
        for line in [
            format!("plimsoll_copies_promised{{pool=\"{pool}\"}} "),
            format!("plimsoll_write_log_waits_total{{pool=\"{pool}\"}} 0\n"),
            format!("plimsoll_scrub_objects_total{{pool=\"{pool}\"}} "),
        ] {
            assert!(metrics.contains(&line), "{line} in {metrics}");
        }
    }
    let figures = get(&server, "/figures");
    assert!(figures["copies"].is_null(), "{figures}");
    let pools = figures["pools"].as_array().expect("a list").iter();
    assert_eq!(pools.map(|pool| &pool["pool"]).collect::<Vec<_>>(), ["fast", "points", "coded"]);
    let top = run(&place, &server, &["top", "--once", "--every", "100ms"]);
    assert!(top.contains("\nfast/f1 ") && top.contains("\ncoded/c3 "), "{top}");
    let list = run(&place, &server, &["volume", "list"]);
    for line in ["pool fast", "pool coded", "pool points", "2 copies of everything"] {
        assert!(list.lines().any(|found| found.starts_with(line)), "{line} in {list}");
    }
    assert_eq!(get(&server, "/block")["pool"], "coded");

    // A scrub of one pool leaves the others alone.
    let (status, body) = server.admin("POST /scrub?pool=coded");
    assert_eq!(status, "HTTP/1.1 202 Accepted", "{body}");
    let begun: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(begun["pools"][0]["pool"], "coded", "{begun}");
    until(|| {
        let last = &get(&server, "/scrub?pool=coded")["pools"][0]["last"];
        last["number"] == begun["pools"][0]["current"]["number"]
    });
    let all = get(&server, "/scrub");
    let passes = all["pools"].as_array().expect("a list").iter();
    let demanded = |pass: &Value| pass["on_demand"] == true;
    let demanded = |of: &Value| demanded(&of["last"]) || demanded(&of["current"]);
    assert_eq!(passes.map(demanded).collect::<Vec<_>>(), [false, false, true], "{all}");
    let (status, body) = server.admin("POST /scrub?pool=cold");
    assert_eq!(status, "HTTP/1.1 404 Not Found", "{body}");
    let args = ["check", "-c", "plimsoll.toml", "--scrub"];
    let checked = run(&place, &server, &args);
    for pool in ["fast", "coded", "points"] {
        assert!(checked.contains(&format!("pool {pool}: a server has it open")), "{checked}");
    }

    // A member of one pool leaves while all stores are written to.
    let add = ["volume", "add", "f3", "--path", "f3", "--contract", "unlimited"];
    let ended = place.run(&[&add[..], &["--admin", &server.admin]].concat());
    assert!(ended.err.contains("several pools, fast, points, coded"), "{}{}", ended.out, ended.err);
    run(&place, &server, &[&add[..], &["--pool", "fast"]].concat());
    std::thread::scope(|scope| {
        let draining = scope.spawn(|| run(&place, &server, &["volume", "drain", "f1"]));
        write_keys(&server, 1);
        device(&server).write(0, &bytes(1));
        write_points(&server, 1);
        draining.join().expect("it is drained");
    });
    run(&place, &server, &["volume", "remove", "f1"]);
    server.stop();
    let text = settings().replace("[\"f1\", \"f2\"]", "[\"f2\", \"f3\"]");
    place.write(&text.replace("[volume.f1]\npath = \"f1\"", "[volume.f3]\npath = \"f3\""));
    let server = place.serve();
    check_keys(&server, 1);
    assert!(device(&server).read(0, SIZE) == bytes(1), "the device has its bytes");
    check_points(&server, 2);
    server.stop();
    let checked = place.run(&["check", "-c", "plimsoll.toml", "--scrub"]);
    assert!(checked.status.success(), "{}{}", checked.out, checked.err);
    for pool in ["fast", "coded", "points"] {
        assert!(checked.out.contains(&format!("pool {pool}: ")), "{}", checked.out);
    }
    assert!(checked.out.contains("write-ahead log of series"), "{}", checked.out);
}

#[test]
fn a_pool_that_cannot_be_opened_leaves_the_stores_of_others_alone() {
    let place = place();
    let server = place.serve();
    run(&place, &server, &["block", "create", "vm", "4MiB"]);
    write_keys(&server, 0);
    device(&server).write(0, &bytes(0));
    write_points(&server, 0);
    server.stop();

    let elsewhere = |name: &str| place.path(&format!("{name}-elsewhere"));
    for name in ["f1", "f2"] {
        std::fs::rename(place.path(name), elsewhere(name)).expect("a rename");
    }
    let server = place.serve();
    assert!(device(&server).read(0, SIZE) == bytes(0), "the device has its bytes");
    check_points(&server, 1);
    write_points(&server, 1);
    let (healthy, told) = health(&server);
    assert!(!healthy, "{told}");
    let stores = &told["stores"];
    assert_eq!(
        (&stores["kv"]["serves_reads"], &stores["block"]["serves_reads"]),
        (&false.into(), &true.into())
    );
    assert_eq!(told["volumes"]["f1"]["answers"], false, "{told}");
    let problems = told["problems"].to_string();
    assert!(problems.contains("its pool fast is not open") && problems.contains("kv: "), "{told}");
    let (status, body) = server.admin("POST /scrub?pool=fast");
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable", "{body}");

    // It is opened once its volumes are back.
    for name in ["f1", "f2"] {
        std::fs::rename(elsewhere(name), place.path(name)).expect("a rename");
    }
    until(|| health(&server).0);
    until(|| server.admin("GET /metrics").1.contains("plimsoll_resp_clients"));
    check_keys(&server, 0);
    assert!(server.admin("GET /metrics").1.contains("plimsoll_copies_promised{pool=\"fast\"} "));
    write_keys(&server, 1);
    server.stop();
    let server = place.serve();
    check_keys(&server, 1);
    server.stop();
}
