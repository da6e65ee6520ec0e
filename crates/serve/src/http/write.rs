//! `/write` and `/api/v2/write`: the lines of a body as one batch of the store.
//!
//! Good lines are stored even if others are not; the answer then reports the mistakes, in InfluxDB's words. A request
//! is one batch, so that a session can tell whether it was stored.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use engine::series::{Batch, Database, Error, Session, Written};
use std::sync::Arc;
use tokio::time::Instant;

use super::access;
use super::body::{Incoming, let_pass};
use super::line::{BadLine, Decoder, Line, Precision, Problem};
use super::params::Params;
use super::refusal::{Dialect, Refusal};
use super::row;
use super::service::Service;

/// The most bad lines that an answer reports.
const TOLD_MAX: usize = 10;

/// The free share of the store's buffers, 0 full to 1 empty: a writer may slow down before it is refused.
const ROOM: &str = "x-plimsoll-room";
/// The client of a batch, and the batch's sequence number.
const SESSION: &str = "x-plimsoll-session";
const SEQUENCE: &str = "x-plimsoll-sequence";
/// Marks a batch that was stored before.
const REPEATED: &str = "x-plimsoll-repeated";

/// `POST /write?db=…&precision=…`
pub(super) async fn one(State(service): State<Arc<Service>>, request: Request) -> Response {
    let began = Instant::now();
    let done = write(&service, request, "db", Precision::Nanoseconds).await;
    service.stats.write_times.add(began.elapsed());
    respond(&service, done, Dialect::One)
}

/// `POST /api/v2/write?bucket=…&org=…&precision=…`
pub(super) async fn two(State(service): State<Arc<Service>>, request: Request) -> Response {
    let began = Instant::now();
    let done = write(&service, request, "bucket", Precision::Nanoseconds).await;
    service.stats.write_times.add(began.elapsed());
    respond(&service, done, Dialect::Two)
}

/// The result of a body.
struct Done {
    written: Written,
    dropped: usize,
    bad: Vec<BadLine>,
}

fn respond(service: &Service, done: Result<Done, Refusal>, dialect: Dialect) -> Response {
    let mut repeated = false;
    let mut response = match done {
        Ok(done) if done.dropped == 0 => {
            repeated = done.written.repeated;
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Ok(done) => {
            repeated = done.written.repeated;
            partial(&done, dialect).respond(dialect)
        }
        Err(refusal) => {
            if refusal.retry_after.is_some() {
                service.stats.busy.add_one();
            }
            refusal.respond(dialect)
        }
    };
    let headers = response.headers_mut();
    if let Ok(room) = HeaderValue::from_str(&format!("{:.3}", service.store.room().free)) {
        headers.insert(ROOM, room);
    }
    if repeated {
        headers.insert(REPEATED, HeaderValue::from_static("true"));
    }
    response
}

/// The mistakes of a body whose other lines were stored.
fn partial(done: &Done, dialect: Dialect) -> Refusal {
    let conflict = done.bad.iter().all(|bad| matches!(bad.problem, Problem::Refused(_)));
    let mut told: Vec<_> = done.bad.iter().map(ToString::to_string).collect();
    let more = done.dropped - told.len();
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    let told = told.join("\n");
    let message = if done.written.rows == 0 && !conflict && !done.written.repeated {
        told
    } else {
        format!("partial write: {told} dropped={}", done.dropped)
    };
    let status = match dialect {
        // As in version 2, if the store refused the rows, not the parser.
        Dialect::Two if conflict => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::BAD_REQUEST,
    };
    let line = done.bad.iter().map(|bad| bad.line).min();
    Refusal { line, ..Refusal::new(status, message) }
}

async fn write(
    service: &Service,
    request: Request,
    database: &str,
    usual: Precision,
) -> Result<Done, Refusal> {
    let (head, body) = request.into_parts();
    let params = Params::of(head.uri.query(), b"");
    let settings = &service.settings;
    let grant = access::check(&service.tokens.now(), &head.headers, &params)?;
    grant.write()?;
    let Some(name) = params.get(database) else {
        return Err(Refusal::bad(format!("{database} is required: the name of a database")));
    };
    // In version 2, a bucket is a database and its retention policy.
    let name = if database == "bucket" { name.split('/').next().unwrap_or(name) } else { name };
    grant.database(name)?;
    let precision = match params.get("precision") {
        None => usual,
        Some(text) => Precision::named(text).ok_or_else(|| {
            Refusal::bad(format!("invalid precision {text:?}: give ns, us, ms, s, m or h"))
        })?,
    };
    let session = session(&head.headers)?;
    let (max, timeout) = (settings.body_bytes_max, settings.terms.read_timeout);
    let room = service.store.room();
    if room.free <= 0.0 {
        let_pass(&head.headers, body, max, timeout).await;
        return Err(Refusal::busy("busy: the buffers are full", room.retry_after));
    }
    let bodies = Arc::clone(&service.bodies);
    let mut body = Incoming::new(&head.headers, body, max, timeout, bodies)?;
    let now = (service.wall)();
    let mut rows = Rows::new(name, now - now.rem_euclid(precision.nanos()));
    let mut decoder = Decoder::new(precision, settings.line_bytes_max);
    loop {
        let more = body.read(decoder.room()).await?;
        if !more {
            decoder.finish();
        }
        while let Some(line) = decoder.next() {
            rows.take(line);
        }
        if !more {
            break;
        }
    }
    service.stats.bytes_in.add(body.received as u64);
    drop(decoder);
    // The rows take about the memory that was reserved for the body.
    let held = body.into_held();
    let done = rows.store(service, session).await;
    drop(held);
    if let Ok(done) = &done {
        let Written { rows, points, repeated, .. } = &done.written;
        service.stats.rows.add(*rows as u64);
        service.stats.points.add(*points as u64);
        service.stats.dropped.add(done.dropped as u64);
        service.stats.repeated.add(u64::from(*repeated));
    }
    done
}

fn session(headers: &HeaderMap) -> Result<Option<Session>, Refusal> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let (client, sequence) = match (text(SESSION), text(SEQUENCE)) {
        (None, None) => return Ok(None),
        (Some(client), Some(sequence)) => (client, sequence),
        _ => return Err(Refusal::bad(format!("send {SESSION} and {SEQUENCE} together"))),
    };
    if !(1..=64).contains(&client.len()) {
        return Err(Refusal::bad(format!("{SESSION}: give a name of 1 to 64 bytes")));
    }
    let sequence = sequence.parse();
    let sequence =
        sequence.map_err(|_| Refusal::bad(format!("{SEQUENCE}: give a whole number")))?;
    Ok(Some(Session { client: client.to_owned(), sequence }))
}

