//! Servers with devices in memory, and clients that check every byte.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use engine::block::{
    BlockDevice, BlockDevices, Durable, Error, Extent, Geometry, IoBuf, IoBufMut, Memory, Pending,
    Zeros,
};
use proptest::collection::vec;
use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::{Mutex, Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::rustls::pki_types::ServerName;

use super::wire::flags::*;
use super::wire::*;
use super::*;
use crate::listener::Socket;
use crate::tls::{Tls, TlsClientFiles, TlsFiles};

mod ends;
mod merges;
mod recorder;
mod take_over;

const SIZE: u64 = 1 << 20;
const EPOCH: CacheEpoch = [9; 16];
/// What clients call their device.
const ID: [u8; 16] = [7; 16];

/// Connections in memory.
struct Queue(Mutex<mpsc::Receiver<DuplexStream>>);

impl Socket for Queue {
    type Stream = DuplexStream;

    async fn accept(&self) -> std::io::Result<(DuplexStream, Option<SocketAddr>)> {
        match self.0.lock().await.recv().await {
            Some(stream) => Ok((stream, None)),
            None => std::future::pending().await,
        }
    }
}

/// A running server.
struct Stage {
    service: Arc<Service>,
    queue: mpsc::Sender<DuplexStream>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Stage {
    fn new() -> Self {
        Self::of(Arc::new(Memory::default().with("a", SIZE)), Settings::default())
    }

    fn of(devices: Arc<dyn BlockDevices>, settings: Settings) -> Self {
        Self::with_tls(devices, settings, None)
    }

    fn with_tls(devices: Arc<dyn BlockDevices>, settings: Settings, tls: Option<Arc<Tls>>) -> Self {
        let service = Arc::new(Service::new(settings, devices, EPOCH));
        let (queue, connections) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel();
        let server = Server::new(Arc::clone(&service), tls);
        let until = async { stopped.await.unwrap_or(()) };
        let running = tokio::spawn(server.run(Queue(Mutex::new(connections)), until));
        Self { service, queue, stop, running }
    }

    async fn connect(&self) -> DuplexStream {
        let (client, stream) = duplex(1 << 16);
        self.queue.send(stream).await.expect("the server accepts");
        client
    }

    /// A client of device `a` that has agreed on these options.
    async fn client(&self, options: &[OptionCode]) -> Client {
        let stream = greeted(self.connect().await).await;
        let mut client = Client { stream, headers: Headers::Compact, cookie: 0, flags: 0 };
        for &option in options {
            let mut data = Vec::new();
            if option == OptionCode::SetMetaContext {
                let queries = vec![BASE_ALLOCATION.to_owned()];
                MetaRequest { name: "a".to_owned(), queries }.encode(&mut data);
            }
            if option == OptionCode::TakeOver {
                data.extend(ID);
            }
            client.negotiate(option, &data).await;
            if option == OptionCode::ExtendedHeaders {
                client.headers = Headers::Extended;
            }
        }
        let mut data = Vec::new();
        InfoRequest { name: String::new(), wanted: Vec::new() }.encode(&mut data);
        client.negotiate(OptionCode::Go, &data).await;
        client
    }
}

/// Takes the server's greeting, and answers it.
async fn greeted(mut stream: DuplexStream) -> DuplexStream {
    let mut greeting = [0; GREETING_BYTES];
    stream.read_exact(&mut greeting).await.expect("a greeting");
    let flags = decode_greeting(&greeting).expect("a server");
    stream.write_u32(flags.into()).await.expect("it reads");
    stream
}

/// Lets the server do what it can: all tasks run on the thread of the test.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

const STRUCTURED: &[OptionCode] = &[OptionCode::StructuredReply, OptionCode::SetMetaContext];
const EXTENDED: &[OptionCode] = &[OptionCode::ExtendedHeaders, OptionCode::SetMetaContext];

struct Client<S = DuplexStream> {
    stream: S,
    headers: Headers,
    cookie: u64,
    flags: u16,
}

/// The whole reply to a request.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Reply {
    Done,
    Data(Vec<u8>),
    Extents(Vec<(u64, u64)>),
    Error(Errno),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    async fn negotiate(&mut self, option: OptionCode, data: &[u8]) {
        let mut out = Vec::new();
        OptionHead { option, len: data.len() as u32 }.encode(&mut out);
        out.extend(data);
        self.stream.write_all(&out).await.expect("it reads");
        self.stream.flush().await.expect("it reads");
        loop {
            let mut head = [0; OPTION_REPLY_BYTES];
            self.stream.read_exact(&mut head).await.expect("a reply");
            let head = OptionReplyHead::decode(&head).expect("a reply");
            let mut body = vec![0; head.len as usize];
            self.stream.read_exact(&mut body).await.expect("a reply");
            assert!(!head.reply.is_error(), "{head:?}");
            if let (OptionReply::Info, Ok(Info::Export(export))) = (head.reply, Info::decode(&body))
            {
                assert_eq!(export.size, SIZE);
                self.flags = export.flags;
            }
            if head.reply == OptionReply::CacheEpoch {
                assert_eq!(body, EPOCH);
            }
            if head.reply == OptionReply::Ack {
                return;
            }
        }
    }

    /// Sends a request; returns its cookie.
    async fn send(
        &mut self,
        command: Command,
        mut flags: u16,
        (offset, len): (u64, u64),
        data: &[u8],
    ) -> u64 {
        self.cookie += 1;
        if self.headers == Headers::Extended && command == Command::Write {
            flags |= PAYLOAD_LEN;
        }
        let mut out = Vec::new();
        Request { flags, command, cookie: self.cookie, offset, len }.encode(self.headers, &mut out);
        out.extend(data);
        self.stream.write_all(&out).await.expect("it reads");
        self.stream.flush().await.expect("it reads");
        self.cookie
    }

    async fn ask(&mut self, command: Command, flags: u16, range: (u64, u64), data: &[u8]) -> Reply {
        let cookie = self.send(command, flags, range, data).await;
        let wanted = if command == Command::Read { range.1 as usize } else { 0 };
        let (of, reply) = self.hear(&HashMap::from([(cookie, wanted)])).await;
        assert_eq!(of, cookie);
        reply
    }

    async fn read(&mut self, offset: u64, len: u64) -> Vec<u8> {
        match self.ask(Command::Read, 0, (offset, len), b"").await {
            Reply::Data(data) => data,
            other => panic!("{other:?}"),
        }
    }

    async fn write(&mut self, offset: u64, data: &[u8]) {
        let range = (offset, data.len() as u64);
        assert_eq!(self.ask(Command::Write, 0, range, data).await, Reply::Done);
    }

    async fn is_closed(&mut self) -> bool {
        self.stream.read(&mut [0]).await.is_ok_and(|read| read == 0)
    }
}

impl<S: AsyncRead + Unpin> Client<S> {
    /// Reads a reply to any request; `reads` are the bytes that these want.
    async fn hear(&mut self, reads: &HashMap<u64, usize>) -> (u64, Reply) {
        let mut head = vec![0; 4];
        self.stream.read_exact(&mut head).await.expect("a reply");
        let len = ReplyHead::bytes(head[..].try_into().expect("4 bytes")).expect("a reply");
        head.resize(len, 0);
        self.stream.read_exact(&mut head[4..]).await.expect("a reply");
        let (cookie, kind, len) = match ReplyHead::decode(&head).expect("a reply") {
            ReplyHead::Simple { error: Some(error), cookie } => {
                return (cookie, Reply::Error(error));
            }
            ReplyHead::Simple { error: None, cookie } => {
                let mut data = vec![0; reads.get(&cookie).copied().unwrap_or(0)];
                self.stream.read_exact(&mut data).await.expect("data");
                let reply = if data.is_empty() { Reply::Done } else { Reply::Data(data) };
                return (cookie, reply);
            }
            ReplyHead::Chunk { is_last, kind, cookie, len } => {
                assert!(is_last);
                (cookie, kind, len)
            }
        };
        let mut body = vec![0; len as usize];
        self.stream.read_exact(&mut body).await.expect("a body");
        let reply = match Chunk::decode(kind, &body).expect("a chunk") {
            Chunk::None => Reply::Done,
            Chunk::Data { .. } => Reply::Data(body.split_off(Chunk::DATA_OFFSET_BYTES)),
            Chunk::Status { extents, .. } => {
                Reply::Extents(extents.iter().map(|extent| (extent.len, extent.flags)).collect())
            }
            Chunk::Error { error, message, .. } => {
                assert!(!message.is_empty());
                Reply::Error(error)
            }
            Chunk::Hole { .. } => panic!("the server sends no holes"),
        };
        (cookie, reply)
    }
}

/// Every command, in every form of replies.
#[tokio::test]
async fn every_command_is_done() {
    for options in [&[][..], STRUCTURED, EXTENDED] {
        let stage = Stage::new();
        let mut client = stage.client(options).await;
        assert_eq!(client.read(0, 5000).await, [0; 5000]);
        client.write(4000, &[7; 300]).await;
        assert_eq!(client.read(3999, 302).await, [&[0][..], &[7; 300], &[0]].concat());
        assert_eq!(client.ask(Command::Read, 0, (SIZE, 0), b"").await, Reply::Done);
        assert_eq!(client.ask(Command::Write, FUA, (9, 1), b"x").await, Reply::Done);
        assert_eq!(client.ask(Command::Flush, 0, (0, 0), b"").await, Reply::Done);
        assert_eq!(client.ask(Command::Cache, 0, (0, SIZE), b"").await, Reply::Done);
        let zero = client.ask(Command::WriteZeroes, NO_HOLE | FAST_ZERO, (4100, 100), b"").await;
        assert_eq!((zero, client.read(4100, 101).await[99..].to_vec()), (Reply::Done, vec![0, 7]));
        assert_eq!(client.ask(Command::Trim, 0, (4096, 4096), b"").await, Reply::Done);
        assert_eq!(client.read(4090, 300).await[6..], [0; 294]);
        let status = client.ask(Command::BlockStatus, 0, (0, 16384), b"").await;
        let hole = STATE_HOLE | STATE_ZERO;
        match options {
            [] => assert_eq!(status, Reply::Error(Errno::Invalid)),
            _ => assert_eq!(status, Reply::Extents(vec![(4096, 0), (12288, hole)])),
        }
        if !options.is_empty() {
            let one = client.ask(Command::BlockStatus, REQ_ONE, (512, 16384), b"").await;
            assert_eq!(one, Reply::Extents(vec![(3584, 0)]));
            assert_eq!(client.flags & SEND_DF, SEND_DF);
            let whole = client.ask(Command::Read, DF, (0, 4096), b"").await;
            assert!(matches!(whole, Reply::Data(data) if data.len() == 4096));
        }
        client.send(Command::Disconnect, 0, (0, 0), b"").await;
        assert!(client.is_closed().await);
        let requests: HashMap<_, _> = stage.service.stats.requests().collect();
        assert_eq!((requests["flush"], requests["write"]), (1, 2));
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_the_next_request_is_served() {
    const MIB: u64 = 1 << 20;
    for options in [&[][..], STRUCTURED, EXTENDED] {
        let devices = Memory::default().with("a", SIZE);
        let stage = Stage::of(Arc::new(devices), Settings::default());
        let mut client = stage.client(options).await;
        let data = vec![1; 2 * MIB as usize];
        for (command, flags, range, data, error) in [
            (Command::Read, 0, (SIZE - 1, 2), &b""[..], Errno::Invalid),
            (Command::Read, 0, (u64::MAX, 2), b"", Errno::Invalid),
            (Command::Read, 1 << 9, (0, 2), b"", Errno::Invalid),
            (Command::Write, 0, (SIZE - 1, 2), b"xy", Errno::NoSpace),
            (Command::Write, 0, (0, 2 * MIB), &data, Errno::NoSpace),
            (Command::Write, REQ_ONE, (0, 2), b"xy", Errno::Invalid),
            (Command::WriteZeroes, 0, (1, SIZE), b"", Errno::NoSpace),
            (Command::Trim, 0, (1, SIZE), b"", Errno::Invalid),
            (Command::Cache, 0, (1, SIZE), b"", Errno::Invalid),
            (Command::BlockStatus, 0, (1, 0), b"", Errno::Invalid),
            (Command::Flush, 0, (1, 0), b"", Errno::Invalid),
            (Command::Other(8), 0, (0, 0), b"", Errno::Invalid),
        ] {
            let reply = client.ask(command, flags, range, data).await;
            assert_eq!(reply, Reply::Error(error), "{command:?} {flags} {range:?}");
        }
        assert_eq!(client.read(0, 4).await, [0; 4]);
        assert_eq!(stage.service.stats.in_flight.get(), 0);
    }
}

/// A device that answers nothing until it is told to, and notes what reached it.
struct Slow {
    inner: Arc<dyn BlockDevice>,
    begun: parking_lot::Mutex<Vec<u64>>,
    go: Notify,
    is_open: std::sync::atomic::AtomicBool,
}

impl Slow {
    async fn wait(&self) {
        let told = self.go.notified();
        tokio::pin!(told);
        told.as_mut().enable();
        if !self.is_open.load(std::sync::atomic::Ordering::SeqCst) {
            told.await;
        }
    }

    fn open(&self) {
        self.is_open.store(true, std::sync::atomic::Ordering::SeqCst);
        self.go.notify_waiters();
    }
}

impl BlockDevice for Slow {
    fn geometry(&self) -> Geometry {
        Geometry { writes_are_durable: true, ..self.inner.geometry() }
    }

    fn read(&self, offset: u64, into: IoBufMut) -> Pending<'_, IoBufMut> {
        Box::pin(async move {
            self.begun.lock().push(offset);
            self.wait().await;
            self.inner.read(offset, into).await
        })
    }

    fn write(&self, _: u64, _: IoBuf, _: Durable) -> Pending<'_, ()> {
        Box::pin(async { Err(Error::OutOfSpace("full".into())) })
    }

    fn zero(&self, _: std::ops::Range<u64>, _: Zeros, _: bool, _: Durable) -> Pending<'_, ()> {
        Box::pin(async { Err(Error::Unsupported("it would be slow".into())) })
    }

    fn discard(&self, _: std::ops::Range<u64>, _: Durable) -> Pending<'_, ()> {
        Box::pin(async { Err(Error::Closed("deleted".into())) })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async { Err(Error::Corrupt("bad bytes".into())) })
    }

    fn extents(&self, range: std::ops::Range<u64>, most: usize) -> Pending<'_, Vec<Extent>> {
        self.inner.extents(range, most)
    }

    fn prefetch(&self, _: std::ops::Range<u64>) -> Pending<'_, ()> {
        Box::pin(async { Err(Error::Busy("later".into())) })
    }
}

