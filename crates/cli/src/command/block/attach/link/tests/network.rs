//! The real server, over a network that breaks connections while the server runs on.

use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use engine::block::{Error, Extent, Geometry, Pending, Zeros};
use parking_lot::Mutex;
use serve::listener::Socket;
use serve::nbd::wire::LeaseRequest;
use serve::nbd::{Server, Service, Settings};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;
use crate::command::block::attach::client::negotiate;

/// A device whose writes take a while, each another one.
struct Slow {
    inner: Arc<dyn BlockDevice>,
    random: Mutex<Xoshiro256PlusPlus>,
}

impl BlockDevice for Slow {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, offset: u64, into: IoBufMut) -> Pending<'_, IoBufMut> {
        self.inner.read(offset, into)
    }

    fn write(&self, offset: u64, data: IoBuf, durable: Durable) -> Pending<'_, ()> {
        Box::pin(async move {
            let pauses = self.random.lock().random_range(0..100);
            for _ in 0..pauses {
                tokio::task::yield_now().await;
            }
            self.inner.write(offset, data, durable).await
        })
    }

    fn zero(&self, _: Range<u64>, _: Zeros, _: bool, _: Durable) -> Pending<'_, ()> {
        Box::pin(async { Err(Error::Unsupported("the kernel here sends none".into())) })
    }

    fn discard(&self, _: Range<u64>, _: Durable) -> Pending<'_, ()> {
        Box::pin(async { Err(Error::Unsupported("the kernel here sends none".into())) })
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.inner.flush()
    }

    fn extents(&self, range: Range<u64>, most: usize) -> Pending<'_, Vec<Extent>> {
        self.inner.extents(range, most)
    }

    fn prefetch(&self, range: Range<u64>) -> Pending<'_, ()> {
        self.inner.prefetch(range)
    }
}

/// Connections in memory.
struct Queue(tokio::sync::Mutex<mpsc::Receiver<DuplexStream>>);

impl Socket for Queue {
    type Stream = DuplexStream;

    async fn accept(&self) -> io::Result<(DuplexStream, Option<SocketAddr>)> {
        match self.0.lock().await.recv().await {
            Some(stream) => Ok((stream, None)),
            None => std::future::pending().await,
        }
    }
}

/// The client's end of a connection. After so many bytes from the server it is broken, and the server does not notice.
struct Breaking {
    stream: Option<DuplexStream>,
    bytes_left: usize,
    /// Keeps the server's ends open.
    broken: Arc<Mutex<Vec<DuplexStream>>>,
}

impl Breaking {
    fn stream(&mut self) -> io::Result<Pin<&mut DuplexStream>> {
        if self.bytes_left == 0 {
            self.broken.lock().extend(self.stream.take());
        }
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::ConnectionReset.into())
    }
}

impl Drop for Breaking {
    fn drop(&mut self) {
        self.broken.lock().extend(self.stream.take());
    }
}

impl AsyncRead for Breaking {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(self.stream()?.poll_read(context, into))?;
        let arrived = into.filled().len() - before;
        let kept = arrived.min(self.bytes_left);
        into.set_filled(before + kept);
        self.bytes_left -= kept;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Breaking {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(context)
    }
}

struct Network {
    queue: mpsc::Sender<DuplexStream>,
    random: Xoshiro256PlusPlus,
    broken: Arc<Mutex<Vec<DuplexStream>>>,
    lease: LeaseRequest,
}

impl Around for Network {
    async fn dial(&mut self) -> Result<Connection, Failure> {
        let (ours, theirs) = tokio::io::duplex(self.random.random_range(1000..50_000));
        self.queue.send(theirs).await.expect("the server runs");
        let bytes_left = self.random.random_range(200..60_000);
        let stream = Breaking { stream: Some(ours), bytes_left, broken: Arc::clone(&self.broken) };
        // Each host has a device of its own.
        let (id, lease) = (self.lease.holder, &self.lease);
        let connection = negotiate(Box::new(stream), "d", &id, Some(lease), None).await?;
        self.lease.token = connection.token;
        Ok(connection)
    }

    fn resize(&mut self, _: u64) -> anyhow::Result<()> {
        Ok(())
    }
}

