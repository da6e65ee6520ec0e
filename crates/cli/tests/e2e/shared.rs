//! A key-value store and a store of time series on one pool that keeps two copies: both survive deaths of the process,
//! and the loss of a volume; and a program that serves a store of time series alone.

use std::net::SocketAddr;

use serde_json::Value;

use crate::place::{Place, Server, until};
use crate::points::ask;

const ROWS: usize = 400;

/// Both stores on volumes of these names, under contracts that limit them.
fn settings(place: &Place, volumes: &[&str]) -> String {
    let admin = place.path("admin");
    let sections: String = volumes
        .iter()
        .map(|name| {
            format!(
                "[volume.{name}]\npath = \"{name}\"\nsimulate = true\n\
                 contract = {{ iops = 4000, mib_per_s = 200 }}\n\n"
            )
        })
        .collect();
    sections
        + &format!(
            "[pool.main]\ncopies = 2\nrepair_after = \"0s\"\nvolumes = {volumes:?}\n\n\
             [admin]\nlisten = \"unix:{}\"\n\n\
             [kv]\npool = \"main\"\nmemory = \"32MiB\"\nlisten = \"127.0.0.1:0\"\ndurability = \"always\"\n\n\
             [series]\npool = \"main\"\ndurability = \"always\"\nmemory = \"1MiB\"\n\
             source_memory = \"1KiB\"\nwal = \"256KiB\"\nage = \"200ms\"\n\n\
             [http]\nlisten = \"127.0.0.1:0\"\n",
            admin.display()
        )
}

fn write(endpoint: SocketAddr, rows: std::ops::Range<usize>) {
    for first in rows.step_by(20) {
        let line = |row: usize| format!("m,s={} f={row}i {}\n", row % 7, row + 1);
        let lines: String = (first..first + 20).map(line).collect();
        let answer = ask(endpoint, "POST /write?db=db", "", &lines);
        assert_eq!(answer.status, 204, "{}", answer.body);
    }
}