struct Only(Arc<dyn BlockDevice>);

impl BlockDevices for Only {
    fn names(&self) -> Vec<String> {
        vec!["a".to_owned()]
    }

    fn open(&self, _: &str) -> Pending<'_, Arc<dyn BlockDevice>> {
        let device = Arc::clone(&self.0);
        Box::pin(async { Ok(device) })
    }
}

async fn slow(settings: Settings) -> (Arc<Slow>, Stage) {
    let memory = Memory::default().with("a", SIZE);
    let inner = memory.open("a").await.expect("there is one");
    let (begun, is_open) = (parking_lot::Mutex::default(), false.into());
    let slow = Arc::new(Slow { inner, begun, go: Notify::new(), is_open });
    (Arc::clone(&slow), Stage::of(Arc::new(Only(slow)), settings))
}

#[tokio::test]
async fn the_errors_of_a_device_have_numbers() {
    for options in [&[][..], STRUCTURED, EXTENDED] {
        let (_, stage) = slow(Settings::default()).await;
        let mut client = stage.client(options).await;
        assert_eq!(client.flags & SEND_FLUSH, 0, "it has no write cache");
        for (command, data, error) in [
            (Command::Write, &b"x"[..], Errno::NoSpace),
            (Command::WriteZeroes, b"", Errno::NotSupported),
            (Command::Cache, b"", Errno::Io),
        ] {
            assert_eq!(client.ask(command, 0, (0, 1), data).await, Reply::Error(error));
        }
        assert_eq!(client.ask(Command::Flush, 0, (0, 0), b"").await, Reply::Error(Errno::Io));
        let gone = client.ask(Command::Trim, 0, (0, 1), b"").await;
        assert_eq!(gone, Reply::Error(Errno::Shutdown));
        assert!(client.is_closed().await, "the device is gone");
        let errors: HashMap<_, _> = stage.service.stats.errors().collect();
        assert_eq!((errors["io"], errors["no_space"]), (2, 1));
    }
}