/// The server has writes of the broken connection in progress, and more in its buffers. None may overtake a later write of
/// the same block.
#[tokio::test]
async fn what_a_broken_connection_left_behind_overwrites_nothing() {
    for seed in 0..8 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let inner = Memory::default().with("d", EXPORT.size).open("d").await.expect("a device");
        let slow_random = Mutex::new(Xoshiro256PlusPlus::seed_from_u64(random.random()));
        let device = Arc::new(Slow { inner, random: slow_random });
        let devices = Arc::new(Memory::default().with_device("d", device));
        let service = Arc::new(Service::new(Settings::default(), devices, [9; 16]));
        let (queue, connections) = mpsc::channel(1);
        let server = Server::new(Arc::clone(&service), None);
        let socket = Queue(tokio::sync::Mutex::new(connections));
        tokio::spawn(server.run(socket, std::future::pending()));
        let broken = Arc::default();
        let (random_of_network, lease) = (random.clone(), lease(1));
        let mut network =
            Network { queue, random: random_of_network, broken: Arc::clone(&broken), lease };
        let first = network.dial().await.unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(first.epoch, Some([9; 16]));
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let clock = Clock::simulated();
        let link = Link::new(ours, network, clock.clone(), first.export, None);
        random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let both = async { tokio::join!(link.run(Some(first)), kernel(theirs, random, 600, 16)) };
        with_time(&clock, both).await.0.expect("detached");
        assert!(broken.lock().len() > 5, "seed {seed}: {} connections", broken.lock().len());
        assert_eq!(service.stats.in_flight.get(), 0, "the kernel has all its answers");
        // The connection that the kernel's last word came on may have broken before it.
        assert_eq!(service.devices.lease("d").token, 1, "one take for all connections");
    }
}

fn lease(host: u8) -> LeaseRequest {
    let (name, holder_name) = ("d".to_owned(), format!("host {host}"));
    LeaseRequest { name, holder: [host; 16], holder_name, token: None, force: false }
}

/// The relay does not go on dialing, and none of its requests reaches the device any more.
#[tokio::test]
async fn a_relay_ends_when_another_host_took_the_device() {
    let memory = Arc::new(Memory::default().with("d", EXPORT.size));
    let service = Arc::new(Service::new(Settings::default(), Arc::clone(&memory) as _, [9; 16]));
    let (queue, connections) = mpsc::channel(1);
    let server = Server::new(Arc::clone(&service), None);
    let socket = Queue(tokio::sync::Mutex::new(connections));
    tokio::spawn(server.run(socket, std::future::pending()));
    let random = Xoshiro256PlusPlus::seed_from_u64(1);
    let network = |host| {
        let (queue, random, broken) = (queue.clone(), random.clone(), Arc::default());
        Network { queue, random, broken, lease: lease(host) }
    };
    let mut first = network(1);
    let connection = first.dial().await.unwrap_or_else(|failure| panic!("{failure}"));
    let mut second = network(2);
    let Err(Failure::Held(why)) = second.dial().await else { panic!("it is held") };
    assert_eq!(why, "device d is held by host 1");
    second.lease.force = true;
    let taken = second.dial().await.unwrap_or_else(|failure| panic!("{failure}"));

    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    theirs.write_all(&request(WRITE, 1, 0, BLOCK, &[1; BLOCK])).await.expect("room");
    let clock = Clock::simulated();
    let link = Link::new(ours, first, clock.clone(), connection.export, None);
    let ended = with_time(&clock, link.run(Some(connection))).await;
    let Err(End::Lost(why)) = ended else { panic!("{ended:?}") };
    assert_eq!(why, "the lease of device d was taken by host 2");
    let device = memory.open("d").await.expect("a device");
    let read = device.read(0, IoBufMut::zeroed(BLOCK)).await.expect("in the device");
    assert!(read.iter().all(|&byte| byte == 0));

    // A relay whose device is detached gives the lease up before it ends.
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    theirs.write_all(&request(DISCONNECT, 0, 0, 0, &[])).await.expect("room");
    let link = Link::new(ours, second, clock.clone(), taken.export, None);
    with_time(&clock, link.run(Some(taken))).await.expect("detached");
    // Virtual time may have ended its wait for the server.
    while memory.lease("d").holder.is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(memory.lease("d").token, 2);
}
