//! Conditions on fields: compared with InfluxDB 1.6.7 (`testdata/fields.txt`), and with a filter over all rows one by
//! one.

use proptest::prelude::*;
use serde_json::{Value, json};
use serve::http::Settings;

use crate::endpoint::Endpoint;

/// The points written to both servers.
const LINES: &str = "m,h=a,r=eu f=1.5,i=1i,b=true,s=\"red\" 1
m,h=a,r=eu f=2.5,i=2i 2
m,h=a,r=eu i=3i,b=false,s=\"green\" 3
m,h=a,r=eu f=95,s=\"\" 4
m,h=b f=4,i=3i,b=true,s=\"blue\" 1
m,h=b i=9007199254740993i 2
m,h=b f=-1,i=-1i,b=false 5
";

#[test]
fn statements_are_answered_as_influxdb_does() {
    let endpoint = Endpoint::new(Settings::default());
    assert_eq!(endpoint.write("db=db&precision=s", LINES).status, 204);
    let cases = include_str!("../../testdata/fields.txt");
    let mut lines = cases.lines().filter(|line| !line.starts_with('#')).peekable();
    let mut count = 0;
    while let Some(statement) = lines.next() {
        let theirs = lines.next().expect("an answer").trim();
        let ours = lines.next_if(|line| line.starts_with('!'));
        let wanted = ours.map_or(theirs, |ours| ours[1..].trim());
        match wanted.strip_prefix("error: ") {
            Some(error) => assert!(endpoint.refused(statement).contains(error), "{statement}"),
            None => {
                let wanted: Value = serde_json::from_str(wanted).expect(statement);
                assert_eq!(plain(&endpoint.query(statement)), plain(&wanted), "{statement}");
            }
        }
        count += 1;
    }
    assert!(count > 50);
}

/// InfluxDB prints a whole float without a decimal point.
fn plain(value: &Value) -> Value {
    match value {
        Value::Array(values) => values.iter().map(plain).collect(),
        Value::Object(values) => {
            values.iter().map(|(key, value)| (key.clone(), plain(value))).collect()
        }
        number => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 => json!(float as i64),
            _ => number.clone(),
        },
    }
}

#[test]
fn fields_choose_nothing_to_show_or_to_delete() {
    let endpoint = Endpoint::new(Settings::default());
    assert_eq!(endpoint.write("db=db&precision=s", LINES).status, 204);
    for statement in [
        "DELETE FROM m WHERE f > 2",
        "DROP SERIES FROM m WHERE h = 'a' AND f > 2",
        "SHOW TAG VALUES FROM m WITH KEY = h WHERE f > 2",
        "SHOW SERIES FROM m WHERE f > 2",
    ] {
        let told = endpoint.refused(statement);
        assert!(told.contains("\"f\" is a field: only SELECT supports fields in WHERE"), "{told}");
    }
    assert_eq!(endpoint.query("SELECT count(f) FROM m")[0]["values"], json!([[0, 5]]));
    let few = Endpoint::new(Settings { answer_values_max: 10, ..Settings::default() });
    few.write("db=db", &(0..40).map(|n| format!("m v={n}i,w=1 {n}\n")).collect::<String>());
    assert!(few.refused("SELECT v FROM m WHERE w = 1").contains("more than 10 values"));
    // Fields that are only tested do not count as values of the answer.
    let found = few.query("SELECT v FROM m WHERE v > 37 AND w = 1");
    assert_eq!(found[0]["values"], json!([[38, 38], [39, 39]]));
}

/// Three hosts whose rows have some of their fields; more rows than a cursor returns at a time.
fn filled() -> Endpoint {
    let endpoint = Endpoint::new(Settings::default());
    let mut lines = String::new();
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for time in 0..1200 {
        for host in ["a", "b", "c"] {
            let mut fields = vec![format!("n={time}i")];
            if random(3) > 0 {
                fields.push(format!("f={}", random(100) as f64 / 4.0));
            }
            // Only two of the hosts, one of them rarely.
            if host != "c" && (host == "a" || random(50) == 0) {
                fields.push(format!("i={}i", random(20)));
            }
            lines.push_str(&format!("m,h={host} {} {time}\n", fields.join(",")));
        }
    }
    assert_eq!(endpoint.write("db=db", &lines).status, 204);
    endpoint
}

