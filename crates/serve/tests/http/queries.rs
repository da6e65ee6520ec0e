//! Queries: their results, and the forms of answers.

use serde_json::json;
use serve::http::Settings;

use crate::endpoint::Endpoint;

/// Two hosts in two regions for ten seconds; some rows lack a value.
fn filled() -> Endpoint {
    let endpoint = Endpoint::new(Settings::default());
    let mut lines = String::new();
    for second in 0..10 {
        for (n, host, region) in [(1, "a", "eu"), (2, "b", "us")] {
            let usage = second * n;
            lines.push_str(&format!("cpu,host={host},region={region} usage={usage}i {second}\n"));
            if second % 5 == 0 {
                lines.push_str(&format!(
                    "cpu,host={host},region={region} note=\"n{second}\" {second}\n"
                ));
            }
        }
    }
    lines.push_str("disk,host=a free=0.5 3\n");
    assert_eq!(endpoint.write("db=db&precision=s", &lines).status, 204);
    endpoint
}

const S: i64 = 1_000_000_000;

#[test]
fn points_are_selected_by_tags_and_time() {
    let endpoint = filled();
    let series = endpoint.query(
        "SELECT usage, note, host FROM cpu WHERE region = 'eu' AND time >= 4s AND time < 6s",
    );
    assert_eq!(
        series,
        json!([{
            "name": "cpu",
            "columns": ["time", "usage", "note", "host"],
            "values": [[4 * S, 4, null, "a"], [5 * S, 5, "n5", "a"]],
        }])
    );
    let values = |statement: &str| endpoint.query(statement)[0]["values"].clone();
    assert_eq!(
        values("SELECT usage FROM cpu ORDER BY time DESC LIMIT 3"),
        json!([[9 * S, 9], [9 * S, 18], [8 * S, 8]])
    );
    assert_eq!(values("SELECT usage FROM cpu LIMIT 2 OFFSET 3"), json!([[S, 2], [2 * S, 2]]));
    assert_eq!(
        values("SELECT usage * 2 + 1 AS x FROM cpu WHERE host =~ /^b$/ AND time = 3s"),
        json!([[3 * S, 13]])
    );
    assert_eq!(
        values("SELECT /u/ FROM cpu WHERE host != 'a' AND region !~ /e/ AND time = 2000000000"),
        json!([[2 * S, 4]])
    );
    assert_eq!(endpoint.query("SELECT usage FROM cpu WHERE host = 'c'"), json!(null));
    assert_eq!(endpoint.query("SELECT usage FROM nothing"), json!(null));
    assert_eq!(
        values("SELECT usage FROM cpu WHERE (host = 'a' OR host = 'b') AND time = 1s"),
        json!([[S, 1], [S, 2]])
    );
}

#[test]
fn points_are_summed_up() {
    let endpoint = filled();
    let values = |statement: &str| endpoint.query(statement)[0]["values"].clone();
    assert_eq!(
        values(
            "SELECT count(usage), sum(usage), mean(usage), min(usage), max(usage), first(usage), \
                last(usage), percentile(usage, 50) FROM cpu WHERE host = 'a'"
        ),
        json!([[0, 10, 45, 4.5, 0, 9, 0, 9, 4]])
    );
    // A function that selects one point returns its time, if used alone.
    assert_eq!(values("SELECT last(usage) FROM cpu WHERE host = 'a'"), json!([[9 * S, 9]]));
    assert_eq!(values("SELECT max(usage) FROM cpu"), json!([[9 * S, 18]]));
    assert_eq!(values("SELECT min(usage) FROM cpu WHERE time > 2s"), json!([[3 * S, 3]]));
    let of = "FROM cpu WHERE host = 'a' AND time >= 0 AND time < 10s GROUP BY time(5s)";
    assert_eq!(values(&format!("SELECT sum(usage) {of}")), json!([[0, 10], [5 * S, 35]]));
    assert_eq!(
        values(&format!("SELECT mean(usage) * 10 {of} ORDER BY time DESC LIMIT 1")),
        json!([[5 * S, 70.0]])
    );
    let of = "FROM cpu WHERE host = 'a' AND time >= 8s AND time < 12s GROUP BY time(2s)";
    for (fill, last) in [
        ("", json!(null)),
        ("fill(null)", json!(null)),
        ("fill(previous)", json!(17)),
        ("fill(7)", json!(7)),
    ] {
        let found = values(&format!("SELECT sum(usage) {of} {fill}"));
        assert_eq!(found, json!([[8 * S, 17], [10 * S, last]]), "{fill}");
    }
    assert_eq!(values(&format!("SELECT sum(usage) {of} fill(none)")), json!([[8 * S, 17]]));
    let all = endpoint.query("SELECT mean(*) FROM cpu WHERE host = 'a'");
    assert_eq!(all[0]["columns"], json!(["time", "mean_usage"]));
    // Without a span, windows go from the first point to now: far too many.
    assert!(endpoint.refused("SELECT mean(usage) FROM cpu GROUP BY time(1s)").contains("windows"));
}

