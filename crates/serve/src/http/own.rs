//! `/api/…`: the same queries by parameters, for programs.
//!
//! | `GET` | answer |
//! |---|---|
//! | `/api/points` | points of series, or aggregates |
//! | `/api/databases` | names |
//! | `/api/measurements` | names |
//! | `/api/series` | measurement and tags |
//! | `/api/fields` | names and kinds |
//! | `/api/tags` | keys, or with `key=` their values |
//!
//! All take `db`. Points, series, fields and tags take `measurement`, which points require. All but databases and
//! fields take `where`, a condition of InfluxQL, `limit` and `offset`. Points also take `field` (repeatable; default
//! all), `from` and `to` (RFC 3339, nanoseconds, or `-1h`; `to` is excluded), `function` (`mean`, `percentile:95`, …),
//! `every` (`1m`), `fill`, `by` (a tag, repeatable, or `*`) and `order=desc`. The answer has the form of `/query`:
//! JSON, CSV or Arrow.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use super::access;
use super::influxql::{self, Statement};
use super::params::Params;
use super::query;
use super::refusal::{Dialect, Refusal};
use super::service::Service;

/// `GET /api/points`
pub(super) async fn points(state: State<Arc<Service>>, request: Request) -> Response {
    run(state, request, points_text).await
}

/// `GET /api/databases`
pub(super) async fn databases(state: State<Arc<Service>>, request: Request) -> Response {
    run(state, request, |_| Ok("SHOW DATABASES".into())).await
}

/// `GET /api/measurements`
pub(super) async fn measurements(state: State<Arc<Service>>, request: Request) -> Response {
    run(state, request, |params| Ok(format!("SHOW MEASUREMENTS{}", rest(params)))).await
}

/// `GET /api/series`
pub(super) async fn series(state: State<Arc<Service>>, request: Request) -> Response {
    run(state, request, |params| Ok(format!("SHOW SERIES{}{}", from(params), rest(params)))).await
}

/// `GET /api/fields`
pub(super) async fn fields(state: State<Arc<Service>>, request: Request) -> Response {
    run(state, request, |params| Ok(format!("SHOW FIELD KEYS{}", from(params)))).await
}

/// `GET /api/tags`
pub(super) async fn tags(state: State<Arc<Service>>, request: Request) -> Response {
    run(state, request, |params| {
        let (from, rest) = (from(params), rest(params));
        Ok(match params.get("key") {
            None => format!("SHOW TAG KEYS{from}{rest}"),
            Some(key) => format!("SHOW TAG VALUES{from} WITH KEY = {}{rest}", name(key)),
        })
    })
    .await
}

/// Builds one statement and parses it like a client's, so that no parameter can inject more than a query.
async fn run(
    State(service): State<Arc<Service>>,
    request: Request,
    text: impl FnOnce(&Params) -> Result<String, Refusal>,
) -> Response {
    let (head, _) = request.into_parts();
    let params = Params::of(head.uri.query(), b"");
    let asked = async {
        let grant = access::check(&service.tokens.now(), &head.headers, &params)?;
        let text = text(&params)?;
        let statements = influxql::parse(&text, (service.wall)());
        let statements = statements.map_err(|error| Refusal::bad(error.to_string()))?;
        let [Statement::Select(_) | Statement::Show(_)] = statements[..] else {
            return Err(Refusal::bad(
                "a parameter contains another statement: send one statement a request",
            ));
        };
        let format = query::format(&head.headers, &params)?;
        let database = params.get("db").map(str::to_owned);
        let asked = query::Asking::new(Arc::clone(&service), database, false, grant);
        query::answer(asked, statements, format).await
    };
    match asked.await {
        Ok(response) => response,
        Err(refusal) => refusal.respond(Dialect::Two),
    }
}

fn points_text(params: &Params) -> Result<String, Refusal> {
    let measurement = params.get("measurement");
    let measurement = measurement.ok_or_else(|| Refusal::bad("measurement is required"))?;
    let fields: Vec<_> = params.all("field").map(name).collect();
    let fields = if fields.is_empty() { vec!["*::field".to_owned()] } else { fields };
    let columns: Vec<_> = match params.get("function") {
        None => fields,
        Some(function) => {
            let (function, more) = match function.split_once(':') {
                Some((function, number)) => (function, format!(", {number}")),
                None => (function, String::new()),
            };
            let summed = |field: String| match &field[..] {
                "*::field" => format!("{function}(*{more})"),
                _ => format!("{function}({field}{more}) AS {field}"),
            };
            fields.into_iter().map(summed).collect()
        }
    };
    let mut conditions: Vec<_> =
        params.get("where").map(|text| format!("({text})")).into_iter().collect();
    for (param, sign) in [("from", ">="), ("to", "<")] {
        conditions.extend(params.get(param).map(|at| format!("time {sign} {}", instant(at))));
    }
    let mut text = format!("SELECT {} FROM {}", columns.join(", "), name(measurement));
    if !conditions.is_empty() {
        text.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
    }
    let every = params.get("every").map(|every| format!("time({every})"));
    let by = params.all("by").map(|tag| if tag == "*" { tag.to_owned() } else { name(tag) });
    let group: Vec<_> = every.into_iter().chain(by).collect();
    if !group.is_empty() {
        text.push_str(&format!(" GROUP BY {}", group.join(", ")));
    }
    if let Some(fill) = params.get("fill") {
        text.push_str(&format!(" fill({fill})"));
    }
    if params.get("order") == Some("desc") {
        text.push_str(" ORDER BY time DESC");
    }
    text.push_str(&page(params));
    Ok(text)
}

fn from(params: &Params) -> String {
    params.get("measurement").map(|of| format!(" FROM {}", name(of))).unwrap_or_default()
}

fn rest(params: &Params) -> String {
    let filter = params.get("where").map(|text| format!(" WHERE {text}")).unwrap_or_default();
    format!("{filter}{}", page(params))
}

fn page(params: &Params) -> String {
    let mut text = String::new();
    for (param, keyword) in [("limit", "LIMIT"), ("offset", "OFFSET")] {
        text.extend(params.get(param).map(|count| format!(" {keyword} {count}")));
    }
    text
}

/// A quoted name.
fn name(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{text}\"")
}

/// A number, a duration from now, or a text.
fn instant(text: &str) -> String {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match text.strip_prefix('-') {
        Some(number) if is_number(number) => text.to_owned(),
        Some(ago) => format!("now() - {ago}"),
        None if is_number(text) || text.starts_with("now()") => text.to_owned(),
        None => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
    }
}
