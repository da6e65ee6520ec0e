//! A RESP server, and a client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use engine::keyspace::Keyspace;
use engine::kv::{KeyValue, Memory};
use serve::resp::{Server, Service, Settings};
use serve::tls::Tls;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A server on a free port, with its own threads, until it is stopped or dropped.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) service: Arc<Service>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    pub(crate) fn open(settings: Settings) -> Self {
        Self::to(Arc::new(Memory::default()), settings)
    }

    pub(crate) fn to(store: Arc<dyn KeyValue>, settings: Settings) -> Self {
        Self::with_tls(store, settings, None)
    }

    pub(crate) fn with_tls(
        store: Arc<dyn KeyValue>,
        settings: Settings,
        tls: Option<Arc<Tls>>,
    ) -> Self {
        let keyspace =
            Keyspace::open(store, Box::new(|| 0), 1).expect("an empty store, or its own");
        let service = Arc::new(Service::new(settings, Arc::new(keyspace), Arc::new(())));
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = sync_channel(1);
        let server = Server::new(Arc::clone(&service), tls);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                tell.send(listener.local_addr().expect("a bound address")).expect("a listener");
                server.run(listener, async { stopped.await.unwrap_or(()) }).await;
            });
        });
        let address = told.recv().expect("the address");
        Self { address, service, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn connect(&self) -> Client {
        Client(BufReader::new(TcpStream::connect(self.address).expect("a listener")))
    }

    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) fn wait_until_stopped(&mut self) {
        self.begin_stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server does not panic");
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.wait_until_stopped();
    }
}

/// A line-oriented client.
pub(crate) struct Client<S = TcpStream>(pub(crate) BufReader<S>);

impl<S: Read + Write> Client<S> {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).expect("the server reads");
    }

    /// The next line; empty when the server closed the connection.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers or closes");
        line.trim_end().into()
    }

    pub(crate) fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\r\n"));
        self.line()
    }
}
