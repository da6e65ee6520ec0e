//! Dials a server and agrees on an export: the NBD protocol's handshake, fixed newstyle, as a client.
//!
//! # Earlier connections
//!
//! A relay sends requests again when a connection breaks. If the server died, nothing carries out the earlier ones any more.
//! But a network may break a connection to a server that runs on. It may then still have an earlier write in its hands,
//! and carry it out after later writes to the same blocks were answered. So each connection first names the device it
//! serves, by the option [`OptionCode::TakeOver`] with an identifier of 16 bytes. The server ends all earlier connections with the
//! same identifier: it drops requests that it has not begun, waits for those it has, and only then answers. It answers
//! with 16 bytes of its own, its *cache epoch*, and an acknowledgement. Equal epochs mean that every change it ever
//! answered is still there; after the death of a machine with changes in its memory the epoch is another one.
//!
//! Other servers do not know the option. With them all is well as long as servers die and networks do not.
//!
//! # The lease
//!
//! A client that is to write takes the lease of the device next, by the option [`OptionCode::TakeLease`]. The server refuses it while
//! another host holds the device. The token that it answers names this take. Each later connection of the same client sends
//! the token, and the server refuses it once the device was taken away, even where it was given back since: the requests that
//! wait here are older than what the other host wrote. Other servers do not know the option.
//!
//! # TLS
//!
//! With [`Secure`], the client asks for TLS before it names a device, and gives up on a server that has none.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use serve::nbd::wire::{
    self, CacheEpoch, Command, Export, GREETING_BYTES, Headers, Info, InfoKind, InfoRequest,
    LeaseRequest, Malformed, OPTION_REPLY_BYTES, OptionCode, OptionHead, OptionReply,
    OptionReplyHead, Request, Token, flags,
};
use serve::tls::TlsClient;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use volume::Clock;

/// What the kernel's requests are multiples of, in bytes.
const BLOCK: u32 = 4096;
/// Most bytes of one reply to an option.
const REPLY_MAX: usize = 1 << 20;
/// How long a silent network counts as alive.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// The time that a server gets to greet a client that asks whether it is there.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// A connection in both directions.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that is ready for requests.
pub(super) struct Connection {
    pub(super) stream: Box<dyn Stream>,
    pub(super) export: Export,
    /// The server's cache epoch; `None` if it cannot end earlier connections.
    pub(super) epoch: Option<CacheEpoch>,
    /// Of the lease; `None` if the client wants none, or the server keeps none.
    pub(super) token: Option<Token>,
}

