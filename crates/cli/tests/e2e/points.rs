//! Acknowledged points survive the death of the process, once each, repeatedly and under load.
//!
//! Writers send batches in sessions, and regularly delete old rows. A batch has rows with distinct times, one row that
//! every batch overwrites, and one without a time, which a batch stored twice would duplicate. The test kills or stops
//! the server after some batches. After the restart exactly the acknowledged rows must be stored, and repeated batches
//! must change nothing. Each round uses another durability: under each of them, the death of the process loses nothing.
//! `PLIMSOLL_ROUNDS` sets the number of rounds.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Sender, channel};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::Value;

use crate::place::{Place, Server, settings};

/// The number of deaths, unless `PLIMSOLL_ROUNDS` is set.
const ROUNDS: u64 = 8;
/// One round in this many ends with SIGTERM.
const TERM_ONE_IN: u64 = 4;
const WRITERS: u64 = 4;
/// Rows of a batch with distinct times.
const ROWS: u64 = 40;
/// One batch in this many is followed by a delete of all but the last [`KEPT`].
const DELETE_ONE_IN: u64 = 16;
const KEPT: u64 = 60;

/// Small buffers and logs, so that blocks are constantly written and regrouped.
fn series(durability: &str) -> String {
    let store = format!(
        "[volume.d]\npath = \"d\"\ncontract = \"unlimited\"\n\n[series]\nvolumes = [\"d\"]\n\
         durability = \"{durability}\"\nmemory = \"1MiB\"\nsource_memory = \"1KiB\"\nwal = \"256KiB\"\n\
         age = \"200ms\"\n\n[http]\nlisten = \"127.0.0.1:0\"\n\n"
    );
    store + &settings("unlimited", "")
}

/// The answer to a request: status, head, body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

