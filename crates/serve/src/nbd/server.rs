//! The server: the listener's protocol for NBD clients.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::connection::Joined;
use super::service::Service;
use crate::admission::Limits;
use crate::listener::{Arrival, Counts, Failure, Listener, Protocol, Socket, Stream, Terms};
use crate::tls::Tls;

/// The silence after which a client's machine is probed. Clients with nothing to do are silent for hours.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// An NBD server.
pub struct Server {
    service: Arc<Service>,
    tls: Option<Arc<Tls>>,
}

impl Server {
    /// A server, started by [`run`](Self::run). With `tls`, clients must begin TLS before they learn the name of a
    /// device; the protocol does so inside the connection (`NBD_OPT_STARTTLS`).
    #[must_use]
    pub fn new(service: Arc<Service>, tls: Option<Arc<Tls>>) -> Self {
        Self { service, tls }
    }

    /// Serves the connections of `socket` until `stop` is ready. Then accepts no more connections, reads no more
    /// requests, completes and answers those it has read, closes, and returns. Requests that take longer than
    /// [`Settings::stop_grace`](super::Settings::stop_grace) get no reply. No request is in progress on return.
    pub async fn run<L: Socket>(self, socket: L, stop: impl Future<Output = ()>) {
        let settings = &self.service.settings;
        let terms = Terms {
            limits: Limits {
                connections_max: settings.clients_max,
                per_address_max: settings.clients_per_address,
            },
            handshake_timeout: settings.handshake_timeout,
            stop_grace: settings.stop_grace,
        };
        let nbd = Nbd::<L> { service: self.service, tls: self.tls, over: PhantomData };
        Listener::new(nbd, None, terms).run(socket, stop).await;
    }
}

/// NBD, over connections of one kind of socket.
struct Nbd<L> {
    service: Arc<Service>,
    tls: Option<Arc<Tls>>,
    over: PhantomData<fn(L)>,
}

impl<L: Socket> Protocol for Nbd<L> {
    type Stream = L::Stream;
    type Session = Joined;
    const THREAD: Option<&'static str> = Some("nbd");

    fn counts(&self) -> Counts<'_> {
        let stats = &self.service.stats;
        let (open, accepted) = (&stats.open, &stats.accepted);
        Counts { open, accepted, rejected: &stats.rejected, shed: &stats.shed }
    }

    fn begin(&self, stream: &L::Stream, arrival: Arrival) -> Joined {
        L::keep_alive(stream, IDLE_MAX);
        let Arrival { guest, stop, .. } = arrival;
        let (service, tls) = (Arc::clone(&self.service), self.tls.clone());
        Joined { service, tls, guest, stop, end: CancellationToken::new() }
    }

    async fn serve(joined: Joined, stream: impl Stream) -> Result<(), Failure> {
        Ok(joined.serve(stream).await?)
    }
}
