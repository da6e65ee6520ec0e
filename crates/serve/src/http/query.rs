//! `/query`: executes statements, and streams the answers.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::access::{self, Grant};
use super::answer::{self, Format, Outcome, ROWS_AT_ONCE};
use super::arrow;
use super::execute::{Context, execute};
use super::influxql::{self, Statement, TEXT_BYTES_MAX};
use super::line::Precision;
use super::params::Params;
use super::refusal::{Dialect, Refusal};
use super::service::Service;

/// How long a query waits for a permit before its client is told to retry.
const TURN: Duration = Duration::from_secs(10);
/// Pieces of an answer buffered for a slow reader.
const PIECES_AHEAD: usize = 2;
/// A form may escape each byte of a text with three.
const FORM_BYTES_MAX: usize = TEXT_BYTES_MAX * 3 + 64 * 1024;

/// `GET` or `POST /query?q=…&db=…&epoch=…&chunked=…`
pub(super) async fn query(State(service): State<Arc<Service>>, request: Request) -> Response {
    match ask(service, request).await {
        Ok(response) => response,
        Err(refusal) => refusal.respond(Dialect::One),
    }
}

async fn ask(service: Arc<Service>, request: Request) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    let post = head.method == Method::POST;
    // Check the token before reading a body.
    let address = Params::of(head.uri.query(), b"");
    let tokens = service.tokens.now();
    let grant = access::check(&tokens, &head.headers, &address)?;
    let form = if post { form(&service, &head.headers, body).await? } else { Vec::new() };
    let params = Params::of(head.uri.query(), &form);
    let text = params
        .get("q")
        .ok_or_else(|| Refusal::bad("missing required parameter \"q\": a statement of InfluxQL"))?;
    let now = (service.wall)();
    let statements = influxql::parse(text, now).map_err(|error| Refusal::bad(error.to_string()))?;
    let format = format(&head.headers, &params)?;
    let database = params.get("db").map(str::to_owned);
    // A link in a page can make a browser send a GET, but not with a token.
    let may_change = post || !tokens.is_empty();
    answer(Asking::new(service, database, may_change, grant), statements, format).await
}

async fn form(service: &Service, headers: &HeaderMap, body: Body) -> Result<Vec<u8>, Refusal> {
    let read = to_bytes(body, FORM_BYTES_MAX);
    let limit = service.settings.terms.read_timeout;
    let bytes = tokio::time::timeout(limit, read).await.map_err(|_| {
        Refusal::new(StatusCode::REQUEST_TIMEOUT, "the statement did not arrive in time")
    })?;
    let bytes = bytes.map_err(|_| {
        let told =
            format!("the statement is longer than {TEXT_BYTES_MAX} bytes, or the connection broke");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, told)
    })?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_form = kind.is_none_or(|kind| kind.starts_with("application/x-www-form-urlencoded"));
    Ok(if is_form { bytes.to_vec() } else { Vec::new() })
}

/// The format that the client requests.
pub(super) fn format(headers: &HeaderMap, params: &Params) -> Result<Format, Refusal> {
    let epoch = match params.get("epoch") {
        None => None,
        Some(name) => Some(Precision::named(name).ok_or_else(|| {
            Refusal::bad(format!("invalid epoch {name:?}: give ns, u, ms, s, m or h"))
        })?),
    };
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let accepts = accepts.unwrap_or_default();
    match params.get("format") {
        None if accepts.contains("text/csv") || accepts.contains("application/csv") => {
            return Ok(Format::Csv { epoch });
        }
        None if accepts.contains(Format::Arrow.media_type()) => return Ok(Format::Arrow),
        Some("csv") => return Ok(Format::Csv { epoch }),
        Some("arrow") => return Ok(Format::Arrow),
        None | Some("json") => {}
        Some(other) => {
            return Err(Refusal::bad(format!("invalid format {other:?}: give json, csv or arrow")));
        }
    }
    let size = params.get("chunk_size").and_then(|size| size.parse().ok());
    let chunked = params.is("chunked").then(|| size.unwrap_or(ROWS_AT_ONCE));
    Ok(Format::Json { epoch, chunked })
}

