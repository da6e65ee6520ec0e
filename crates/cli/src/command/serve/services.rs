//! The services of the stores: each starts once its store is open, and refuses its clients before.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serve::admin::Late;
use serve::listener::Socket;
use serve::mqtt::{self, Subscriber};
use serve::nbd::wire::CacheEpoch;
use serve::resp::{Server, Service};
use serve::tls::Tls;
use serve::{http, listener, nbd, resp};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::program::Program;

/// The time between two attempts to open a store.
const RETRY_EVERY: Duration = Duration::from_secs(10);

/// Ends, without a message, when the program is to stop.
pub(super) type Stopped = watch::Receiver<()>;

/// Ready when the program is to stop.
pub(super) async fn stopping(mut stopped: Stopped) {
    // Ends when the sender is dropped; it never sends.
    while stopped.changed().await.is_ok() {}
}

/// The listener for Redis clients.
pub(super) struct Keys {
    pub(super) listener: TcpListener,
    pub(super) endpoint: resp::Settings,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) service: Late<Service>,
}

impl Keys {
    /// The service of the store, if that is open.
    pub(super) fn start(&self, program: &Arc<Program>) -> anyhow::Result<Option<Arc<Service>>> {
        let Some(store) = program.kv() else { return Ok(None) };
        let keyspace = Arc::new(program.keyspace(store)?);
        let service = Service::new(self.endpoint.clone(), keyspace, Arc::clone(program) as _);
        let service = Arc::clone(self.service.get_or_init(|| Arc::new(service)));
        program.with_keys(&service);
        Ok(Some(service))
    }

    /// Serves until the program stops.
    pub(super) async fn run(
        self,
        program: Arc<Program>,
        mut service: Option<Arc<Service>>,
        stopped: Stopped,
    ) -> io::Result<()> {
        if service.is_none() {
            let opening = Arc::clone(&program);
            if !opened(&self.listener, &stopped, move || opening.open_kv()).await {
                return Ok(());
            }
            service = self.start(&program).map_err(io::Error::other)?;
        }
        drop(program);
        if let Some(service) = service {
            Server::new(service, self.tls).run(self.listener, stopping(stopped)).await;
        }
        Ok(())
    }
}

/// The listener for clients of time series, and the subscription to a broker.
pub(super) struct Points {
    pub(super) listener: TcpListener,
    pub(super) endpoint: http::Settings,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) broker: Option<mqtt::Settings>,
    pub(super) service: Late<http::Service>,
    pub(super) stats: Late<mqtt::Stats>,
}

/// The services of a store of time series.
pub(super) struct PointServices {
    http: Arc<http::Service>,
    subscriber: Option<Subscriber>,
}

impl Points {
    /// The services of the store, if that is open.
    pub(super) fn start(&self, program: &Program) -> Option<PointServices> {
        let store = Arc::new(program.series()?.engine().clone());
        let subscriber = self.broker.clone().map(|broker| {
            let subscriber =
                Subscriber::new(broker, Arc::clone(&store) as _, Box::new(program.wall()));
            self.stats.get_or_init(|| Arc::clone(subscriber.stats()));
            subscriber
        });
        let service = http::Service::new(self.endpoint.clone(), store, Box::new(program.wall()));
        let http = Arc::clone(self.service.get_or_init(|| Arc::new(service)));
        program.with_points(&http);
        Some(PointServices { http, subscriber })
    }

    /// Serves until the program stops.
    pub(super) async fn run(
        self,
        program: Arc<Program>,
        mut services: Option<PointServices>,
        stopped: Stopped,
    ) -> io::Result<()> {
        if services.is_none() {
            let opening = Arc::clone(&program);
            if !opened(&self.listener, &stopped, move || opening.open_series()).await {
                return Ok(());
            }
            services = self.start(&program);
        }
        drop(program);
        let Some(PointServices { http: service, subscriber }) = services else { return Ok(()) };
        let (terms, counts) = (self.endpoint.terms, Arc::clone(&service.stats.connections));
        let router = http::router(service);
        let until = stopping(stopped.clone());
        let serving = http::server::run(self.listener, router, self.tls, terms, counts, until);
        let subscribed = async {
            if let Some(subscriber) = subscriber {
                subscriber.run(stopping(stopped)).await;
            }
        };
        tokio::join!(serving, subscribed);
        Ok(())
    }
}

/// The listener for NBD clients.
pub(super) struct Devices {
    pub(super) endpoint: nbd::Settings,
    pub(super) cache_epoch: CacheEpoch,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) service: Late<nbd::Service>,
}

/// Another one after the machine restarted, if acknowledged changes of a store may be lost then.
pub(super) fn cache_epoch(is_durable: bool) -> CacheEpoch {
    if is_durable {
        return CacheEpoch::default();
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).unwrap_or_else(|_| {
        // Then each start of the program counts as one of the machine: a client may hear of a loss that was none.
        let random = || RandomState::new().hash_one(0);
        (u128::from(random()) << 64) | u128::from(random())
    });
    boot.to_be_bytes()
}

impl Devices {
    /// The service of the store, if that is open.
    fn start(&self, program: &Program) -> Option<Arc<nbd::Service>> {
        let devices = Arc::new(program.block()?.engine().clone());
        let service = nbd::Service::new(self.endpoint.clone(), devices, self.cache_epoch);
        Some(Arc::clone(self.service.get_or_init(|| Arc::new(service))))
    }

    /// Serves until the program stops.
    pub(super) async fn run(
        self,
        socket: impl Socket,
        program: Arc<Program>,
        stopped: Stopped,
    ) -> io::Result<()> {
        let mut service = self.start(&program);
        if service.is_none() {
            let opening = Arc::clone(&program);
            if !opened(&socket, &stopped, move || opening.open_block()).await {
                return Ok(());
            }
            service = self.start(&program);
        }
        drop(program);
        if let Some(service) = service {
            nbd::Server::new(service, self.tls).run(socket, stopping(stopped)).await;
        }
        Ok(())
    }
}

/// Tries again and again to `open` a store, and refuses its clients meanwhile. Says whether it is open: otherwise the
/// program stopped before.
async fn opened(
    socket: &impl Socket,
    stopped: &Stopped,
    open: impl Fn() -> bool + Clone + Send + 'static,
) -> bool {
    loop {
        tokio::select! {
            () = stopping(stopped.clone()) => return false,
            () = sleep(RETRY_EVERY) => {}
            never = listener::refuse(socket) => match never {},
        }
        // A panic was reported, and is a failed attempt.
        if spawn_blocking(open.clone()).await.unwrap_or(false) {
            return true;
        }
    }
}