/// Sends `count` reads of a block, and waits until the device has begun `most`.
async fn crowd(slow: &Slow, client: &mut Client, count: u64, most: usize) {
    for at in 0..count {
        client.send(Command::Read, 0, (at * 512, 512), b"").await;
    }
    while slow.begun.lock().len() < most {
        tokio::task::yield_now().await;
    }
}

async fn hear_all(client: &mut Client, count: u64) {
    let reads = (1..=count).map(|cookie| (cookie, 512)).collect();
    let mut open: std::collections::BTreeSet<_> = (1..=count).collect();
    while !open.is_empty() {
        let (cookie, reply) = client.hear(&reads).await;
        assert!(open.remove(&cookie));
        assert_eq!(reply, Reply::Data(vec![0; 512]));
    }
}

/// All tasks run on the thread of the test, so a server that could begin more would have.
#[tokio::test]
async fn requests_begin_in_order_and_no_more_than_the_limit() {
    let (slow, stage) = slow(Settings { requests_max: 8, ..Settings::default() }).await;
    let mut client = stage.client(STRUCTURED).await;
    crowd(&slow, &mut client, 20, 8).await;
    settle().await;
    assert_eq!(stage.service.stats.in_flight.get(), 8);
    slow.open();
    hear_all(&mut client, 20).await;
    assert_eq!(*slow.begun.lock(), (0..20).map(|at| at * 512).collect::<Vec<_>>());
}

