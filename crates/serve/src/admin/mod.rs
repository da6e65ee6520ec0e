//! The admin listener: health, metrics and reload, over HTTP on loopback or a Unix socket.
//!
//! | request | answer |
//! |---|---|
//! | `GET /health` | 200 while nothing is wrong, 503 and what is wrong otherwise; JSON |
//! | `GET /health/ready` | 200 while the stores take writes and serve reads, 503 otherwise; for load balancers |
//! | `GET /health/live` | 200 while the program answers |
//! | `GET /metrics` | OpenMetrics, within 2 s: the last figures, with their age, if a store does not answer |
//! | `GET /figures` | a [`Snapshot`]; JSON |
//! | `POST /reload` | 200 and what changed, 422 and what is wrong with the settings file; text |
//! | `GET /volumes` | the volumes of the pools: [`volumes::List`]; JSON |
//! | `POST /volumes` | takes a [`volumes::New`] into a pool: 200 and [`volumes::Changed`] |
//! | `POST /volumes/NAME/drain` | begins to drain it in the background: 202 and a [`volumes::Volume`] |
//! | `POST /volumes/NAME/keep` | stops the drain, so that it takes new tables again: 200 and a [`volumes::Volume`] |
//! | `DELETE /volumes/NAME` | removes it, if empty, or away without unique objects: 200 and [`volumes::Changed`] |
//! | `DELETE /volumes/NAME/lost` | removes one that is away, with its unique objects: 200 and [`volumes::Changed`] |
//! | `GET /block` | the block devices: [`block::List`]; JSON |
//! | `POST /block` | creates a [`block::New`]: 200 and its [`block::Device`] |
//! | `POST /block/NAME/size` | gives it the size of a [`block::Resize`]: 200 and its [`block::Device`] |
//! | `POST /block/NAME/limit` | gives its clients what a [`block::NewLimit`] says: 200 and its [`block::Device`] |
//! | `POST /block/NAME/release` | ends its lease, whoever holds it, and the holder's connections: 200 and its [`block::Device`] |
//! | `DELETE /block/NAME` | deletes it with its bytes: 200 and the [`block::Device`] that it was |
//! | `POST /tiers/NAME/attach` | takes the fast side of a tier in use, empty: 200 and its [`tiers::Tier`] |
//! | `POST /tiers/NAME/flush` | writes back what is dirty there: 200 and its [`tiers::Tier`] once that is done |
//! | `POST /tiers/NAME/detach` | does so and gives up what its fast side holds: 200 and its [`tiers::Tier`] |
//! | `POST /tiers/NAME/detach/lost` | gives it up without a flush, also what is dirty: 200 and its [`tiers::Tier`] |
//! | `GET /scrub?pool=NAME` | the progress of the scrub of this pool, or of all: [`scrub::Scrubs`]; JSON |
//! | `POST /scrub?pool=NAME` | begins a pass of this pool, or of all, now, unless one that was asked for is under way: 202 and [`scrub::Scrubs`] |
//!
//! A failed request has the status of its [`Error`]: 404 unknown volume, tier or device, 409 forbidden by the current state, 422
//! invalid request, 503 a needed volume is away, 500 internal failure. For volumes, tiers, devices and scrubs the body is [`Refused`],
//! for `/reload` text.
//!
//! There is no authentication: every process that reaches the socket may do all of this. Web pages in a browser on the
//! same machine may not: requests with an `Origin` are refused with 403, and on loopback requests for another
//! [host](crate::http::Hosts) with 421.

pub mod block;
mod error;
mod health;
mod metrics;
mod scraper;
pub mod scrub;
pub mod snapshot;
pub mod tiers;
pub mod volumes;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, Json, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use serde::Serialize;
use tokio::task::spawn_blocking;

pub use self::error::{Error, Refused};
use self::health::Asker;
pub use self::health::{Health, TierHealth};
use self::scraper::Scraper;
use self::scrub::{Scrubs, Wanted};
pub use self::snapshot::Snapshot;
use self::tiers::Tier;
use self::volumes::{Changed, List, New, Volume};
use crate::figures::Figures;
use crate::http::Hosts;
use crate::http::server::{self, Terms};
use crate::listener::Socket;
use crate::resp::Service;
use crate::{http, mqtt, nbd};

/// The administrator's operations on the program; called from threads that may block.
pub trait Control: Send + Sync {
    /// The health of the program. It may block on a hanging store or volume; the listener bounds its wait.
    fn health(&self) -> Health;

    /// Reads the settings file again and applies what can change while running. Returns what changed, and what needs a
    /// restart, one on each line.
    ///
    /// # Errors
    /// `Invalid`: the mistakes in the file. Nothing was changed.
    fn reload(&self) -> Result<Vec<String>, Error>;

