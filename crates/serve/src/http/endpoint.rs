//! The routes of the listener.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde_json::json;

use super::params::Params;
use super::refusal::{Dialect, Refusal};
use super::service::Service;
use super::{access, own, query, write};

/// Clients of InfluxDB check its version; they need the features of 1.8 that exist here.
const VERSION: &str = concat!("1.8-plimsoll-", env!("CARGO_PKG_VERSION"));

/// The handlers of all paths.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/ping", get(ping).head(ping))
        .route("/health", get(health))
        .route("/write", post(write::one))
        .route("/api/v2/write", post(write::two))
        .route("/query", get(query::query).post(query::query))
        .route("/api/points", get(own::points))
        .route("/api/databases", get(own::databases))
        .route("/api/measurements", get(own::measurements))
        .route("/api/series", get(own::series))
        .route("/api/fields", get(own::fields))
        .route("/api/tags", get(own::tags))
        .fallback(nothing)
        // Each reader of a body has its own limit.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(Arc::clone(&service), watch))
        .with_state(service)
}

/// Counts answers, checks the host, and adds the version header.
async fn watch(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let hosts = &service.settings.hosts;
    let is_here = hosts.check(request.version(), request.uri(), request.headers());
    let mut response = match is_here {
        Ok(()) => next.run(request).await,
        Err(wrong) => Refusal::new(wrong.status(), wrong.to_string()).respond(Dialect::Two),
    };
    service.stats.answered(&path, response.status());
    for (name, value) in [("x-influxdb-version", VERSION), ("x-influxdb-build", "Plimsoll")] {
        let (name, value) = (HeaderName::from_static(name), HeaderValue::from_static(value));
        response.headers_mut().insert(name, value);
    }
    response
}

async fn ping() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// The health check of version 2's clients: whether the store takes writes and serves reads, like
/// `/health/ready?store=series` of the admin listener. The reason names volumes and their errors, so with tokens only a
/// client that sends one learns it.
async fn health(State(service): State<Arc<Service>>, request: Request) -> Response {
    let tokens = service.tokens.now();
    let address = Params::of(request.uri().query(), b"");
    let tells_why =
        tokens.is_empty() || access::check(&tokens, request.headers(), &address).is_ok();
    let store = service.store.health();
    let wrong = if service.store.room().free <= 0.0 {
        Some(("writes are refused", "the buffers are full".to_owned()))
    } else if let Some(why) = store.writes_refused {
        Some(("writes are refused", format!("writes are refused: {why}")))
    } else {
        store.reads_refused.map(|why| ("reads fail", format!("reads fail: {why}")))
    };
    let wrong = wrong.map(|(brief, why)| if tells_why { why } else { brief.to_owned() });
    let (status, word, message) = match wrong {
        Some(wrong) => (StatusCode::SERVICE_UNAVAILABLE, "fail", wrong),
        None => (StatusCode::OK, "pass", "ready for queries and writes".to_owned()),
    };
    let told = json!({
        "name": "plimsoll", "message": message, "status": word, "checks": [], "version": VERSION,
    });
    (status, Json(told)).into_response()
}

async fn nothing(request: Request) -> Response {
    let path = request.uri().path().chars().take(100).collect::<String>();
    let told = format!("nothing is at {path:?}; use /write, /api/v2/write or /query");
    Refusal::new(StatusCode::NOT_FOUND, told).respond(Dialect::Two)
}