#[tokio::test]
async fn payloads_are_limited_but_for_a_single_one() {
    let (slow, stage) = slow(Settings { payload_bytes_max: 1024, ..Settings::default() }).await;
    let mut client = stage.client(STRUCTURED).await;
    crowd(&slow, &mut client, 10, 2).await;
    settle().await;
    assert_eq!(slow.begun.lock().len(), 2);
    slow.open();
    hear_all(&mut client, 10).await;
    assert_eq!(client.read(0, 100_000).await.len(), 100_000);
}

/// Two connections share the memory of one request and a half, and each begins one.
#[tokio::test]
async fn all_connections_share_a_limit_and_each_has_one_request() {
    let settings = Settings { all_payload_bytes_max: 768, ..Settings::default() };
    let (slow, stage) = slow(settings).await;
    let (mut one, mut other) = (stage.client(STRUCTURED).await, stage.client(STRUCTURED).await);
    crowd(&slow, &mut one, 5, 1).await;
    crowd(&slow, &mut other, 5, 2).await;
    settle().await;
    assert_eq!((slow.begun.lock().len(), stage.service.payload_bytes()), (2, 1024));
    // The reply to one makes room for another one.
    slow.open();
    hear_all(&mut one, 5).await;
    hear_all(&mut other, 5).await;
    drop((one, other));
    while stage.service.stats.open.get() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(stage.service.payload_bytes(), 0);
}