    /// The volumes of the pools.
    fn volumes(&self) -> List;

    /// Adds a volume to a pool. Durable on return.
    ///
    /// # Errors
    /// The reason and the way out. Nothing was changed, unless it is `Internal`.
    fn add_volume(&self, new: &New) -> Result<Changed, Error>;

    /// Begins to drain a volume, which takes no new objects from now on. A repeated call continues a stopped drain.
    ///
    /// # Errors
    /// As [`Control::add_volume`].
    fn drain_volume(&self, name: &str) -> Result<Volume, Error>;

    /// Stops a drain; the volume takes new tables again.
    ///
    /// # Errors
    /// As [`Control::add_volume`].
    fn keep_volume(&self, name: &str) -> Result<Volume, Error>;

    /// Removes a volume from its pool: an empty one, or one that is away and whose objects are all elsewhere. If
    /// `lost`, it may be away with objects that were only there. Durable on return.
    ///
    /// # Errors
    /// As [`Control::add_volume`].
    fn remove_volume(&self, name: &str, lost: bool) -> Result<Changed, Error>;

    /// Takes the fast side of a tier in use, empty. What it holds counts from now on.
    ///
    /// # Errors
    /// The reason and the way out. The slow side serves everything meanwhile.
    fn attach_tier(&self, name: &str) -> Result<Tier, Error>;

    /// Gives up what the fast side of a tier holds, once the slow side has what is dirty: it never counts again. Durable on
    /// return.
    ///
    /// # Errors
    /// As [`Control::attach_tier`]. `Conflict`, `Internal`: what is dirty cannot be written back; the fast side stays in use.
    fn detach_tier(&self, name: &str) -> Result<Tier, Error>;

    /// Gives up what the fast side of a tier holds, also what is dirty: reads of that fail until it is written. Durable on
    /// return.
    ///
    /// # Errors
    /// As [`Control::attach_tier`].
    fn lose_tier(&self, name: &str) -> Result<Tier, Error>;

    /// Writes back what is dirty on the fast side of a tier. Durable on the slow side on return, which may take long.
    ///
    /// # Errors
    /// As [`Control::detach_tier`].
    fn flush_tier(&self, name: &str) -> Result<Tier, Error>;

    /// The block devices.
    ///
    /// # Errors
    /// `NotFound`: the settings have no store of block devices. `Unavailable`: it is not open.
    fn devices(&self) -> Result<block::List, Error>;

    /// Creates a block device, which reads as zeros. Durable on return.
    ///
    /// # Errors
    /// The reason and the way out.
    fn create_device(&self, new: &block::New) -> Result<block::Device, Error>;

    /// Changes the size of a block device. Durable on return.
    ///
    /// # Errors
    /// As [`Control::create_device`]. `Conflict`: it would become smaller, and `shrink` was not given.
    fn resize_device(&self, name: &str, to: &block::Resize) -> Result<block::Device, Error>;

    /// Sets what the clients of a block device get at most, from now on. Durable on return.
    ///
    /// # Errors
    /// As [`Control::create_device`]. `Invalid`: there is no such contract, or more would be sold than the volumes give.
    fn limit_device(&self, name: &str, to: &block::NewLimit) -> Result<block::Device, Error>;

    /// Ends the lease of a block device, whoever holds it. Durable on return. The holder's connections are ended by the
    /// caller.
    ///
    /// # Errors
    /// As [`Control::create_device`].
    fn release_device(&self, name: &str) -> Result<block::Device, Error>;

    /// Deletes a block device and its bytes; returns what it was. Durable on return.
    ///
    /// # Errors
    /// As [`Control::create_device`].
    fn delete_device(&self, name: &str) -> Result<block::Device, Error>;

    /// The progress of the scrub of the pool of this name, or of all.
    ///
    /// # Errors
    /// `NotFound`: no store is on such a pool. `Unavailable`: it is not open.
    fn scrub(&self, pool: Option<&str>) -> Result<Scrubs, Error>;

    /// Begins a pass of the scrub of the pool of this name, or of all, now, in place of the current one. If a pass that was
    /// begun so is under way, that one goes on. The current passes of the answer are those.
    ///
    /// # Errors
    /// As [`Control::scrub`].
    fn begin_scrub(&self, pool: Option<&str>) -> Result<Scrubs, Error>;
}

/// A service that starts once its store is open.
pub type Late<T> = Arc<OnceLock<Arc<T>>>;

