//! Writes: stored rows, refused rows, and the answers to writers.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use serve::http::{Settings, Token, server::Terms};

use crate::endpoint::{Endpoint, NOW, read};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

const GZIP: &str = "Content-Encoding: gzip\r\n";

#[test]
fn what_is_written_is_read() {
    let endpoint = Endpoint::new(Settings::default());
    let lines = "m,t=a\\ b,u=ü f=0.1,i=-9007199254740993i,u=18446744073709551615u,b=t,s=\"a \\\"q\\\",\\\\ \n\" 17\n";
    let answer = endpoint.write("db=db&precision=s", lines);
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    assert_eq!(answer.header("x-plimsoll-room"), Some("1.000"));
    let series = endpoint.query("SELECT * FROM m GROUP BY t");
    assert_eq!(
        series,
        json!([{
            "name": "m",
            "tags": {"t": "a b"},
            "columns": ["time", "b", "f", "i", "s", "u", "u_1"],
            "values": [[
                17_000_000_000_i64, true, 0.1, -9_007_199_254_740_993_i64, "a \"q\",\\ \n",
                18_446_744_073_709_551_615_u64, "ü"
            ]],
        }])
    );
}

#[test]
fn both_versions_write_the_same_in_every_precision() {
    let endpoint = Endpoint::new(Settings::default());
    for (n, (precision, nanos)) in
        [("ns", 1_i64), ("us", 1000), ("ms", 1_000_000), ("s", 1_000_000_000)]
            .into_iter()
            .enumerate()
    {
        let line = format!("m,n={n} v=1i 7");
        let request = format!("POST /api/v2/write?org=o&bucket=db/autogen&precision={precision}");
        assert_eq!(endpoint.send(&request, GZIP, &gzip(line.as_bytes())).status, 204);
        let series = endpoint.query(&format!("SELECT v FROM m WHERE n = '{n}'"));
        assert_eq!(series[0]["values"], json!([[7 * nanos, 1]]));
    }
    let answer = endpoint.send("POST /api/v2/write?bucket=db&precision=d", "", b"m v=1");
    assert_eq!((answer.status, answer.json()["code"].as_str()), (400, Some("invalid")));
    // A line without a time gets the current time, in the precision of the others.
    assert_eq!(endpoint.write("db=db&precision=s", "now v=1").status, 204);
    let second = NOW / 1_000_000_000 * 1_000_000_000;
    assert_eq!(endpoint.query("SELECT v FROM now")[0]["values"], json!([[second, 1.0]]));
}

#[test]
fn good_lines_are_stored_and_bad_ones_told() {
    let endpoint = Endpoint::new(Settings::default());
    let answer = endpoint.write("db=db", "m v=1 1\nm v=\nm v=3 3\nm v=x 4\n");
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.json()["error"],
        "partial write: unable to parse 'm v=': missing field value (line 2, byte 4)\n\
         unable to parse 'm v=x 4': invalid field format: give a number, 1i, 1u, true, false or \"text\" \
         (line 4, byte 4) dropped=2"
    );
    assert!(answer.header("x-influxdb-error").is_some_and(|error| error.contains("dropped=2")));
    assert_eq!(endpoint.query("SELECT v FROM m")[0]["values"], json!([[1, 1.0], [3, 3.0]]));
    // Without any good line, InfluxDB does not call the write partial.
    let answer = endpoint.send("POST /api/v2/write?bucket=db", "", b"m v=\n");
    let told = answer.json();
    assert_eq!((answer.status, &told["code"], &told["line"]), (400, &json!("invalid"), &json!(1)));
    assert!(
        told["message"].as_str().is_some_and(|text| text.starts_with("unable to parse 'm v='"))
    );
    // A value of another kind than before.
    let answer = endpoint.write("db=db", "m v=4 4\nm v=5i 5\n");
    assert_eq!(
        answer.json()["error"],
        "partial write: field type conflict: input field \"v\" on measurement \"m\" is type integer, \
         already exists as type float (line 2) dropped=1"
    );
    let answer = endpoint.send("POST /api/v2/write?bucket=db", "", b"m v=5i 5");
    assert_eq!((answer.status, &answer.json()["line"]), (422, &json!(1)));
    // A thousand mistakes still give a short answer.
    let answer = endpoint.write("db=db", &"m v=\n".repeat(1000));
    assert!(answer.body.len() < 2000 && answer.body.contains("and 990 more"), "{}", answer.body);
}

#[test]
fn a_batch_that_is_sent_again_is_stored_once() {
    let endpoint = Endpoint::new(Settings::default());
    let send = |sequence, line: &str| {
        let headers = format!("X-Plimsoll-Session: s\r\nX-Plimsoll-Sequence: {sequence}\r\n");
        endpoint.send("POST /write?db=db", &headers, line.as_bytes())
    };
    assert_eq!(send(1, "m v=1 1").header("x-plimsoll-repeated"), None);
    assert_eq!(send(2, "m v=2 1").status, 204);
    let again = send(1, "m v=1 1");
    assert_eq!((again.status, again.header("x-plimsoll-repeated")), (204, Some("true")));
    assert_eq!(endpoint.query("SELECT v FROM m")[0]["values"], json!([[1, 2.0]]));
    let half = endpoint.send("POST /write?db=db", "X-Plimsoll-Session: s\r\n", b"m v=1");
    assert_eq!(half.status, 400);
}