#[tokio::test]
async fn requests_in_flight_are_answered_before_the_end() {
    for ends in ["disconnect", "half-close", "stop"] {
        let (slow, mut stage) = slow(Settings::default()).await;
        let mut client = stage.client(&[]).await;
        crowd(&slow, &mut client, 20, 20).await;
        match ends {
            "disconnect" => {
                client.send(Command::Disconnect, 0, (0, 0), b"").await;
            }
            "half-close" => client.stream.shutdown().await.expect("it can always close"),
            _ => {
                let (unused, _) = oneshot::channel();
                std::mem::replace(&mut stage.stop, unused).send(()).expect("the server runs");
            }
        }
        settle().await;
        slow.open();
        hear_all(&mut client, 20).await;
        assert!(client.is_closed().await, "{ends}");
        if ends == "stop" {
            stage.running.await.expect("no panic");
        }
        assert_eq!(stage.service.stats.in_flight.get(), 0);
    }
}

#[tokio::test]
async fn a_client_without_a_device_is_closed_in_time() {
    let handshake_timeout = std::time::Duration::from_millis(1);
    let settings = Settings { handshake_timeout, ..Settings::default() };
    let stage = Stage::of(Arc::new(Memory::default().with("a", SIZE)), settings);
    let mut silent = stage.connect().await;
    let mut all = Vec::new();
    silent.read_to_end(&mut all).await.expect("it is closed");
    assert_eq!(all.len(), GREETING_BYTES);
}

