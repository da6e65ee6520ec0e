//! A server over a store in memory, and a client that reads to the end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use engine::series::{Memory, Series};
use serve::http::{Service, Settings, Wall, router, server};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The time of the server's clock.
pub(crate) const NOW: i64 = 1_700_000_000_123_456_789;

/// A running server.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// Serves until it is dropped.
    _runtime: Runtime,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{}: {error}", self.body))
    }
}

impl Endpoint {
    pub(crate) fn new(settings: Settings) -> Self {
        Self::over(settings, Arc::new(Memory::default()), Box::new(|| NOW))
    }

    /// A server of this store, with this clock.
    pub(crate) fn over(settings: Settings, store: Arc<dyn Series>, wall: Wall) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let terms = settings.terms;
        let service = Arc::new(Service::new(settings, store, wall));
        let counts = Arc::clone(&service.stats.connections);
        let router = router(service);
        runtime.spawn(server::run(listener, router, None, terms, counts, std::future::pending()));
        Self { address, _runtime: runtime }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("a listener")
    }

    /// Sends a request with these headers, one on each line, and a body.
    pub(crate) fn send(&self, request: &str, headers: &str, body: &[u8]) -> Answer {
        let mut stream = self.connect();
        let length = body.len();
        let head = format!("{request} HTTP/1.0\r\n{headers}Content-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("the server reads");
        // The server may answer before it has read everything.
        let _ = stream.write_all(body);
        read(&mut stream)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path}"), "", b"")
    }

    pub(crate) fn write(&self, query: &str, body: &str) -> Answer {
        self.send(&format!("POST /write?{query}"), "", body.as_bytes())
    }

    /// The result of a statement: its series.
    pub(crate) fn query(&self, statement: &str) -> serde_json::Value {
        let encoded: String = form_urlencoded::byte_serialize(statement.as_bytes()).collect();
        let form = format!("db=db&epoch=ns&q={encoded}");
        let answer = self.send("POST /query", "", form.as_bytes());
        assert_eq!(answer.status, 200, "{statement}: {}", answer.body);
        let result = answer.json()["results"][0].clone();
        assert_eq!(result["error"], serde_json::Value::Null, "{statement}: {}", answer.body);
        result["series"].clone()
    }

    /// The error of a statement.
    pub(crate) fn refused(&self, statement: &str) -> String {
        let encoded: String = form_urlencoded::byte_serialize(statement.as_bytes()).collect();
        let answer = self.send("POST /query", "", format!("db=db&q={encoded}").as_bytes());
        let json = answer.json();
        let error = json["error"].as_str().or_else(|| json["results"][0]["error"].as_str());
        error.unwrap_or_else(|| panic!("{statement}: {}", answer.body)).to_owned()
    }
}

pub(crate) fn read(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // An unread body resets the connection after the answer.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer { status: status.expect("a status"), head: head.into(), body: body.into() }
}
