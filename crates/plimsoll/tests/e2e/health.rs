//! `/health` of a server whose volumes and stores are not well.

use serde_json::Value;

use crate::place::{Place, Server, settings, until};

fn health(server: &Server) -> (bool, Value) {
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
    // Everything is on every volume.
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
    // The other copy of everything is served.
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