/// Runs statements one after the other; streams their answers as they are made.
///
/// Statements beyond the rights of the client's token are refused before any runs.
pub(super) async fn answer(
    asking: Asking,
    statements: Vec<Statement>,
    format: Format,
) -> Result<Response, Refusal> {
    asking.check(&statements)?;
    let service = Arc::clone(&asking.service);
    let turn = Arc::clone(&service.queries).acquire_owned();
    let turn = match tokio::time::timeout(TURN, turn).await {
        Ok(Ok(turn)) => turn,
        _ => {
            return Err(Refusal::busy("busy: too many queries are running, try again later", TURN));
        }
    };
    service.stats.queries.add(statements.len() as u64);
    let began = Instant::now();
    // An Arrow stream begins with its schema, so errors must come before it.
    let tables = if format == Format::Arrow {
        let [statement] = &statements[..] else {
            return Err(Refusal::bad(
                "a stream of Arrow answers one statement: send one a request",
            ));
        };
        let tables = execute(&asking.context(), statement).await?;
        Some(arrow::Pieces::new(tables).map_err(Refusal::bad)?)
    } else {
        None
    };
    let (sender, receiver) = mpsc::channel::<Bytes>(PIECES_AHEAD);
    tokio::spawn(async move {
        let reader = Reader { service: &asking.service, sender };
        match tables {
            Some(pieces) => reader.take_all(pieces).await,
            None => statements_answered(&asking, &statements, format, &reader).await,
        };
        service.stats.query_times.add(began.elapsed());
        drop(turn);
    });
    let pieces = stream::unfold(receiver, |mut receiver| async move {
        let piece = receiver.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(piece), receiver))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let kind = HeaderValue::from_static(format.media_type());
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// The context of a request's statements, for its task.
pub(super) struct Asking {
    service: Arc<Service>,
    database: Option<String>,
    now: i64,
    may_change: bool,
    grant: Grant,
}

impl Asking {
    /// For a client with this `grant`; `database` is the default of statements that name none.
    pub(super) fn new(
        service: Arc<Service>,
        database: Option<String>,
        may_change: bool,
        grant: Grant,
    ) -> Self {
        let now = (service.wall)();
        Self { service, database, now, may_change, grant }
    }

    /// Checks the rights for all statements, as far as possible without running them.
    fn check(&self, statements: &[Statement]) -> Result<(), Refusal> {
        for statement in statements {
            match statement {
                Statement::Select(_) | Statement::Show(_) => self.grant.read()?,
                _ => self.grant.change()?,
            }
        }
        Ok(self.database.iter().try_for_each(|name| self.grant.database(name))?)
    }

    fn context(&self) -> Context<'_> {
        Context {
            store: &*self.service.store,
            database: self.database.as_deref(),
            now: self.now,
            values_max: self.service.settings.answer_values_max,
            may_change: self.may_change,
            grant: &self.grant,
        }
    }
}

/// Answers statements one after the other; false once the client is gone.
async fn statements_answered(
    asking: &Asking,
    statements: &[Statement],
    format: Format,
    reader: &Reader<'_>,
) -> bool {
    if !reader.take(answer::begin(format).into()).await {
        return false;
    }
    let context = asking.context();
    for (n, statement) in statements.iter().enumerate() {
        let outcome: Outcome =
            execute(&context, statement).await.map_err(|refusal| refusal.message);
        // Stop if the client has hung up.
        if !reader.take_all(answer::pieces(format, n, outcome).map(Bytes::from)).await {
            return false;
        }
    }
    reader.take(answer::end(format).into()).await
}

/// The receiver of an answer.
struct Reader<'a> {
    service: &'a Service,
    sender: mpsc::Sender<Bytes>,
}

impl Reader<'_> {
    /// False if the client is gone.
    async fn take(&self, piece: Bytes) -> bool {
        self.service.stats.bytes_out.add(piece.len() as u64);
        piece.is_empty() || self.sender.send(piece).await.is_ok()
    }

    async fn take_all(&self, pieces: impl Iterator<Item = Bytes>) -> bool {
        for piece in pieces {
            if !self.take(piece).await {
                return false;
            }
        }
        true
    }
}