/// With an authority for clients, a client also shows its certificate.
#[tokio::test]
async fn starttls_secures_the_rest_of_the_connection() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("room for a file");
        dir.path().join(name)
    };
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("random numbers");
    let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
    let ca = file("ca.pem", &issuer.pem());
    let certify = |name: &str| {
        let key = KeyPair::generate().expect("random numbers");
        let params = CertificateParams::new(vec![name.into()]).expect("a name");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        let cert = file(&format!("{name}.pem"), &certificate.pem());
        (cert, file(&format!("{name}.key"), &key.serialize_pem()))
    };
    let (cert, key) = certify("localhost");
    let ours = certify("client");
    for (client_ca, ours, is_served) in
        [(None, None, true), (Some(ca.clone()), None, false), (Some(ca.clone()), Some(ours), true)]
    {
        let files = TlsFiles { cert: cert.clone(), key: key.clone(), client_ca };
        let tls = Arc::new(Tls::new(files.read().expect("its own files")));
        let devices = Arc::new(Memory::default().with("a", SIZE));
        let stage = Stage::with_tls(devices, Settings::default(), Some(tls));
        let mut stream = stage.connect().await;
        stream.read_exact(&mut [0; GREETING_BYTES]).await.expect("a greeting");
        stream.write_u32((FIXED_NEWSTYLE | NO_ZEROES).into()).await.expect("it reads");
        let mut client = Client { stream, headers: Headers::Compact, cookie: 0, flags: 0 };
        client.negotiate(OptionCode::StartTls, b"").await;
        let connector = TlsClientFiles { ca: ca.clone(), ours }.read().expect("its own files");
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = connector.connect(name, client.stream).await;
        // With TLS 1.3 a client hears of its missing certificate after its handshake.
        let mut stream = stream.expect("the server's certificate is good");
        if !is_served {
            assert!(stream.read_u8().await.is_err());
            continue;
        }
        let mut client = Client { stream, headers: Headers::Compact, cookie: 0, flags: 0 };
        client.negotiate(OptionCode::Go, &[0; 6]).await;
        client.write(5, &[7; 100_000]).await;
        assert_eq!(client.read(5, 100_000).await, [7; 100_000]);
        client.send(Command::Disconnect, 0, (0, 0), b"").await;
        assert!(client.is_closed().await, "it ends as TLS demands");
    }
}