/// One request on its own connection.
pub(crate) fn ask(endpoint: SocketAddr, request: &str, headers: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(endpoint).expect("the endpoint is open");
    let length = body.len();
    write!(stream, "{request} HTTP/1.0\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
        .expect("the endpoint reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the endpoint answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer { status: status.expect("a status"), head: head.into(), body: body.into() }
}

/// The rows of a query's only series, times first.
fn query(endpoint: SocketAddr, statement: &str) -> Vec<Vec<i64>> {
    let statement = statement.replace(' ', "+");
    let answer = ask(endpoint, &format!("GET /query?db=db&epoch=ns&q={statement}"), "", "");
    assert_eq!(answer.status, 200, "{statement}: {}", answer.body);
    let json: Value = serde_json::from_str(&answer.body).expect("JSON");
    let result = &json["results"][0];
    assert_eq!(result["error"], Value::Null, "{statement}");
    let Some(rows) = result["series"][0]["values"].as_array() else { return Vec::new() };
    let number = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{statement}: {value}"));
    let row = |row: &Value| row.as_array().expect("a row").iter().map(number).collect();
    rows.iter().map(row).collect()
}

/// One writing client, and the expected state of its rows.
struct Writer {
    number: u64,
    /// The number of batches acknowledged.
    batches: u64,
    /// Whether one more batch was sent.
    sent: bool,
    /// Rows of batches before this one were deleted.
    floor: u64,
    /// The bound of one more delete that was sent, if any.
    deleting: Option<u64>,
}

impl Writer {
    fn new(number: u64) -> Self {
        Self { number, batches: 0, sent: false, floor: 0, deleting: None }
    }

    fn value(&self, time: u64) -> i64 {
        (time * 7919 % 1009 * 10 + self.number) as i64
    }

    fn lines(&self, batch: u64) -> String {
        let w = self.number;
        let row = |time| format!("rows,w={w} v={}i {time}\n", self.value(time));
        let rows: String = (batch * ROWS..(batch + 1) * ROWS).map(row).collect();
        format!("{rows}newest,w={w} n={batch}i 0\nstamp,w={w} n={batch}i\n")
    }

    fn headers(&self, batch: u64) -> String {
        format!("X-Plimsoll-Session: w{}\r\nX-Plimsoll-Sequence: {batch}\r\n", self.number)
    }

    fn delete(&self, below: u64) -> String {
        let time = below * ROWS;
        format!("DELETE+FROM+rows+WHERE+w%3D'{}'+AND+time+%3C+{time}", self.number)
    }

    /// One request on a persistent connection; returns the status, or `None` if the connection ended. A killed server
    /// resets the connection: treat that as an end.
    fn post(stream: &mut BufReader<TcpStream>, to: &str, headers: &str, body: &str) -> Option<u16> {
        let length = body.len();
        let request = format!(
            "POST {to} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.get_mut().write_all(request.as_bytes()).ok()?;
        let (mut status, mut line) = (None, String::new());
        loop {
            line.clear();
            if stream.read_line(&mut line).ok()? == 0 || !line.ends_with("\r\n") {
                return None;
            }
            if line == "\r\n" {
                return status;
            }
            status = status.or_else(|| line.split(' ').nth(1)?.parse().ok());
        }
    }

    /// Writes until the connection ends; notifies `tell` after each acknowledged batch.
    fn run(&mut self, endpoint: SocketAddr, tell: &Sender<()>) {
        let Ok(stream) = TcpStream::connect(endpoint) else { return };
        let mut stream = BufReader::new(stream);
        loop {
            let batch = self.batches;
            self.sent = true;
            let (headers, lines) = (self.headers(batch), self.lines(batch));
            match Self::post(&mut stream, "/write?db=db", &headers, &lines) {
                Some(204) => (),
                // The buffers are full: nothing was stored. The answer has a body, so reconnect.
                Some(503) => {
                    let Ok(again) = TcpStream::connect(endpoint) else { return };
                    stream = BufReader::new(again);
                    continue;
                }
                Some(other) => panic!("batch {batch} was answered with {other}"),
                None => return,
            }
            (self.batches, self.sent) = (batch + 1, false);
            if batch.is_multiple_of(DELETE_ONE_IN) && batch > KEPT {
                let below = batch - KEPT;
                self.deleting = Some(below);
                let Ok(mut other) = TcpStream::connect(endpoint) else { return };
                let mut answer = String::new();
                let statement = self.delete(below);
                let asked = write!(other, "POST /query?db=db&q={statement} HTTP/1.0\r\n\r\n");
                if asked.is_err()
                    || other.read_to_string(&mut answer).is_err()
                    || !answer.ends_with("]}\n")
                {
                    return;
                }
                assert!(!answer.contains("error"), "{answer}");
                (self.floor, self.deleting) = (below, None);
            }
            if tell.send(()).is_err() {
                return;
            }
        }
    }

    /// Compares the stored rows with the allowed ones, and repeats batches as a client would.
    fn verify(&mut self, endpoint: SocketAddr) {
        let w = self.number;
        let stamps = query(endpoint, &format!("SELECT n FROM stamp WHERE w='{w}'"));
        let mut seen = BTreeMap::<i64, u64>::new();
        stamps.iter().for_each(|row| *seen.entry(row[1]).or_default() += 1);
        let doubled: Vec<_> = seen.iter().filter(|&(_, &count)| count > 1).collect();
        assert!(doubled.is_empty(), "writer {w}: batches stored twice: {doubled:?}");
        let stored = seen.len() as u64;
        let most = self.batches + u64::from(self.sent);
        assert!(
            (self.batches..=most).contains(&stored) && seen.keys().copied().eq(0..stored as i64),
            "writer {w}: {} batches were answered, there are {:?}",
            self.batches,
            seen.keys()
        );
        // A batch is stored whole or not at all.
        let newest = query(endpoint, &format!("SELECT n FROM newest WHERE w='{w}'"));
        let wanted: Vec<_> = stored.checked_sub(1).map(|n| vec![0, n as i64]).into_iter().collect();
        assert_eq!(newest, wanted, "writer {w}");
        let rows = query(endpoint, &format!("SELECT v FROM rows WHERE w='{w}'"));
        let first = rows.first().map_or(stored * ROWS, |row| row[0] as u64);
        let floors = [self.floor, self.deleting.unwrap_or(self.floor)].map(|floor| floor * ROWS);
        let wanted = |from: u64| {
            rows.iter()
                .map(|row| (row[0], row[1]))
                .eq((from..stored * ROWS).map(|time| (time as i64, self.value(time))))
        };
        assert!(
            floors.contains(&first) && wanted(first),
            "writer {w}: rows from {floors:?} to {}, not {} from {first}",
            stored * ROWS,
            rows.len()
        );
        // Repeats the last acknowledged batches, and those without an answer.
        for batch in stored.saturating_sub(2)..most {
            let (headers, lines) = (self.headers(batch), self.lines(batch));
            let answer = ask(endpoint, "POST /write?db=db", &headers, &lines);
            assert_eq!(answer.status, 204, "{}", answer.body);
            let repeated = answer.head.contains("x-plimsoll-repeated: true");
            assert_eq!(repeated, batch < stored, "writer {w}, batch {batch} of {stored}");
        }
        if let Some(below) = self.deleting.take() {
            let answer =
                ask(endpoint, &format!("POST /query?db=db&q={}", self.delete(below)), "", "");
            assert_eq!(answer.status, 200);
            self.floor = below;
        }
        (self.batches, self.sent) = (most, false);
        let newest = query(endpoint, &format!("SELECT n FROM newest WHERE w='{w}'"));
        let wanted: Vec<_> = most.checked_sub(1).map(|n| vec![0, n as i64]).into_iter().collect();
        assert_eq!(newest, wanted, "writer {w}: an older batch came again");
    }
}

#[test]
fn points_that_were_answered_are_there_once_when_the_process_dies() {
    let rounds = std::env::var("PLIMSOLL_ROUNDS").ok().and_then(|text| text.parse().ok());
    let place = Place::new();
    std::fs::create_dir(place.path("d")).expect("room for a directory");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut writers: Vec<_> = (0..WRITERS).map(Writer::new).collect();
    for round in 0..rounds.unwrap_or(ROUNDS) {
        let durability = ["always", "everysec", "none"][round as usize % 3];
        place.write(&series(durability));
        let server = place.serve();
        let endpoint = server.http.expect("the endpoint is named");
        if round == 0 {
            assert_eq!(ask(endpoint, "POST /query?q=CREATE+DATABASE+db", "", "").status, 200);
        }
        for writer in &mut writers {
            writer.verify(endpoint);
        }
        let batches = random.random_range(10..200);
        let end = if round % TERM_ONE_IN == 1 { Server::stop } else { Server::kill };
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            for writer in &mut writers {
                let tell = tell.clone();
                scope.spawn(move || writer.run(endpoint, &tell));
            }
            drop(tell);
            told.iter().take(batches).for_each(drop);
            end(server);
            // Waits until the last writer has ended.
            told.iter().for_each(drop);
        });
    }
    let server = place.serve();
    for writer in &mut writers {
        writer.verify(server.http.expect("the endpoint is named"));
        assert!(writer.batches > 0);
    }
    server.stop();
}
