//! Servers with devices in memory, and clients that check every byte.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use engine::block::{BlockDevice, BlockDevices, Memory, Pending};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::wire::flags::*;
use super::wire::*;
use super::*;
use crate::listener::Socket;
use crate::tls::Tls;

mod commands;
mod ends;
mod leases;
mod limits;
mod merges;
mod model;
mod negotiation;
mod recorder;
mod slow;
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
