//! The admin door: health, metrics and reload, over HTTP on loopback or a Unix socket.
//!
//! | request | answer |
//! |---|---|
//! | `GET /health` | 200 while everything is served, 503 and what is wrong otherwise; JSON |
//! | `GET /metrics` | OpenMetrics |
//! | `GET /figures` | a [`Snapshot`]; JSON |
//! | `POST /reload` | 200 and what changed, 409 and what is wrong with the settings file; text |
//!
//! There is no authentication: whoever reaches the socket may reload. A page in a browser on the
//! same machine does not count as such, so requests that carry an `Origin` are refused.

mod metrics;
pub mod snapshot;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Json, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use tokio::task::spawn_blocking;

pub use self::snapshot::Snapshot;
use crate::figures::Figures;
use crate::resp::Service;

/// What the program lets an administrator do; called from threads that may block.
pub trait Control: Send + Sync {
    /// How things are.
    fn health(&self) -> Health;

    /// Reads the settings file again and applies what can change while running. Gives what changed,
    /// and what would need a restart, a line each.
    ///
    /// # Errors
    /// What is wrong with the file, for people. Nothing was changed.
    fn reload(&self) -> Result<Vec<String>, String>;
}

/// How things are.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Health {
    /// Whether everything is served.
    pub healthy: bool,
    /// What is not, a line each.
    pub problems: Vec<String>,
}

/// What the admin door shows and does.
#[derive(Clone)]
pub struct Admin {
    /// What it does.
    pub control: Arc<dyn Control>,
    /// What it shows of the program.
    pub figures: Arc<dyn Figures>,
    /// The RESP door it shows, if there is one.
    pub resp: Option<Arc<Service>>,
}

/// Serves `admin` on a TCP or Unix listener until `stop` is ready, then finishes open requests.
///
/// # Errors
/// The listener failed.
pub async fn run<L>(
    listener: L,
    admin: Admin,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()>
where
    L: axum::serve::Listener,
    L::Addr: std::fmt::Debug,
{
    axum::serve(listener, router(admin)).with_graceful_shutdown(stop).await
}

fn router(admin: Admin) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/figures", get(figures))
        .route("/reload", post(reload))
        .layer(middleware::from_fn(refuse_pages))
        .with_state(admin)
}

async fn refuse_pages(request: Request, next: Next) -> Response {
    if request.headers().contains_key(header::ORIGIN) {
        return (StatusCode::FORBIDDEN, "requests from web pages are refused\n").into_response();
    }
    next.run(request).await
}

async fn health(State(admin): State<Admin>) -> Response {
    let health = blocking(move || admin.control.health()).await;
    let status = if health.healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health)).into_response()
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let stats = move || metrics::text(&*admin.figures, admin.resp.as_ref().map(|r| &r.stats));
    let text = blocking(stats).await;
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

async fn figures(State(admin): State<Admin>) -> Json<Snapshot> {
    Json(blocking(move || Snapshot::of(&admin)).await)
}

async fn reload(State(admin): State<Admin>) -> Response {
    match blocking(move || admin.control.reload()).await {
        Ok(lines) => {
            lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_response()
        }
        Err(wrong) => (StatusCode::CONFLICT, format!("{wrong}\n")).into_response(),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.expect("the work of the admin door does not panic")
}
