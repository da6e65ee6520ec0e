//! The admin door: health, metrics and reload, over HTTP on loopback or a Unix socket.
//!
//! | request | answer |
//! |---|---|
//! | `GET /health` | 200 while nothing is wrong, 503 and what is wrong otherwise; JSON |
//! | `GET /health/ready` | 200 while the stores take writes and serve reads, 503 otherwise; for load balancers |
//! | `GET /health/live` | 200 while the program answers |
//! | `GET /metrics` | OpenMetrics |
//! | `GET /figures` | a [`Snapshot`]; JSON |
//! | `POST /reload` | 200 and what changed, 422 and what is wrong with the settings file; text |
//! | `GET /volumes` | the volumes of the pool: [`volumes::List`]; JSON |
//! | `POST /volumes` | takes a [`volumes::New`] into the pool: 200 and [`volumes::Changed`] |
//! | `POST /volumes/NAME/drain` | begins to empty it, and goes on by itself: 202 and a [`volumes::Volume`] |
//! | `POST /volumes/NAME/keep` | ends that, and lets it take new tables again: 200 and a [`volumes::Volume`] |
//! | `DELETE /volumes/NAME` | takes it, empty, out of the pool, or away with nothing that is only there: 200 and [`volumes::Changed`] |
//! | `DELETE /volumes/NAME/lost` | takes one that is away out of the pool, with all that was only there: 200 and [`volumes::Changed`] |
//!
//! What cannot be done is answered with the status of its [`Error`]: 404 there is no such volume, 409 not
//! as things are, 422 what was asked makes no sense, 503 what is needed is away, 500 it failed. For volumes the body is
//! [`Refused`], for `/reload` text.
//!
//! There is no authentication: whoever reaches the socket may do all of this. A page in a browser on the
//! same machine does not count as such, so requests that carry an `Origin` are refused with 403, and on
//! loopback those for another [host](crate::http::Hosts) with 421.

mod error;
mod health;
mod metrics;
pub mod snapshot;
pub mod volumes;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, Json, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use serde::Serialize;
use tokio::task::spawn_blocking;

pub use self::error::{Error, Refused};
use self::health::Asker;
pub use self::health::Health;
pub use self::snapshot::Snapshot;
use self::volumes::{Changed, List, New, Volume};
use crate::figures::Figures;
use crate::http::Hosts;
use crate::http::server::{self, Origin, Terms};
use crate::resp::Service;
use crate::{http, mqtt};

/// What the program lets an administrator do; called from threads that may block.
pub trait Control: Send + Sync {
    /// How things are. It may block on a store or a volume that hangs; the door does not wait for it.
    fn health(&self) -> Health;

    /// Reads the settings file again and applies what can change while running. Gives what changed,
    /// and what would need a restart, a line each.
    ///
    /// # Errors
    /// `Invalid`: what is wrong with the file. Nothing was changed.
    fn reload(&self) -> Result<Vec<String>, Error>;

    /// The volumes of the pool.
    fn volumes(&self) -> List;

    /// Takes a volume into the pool. Durable on return.
    ///
    /// # Errors
    /// Why not, and the way out. Nothing was changed, unless it is `Internal`.
    fn add_volume(&self, new: &New) -> Result<Changed, Error>;

    /// Begins to bring what a volume holds to the others; it takes nothing new from now on. Asked again,
    /// it goes on where it stopped.
    ///
    /// # Errors
    /// As [`Control::add_volume`].
    fn drain_volume(&self, name: &str) -> Result<Volume, Error>;

    /// Stops to empty a volume, which takes new tables again.
    ///
    /// # Errors
    /// As [`Control::add_volume`].
    fn keep_volume(&self, name: &str) -> Result<Volume, Error>;

    /// Takes a volume out of the pool that was emptied, or that is away and of which all is elsewhere; if
    /// `lost`, one that is away, with what was only there. Durable on return.
    ///
    /// # Errors
    /// As [`Control::add_volume`].
    fn remove_volume(&self, name: &str, lost: bool) -> Result<Changed, Error>;
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
    /// The door of time series it shows, if there is one.
    pub http: Option<Arc<http::Service>>,
    /// What a subscriber to a broker counts, if there is one.
    pub mqtt: Option<Arc<mqtt::Stats>>,
}

