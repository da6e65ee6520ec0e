//! `/health` of a server with failing volumes or stores.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::{Place, Server, flip_a_byte_of_a_table, settings, until};
use crate::points;

/// Whether a server is healthy, and its report; checks that the status agrees.
pub(crate) fn health(server: &Server) -> (bool, Value) {
    let (status, body) = server.admin("GET /health");
    let health: Value = serde_json::from_str(&body).expect("JSON");
    let healthy = health["healthy"].as_bool().expect("true or false");
    let wanted = if healthy { "HTTP/1.1 200 OK" } else { "HTTP/1.1 503 Service Unavailable" };
    assert_eq!(status, wanted, "{body}");
    (healthy, health)
}

fn is_ready(server: &Server) -> bool {
    server.admin("GET /health/ready?store=kv").0 == "HTTP/1.1 200 OK"
}

#[test]
fn a_volume_that_goes_and_comes_back_shows() {
    let place = Place::new();
    // Every volume has a copy of everything.
    let text = settings("unlimited", "").replace("[pool.main]\n", "[pool.main]\ncopies = 3\n");
    place.write(&text);
    let server = place.serve();
    assert_eq!(server.client().ask("set ship plimsoll"), "+OK");
    until(|| health(&server).0);

    std::fs::rename(place.path("b"), place.path("elsewhere")).expect("a rename");
    let (healthy, found) = health(&server);
    assert!(!healthy, "{found}");
    assert_eq!(found["volumes"]["b"]["answers"], false, "{found}");
    assert!(found["stores"]["kv"]["copies_short"].as_u64() > Some(0), "{found}");
    let problems = found["problems"].as_array().expect("a list");
    assert!(problems[0].as_str().is_some_and(|line| line.starts_with("volume b: ")), "{found}");
    // The other copies are served.
    assert_eq!(found["stores"]["kv"]["serves_reads"], true, "{found}");
    assert!(is_ready(&server), "{found}");
    assert_eq!(server.client().ask("get ship"), "plimsoll");
    let (_, metrics) = server.admin("GET /metrics");
    for line in ["plimsoll_healthy 0\n", "plimsoll_volume_answers{volume=\"b\"} 0\n"] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }

    std::fs::rename(place.path("elsewhere"), place.path("b")).expect("a rename");
    until(|| health(&server).0);
    server.stop();
}