#[test]
fn series_are_put_together_by_tags() {
    let endpoint = filled();
    let series = endpoint.query("SELECT max(usage) FROM cpu, disk GROUP BY host");
    let tags: Vec<_> =
        series.as_array().expect("series").iter().map(|s| s["tags"].clone()).collect();
    assert_eq!(tags, [json!({"host": "a"}), json!({"host": "b"})]);
    let series = endpoint.query("SELECT usage FROM cpu GROUP BY * LIMIT 1 SLIMIT 1 SOFFSET 1");
    assert_eq!(series.as_array().map(Vec::len), Some(1));
    assert_eq!(series[0]["tags"], json!({"host": "b", "region": "us"}));
    assert_eq!(series[0]["values"], json!([[0, 0]]));
    let series = endpoint.query("SELECT * FROM /^(cpu|disk)$/ GROUP BY /hos/ LIMIT 1");
    assert_eq!(series.as_array().map(Vec::len), Some(3));
    assert_eq!(series[0]["columns"], json!(["time", "note", "region", "usage"]));
}

#[test]
fn what_there_is_is_shown() {
    let endpoint = filled();
    let values = |statement: &str| endpoint.query(statement)[0]["values"].clone();
    assert_eq!(values("SHOW DATABASES"), json!([["db"]]));
    assert_eq!(values("SHOW MEASUREMENTS"), json!([["cpu"], ["disk"]]));
    assert_eq!(values("SHOW MEASUREMENTS WITH MEASUREMENT =~ /di/"), json!([["disk"]]));
    assert_eq!(values("SHOW MEASUREMENTS WHERE region = 'eu' LIMIT 5"), json!([["cpu"]]));
    assert_eq!(values("SHOW TAG KEYS FROM cpu"), json!([["host"], ["region"]]));
    assert_eq!(
        values("SHOW TAG VALUES FROM cpu WITH KEY = host"),
        json!([["host", "a"], ["host", "b"]])
    );
    assert_eq!(
        values("SHOW TAG VALUES FROM cpu WITH KEY IN (host, region) WHERE region = 'us'"),
        json!([["host", "b"], ["region", "us"]])
    );
    assert_eq!(
        values("SHOW FIELD KEYS FROM cpu"),
        json!([["note", "string"], ["usage", "integer"]])
    );
    assert_eq!(
        values("SHOW SERIES"),
        json!([["cpu,host=a,region=eu"], ["cpu,host=b,region=us"], ["disk,host=a"]])
    );
    assert_eq!(values("SHOW RETENTION POLICIES ON db")[0][0], "autogen");
}

#[test]
fn points_and_series_are_deleted() {
    let endpoint = filled();
    endpoint.query("DELETE FROM cpu WHERE host = 'a' AND time < 9s");
    assert_eq!(endpoint.query("SELECT count(usage) FROM cpu")[0]["values"], json!([[0, 11]]));
    endpoint.query("DROP SERIES FROM cpu WHERE host = 'b'");
    assert_eq!(endpoint.query("SELECT usage FROM cpu")[0]["values"], json!([[9 * S, 9]]));
    endpoint.query("DROP MEASUREMENT cpu");
    assert_eq!(endpoint.query("SELECT usage FROM cpu"), json!(null));
    endpoint.query("DROP DATABASE db");
    assert_eq!(endpoint.query("SHOW DATABASES")[0]["values"], json!([]));
    endpoint.query("CREATE DATABASE \"another one\"");
    assert_eq!(endpoint.query("SHOW DATABASES")[0]["values"], json!([["another one"]]));
}

#[test]
fn what_cannot_be_done_is_said() {
    let endpoint = filled();
    for (statement, wanted) in [
        ("SELECT", "error parsing query: found EOF"),
        ("DELETE FROM cpu WHERE usage > 5", "is a field"),
        ("SELECT usage FROM cpu WHERE host > 'a'", "is a tag"),
        ("SELECT mean(usage), usage FROM cpu", "mixing aggregate"),
        ("SELECT mean(note) FROM cpu", "unsupported mean iterator type: string"),
        ("SELECT derivative(usage) FROM cpu", "undefined function derivative()"),
        ("SELECT usage FROM cpu GROUP BY time(1s)", "at least one aggregate"),
        ("SELECT mean(usage, 1) FROM cpu", "invalid number of arguments"),
        ("SELECT percentile(usage, 101) FROM cpu", "0 to 100"),
        ("SELECT v FROM nobody..m", "not found"),
    ] {
        let told = endpoint.refused(statement);
        assert!(told.contains(wanted), "{statement}: {told}");
    }
    let few = Endpoint::new(Settings { answer_values_max: 10, ..Settings::default() });
    few.write("db=db", &(0..20).map(|n| format!("m v=1 {n}\n")).collect::<String>());
    assert!(few.refused("SELECT v FROM m").contains("more than 10 values"));
}

