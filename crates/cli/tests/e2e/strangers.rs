//! Malicious or broken clients of time series: each gets an error, and memory stays bounded.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::place::{Place, Server, settings, until};

/// The limit on series.
const SERIES_MAX: u64 = 2000;

fn place() -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path("d")).expect("room for a directory");
    let store = format!(
        "[volume.d]\npath = \"d\"\ncontract = \"unlimited\"\n\n[series]\nvolumes = [\"d\"]\n\
         memory = \"4MiB\"\nseries_max = {SERIES_MAX}\n\n[http]\nlisten = \"127.0.0.1:0\"\n\
         connections_max = 16\nwrite_timeout = \"100ms\"\nbody_max = \"1MiB\"\nbodies_memory = \"4MiB\"\n\n"
    );
    place.write(&(store + &settings("unlimited", "")));
    place
}

/// The status and body of a request on its own connection.
fn ask(endpoint: SocketAddr, request: &str, headers: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(endpoint).expect("the endpoint is open");
    let length = body.len();
    let head = format!("{request} HTTP/1.0\r\n{headers}Content-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("the endpoint reads");
    // It may answer before it has read everything.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

fn figure(server: &Server, name: &str) -> f64 {
    let (_, metrics) = server.admin("GET /metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {metrics}"))
}

fn resident(server: &Server) -> f64 {
    figure(server, "plimsoll_memory_resident_bytes")
}

const MIB: f64 = 1024.0 * 1024.0;

/// Batches of a thousand values of a tag; `PLIMSOLL_TAGS` sets the number of batches.
#[test]
fn a_writer_that_makes_up_tags_is_stopped() {
    let batches = std::env::var("PLIMSOLL_TAGS").ok().and_then(|text| text.parse().ok());
    let place = place();
    let server = place.serve();
    let endpoint = server.http.expect("the endpoint is named");
    let write = |text: &str| ask(endpoint, "POST /write?db=db", "", text.as_bytes());
    let lines = |batch: u64| -> String {
        (0..1000).map(|n| format!("m,id={} v=1\n", batch * 1000 + n)).collect()
    };
    assert_eq!((write(&lines(0)).0, write(&lines(1)).0), (204, 204));
    let before = resident(&server);
    for batch in 2..batches.unwrap_or(40) {
        let (status, told) = write(&lines(batch));
        assert_eq!(status, 400);
        assert!(
            told.contains("the limit of 2000 series is reached: delete some, or raise series_max")
                && told.contains("dropped=1000")
                && told.len() < 4000,
            "{told}"
        );
        // Invents measurements and fields as well.
        let more: String =
            (0..500).map(|n| format!("m{batch}_{n} v=1\nm,id=7 f{batch}_{n}=1\n")).collect();
        assert_eq!(write(&more).0, 400);
    }
    let grown = (resident(&server) - before) / MIB;
    assert!(grown < 24.0, "{grown} MiB more");
    assert_eq!(figure(&server, "plimsoll_series_known"), SERIES_MAX as f64);
    // Known series still take points.
    assert_eq!(write(&lines(0)).0, 204);
    server.stop();
}

#[test]
fn bombs_and_endless_lines_take_no_memory() {
    let place = place();
    let server = place.serve();
    let endpoint = server.http.expect("the endpoint is named");
    // 64 MiB of zeros as 64 KiB of gzip, sent whole and inside a stream.
    let bomb = {
        let mut gzip = std::process::Command::new("sh");
        let made = gzip.args(["-c", "head -c 67108864 /dev/zero | gzip -9"]).output();
        made.expect("gzip is there").stdout
    };
    assert!(bomb.len() < 100_000);
    let before = resident(&server);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (status, told) =
                    ask(endpoint, "POST /write?db=db", "Content-Encoding: gzip\r\n", &bomb);
                assert!(status == 413 || status == 503, "{status} {told}");
                // One line without an end, and one with too many fields.
                let long = [&b"m v=\""[..], &vec![b'x'; 1_000_000]].concat();
                let (status, told) = ask(endpoint, "POST /write?db=db", "", &long);
                assert!(status == 400 || status == 503, "{status} {told}");
                let fields: String = (0..80_000).map(|n| format!("f{n}=1,")).collect();
                let (status, told) =
                    ask(endpoint, "POST /write?db=db", "", format!("m {fields}v=1 1").as_bytes());
                assert!(status == 400 || status == 503, "{status} {told}");
            });
        }
    });
    let grown = (resident(&server) - before) / MIB;
    assert!(grown < 48.0, "{grown} MiB more");
    assert_eq!(ask(endpoint, "POST /write?db=db", "", b"m v=1 1").0, 204);
    server.stop();
}

#[test]
fn who_does_not_take_the_answer_is_let_go() {
    let place = place();
    let server = place.serve();
    let endpoint = server.http.expect("the endpoint is named");
    for part in 0..20 {
        let lines: String = (0..5000)
            .map(|n| format!("m s=\"{}\" {}\n", "x".repeat(100), part * 5000 + n))
            .collect();
        // On a busy machine the server may not keep up with this little memory, and answers 503.
        until(|| match ask(endpoint, "POST /write?db=db", "", lines.as_bytes()) {
            (204, _) => true,
            (503, _) => false,
            other => panic!("{other:?}"),
        });
    }
    let asked = "plimsoll_http_request_seconds_count{wanted=\"query\"}";
    let before = figure(&server, asked);
    let memory = resident(&server);
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = TcpStream::connect(endpoint).expect("the endpoint is open");
            let query = "GET /query?db=db&q=SELECT+s+FROM+m HTTP/1.0\r\n\r\n";
            stream.write_all(query.as_bytes()).expect("the endpoint reads");
            stream
        })
        .collect();
    // The clients read nothing, and yet their queries end.
    until(|| figure(&server, asked) >= before + 4.0);
    let grown = (resident(&server) - memory) / MIB;
    assert!(grown < 256.0, "{grown} MiB more");
    for mut reader in readers {
        let mut answer = Vec::new();
        let _ = reader.read_to_end(&mut answer);
        assert!(!answer.ends_with(b"]}\n"), "all of it fitted somewhere");
    }
    assert_eq!(ask(endpoint, "GET /ping", "", b"").0, 204);
    server.stop();
}

#[test]
fn too_many_connections_are_turned_away_and_others_go_on() {
    let place = place();
    let server = place.serve();
    let endpoint = server.http.expect("the endpoint is named");
    let open = || TcpStream::connect(endpoint).expect("the system accepts");
    let ping = |stream: &mut TcpStream| {
        let mut answer = Vec::new();
        let asked = stream.write_all(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let read = asked.and_then(|()| {
            let mut some = [0; 1000];
            let len = stream.read(&mut some)?;
            answer.extend_from_slice(&some[..len]);
            Ok(())
        });
        read.is_ok() && answer.starts_with(b"HTTP/1.1 204")
    };
    let mut all: Vec<_> = (0..16).map(|_| open()).collect();
    assert!(all.iter_mut().all(ping));
    for _ in 0..100 {
        assert!(!ping(&mut open()));
    }
    assert!(all.iter_mut().all(ping), "those that were there are served");
    all.pop();
    while !ping(&mut open()) {}
    assert!(figure(&server, "plimsoll_http_rejected_connections_total") >= 100.0);
    server.stop();
}