fn points(endpoint: SocketAddr) -> Option<i64> {
    let statement = "SELECT+count(f)+FROM+m";
    let answer = ask(endpoint, &format!("GET /query?db=db&q={statement}"), "", "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let json: Value = serde_json::from_str(&answer.body).expect("JSON");
    json["results"][0]["series"][0]["values"][0][1].as_i64()
}

/// Writes as many rows and keys more, and returns their number.
fn fill(server: &Server, before: usize) -> usize {
    let mut client = server.client();
    write(server.http.expect("a listener"), before..before + ROWS);
    for key in before..before + ROWS {
        assert_eq!(client.ask(&format!("set {key} value-{key}")), "+OK");
    }
    before + ROWS
}

fn verify(server: &Server, all: usize) {
    assert_eq!(points(server.http.expect("a listener")), Some(all as i64));
    let mut client = server.client();
    for key in 0..all {
        assert_eq!(client.ask(&format!("get {key}")), format!("value-{key}"));
    }
}

fn run(place: &Place, args: &[&str]) -> String {
    let ended = place.run(&[args, &["-c", "plimsoll.toml"]].concat());
    assert!(ended.status.success(), "{args:?}: {}{}", ended.out, ended.err);
    ended.out
}

fn health(server: &Server) -> Value {
    serde_json::from_str(&server.admin("GET /health").1).expect("JSON")
}

#[test]
fn two_stores_on_one_pool_lose_nothing_with_a_volume() {
    let place = Place::new();
    place.write(&settings(&place, &["a", "b", "c"]));
    let server = place.serve();
    let mut all = fill(&server, 0);
    server.kill();
    let server = place.serve();
    verify(&server, all);
    all = fill(&server, all);
    server.stop();

    // A volume that both stores use is gone for good.
    std::fs::remove_dir_all(place.path("b")).expect("it was there");
    let text = std::fs::read_to_string(place.file()).expect("it is there");
    place.write(
        &text.replace("[volume.b]\npath = \"b\"\nsimulate = true", "[volume.b]\npath = \"b\""),
    );
    let server = place.serve();
    let told = health(&server);
    assert_eq!(told["healthy"], false, "{told}");
    assert!(told.to_string().contains("volume b is away"), "{told}");
    verify(&server, all);
    all = fill(&server, all);
    let add = ["volume", "add", "d", "--path", "d", "--contract", "unlimited"];
    run(&place, &[&add[..], &["--set", "simulate=true", "--write"]].concat());
    run(&place, &["volume", "remove", "b", "--lost", "--write"]);
    until(|| health(&server)["healthy"] == true);
    verify(&server, all);
    server.stop();

    // Every copy was made again: another volume may go.
    std::fs::remove_dir_all(place.path("a")).expect("it was there");
    let text = std::fs::read_to_string(place.file()).expect("it is there");
    place.write(
        &text.replace("[volume.a]\npath = \"a\"\nsimulate = true", "[volume.a]\npath = \"a\""),
    );
    let server = place.serve();
    verify(&server, all);
    fill(&server, all);
    let top = run(&place, &["top", "--once", "--every", "100ms"]);
    assert!(top.contains("\nc ") && top.contains("\nd "), "{top}");
    server.stop();
}

#[test]
fn a_program_serves_time_series_alone() {
    let place = Place::new();
    let volume = "[volume.a]\npath = \"a\"\ncontract = \"unlimited\"\n\n";
    let endpoints = "[http]\nlisten = \"127.0.0.1:0\"\n\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    for on in ["volumes = [\"a\"]", "pool = \"main\""] {
        let pool = if on.starts_with("pool") { "[pool.main]\nvolumes = [\"a\"]\n\n" } else { "" };
        std::fs::remove_dir_all(place.path("a")).expect("it was there");
        std::fs::create_dir(place.path("a")).expect("room for a directory");
        place.write(&format!(
            "{volume}{pool}[series]\n{on}\ndurability = \"always\"\n\n{endpoints}"
        ));
        let checked = run(&place, &["check"]);
        assert!(checked.contains("series: not made yet"), "{checked}");
        let server = place.serve();
        write(server.http.expect("a listener"), 0..ROWS);
        assert_eq!(health(&server)["healthy"], true);
        assert!(server.admin("GET /metrics").1.contains("plimsoll_series_points_total 400"));
        server.kill();
        let server = place.serve();
        assert_eq!(points(server.http.expect("a listener")), Some(ROWS as i64));
        server.stop();
        run(&place, &["check", "--scrub"]);
    }
}

/// A volume of one store that was away at the start once ended the program, and the other store with it.
#[test]
fn a_store_that_cannot_be_opened_leaves_the_other_one_alone() {
    let place = Place::new();
    let volume =
        |name: &str| format!("[volume.{name}]\npath = \"{name}\"\ncontract = \"unlimited\"\n\n");
    place.write(&format!(
        "{}{}[pool.main]\nvolumes = [\"a\"]\n\n[kv]\npool = \"main\"\nmemory = \"32MiB\"\n\
         listen = \"127.0.0.1:0\"\n\n[series]\nvolumes = [\"b\"]\ndurability = \"always\"\n\n\
         [http]\nlisten = \"127.0.0.1:0\"\n\n[admin]\nlisten = \"unix:{}\"\n",
        volume("a"),
        volume("b"),
        place.path("admin").display()
    ));
    let server = place.serve();
    let all = fill(&server, 0);
    server.stop();

    std::fs::rename(place.path("b"), place.path("elsewhere")).expect("a rename");
    let server = place.serve();
    assert_eq!(server.client().ask("get 7"), "value-7");
    let told = health(&server);
    assert_eq!(told["stores"]["kv"]["serves_reads"], true, "{told}");
    assert_eq!(told["stores"]["series"]["serves_reads"], false, "{told}");
    assert!(told["problems"].to_string().contains("volume b is away"), "{told}");
    let mut refused = std::net::TcpStream::connect(server.http.expect("a listener")).unwrap();
    assert!(matches!(std::io::Read::read(&mut refused, &mut [0]), Ok(0) | Err(_)), "it is closed");

    std::fs::rename(place.path("elsewhere"), place.path("b")).expect("a rename");
    until(|| health(&server)["healthy"] == true);
    verify(&server, all);
    fill(&server, all);
    assert!(server.admin("GET /metrics").1.contains("plimsoll_http_"));
    server.stop();

    // Without any store there is no program.
    std::fs::rename(place.path("b"), place.path("elsewhere")).expect("a rename");
    let text = std::fs::read_to_string(place.file()).expect("it is there");
    let (before, rest) = text.split_once("[pool.main]").expect("a section");
    let (_, series) = rest.split_once("[series]").expect("a section");
    place.write(&format!("{before}[series]{series}"));
    let ended = place.run(&["serve", "-c", "plimsoll.toml"]);
    assert!(!ended.status.success() && ended.err.contains("volume b is away"), "{}", ended.err);
}

/// Both stores on `main`, which keeps two copies, one in each of two pools of two volumes.
fn pool_of_pools(place: &Place) -> String {
    let flat = settings(place, &["a1", "a2", "b1", "b2"]);
    let main = "volumes = [\"left\", \"right\"]";
    let flat = flat.replace("volumes = [\"a1\", \"a2\", \"b1\", \"b2\"]", main);
    assert!(flat.contains(main), "{flat}");
    flat + "\n[pool.left]\nvolumes = [\"a1\", \"a2\"]\n\n[pool.right]\nvolumes = [\"b1\", \"b2\"]\n"
}

fn operations(server: &Server) -> Vec<(String, u64)> {
    let figures: Value = serde_json::from_str(&server.admin("GET /figures").1).expect("JSON");
    let volumes = figures["volumes"].as_array().expect("a list").iter();
    let name = |volume: &Value| {
        let (below, name) = (volume["below"].as_str(), volume["name"].as_str());
        format!("{}/{}", below.expect("pools"), name.expect("a name"))
    };
    volumes.map(|volume| (name(volume), volume["ops"].as_u64().expect("a number"))).collect()
}

#[test]
fn two_stores_on_a_pool_of_pools_lose_nothing_with_a_volume_or_a_pool() {
    let place = Place::new();
    place.write(&pool_of_pools(&place));
    let server = place.serve();
    let mut all = fill(&server, 0);
    server.kill();
    let server = place.serve();
    verify(&server, all);
    let used = operations(&server);
    let names: Vec<_> = used.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["left/a1", "left/a2", "right/b1", "right/b2"]);
    assert!(used.iter().all(|(_, ops)| *ops > 0), "{used:?}");
    assert!(run(&place, &["top", "--once", "--every", "100ms"]).contains("left/a1"));
    // Pools below have figures of their own; a mover has looked at each soon.
    for (pool, promised) in [("main", 2), ("left", 1), ("right", 1)] {
        for line in [
            format!("plimsoll_copies_promised{{pool=\"{pool}\"}} {promised}\n"),
            format!("plimsoll_write_log_waits_total{{pool=\"{pool}\"}} 0\n"),
        ] {
            until(|| server.admin("GET /metrics").1.contains(&line));
        }
    }
    let figures: Value = serde_json::from_str(&server.admin("GET /figures").1).expect("JSON");
    assert_eq!(figures["copies"]["pool"], "main", "{figures}");
    assert_eq!(figures["pools"][1]["below"], "main", "{figures}");
    let list = run(&place, &["volume", "list"]);
    for line in ["left ", "a1 ", "b2 "] {
        assert!(list.lines().any(|found| found.starts_with(line)), "{list}");
    }

    // A volume of a pool below is replaced while both stores are written to.
    all = std::thread::scope(|scope| {
        let filling = scope.spawn(|| fill(&server, all));
        let add = ["volume", "add", "a3", "--path", "a3", "--contract", "unlimited"];
        run(&place, &[&add[..], &["--pool", "left", "--set", "simulate=true", "--write"]].concat());
        run(&place, &["volume", "drain", "a2"]);
        run(&place, &["volume", "remove", "a2", "--write"]);
        filling.join().expect("every write is answered well")
    });
    verify(&server, all);
    let refused = place.run(&["volume", "remove", "left", "-c", "plimsoll.toml"]);
    assert!(refused.err.contains("left is a pool"), "{}", refused.err);
    server.stop();
    std::fs::remove_dir_all(place.path("a2")).expect("it was there");
    let checked = run(&place, &["check", "--scrub"]);
    assert!(checked.contains("pool left: ") && checked.contains("pool main: "), "{checked}");

    // One of the two pools is gone for good.
    let mut text = std::fs::read_to_string(place.file()).expect("it is there");
    for volume in ["b1", "b2"] {
        std::fs::remove_dir_all(place.path(volume)).expect("it was there");
        let path = format!("path = \"{volume}\"\n");
        text = text.replace(&format!("{path}simulate = true"), &path);
    }
    place.write(&text);
    let server = place.serve();
    let told = health(&server);
    assert_eq!(told["healthy"], false, "{told}");
    assert!(told.to_string().contains("right is away"), "{told}");
    verify(&server, all);
    all = fill(&server, all);
    verify(&server, all);
    server.stop();
}