/// Whether a row passes.
type Holds = Box<dyn Fn(&[Value]) -> bool>;

/// The text of a condition, and its test of a row of time, f, h, i and n.
fn condition(how: usize, f: f64, i: i64) -> (String, Holds) {
    let above = move |row: &[Value]| row[1].as_f64().is_some_and(|value| value > f);
    let least = move |row: &[Value]| row[3].as_i64().is_some_and(|value| value <= i);
    let is = |host: &'static str| move |row: &[Value]| row[2] == host;
    match how {
        0 => (format!("f > {f:?}"), Box::new(above)),
        1 => (format!("i <= {i}"), Box::new(least)),
        2 => (format!("f > {f:?} AND i <= {i}"), Box::new(move |row| above(row) && least(row))),
        3 => (format!("f > {f:?} OR i <= {i}"), Box::new(move |row| above(row) || least(row))),
        4 => (
            format!("h != 'a' AND (f > {f:?} OR i <= {i})"),
            Box::new(move |row| !is("a")(row) && (above(row) || least(row))),
        ),
        _ => (
            format!("h = 'a' AND f > {f:?} OR h = 'b' AND i <= {i} OR h = 'c'"),
            Box::new(move |row| {
                is("a")(row) && above(row) || is("b")(row) && least(row) || is("c")(row)
            }),
        ),
    }
}

fn rows(answer: &Value) -> Vec<Value> {
    answer[0]["values"].as_array().cloned().unwrap_or_default()
}

#[test]
fn rows_are_those_that_pass_when_all_are_looked_at() {
    let endpoint = filled();
    let all = rows(&endpoint.query("SELECT * FROM m"));
    assert_eq!(all.len(), 3600);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) };
    let what = (0..6_usize, 0..100_u32, -1..20_i64, 0..1200_i64);
    proptest!(config, |((how, f, i, from) in what)| {
        let (text, holds) = condition(how, f64::from(f) / 4.0, i);
        let passing: Vec<Value> = all
            .iter()
            .filter(|row| row[0].as_i64() >= Some(from))
            .filter(|row| holds(row.as_array().expect("a row")))
            .cloned()
            .collect();
        let asked = format!("FROM m WHERE ({text}) AND time >= {from}");
        prop_assert_eq!(rows(&endpoint.query(&format!("SELECT * {asked}"))), &passing[..], "{}", asked);
        let last = rows(&endpoint.query(&format!("SELECT * {asked} ORDER BY time DESC LIMIT 5 OFFSET 2")));
        let times = |rows: &[Value]| rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>();
        let mut wanted = passing.clone();
        wanted.reverse();
        let wanted: Vec<_> = wanted.into_iter().skip(2).take(5).collect();
        prop_assert_eq!(times(&last), times(&wanted), "{}", asked);
        // Aggregates of an untested and a tested field; groups without passing rows are absent.
        let sums = endpoint.query(&format!("SELECT count(n), max(f) {asked} GROUP BY h"));
        for group in sums.as_array().into_iter().flatten() {
            let of: Vec<_> = passing.iter().filter(|row| row[2] == group["tags"]["h"]).collect();
            let max = of.iter().filter_map(|row| row[1].as_f64()).reduce(f64::max);
            prop_assert_eq!(&group["values"][0][1], &json!(of.len()), "{}", asked);
            prop_assert_eq!(group["values"][0][2].as_f64(), max, "{}", asked);
        }
        let groups: std::collections::BTreeSet<_> =
            passing.iter().map(|row| row[2].to_string()).collect();
        prop_assert_eq!(sums.as_array().map_or(0, Vec::len), groups.len(), "{}", asked);
    });
}