/// Serves `admin` on a TCP or Unix listener, for requests to `hosts`, until `stop` is ready. Then finishes open
/// requests.
pub async fn run<L>(listener: L, admin: Admin, hosts: Hosts, stop: impl Future<Output = ()>)
where
    L: axum::serve::Listener,
    L::Addr: Origin,
{
    // What is asked here may take its time: a volume joins.
    let terms = Terms { stop_grace: STOP_GRACE, ..Terms::default() };
    server::run(listener, router(admin, hosts), None, terms, Arc::default(), stop).await;
}

/// How long a stopping door waits for what an administrator asked for.
const STOP_GRACE: Duration = Duration::from_secs(60);

/// What handlers share.
#[derive(Clone)]
struct Door {
    admin: Admin,
    asker: Arc<Asker>,
}

impl FromRef<Door> for Admin {
    fn from_ref(door: &Door) -> Self {
        door.admin.clone()
    }
}

impl FromRef<Door> for Arc<Asker> {
    fn from_ref(door: &Door) -> Self {
        Arc::clone(&door.asker)
    }
}

fn router(admin: Admin, hosts: Hosts) -> Router {
    let asker = Arc::new(Asker::new(Arc::clone(&admin.control)));
    Router::new()
        .route("/health", get(health::health))
        .route("/health/ready", get(health::ready))
        .route("/health/live", get(health::live))
        .route("/metrics", get(metrics))
        .route("/figures", get(figures))
        .route("/reload", post(reload))
        .route("/volumes", get(list_volumes).post(add_volume))
        .route("/volumes/{name}", delete(remove_volume))
        .route("/volumes/{name}/drain", post(drain_volume))
        .route("/volumes/{name}/keep", post(keep_volume))
        .route("/volumes/{name}/lost", delete(remove_lost_volume))
        .layer(middleware::from_fn_with_state(hosts, refuse_pages))
        .with_state(Door { admin, asker })
}

async fn refuse_pages(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    if let Err(wrong) = hosts.check(request.version(), request.uri(), request.headers()) {
        return (wrong.status(), format!("{wrong}\n")).into_response();
    }
    if request.headers().contains_key(header::ORIGIN) {
        return (StatusCode::FORBIDDEN, "requests from web pages are refused\n").into_response();
    }
    next.run(request).await
}

async fn metrics(State(admin): State<Admin>, State(asker): State<Arc<Asker>>) -> Response {
    let health = asker.ask().await;
    let text = blocking(move || metrics::text(&admin, health)).await;
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

async fn figures(State(admin): State<Admin>) -> Json<Snapshot> {
    Json(blocking(move || Snapshot::of(&admin)).await)
}

async fn list_volumes(State(admin): State<Admin>) -> Json<List> {
    Json(blocking(move || admin.control.volumes()).await)
}

async fn add_volume(State(admin): State<Admin>, Json(new): Json<New>) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.add_volume(&new)).await)
}

async fn drain_volume(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    answer(StatusCode::ACCEPTED, blocking(move || admin.control.drain_volume(&name)).await)
}

async fn keep_volume(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.keep_volume(&name)).await)
}

async fn remove_volume(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.remove_volume(&name, false)).await)
}

async fn remove_lost_volume(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.remove_volume(&name, true)).await)
}

fn answer<T: Serialize>(good: StatusCode, done: Result<T, Error>) -> Response {
    match done {
        Ok(done) => (good, Json(done)).into_response(),
        Err(error) => (error.status(), Json(Refused::from(&error))).into_response(),
    }
}

async fn reload(State(admin): State<Admin>) -> Response {
    match blocking(move || admin.control.reload()).await {
        Ok(lines) => {
            lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_response()
        }
        Err(wrong) => (wrong.status(), format!("{wrong}\n")).into_response(),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.expect("the work of the admin door does not panic")
}