/// TLS to a server.
pub(in super::super) struct Secure {
    pub(in super::super) client: TlsClient,
    /// The name or address in the server's certificate.
    pub(in super::super) host: String,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum Failure {
    /// The server is not there, or not yet: try again.
    #[error(transparent)]
    Away(#[from] io::Error),
    /// The server does not have the export, or not yet.
    #[error("no block device {name}; {there}")]
    NoExport {
        name: String,
        /// A sentence on the devices it has.
        there: String,
    },
    /// Another host holds the device, or took it since: leave it, or take it by force.
    #[error("{0}")]
    Held(String),
    /// It is no server for us: change the command or the server.
    #[error("{0}")]
    Refused(String),
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::Refused(malformed.to_string())
    }
}

/// Where a server listens: `HOST:PORT`, or the path of a Unix socket.
pub(super) async fn dial(server: &str) -> io::Result<Box<dyn Stream>> {
    if server.contains('/') {
        return Ok(Box::new(UnixStream::connect(server).await?));
    }
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    // A server that died with its machine, or a cut cable, sends nothing.
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepintvl(&stream, PROBE_EVERY)?;
    sockopt::set_tcp_user_timeout(&stream, SILENCE_MAX.as_millis() as u32)?;
    Ok(Box::new(stream))
}

/// Whether a server greets in time.
pub(in super::super) async fn answers(server: &str) -> bool {
    let greeting = async {
        let mut greeting = [0; GREETING_BYTES];
        dial(server).await?.read_exact(&mut greeting).await
    };
    tokio::select! {
        read = greeting => read.is_ok(),
        () = Clock::real().sleep(ANSWER_MAX) => false,
    }
}

/// Agrees on the export `name`, as the only connection of the device `id`; by a lease if `lease` asks for one, and with
/// `secure` over TLS.
///
/// # Errors
/// As the kind says.
pub(super) async fn negotiate(
    mut stream: Box<dyn Stream>,
    name: &str,
    id: &[u8; 16],
    lease: Option<&LeaseRequest>,
    secure: Option<&Secure>,
) -> Result<Connection, Failure> {
    let mut greeting = [0; GREETING_BYTES];
    stream.read_exact(&mut greeting).await?;
    let offered = wire::decode_greeting(&greeting)?;
    stream.write_u32((offered & (flags::FIXED_NEWSTYLE | flags::NO_ZEROES)).into()).await?;
    if let Some(secure) = secure {
        stream = start_tls(stream, secure).await?;
    }
    let epoch = take_over(&mut stream, id).await?;
    let token = match lease {
        Some(lease) => take_lease(&mut stream, lease).await?,
        None => None,
    };
    let mut request = Vec::new();
    InfoRequest { name: name.into(), wanted: vec![InfoKind::BlockSize] }.encode(&mut request);
    ask(&mut stream, OptionCode::Go, &request).await?;
    let mut export = None;
    loop {
        let (reply, body) = reply(&mut stream, OptionCode::Go).await?;
        match reply {
            OptionReply::Ack => break,
            OptionReply::Info => match Info::decode(&body)? {
                Info::Export(told) => export = Some(told),
                Info::BlockSize { min, .. } if min > BLOCK => {
                    return Err(Failure::Refused(format!(
                        "its requests have at least {min} bytes, and the kernel's have {BLOCK}"
                    )));
                }
                _ => (),
            },
            OptionReply::Unknown => return Err(no_export(&mut stream, name).await?),
            _ => return Err(failed(reply, &body)),
        }
    }
    let export =
        export.ok_or_else(|| Failure::Refused("it does not say how large the device is".into()))?;
    Ok(Connection { stream, export, epoch, token })
}

/// Secures a connection.
async fn start_tls(
    mut stream: Box<dyn Stream>,
    Secure { client, host }: &Secure,
) -> Result<Box<dyn Stream>, Failure> {
    let option = OptionCode::StartTls;
    ask(&mut stream, option, &[]).await?;
    match reply(&mut stream, option).await? {
        (OptionReply::Ack, _) => (),
        (OptionReply::Unsupported | OptionReply::Policy, _) => {
            return Err(Failure::Refused("it takes no connections over TLS".into()));
        }
        (reply, body) => return Err(failed(reply, &body)),
    }
    match client.connect(host, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(Failure::Refused(format!("TLS: {error}")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends earlier connections of the device. Returns the cache epoch of a server that can.
async fn take_over(
    stream: &mut Box<dyn Stream>,
    id: &[u8; 16],
) -> Result<Option<CacheEpoch>, Failure> {
    let option = OptionCode::TakeOver;
    ask(stream, option, id).await?;
    let mut epoch = None;
    loop {
        let (reply, body) = reply(stream, option).await?;
        match reply {
            OptionReply::Ack => return Ok(epoch),
            OptionReply::CacheEpoch => epoch = body.try_into().ok(),
            OptionReply::Shutdown | OptionReply::TlsRequired => return Err(failed(reply, &body)),
            _ if reply.is_error() => return Ok(None),
            _ => (),
        }
    }
}

/// Takes the lease, or finds that it is still the client's. Returns the token of a server that keeps leases.
async fn take_lease(
    stream: &mut Box<dyn Stream>,
    request: &LeaseRequest,
) -> Result<Option<Token>, Failure> {
    let option = OptionCode::TakeLease;
    let mut body = Vec::new();
    request.encode(&mut body);
    ask(stream, option, &body).await?;
    let mut token = None;
    loop {
        let (reply, body) = reply(stream, option).await?;
        match reply {
            OptionReply::Ack => return Ok(token),
            OptionReply::Token => token = body.try_into().ok().map(Token::from_be_bytes),
            OptionReply::Held => {
                return Err(Failure::Held(String::from_utf8_lossy(&body).into_owned()));
            }
            OptionReply::Unknown => return Err(no_export(stream, &request.name).await?),
            OptionReply::Unsupported => return Ok(None),
            _ if reply.is_error() => return Err(failed(reply, &body)),
            _ => (),
        }
    }
}

/// Gives up the lease of a connection without requests, and waits until the server has done so, or closed it.
pub(super) async fn release(mut connection: Connection) {
    let flags = flags::RELEASE;
    let request = Request { flags, command: Command::Disconnect, cookie: 0, offset: 0, len: 0 };
    let mut message = Vec::new();
    request.encode(Headers::Compact, &mut message);
    let stream = &mut connection.stream;
    if stream.write_all(&message).await.is_ok() && stream.flush().await.is_ok() {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
}

async fn no_export(stream: &mut Box<dyn Stream>, name: &str) -> Result<Failure, Failure> {
    let there = list(stream).await?;
    Ok(Failure::NoExport { name: name.into(), there })
}

/// A sentence on the devices of the server.
async fn list(stream: &mut Box<dyn Stream>) -> Result<String, Failure> {
    ask(stream, OptionCode::List, &[]).await?;
    let mut names = Vec::new();
    loop {
        let (reply, body) = reply(stream, OptionCode::List).await?;
        match reply {
            OptionReply::Server => names.push(wire::decode_server_name(&body)?),
            OptionReply::Ack if names.is_empty() => return Ok("the server has none".into()),
            OptionReply::Ack => return Ok(format!("the server has {}", names.join(", "))),
            _ if reply.is_error() => return Ok("the server does not list those it has".into()),
            _ => (),
        }
    }
}

async fn ask(stream: &mut Box<dyn Stream>, option: OptionCode, body: &[u8]) -> io::Result<()> {
    let mut message = Vec::new();
    OptionHead { option, len: body.len() as u32 }.encode(&mut message);
    message.extend(body);
    stream.write_all(&message).await?;
    stream.flush().await
}

/// The next reply to an option, and its body.
async fn reply(
    stream: &mut Box<dyn Stream>,
    option: OptionCode,
) -> Result<(OptionReply, Vec<u8>), Failure> {
    let mut head = [0; OPTION_REPLY_BYTES];
    stream.read_exact(&mut head).await?;
    let head = OptionReplyHead::decode(&head)?;
    let len = head.len as usize;
    if head.option != option || len > REPLY_MAX {
        return Err(Failure::Refused("its replies do not keep to the NBD protocol".into()));
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await?;
    Ok((head.reply, body))
}

fn failed(reply: OptionReply, message: &[u8]) -> Failure {
    let message = String::from_utf8_lossy(message);
    match reply {
        OptionReply::Shutdown => Failure::Away(io::Error::other("it is shutting down")),
        OptionReply::TlsRequired => {
            Failure::Refused("it takes connections over TLS only: give --tls-ca".into())
        }
        _ if message.is_empty() => Failure::Refused(format!("it refuses: {reply:?}")),
        _ => Failure::Refused(format!("it refuses: {message}")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::net::UnixListener;

    use super::*;

    const OURS: OptionCode = OptionCode::TakeOver;
    type Script<'a> = (OptionCode, OptionReply, &'a [u8]);

    /// Plays a server: sends what is given, and returns what it got.
    async fn against(replies: &[Script<'_>]) -> (Result<Connection, Failure>, Vec<u8>) {
        leased_against(replies, None).await
    }

    async fn leased_against(
        replies: &[Script<'_>],
        lease: Option<&LeaseRequest>,
    ) -> (Result<Connection, Failure>, Vec<u8>) {
        let (ours, mut theirs) = duplex(1 << 16);
        let mut script = Vec::new();
        wire::encode_greeting(flags::FIXED_NEWSTYLE | flags::NO_ZEROES, &mut script);
        for &(option, reply, body) in replies {
            OptionReplyHead::encode(option, reply, body, &mut script);
        }
        theirs.write_all(&script).await.expect("room");
        let ours = Box::new(ours) as Box<dyn Stream>;
        let connection = negotiate(ours, "root", &[7; 16], lease, None).await;
        (connection, received(&mut theirs).await)
    }

    async fn received(from: &mut DuplexStream) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(Ok(1..)) = futures_now(from.read_buf(&mut all)) {}
        all
    }

    /// What a future is ready with at once.
    fn futures_now<F: Future>(future: F) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(future).poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    fn export() -> Vec<u8> {
        let mut body = Vec::new();
        Info::Export(Export { size: 1 << 30, flags: 0x0d }).encode(&mut body);
        body
    }

    #[tokio::test]
    async fn a_server_of_ours_ends_earlier_connections_and_says_its_epoch() {
        let export = export();
        let replies: [Script; 4] = [
            (OURS, OptionReply::CacheEpoch, &[9; 16]),
            (OURS, OptionReply::Ack, &[]),
            (OptionCode::Go, OptionReply::Info, &export),
            (OptionCode::Go, OptionReply::Ack, &[]),
        ];
        let (connection, sent) = against(&replies).await;
        let Ok(Connection { export, epoch, .. }) = connection else { panic!("refused") };
        assert_eq!((export, epoch), (Export { size: 1 << 30, flags: 0x0d }, Some([9; 16])));
        let wanted: [&[u8]; 7] = [
            &[0, 0, 0, 3],
            b"IHAVEOPTPLIM\0\0\0\x10",
            &[7; 16],
            b"IHAVEOPT\0\0\0\x07\0\0\0\x0c",
            b"\0\0\0\x04",
            b"root",
            &[0, 1, 0, 3],
        ];
        assert_eq!(sent, wanted.concat());
    }

    #[tokio::test]
    async fn another_server_does_without() {
        let export = export();
        let replies: [Script; 3] = [
            (OURS, OptionReply::Unsupported, b"what?"),
            (OptionCode::Go, OptionReply::Info, &export),
            (OptionCode::Go, OptionReply::Ack, &[]),
        ];
        let Ok(connection) = against(&replies).await.0 else { panic!("refused") };
        assert_eq!(connection.epoch, None);
    }

    #[tokio::test]
    async fn a_lease_is_asked_for_and_a_server_without_leases_will_do() {
        let export = export();
        let (name, holder_name) = ("root".to_owned(), "h".to_owned());
        let lease = LeaseRequest { name, holder: [5; 16], holder_name, token: None, force: true };
        let no: Script = (OURS, OptionReply::Unsupported, &[]);
        let go: [Script; 2] =
            [(OptionCode::Go, OptionReply::Info, &export), (OptionCode::Go, OptionReply::Ack, &[])];
        let option = OptionCode::TakeLease;
        let given: [Script; 2] = [
            (option, OptionReply::Token, &[0, 0, 0, 0, 0, 0, 0, 9]),
            (option, OptionReply::Ack, &[]),
        ];
        let (connection, sent) =
            leased_against(&[&[no], &given[..], &go].concat(), Some(&lease)).await;
        assert_eq!(connection.ok().and_then(|connection| connection.token), Some(9));
        let wanted: [&[u8]; 4] = [
            b"IHAVEOPTPLIL\0\0\0\x27\0\0\0\x04root",
            &[5; 16],
            b"\0\0\0\x01h\0\0\0\0\0\0\0\0\0\x01",
            b"IHAVEOPT\0\0\0\x07",
        ];
        let wanted = wanted.concat();
        assert!(sent.windows(wanted.len()).any(|part| part == wanted), "{sent:?}");
        let without: [Script; 2] = [no, (option, OptionReply::Unsupported, &[])];
        let connection = leased_against(&[&without[..], &go].concat(), Some(&lease)).await.0;
        assert!(connection.is_ok_and(|connection| connection.token.is_none()));
        let held: Script = (option, OptionReply::Held, b"device root is held by b");
        let failure = leased_against(&[no, held], Some(&lease)).await.0.err();
        let Some(Failure::Held(why)) = failure else { panic!("{failure:?}") };
        assert_eq!(why, "device root is held by b");
    }

    #[tokio::test]
    async fn an_unknown_device_is_told_with_those_there_are() {
        use OptionCode::{Go, List};
        use OptionReply::{Ack, Policy, Server, Shutdown, TlsRequired, Unknown, Unsupported};
        let coarse = {
            let mut body = Vec::new();
            let sizes = Info::BlockSize { min: 8192, preferred: 8192, payload_max: 1 << 20 };
            sizes.encode(&mut body);
            body
        };
        let no: Script = (OURS, Unsupported, &[]);
        let unknown: Script = (Go, Unknown, &[]);
        let cases: [(&[Script], &str); 8] = [
            (
                &[
                    no,
                    unknown,
                    (List, Server, b"\0\0\0\x01a"),
                    (List, Server, b"\0\0\0\x01btext"),
                    (List, Ack, &[]),
                ],
                "no block device root; the server has a, b",
            ),
            (&[no, unknown, (List, Ack, &[])], "no block device root; the server has none"),
            (&[no, (Go, TlsRequired, &[])], "it takes connections over TLS only: give --tls-ca"),
            (&[no, (Go, Policy, b"by policy")], "it refuses: by policy"),
            (&[no, (List, Ack, &[])], "its replies do not keep to the NBD protocol"),
            (&[no, (Go, Ack, &[])], "it does not say how large the device is"),
            (
                &[no, (Go, OptionReply::Info, &coarse)],
                "its requests have at least 8192 bytes, and the kernel's have 4096",
            ),
            (&[(OURS, Shutdown, &[])], "it is shutting down"),
        ];
        for (replies, wanted) in cases {
            let error = against(replies).await.0.err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some(wanted));
        }
    }

    #[tokio::test]
    async fn only_a_server_that_greets_answers() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("nbd");
        let server = path.to_str().expect("UTF-8");
        assert!(!answers(server).await, "nothing listens");
        let listener = UnixListener::bind(&path).expect("a socket");
        let greet = async {
            let mut stream = listener.accept().await.expect("a client").0;
            stream.write_all(&[0; GREETING_BYTES]).await.expect("it reads");
        };
        let (answered, ()) = tokio::join!(answers(server), greet);
        assert!(answered);
        let close = async { drop(listener.accept().await) };
        assert!(!tokio::join!(answers(server), close).0, "it says nothing");
    }
}