/// The number of lines of the log that contain `what`.
fn logged(place: &Place, what: &str) -> usize {
    let log = std::fs::read_to_string(place.path("log")).expect("the log");
    log.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn a_damaged_table_shows_once_it_was_read() {
    let place = Place::new();
    let server = place.serve();
    let mut client = server.client();
    for n in 0..1000 {
        assert_eq!(client.ask(&format!("set {n} {}", "x".repeat(1000))), "+OK");
    }
    server.stop();
    // The second opening turns the log of the first into a table.
    place.serve().stop();
    let table = flip_a_byte_of_a_table(&place);
    let server = place.serve();
    let mut client = server.client();
    let read_all = |client: &mut crate::place::Client| {
        (0..1000).filter(|n| client.ask(&format!("get {n}")).starts_with('-')).count()
    };
    let failed = read_all(&mut client);
    assert!((1..1000).contains(&failed), "{failed} keys are in one block of {table}");
    let (healthy, found) = health(&server);
    assert!(!healthy, "{found}");
    assert_eq!(found["stores"]["kv"]["damaged"], 1, "{found}");
    let problem = found["problems"][0].as_str().expect("text");
    assert!(problem.starts_with("kv: damage found and not repaired: 1"), "{found}");
    assert!(is_ready(&server), "every other block is served: {found}");
    assert_eq!(read_all(&mut client), failed);
    // Logs object and volume once, however often the table is read.
    let volume = Path::new(&table).strip_prefix(place.dir.path()).expect("a volume's");
    let volume = volume.iter().next().expect("a name").to_string_lossy().into_owned();
    assert_eq!(logged(&place, "is damaged"), 1);
    assert_eq!(logged(&place, &format!("on volume {volume} is damaged")), 1);
    assert_eq!(health(&server).1["stores"]["kv"]["damaged"], 1);
    server.stop();
}

#[test]
fn a_damaged_block_of_time_series_shows_once_it_was_read() {
    let place = Place::new();
    let volume = place.path("d");
    std::fs::create_dir(&volume).expect("room for a directory");
    place.write(&format!("{}{}", crate::check::SERIES, settings("unlimited", "")));
    let server = place.serve();
    let endpoint = server.http.expect("an endpoint of time series");
    let lines: Vec<_> = (1..=5000_u64)
        .map(|time| format!("tide height={} {time}", time.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    let answer = points::ask(endpoint, "POST /write?db=sea", "", &lines.join("\n"));
    assert_eq!(answer.status, 204, "{}", answer.body);
    // A clean stop writes blocks.
    server.stop();
    let server = place.serve();
    let endpoint = server.http.expect("an endpoint of time series");
    assert!(health(&server).0);
    let objects = volume.join("objects");
    let blocks = || {
        let all = std::fs::read_dir(&objects).expect("a volume").map(|object| {
            let path = object.expect("a file").path();
            // The owner may execute a log that is written ahead: such a file ends with filling, which is no block.
            let facts = path.metadata().ok().filter(|facts| facts.mode() & 0o100 == 0);
            (path, facts.map_or(0, |facts| facts.len()))
        });
        let is_log = |path: &Path| path.to_string_lossy().contains("series-wal");
        all.filter(|(path, len)| !is_log(path) && *len > 10_000).collect::<BTreeSet<_>>()
    };
    // A merge moves the block soon after the start, so wait until it is done.
    let mut seen = (blocks(), Instant::now());
    until(|| {
        let now = blocks();
        if now != seen.0 {
            seen = (now, Instant::now());
        }
        seen.1.elapsed() >= Duration::from_secs(2)
    });
    assert_eq!(seen.0.len(), 1, "{:?}", seen.0);
    for (path, _) in seen.0 {
        let mut bytes = std::fs::read(&path).expect("an object");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).expect("room for an object");
    }
    let query = || points::ask(endpoint, "GET /query?db=sea&q=SELECT+height+FROM+tide", "", "");
    let answer = query();
    assert!(answer.body.contains("corrupt"), "{}", &answer.body[..answer.body.len().min(300)]);
    let (healthy, found) = health(&server);
    assert!(!healthy, "{found}");
    assert_eq!(found["stores"]["series"]["damaged"], 1, "{found}");
    query();
    assert_eq!(logged(&place, "a record is damaged"), 1);
    assert_eq!(health(&server).1["stores"]["series"]["damaged"], 1);
    server.stop();
}

/// Blocks that could not be written were tried again each second, and nothing but the log said so.
#[test]
fn upkeep_that_fails_again_and_again_shows() {
    let place = Place::new();
    let volume = place.path("d");
    std::fs::create_dir(&volume).expect("room for a directory");
    let series = crate::check::SERIES.replace("[series]\n", "[series]\nage = \"1s\"\n");
    place.write(&format!("{series}{}", settings("unlimited", "")));
    let write = |server: &Server, time: u64| {
        let endpoint = server.http.expect("an endpoint of time series");
        let line = format!("tide height=1 {time}");
        let answer = points::ask(endpoint, "POST /write?db=sea", "", &line);
        assert_eq!(answer.status, 204, "{}", answer.body);
    };
    let server = place.serve();
    write(&server, 1);
    server.stop();
    // Directories, which are no objects, take the names of the next files of blocks.
    let taken = (0..5000_u64).flat_map(|id| ["seg", "log"].map(|end| (id, end)));
    let taken =
        taken.map(|(id, end)| volume.join(format!("objects/series-blocks%{id:010x}.{end}")));
    let taken: Vec<_> = taken.filter(|path| std::fs::create_dir(path).is_ok()).collect();

    let server = place.serve();
    write(&server, 2);
    until(|| health(&server).1["stores"]["series"]["upkeep"] == false);
    let (healthy, found) = health(&server);
    assert!(!healthy, "{found}");
    let problems = found["problems"].as_array().expect("a list");
    let upkeep = "series: background work: upkeep of points failed";
    let is_told = |problem: &Value| problem.as_str().is_some_and(|line| line.starts_with(upkeep));
    assert!(problems.iter().any(is_told), "{found}");
    let (_, metrics) = server.admin("GET /metrics");
    let line = "plimsoll_task_works{store=\"series\",task=\"upkeep of points\"} 0\n";
    assert!(metrics.contains(line), "{metrics}");

    taken.iter().for_each(|path| std::fs::remove_dir(path).expect("it is empty"));
    until(|| health(&server).0);
    server.stop();
}
