//! The contents of `/health`, and their audience.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use engine::health::StoreHealth;
use engine::series::{
    Batch, Columns, Cursor, Database, Durability, Info, Kind, Memory, Pending, Result, Room, Scan,
    Selector, Series, SeriesId, Session, Span, Written,
};
use serve::http::{Settings, Token};

use crate::endpoint::{Endpoint, NOW, read};

/// A store in memory that reports this health.
struct Ailing {
    memory: Memory,
    health: StoreHealth,
    free: f64,
}

impl Series for Ailing {
    fn write(&self, batch: Batch, session: Option<Session>) -> Pending<'_, Written> {
        self.memory.write(batch, session)
    }

    fn delete(&self, selector: Selector, span: Span) -> Pending<'_, u64> {
        self.memory.delete(selector, span)
    }

    fn find(
        &self,
        selector: &Selector,
        after: Option<SeriesId>,
        limit: usize,
    ) -> Result<Vec<Info>> {
        self.memory.find(selector, after, limit)
    }

    fn read(&self, series: SeriesId, scan: Scan) -> Box<dyn Cursor> {
        self.memory.read(series, scan)
    }

    fn read_columns(&self, series: &[SeriesId], scan: Scan) -> Box<dyn Columns> {
        self.memory.read_columns(series, scan)
    }

    fn create_database(&self, database: Database) -> Pending<'_, ()> {
        self.memory.create_database(database)
    }

    fn drop_database(&self, name: &str) -> Pending<'_, bool> {
        self.memory.drop_database(name)
    }

    fn databases(&self) -> Vec<Database> {
        self.memory.databases()
    }

    fn measurements(&self, selector: &Selector) -> Result<Vec<String>> {
        self.memory.measurements(selector)
    }

    fn tag_keys(&self, selector: &Selector) -> Result<Vec<String>> {
        self.memory.tag_keys(selector)
    }

    fn tag_values(&self, selector: &Selector, key: &str) -> Result<Vec<String>> {
        self.memory.tag_values(selector, key)
    }

    fn fields(&self, database: &str, measurement: &str) -> Result<Vec<(String, Kind)>> {
        self.memory.fields(database, measurement)
    }

    fn cardinality(&self, selector: &Selector) -> Result<u64> {
        self.memory.cardinality(selector)
    }

    fn room(&self) -> Room {
        Room { free: self.free, retry_after: Duration::ZERO }
    }

    fn health(&self) -> StoreHealth {
        self.health.clone()
    }

    fn durability(&self) -> Durability {
        self.memory.durability()
    }
}

/// Once, any client learned the names of volumes and the texts of their errors.
#[test]
fn a_stranger_learns_that_something_is_wrong_and_no_more() {
    let broken = |why: &str| Some(format!("volume a: {why}: /dev/nvme1n1: input/output error"));
    let writes = StoreHealth { writes_refused: broken("sync"), ..StoreHealth::default() };
    let reads = StoreHealth { reads_refused: broken("read"), ..StoreHealth::default() };
    let well = StoreHealth::default();
    let (good, wrong) = ("Authorization: Token one\r\n", "Authorization: Token two\r\n");
    for (health, free, brief, details) in [
        (&writes, 1.0, "writes are refused", "writes are refused: volume a: sync"),
        (&reads, 1.0, "reads fail", "reads fail: volume a: read"),
        (&well, 0.0, "writes are refused", "the buffers are full"),
    ] {
        let endpoint = |tokens| {
            let (health, memory) = (health.clone(), Memory::default());
            let store = Arc::new(Ailing { memory, health, free });
            Endpoint::over(Settings { tokens, ..Settings::default() }, store, Box::new(|| NOW))
        };
        let told = |endpoint: &Endpoint, headers: &str| {
            let answer = endpoint.send("GET /health", headers, b"");
            assert_eq!(answer.status, 503, "for every client");
            let json = answer.json();
            assert_eq!(json["status"], "fail");
            json["message"].as_str().expect("a text").to_owned()
        };
        let asks = endpoint(vec![Token::full("one")]);
        assert_eq!(told(&asks, ""), brief);
        assert_eq!(told(&asks, wrong), brief);
        assert!(told(&asks, good).starts_with(details), "{}", told(&asks, good));
        let open = endpoint(Vec::new());
        assert!(told(&open, "").starts_with(details), "{}", told(&open, ""));
    }
}

/// Once, the connection was reset while the client still sent the body, so that it saw a broken pipe and no 503.
#[test]
fn a_write_that_is_refused_for_full_buffers_is_answered_after_its_body() {
    let store = Ailing { memory: Memory::default(), health: StoreHealth::default(), free: 0.0 };
    let endpoint = Endpoint::over(Settings::default(), Arc::new(store), Box::new(|| NOW));
    let body = "m f=1\n".repeat(4 << 20);
    let mut stream = endpoint.connect();
    let head = format!("POST /write?db=d HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).expect("the server reads");
    stream.write_all(body.as_bytes()).expect("the server reads all of it");
    let answer = read(&mut stream);
    assert_eq!(answer.status, 503);
    assert!(answer.json()["error"].as_str().is_some_and(|why| why.contains("buffers are full")));
}