#[test]
fn bodies_are_bounded_inflated_too() {
    let settings = Settings { body_bytes_max: 100_000, ..Settings::default() };
    let endpoint = Endpoint::new(settings);
    let bomb = gzip(&vec![b'x'; 50_000_000]);
    assert!(bomb.len() < 100_000, "it looks harmless");
    let answer = endpoint.send("POST /write?db=db", GZIP, &bomb);
    assert_eq!(answer.status, 413);
    assert!(answer.body.contains("longer than 100000 bytes, inflated"), "{}", answer.body);
    let answer = endpoint.write("db=db", &"m v=1 1\n".repeat(20_000));
    assert_eq!(answer.status, 413);
    let whole = gzip(b"m v=1 1\n");
    for (body, status) in [
        (&whole[..], 204),
        (&whole[..whole.len() - 4], 400),
        (&b"no gzip"[..], 400),
        (&b""[..], 400),
        (&[&whole[..], &whole[..]].concat(), 204),
    ] {
        assert_eq!(endpoint.send("POST /write?db=db", GZIP, body).status, status, "{body:?}");
    }
    let answer = endpoint.send("POST /write?db=db", "Content-Encoding: br\r\n", b"x");
    assert_eq!(answer.status, 415);
}

#[test]
fn writers_that_hold_all_memory_are_told_to_come_again() {
    let settings = Settings { bodies_bytes_max: 1000, ..Settings::default() };
    let endpoint = Endpoint::new(settings);
    let answer = endpoint.write("db=db", &"m v=1 1\n".repeat(1000));
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    // The memory that the body held is free again.
    assert_eq!(endpoint.write("db=db", &"m v=1 1\n".repeat(100)).status, 204);
}

#[test]
fn who_sends_nothing_more_is_told_so() {
    let terms = Terms { read_timeout: Duration::from_millis(50), ..Terms::default() };
    let endpoint = Endpoint::new(Settings { terms, ..Settings::default() });
    let mut stream = endpoint.connect();
    stream
        .write_all(b"POST /write?db=db HTTP/1.0\r\nContent-Length: 100\r\n\r\nm v=1 1\nm v")
        .expect("the server reads");
    assert_eq!(read(&mut stream).status, 408);
    // An unfinished header gets no answer.
    let mut stream = endpoint.connect();
    stream.write_all(b"POST /write?db=db HTT").expect("the server reads");
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("204"));
}

#[test]
fn only_who_shows_a_token_is_let_in() {
    let tokens = vec![Token::full("one"), Token::full("two")];
    let endpoint = Endpoint::new(Settings { tokens, ..Settings::default() });
    let write = |headers: &str| endpoint.send("POST /write?db=db", headers, b"m v=1 1").status;
    assert_eq!(write(""), 401);
    assert_eq!(write("Authorization: Token three\r\n"), 401);
    assert_eq!(write("Authorization: Token two\r\n"), 204);
    assert_eq!(write("Authorization: Bearer one\r\n"), 204);
    // someone:two
    assert_eq!(write("Authorization: Basic c29tZW9uZTp0d28=\r\n"), 204);
    assert_eq!(endpoint.write("db=db&u=x&p=one", "m v=1 1").status, 204);
    for path in ["/query?q=SHOW+DATABASES", "/api/databases", "/api/points?db=db&measurement=m"] {
        assert_eq!(endpoint.get(path).status, 401, "{path}");
        assert_eq!(endpoint.get(&format!("{path}&p=one").replace("bases&", "bases?")).status, 200);
    }
    assert_eq!(endpoint.get("/ping").status, 204);
    assert_eq!(endpoint.get("/health").json()["status"], "pass");
    assert!(endpoint.get("/ping").header("x-influxdb-version").is_some());
}

#[test]
fn a_web_page_is_turned_away_where_no_token_is_asked_for() {
    let endpoint = Endpoint::new(Settings::default());
    let page = "Origin: http://example.org\r\n";
    assert_eq!(endpoint.send("POST /write?db=db", page, b"m v=1 1").status, 403);
    // A browser loads an image's address without an `Origin`.
    endpoint.write("db=db", "m v=1 1");
    let answer = endpoint.get("/query?db=db&q=DROP+MEASUREMENT+m");
    assert!(answer.body.contains("POST only"), "{}", answer.body);
    assert_eq!(endpoint.query("SELECT v FROM m")[0]["values"], json!([[1, 1.0]]));
}

#[test]
fn databases_are_made_by_command_where_writes_do_not() {
    let endpoint = Endpoint::new(Settings { create: false, ..Settings::default() });
    assert_eq!(endpoint.write("db=db", "m v=1 1").status, 404);
    assert_eq!(endpoint.send("POST /query?q=create+database+db", "", b"").status, 200);
    assert_eq!(endpoint.write("db=db", "m v=1 1").status, 204);
    assert_eq!(endpoint.write("", "m v=1 1").status, 400);
    assert_eq!(endpoint.get("/nowhere").status, 404);
}
