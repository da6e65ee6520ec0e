//! Clock jumps, over the real store: retention, `now()`, and sessions.

use std::sync::Arc;
use std::time::Duration;

use engine::log::StoreId;
use engine::series::Durability;
use engine::series::store::{Options, Store};
use serde_json::json;
use serve::http::Settings;
use volume::mem::Mem;
use volume::{Clock, Volume};

use crate::endpoint::Endpoint;

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;
const DAY: i64 = 24 * HOUR;
/// The initial time of the clock.
const START: i64 = 1_700_000_000 * SECOND;

fn set(clock: &Clock, wall: i64) {
    clock.set_wall_offset(Duration::from_nanos(wall as u64));
}

/// A server whose database `db` keeps points for an hour.
fn endpoint() -> (Endpoint, Store, Clock) {
    let clock = Clock::simulated();
    set(&clock, START);
    let mut options = Options::new(1);
    options.durability = Durability::Always;
    let volume: Arc<dyn Volume> = Arc::new(Mem::new("v"));
    let members = vec![("v".to_owned(), volume)];
    let id = Some(StoreId([3; 16]));
    let (store, _) = clock.run(Store::open(members, options, clock.clone(), id)).expect("memory");
    let wall = {
        let clock = clock.clone();
        Box::new(move || clock.wall().as_nanos() as i64)
    };
    let endpoint = Endpoint::over(Settings::default(), Arc::new(store.clone()), wall);
    let made = endpoint.send("POST /query?q=CREATE+DATABASE+db+WITH+DURATION+1h", "", b"");
    assert_eq!(made.status, 200, "{}", made.body);
    (endpoint, store, clock)
}

fn times(endpoint: &Endpoint, filter: &str) -> Vec<i64> {
    let series = endpoint.query(&format!("SELECT v FROM m {filter}"));
    let rows = series[0]["values"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| row[0].as_i64().expect("a time")).collect()
}

fn write(endpoint: &Endpoint, time: i64) -> u16 {
    endpoint.write("db=db", &format!("m v=1 {time}")).status
}

#[test]
fn a_clock_that_jumps_ahead_takes_nothing_away_until_points_agree() {
    let (endpoint, store, clock) = endpoint();
    let early = [START - HOUR / 2, START];
    assert!(early.iter().all(|&time| write(&endpoint, time) == 204));
    let ahead = START + 3650 * DAY;
    set(&clock, ahead);
    clock.run(store.flush()).expect("memory");
    while clock.run(store.tend_once()).expect("memory") {}
    assert_eq!(times(&endpoint, ""), early);
    assert_eq!(times(&endpoint, "WHERE time > now() - 1d"), [0_i64; 0]);
    // After the jump back, all points are there again.
    set(&clock, START + SECOND);
    assert_eq!(times(&endpoint, "WHERE time > now() - 1d"), early);
    assert_eq!(write(&endpoint, START + SECOND), 204);
    // A point from the future alone expires nothing either.
    assert_eq!(write(&endpoint, ahead), 204);
    assert_eq!(times(&endpoint, ""), [early[0], early[1], START + SECOND, ahead]);
    // Both together expire older points, which are then refused with a reason.
    set(&clock, ahead);
    assert_eq!(times(&endpoint, ""), [ahead]);
    let refused = endpoint.write("db=db", &format!("m v=1 {START}"));
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("points beyond retention policy"), "{}", refused.body);
}

#[test]
fn a_clock_that_jumps_back_stops_nobody() {
    let (endpoint, _store, clock) = endpoint();
    assert_eq!(write(&endpoint, START), 204);
    let back = START - 3650 * DAY;
    set(&clock, back);
    assert_eq!(endpoint.write("db=db", "m v=2").status, 204);
    assert_eq!(times(&endpoint, ""), [back, START]);
    assert_eq!(times(&endpoint, "WHERE time <= now()"), [back]);
    assert_eq!(times(&endpoint, "WHERE time > now() AND time < now() + 4000d"), [START]);
    let counted = endpoint.query(
        "SELECT count(v) FROM m WHERE time >= now() - 1h AND time <= now() GROUP BY time(1h)",
    );
    let rows = counted[0]["values"].as_array().expect("windows");
    let sum: i64 = rows.iter().filter_map(|row| row[1].as_i64()).sum();
    assert_eq!(sum, 1, "{counted}");
}

#[test]
fn sessions_do_not_go_by_clocks() {
    let (endpoint, _store, clock) = endpoint();
    let send = |sequence: u64| {
        let headers = format!("X-Plimsoll-Session: s\r\nX-Plimsoll-Sequence: {sequence}\r\n");
        let answer = endpoint.send("POST /write?db=db", &headers, b"m v=1");
        assert_eq!(answer.status, 204, "{}", answer.body);
        answer.header("x-plimsoll-repeated").is_some()
    };
    assert!(!send(1));
    for wall in [START + 365 * DAY, START - 365 * DAY, START] {
        set(&clock, wall);
        assert!(send(1), "at {wall}");
    }
    assert!(!send(2));
    assert_eq!(times(&endpoint, "").len(), 1, "one time, as the clock stands still");
}

#[test]
fn how_long_points_are_kept_is_changed_and_told() {
    let (endpoint, _store, clock) = endpoint();
    let kept = || endpoint.query("SHOW RETENTION POLICIES ON db")[0]["values"][0][1].clone();
    assert_eq!(kept(), json!("1h0m0s"));
    assert_eq!(write(&endpoint, START - HOUR / 2), 204);
    assert_eq!(write(&endpoint, START), 204);
    let change =
        |statement: &str| endpoint.send("POST /query", "", format!("q={statement}").as_bytes());
    assert_eq!(change("ALTER RETENTION POLICY autogen ON db DURATION 10m").status, 200);
    assert_eq!((kept(), times(&endpoint, "")), (json!("0h10m0s"), vec![START]));
    let made = change("CREATE RETENTION POLICY month ON db DURATION 4w REPLICATION 1 DEFAULT");
    assert_eq!((made.status, kept()), (200, json!("672h0m0s")));
    assert_eq!(change("CREATE DATABASE db").status, 200);
    assert_eq!(kept(), json!("672h0m0s"));
    assert_eq!(change("CREATE DATABASE db WITH DURATION INF").status, 200);
    assert_eq!(kept(), json!("0s"));
    let unknown = change("ALTER RETENTION POLICY autogen ON nobody DURATION 1h");
    assert!(unknown.body.contains("database not found: nobody"), "{}", unknown.body);
    set(&clock, START + DAY);
    assert_eq!(write(&endpoint, START - DAY), 204);
}
