use tokio::io::{DuplexStream, duplex};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::*;

/// The limit on connections.
const MOST: usize = 2;
/// Longer than any test runs.
const LONG: Duration = Duration::from_secs(3600);

/// Connections in memory, and failures of the system.
struct Queue(Mutex<mpsc::Receiver<io::Result<DuplexStream>>>);

impl Socket for Queue {
    type Stream = DuplexStream;

    async fn accept(&self) -> io::Result<(DuplexStream, Option<SocketAddr>)> {
        match self.0.lock().await.recv().await {
            Some(stream) => Ok((stream?, None)),
            None => std::future::pending().await,
        }
    }
}

/// Sends each byte back. A stop is answered by `!`; the session goes on until its client is done.
#[derive(Default)]
struct Echo {
    open: Counter,
    accepted: Counter,
    rejected: Counter,
    shed: Counter,
    /// The clients that [`Protocol::refuse`] has seen.
    refused: Counter,
}

impl Protocol for Arc<Echo> {
    type Stream = DuplexStream;
    type Session = Arrival;

    fn counts(&self) -> Counts<'_> {
        let Echo { open, accepted, rejected, shed, .. } = &**self;
        Counts { open, accepted, rejected, shed }
    }

    fn begin(&self, _stream: &DuplexStream, arrival: Arrival) -> Arrival {
        arrival
    }

    fn refuse(&self, _stream: &DuplexStream) {
        self.refused.add_one();
    }

    async fn prepare(&self, stream: &mut DuplexStream) -> io::Result<()> {
        stream.write_all(b">").await
    }

    async fn serve(arrival: Arrival, mut stream: impl Stream) -> Result<(), Failure> {
        let mut is_stopping = false;
        loop {
            let mut bytes = [0];
            tokio::select! {
                read = stream.read(&mut bytes) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    arrival.guest.is_known();
                    stream.write_all(&bytes).await?;
                }
                () = arrival.stop.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    stream.write_all(b"!").await?;
                }
            }
        }
    }
}

/// A running listener. All tasks run on the thread of the test.
struct Stage {
    echo: Arc<Echo>,
    queue: mpsc::Sender<io::Result<DuplexStream>>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Stage {
    fn new(stop_grace: Duration) -> Self {
        let echo = Arc::new(Echo::default());
        let limits = Limits { connections_max: MOST, per_address_max: None };
        let terms = Terms { limits, handshake_timeout: LONG, stop_grace };
        let listener = Listener::new(Arc::clone(&echo), None, terms);
        let (queue, connections) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel();
        let until = async { stopped.await.expect("the test says when") };
        let running = tokio::spawn(listener.run(Queue(Mutex::new(connections)), until));
        Self { echo, queue, stop, running }
    }

    async fn connect(&self) -> DuplexStream {
        let (client, stream) = duplex(64);
        self.queue.send(Ok(stream)).await.expect("the listener accepts");
        client
    }

    /// A client that is served.
    async fn enter(&self) -> DuplexStream {
        let mut client = self.connect().await;
        assert_eq!(client.read_u8().await.expect("it is prepared"), b'>');
        client
    }

    /// Numbers of connections: open, accepted, rejected, displaced.
    fn counts(&self) -> [u64; 4] {
        let Counts { open, accepted, rejected, shed } = self.echo.counts();
        [open, accepted, rejected, shed].map(Counter::get)
    }
}

async fn echoes(client: &mut DuplexStream) -> bool {
    client.write_all(b"x").await.is_ok() && client.read_u8().await.is_ok_and(|byte| byte == b'x')
}

async fn is_closed(client: &mut DuplexStream) -> bool {
    client.read(&mut [0]).await.is_ok_and(|read| read == 0)
}

#[tokio::test]
async fn who_finds_no_place_is_refused_and_strangers_give_way() {
    let stage = Stage::new(LONG);
    let mut known = stage.enter().await;
    assert!(echoes(&mut known).await);
    let mut stranger = stage.enter().await;
    let mut next = stage.enter().await;
    assert!(is_closed(&mut stranger).await, "it gave way");
    assert!(echoes(&mut next).await);
    assert_eq!(stage.counts(), [2, 3, 0, 1]);

    assert!(is_closed(&mut stage.connect().await).await, "both places are in use");
    assert_eq!((stage.counts(), stage.echo.refused.get()), ([2, 3, 1, 1], 1));
    assert!(echoes(&mut known).await && echoes(&mut next).await);

    known.shutdown().await.expect("it can always close");
    assert!(is_closed(&mut known).await);
    let mut last = stage.enter().await;
    assert!(echoes(&mut last).await, "its place is free");
    assert_eq!(stage.counts(), [2, 4, 1, 1]);
}

#[tokio::test]
async fn a_system_without_descriptors_ends_nothing() {
    let stage = Stage::new(LONG);
    let full = io::Error::other("too many open files");
    stage.queue.send(Err(full)).await.expect("the listener accepts");
    assert!(echoes(&mut stage.enter().await).await);
}

#[tokio::test]
async fn a_stop_waits_for_sessions_and_accepts_no_more() {
    let stage = Stage::new(LONG);
    let mut client = stage.enter().await;
    stage.stop.send(()).expect("the listener runs");
    assert_eq!(client.read_u8().await.expect("it is told"), b'!');
    assert!(stage.queue.is_closed() && !stage.running.is_finished());
    assert!(echoes(&mut client).await, "it is served to its end");
    drop(client);
    stage.running.await.expect("no panic");
    assert_eq!(stage.echo.open.get(), 0);
}

#[tokio::test]
async fn who_goes_on_after_the_grace_is_cut() {
    let stage = Stage::new(Duration::from_millis(1));
    let mut client = stage.enter().await;
    stage.stop.send(()).expect("the listener runs");
    stage.running.await.expect("no panic");
    assert_eq!(client.read_u8().await.expect("it is told"), b'!');
    assert!(is_closed(&mut client).await);
    assert_eq!(stage.echo.open.get(), 0);
}