#[test]
fn several_statements_have_several_results() {
    let endpoint = filled();
    let answer = endpoint
        .get("/query?db=db&q=SELECT+last(usage)+FROM+cpu;SELECT+x(v)+FROM+cpu;SHOW+DATABASES");
    let results = answer.json()["results"].clone();
    assert_eq!(results[0]["series"][0]["values"], json!([["1970-01-01T00:00:09Z", 9]]));
    assert!(results[1]["error"].is_string());
    assert_eq!(
        (&results[2]["statement_id"], &results[2]["series"][0]["name"]),
        (&json!(2), &json!("databases"))
    );
}

#[test]
fn answers_come_in_the_shape_that_is_asked_for() {
    let endpoint = filled();
    let ask = |more: &str, headers: &str| {
        let path = format!("GET /query?db=db&q=SELECT+usage+FROM+cpu+WHERE+host='a'+LIMIT+5{more}");
        endpoint.send(&path, headers, b"")
    };
    let chunked = ask("&chunked=true&chunk_size=2&epoch=s", "");
    let rows = chunked.body.lines().map(|line| {
        let document: serde_json::Value = serde_json::from_str(line).expect("a document");
        document["results"][0]["series"][0]["values"].clone()
    });
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [json!([[0, 0], [1, 1]]), json!([[2, 2], [3, 3]]), json!([[4, 4]])]
    );
    let csv = ask("", "Accept: application/csv\r\n");
    assert!(csv.header("content-type").is_some_and(|kind| kind.starts_with("text/csv")));
    assert!(
        csv.body.starts_with("name,tags,time,usage\ncpu,,0,0\ncpu,,1000000000,1\n"),
        "{}",
        csv.body
    );
    assert_eq!(ask("&epoch=d", "").status, 400);
    assert_eq!(ask("&format=xml", "").status, 400);
}

#[test]
fn the_same_is_asked_for_by_parameters() {
    let endpoint = filled();
    let series = |path: &str| {
        let answer = endpoint.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let result = answer.json()["results"][0].clone();
        assert_eq!(result["error"], json!(null), "{path}");
        result["series"].clone()
    };
    let points = "/api/points?db=db&epoch=s&measurement=cpu";
    assert_eq!(
        series(&format!(
            "{points}&field=usage&where=host='b'&from=1970-01-01T00:00:07Z&to=9000000000"
        )),
        json!([{"name": "cpu", "columns": ["time", "usage"], "values": [[7, 14], [8, 16]]}])
    );
    let summed = series(&format!(
        "{points}&field=usage&function=percentile:90&every=5s&by=host&from=0&to=10000000000&order=desc&limit=1"
    ));
    assert_eq!(summed[1]["tags"], json!({"host": "b"}));
    assert_eq!(summed[1]["values"], json!([[5, 18]]));
    assert_eq!(
        series(&format!("{points}&function=count&fill=none"))[0]["columns"],
        json!(["time", "count_note", "count_usage"])
    );
    assert_eq!(series(&format!("{points}&from=-1h")), json!(null));
    assert_eq!(series("/api/measurements?db=db")[0]["values"], json!([["cpu"], ["disk"]]));
    assert_eq!(
        series("/api/tags?db=db&measurement=cpu&key=host&limit=1")[0]["values"],
        json!([["host", "a"]])
    );
    assert_eq!(series("/api/tags?db=db&measurement=disk")[0]["values"], json!([["host"]]));
    assert_eq!(
        series("/api/fields?db=db&measurement=disk")[0]["values"],
        json!([["free", "float"]])
    );
    assert_eq!(
        series("/api/series?db=db&where=region='eu'")[0]["values"],
        json!([["cpu,host=a,region=eu"]])
    );
    assert_eq!(series("/api/databases")[0]["values"], json!([["db"]]));
    for (path, wanted) in [
        ("/api/points?db=db", "measurement is required"),
        ("/api/points?db=db&measurement=cpu&where=a", "expected ="),
        ("/api/points?db=db&measurement=cpu&limit=1;DROP+MEASUREMENT+cpu", "another statement"),
        ("/api/points?db=db&measurement=cpu&function=mean&every=soon", "expected a duration"),
    ] {
        let answer = endpoint.get(path);
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        assert!(answer.body.contains(wanted), "{path}: {}", answer.body);
    }
}