/// Lines being added to a batch.
struct Rows {
    batch: Batch,
    /// The number of each row's line.
    lines: Vec<u64>,
    now: i64,
    dropped: usize,
    bad: Vec<BadLine>,
}

impl Rows {
    fn new(database: &str, now: i64) -> Self {
        let batch = Batch::new(database);
        Self { batch, lines: Vec::new(), now, dropped: 0, bad: Vec::new() }
    }

    fn take(&mut self, line: Result<Line<'_>, BadLine>) {
        let taken = line.and_then(|line| {
            self.row(&line).map_err(|(byte, problem)| {
                self.batch.give_up();
                line.bad(byte, problem)
            })
        });
        if let Err(bad) = taken {
            self.drop(bad);
        }
    }

    fn row(&mut self, line: &Line<'_>) -> Result<(), (usize, Problem)> {
        row::put(&mut self.batch, line, self.now)?;
        self.lines.push(line.number());
        Ok(())
    }

    fn drop(&mut self, bad: BadLine) {
        self.dropped += 1;
        if self.bad.len() < TOLD_MAX {
            self.bad.push(bad);
        }
    }

    /// Stores the good lines.
    async fn store(mut self, service: &Service, session: Option<Session>) -> Result<Done, Refusal> {
        let mut written = Written::default();
        if !self.batch.is_empty() {
            let name = self.batch.database().to_owned();
            if service.settings.create && !exists(service, &name) {
                let database = Database { name, keep: None };
                service.store.create_database(database).await?;
            }
            let batch = std::mem::replace(&mut self.batch, Batch::new(""));
            written = service.store.write(batch, session).await.map_err(|error| match error {
                Error::NotFound(why) => Refusal::new(StatusCode::NOT_FOUND, why),
                full @ Error::OutOfSpace(_) => Refusal::new(
                    StatusCode::INSUFFICIENT_STORAGE,
                    format!("{full}; nothing of the batch was stored"),
                ),
                other => other.into(),
            })?;
        }
        for rejected in &written.rejected {
            let line = self.lines.get(rejected.row).copied().unwrap_or_default();
            let problem = Problem::Refused(rejected.reason.to_string());
            self.drop(BadLine { line, byte: 0, text: String::new(), problem });
        }
        let untold = written.refused.saturating_sub(written.rejected.len());
        Ok(Done { dropped: self.dropped + untold, bad: self.bad, written })
    }
}

fn exists(service: &Service, name: &str) -> bool {
    service.store.databases().iter().any(|database| database.name == name)
}