/// The state and operations behind the admin listener.
#[derive(Clone)]
pub struct Admin {
    /// The administrator's operations.
    pub control: Arc<dyn Control>,
    /// The figures of the program.
    pub figures: Arc<dyn Figures>,
    /// The RESP service to report on, once it runs.
    pub resp: Late<Service>,
    /// The service of time series to report on, once it runs.
    pub http: Late<http::Service>,
    /// The counters of the subscriber to a broker, once it runs.
    pub mqtt: Late<mqtt::Stats>,
    /// The service of block devices to report on, once it runs.
    pub nbd: Late<nbd::Service>,
}

/// Serves `admin` on a TCP or Unix socket, for requests to `hosts`, until `stop` is ready; then finishes open
/// requests.
pub async fn run(socket: impl Socket, admin: Admin, hosts: Hosts, stop: impl Future<Output = ()>) {
    // Operations here may take long, such as adding a volume.
    let terms = Terms { stop_grace: STOP_GRACE, ..Terms::default() };
    server::run(socket, router(admin, hosts), None, terms, Arc::default(), stop).await;
}

/// How long a stopping listener waits for an administrator's requests.
const STOP_GRACE: Duration = Duration::from_secs(60);

/// The state shared by handlers.
#[derive(Clone)]
struct Endpoint {
    admin: Admin,
    asker: Arc<Asker>,
    scraper: Arc<Scraper>,
}

impl FromRef<Endpoint> for Admin {
    fn from_ref(endpoint: &Endpoint) -> Self {
        endpoint.admin.clone()
    }
}

impl FromRef<Endpoint> for Arc<Asker> {
    fn from_ref(endpoint: &Endpoint) -> Self {
        Arc::clone(&endpoint.asker)
    }
}

impl FromRef<Endpoint> for Arc<Scraper> {
    fn from_ref(endpoint: &Endpoint) -> Self {
        Arc::clone(&endpoint.scraper)
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
        .route("/tiers/{name}/attach", post(attach_tier))
        .route("/tiers/{name}/detach", post(detach_tier))
        .route("/tiers/{name}/detach/lost", post(lose_tier))
        .route("/tiers/{name}/flush", post(flush_tier))
        .route("/block", get(list_devices).post(create_device))
        .route("/block/{name}", delete(delete_device))
        .route("/block/{name}/size", post(resize_device))
        .route("/block/{name}/limit", post(limit_device))
        .route("/block/{name}/release", post(release_device))
        .route("/scrub", get(scrub).post(begin_scrub))
        .layer(middleware::from_fn_with_state(hosts, refuse_pages))
        .with_state(Endpoint { admin, asker, scraper: Arc::new(Scraper::new()) })
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

async fn metrics(
    State(admin): State<Admin>,
    State(asker): State<Arc<Asker>>,
    State(scraper): State<Arc<Scraper>>,
) -> Response {
    let page = scraper.page(async move {
        let health = asker.ask().await;
        blocking(move || metrics::text(&admin, &health)).await
    });
    match page.await {
        Some((text, age)) => {
            let content_type = [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)];
            (content_type, metrics::with_age(text, age)).into_response()
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, "the stores do not give their figures\n")
            .into_response(),
    }
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

async fn attach_tier(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.attach_tier(&name)).await)
}

async fn detach_tier(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.detach_tier(&name)).await)
}

async fn lose_tier(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.lose_tier(&name)).await)
}

async fn flush_tier(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.flush_tier(&name)).await)
}

async fn list_devices(State(admin): State<Admin>) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.devices()).await)
}

async fn create_device(State(admin): State<Admin>, Json(new): Json<block::New>) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.create_device(&new)).await)
}

async fn resize_device(
    State(admin): State<Admin>,
    Path(name): Path<String>,
    Json(to): Json<block::Resize>,
) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.resize_device(&name, &to)).await)
}

async fn limit_device(
    State(admin): State<Admin>,
    Path(name): Path<String>,
    Json(to): Json<block::NewLimit>,
) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.limit_device(&name, &to)).await)
}

async fn release_device(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    let release = move || {
        let released = admin.control.release_device(&name);
        if let Some(nbd) = admin.nbd.get() {
            nbd.end_released(&name);
        }
        released
    };
    answer(StatusCode::OK, blocking(release).await)
}

async fn delete_device(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.delete_device(&name)).await)
}

async fn scrub(State(admin): State<Admin>, Query(of): Query<Wanted>) -> Response {
    answer(StatusCode::OK, blocking(move || admin.control.scrub(of.pool.as_deref())).await)
}

async fn begin_scrub(State(admin): State<Admin>, Query(of): Query<Wanted>) -> Response {
    let begun = blocking(move || admin.control.begin_scrub(of.pool.as_deref())).await;
    answer(StatusCode::ACCEPTED, begun)
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
    spawn_blocking(work).await.expect("the work of the admin endpoint does not panic")
}