/// An operation of the model.
#[derive(Clone, Debug)]
enum Op {
    Read,
    Write(u8),
    Zero,
    Flush,
}

fn op() -> impl Strategy<Value = (Op, u64, u64)> {
    let op = prop_oneof![
        3 => Just(Op::Read),
        3 => any::<u8>().prop_map(Op::Write),
        1 => Just(Op::Zero),
        1 => Just(Op::Flush),
    ];
    (op, 0..60_000u64, 1..9000u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A device in memory does each request at once, so replies show the requests before.
    #[test]
    fn many_requests_at_once_agree_with_an_array(
        ops in vec(op(), 1..129),
        form in 0..3usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let stage = Stage::new();
            let client = stage.client([&[][..], STRUCTURED, EXTENDED][form]).await;
            let (mut model, mut expected) = (vec![0u8; 70_000], HashMap::new());
            let (mut reads, mut bytes) = (HashMap::new(), Vec::new());
            for (at, (op, offset, len)) in ops.into_iter().enumerate() {
                let cookie = at as u64;
                let range = offset as usize..(offset + len) as usize;
                let (command, range_sent, reply) = match op {
                    Op::Read => {
                        reads.insert(cookie, len as usize);
                        (Command::Read, (offset, len), Reply::Data(model[range].to_vec()))
                    }
                    Op::Write(byte) => {
                        model[range].fill(byte);
                        (Command::Write, (offset, len), Reply::Done)
                    }
                    Op::Zero => {
                        model[range].fill(0);
                        (Command::WriteZeroes, (offset, len), Reply::Done)
                    }
                    Op::Flush => (Command::Flush, (0, 0), Reply::Done),
                };
                expected.insert(cookie, reply);
                let is_write = command == Command::Write;
                let extended = client.headers == Headers::Extended;
                let flags = if is_write && extended { PAYLOAD_LEN } else { 0 };
                let (offset, len) = range_sent;
                let request = Request { flags, command, cookie, offset, len };
                request.encode(client.headers, &mut bytes);
                if let Op::Write(byte) = op {
                    bytes.extend(std::iter::repeat_n(byte, len as usize));
                }
            }
            let Client { stream, headers, cookie, flags } = client;
            let (reader, mut writer) = tokio::io::split(stream);
            let sender = tokio::spawn(async move {
                writer.write_all(&bytes).await.expect("it reads");
                writer
            });
            let mut heard = Client { stream: reader, headers, cookie, flags };
            while !expected.is_empty() {
                let (cookie, reply) = heard.hear(&reads).await;
                assert_eq!(expected.remove(&cookie), Some(reply));
            }
            sender.await.expect("no panic");
        });
    }

    /// What no client sends: the server neither panics nor answers for ever.
    #[test]
    fn garbage_ends_a_connection(
        garbage in vec(prop_oneof![0..4u8, any::<u8>()], 0..2000),
        is_attached: bool,
        form in 0..3usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let stage = Stage::new();
            let mut stream = if is_attached {
                stage.client([&[][..], STRUCTURED, EXTENDED][form]).await.stream
            } else {
                stage.connect().await
            };
            // It may be closed before all of it is sent.
            let _ = stream.write_all(&garbage).await;
            let _ = stream.shutdown().await;
            stream.read_to_end(&mut Vec::new()).await.expect("it is closed");
            stage.stop.send(()).expect("the server runs");
            stage.running.await.expect("no panic");
            assert_eq!(stage.service.stats.open.get(), 0);
        });
    }
}
