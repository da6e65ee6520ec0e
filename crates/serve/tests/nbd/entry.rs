//! Arbitrary bytes as an NBD client's input: the common entry of tests and fuzzer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use engine::block::Memory;
use serve::listener::Socket;
use serve::nbd::{Server, Service, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::{Mutex, oneshot};

/// The sizes of the devices, in bytes. Offsets of one byte or two reach their ends.
const SIZES: [(&str, u64); 2] = [("a", 16 << 10), ("b", 4 << 10)];
/// What the stream between client and server holds, in bytes: nearly one message, or many.
const STREAM_BYTES: [usize; 2] = [40, 64 << 10];
/// Small, so that short inputs reach it.
const REQUESTS_MAX: usize = 3;
/// Most bytes of replies for each byte of input: a request of 28 bytes reads a device.
const REPLY_BYTES_MAX: usize = 1 << 10;

/// A single connection.
struct Once(Mutex<Option<DuplexStream>>);

impl Socket for Once {
    type Stream = DuplexStream;

    async fn accept(&self) -> io::Result<(DuplexStream, Option<SocketAddr>)> {
        match self.0.lock().await.take() {
            Some(stream) => Ok((stream, None)),
            None => std::future::pending().await,
        }
    }
}

/// Serves `data` twice, in pieces and at once. The first byte sets the length of the pieces, and how much the stream holds.
///
/// # Panics
/// On a violation: the server panics or goes on after its client, replies depend on the pieces, or memory is kept.
pub(crate) fn run(data: &[u8]) {
    let Some((&how, input)) = data.split_first() else { return };
    let in_pieces = serve(input, 1 + usize::from(how >> 1), STREAM_BYTES[usize::from(how & 1)]);
    let at_once = answers(input);
    // What is malformed ends a negotiation, and then answers to the options that came with it are not sent.
    assert!(
        in_pieces.starts_with(&at_once) || at_once.starts_with(&in_pieces),
        "in pieces: {}\nat once: {}",
        in_pieces.escape_ascii(),
        at_once.escape_ascii()
    );
}

/// Returns all that the server sends to a client that sends `input` at once.
pub(crate) fn answers(input: &[u8]) -> Vec<u8> {
    serve(input, input.len().max(1), 1 << 20)
}

/// Returns all that the server sends to a client that sends `input` in pieces.
fn serve(input: &[u8], step: usize, capacity: usize) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(serve_all(input, step, capacity))
}

async fn serve_all(input: &[u8], step: usize, capacity: usize) -> Vec<u8> {
    let devices =
        SIZES.iter().fold(Memory::default(), |devices, &(name, size)| devices.with(name, size));
    let settings = Settings { requests_max: REQUESTS_MAX, ..Settings::default() };
    let service = Arc::new(Service::new(settings, Arc::new(devices), [9; 16]));
    let (client, stream) = duplex(capacity);
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::new(Arc::clone(&service), None);
    let until = async { stopped.await.unwrap_or(()) };
    let running = tokio::spawn(server.run(Once(Mutex::new(Some(stream))), until));
    let (mut reader, mut writer) = tokio::io::split(client);
    let send = async {
        for piece in input.chunks(step) {
            // The server may have closed the connection.
            if writer.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let _ = writer.shutdown().await;
    };
    let mut replies = Vec::new();
    let (_, ended) = tokio::join!(send, reader.read_to_end(&mut replies));
    ended.expect("a stream in memory does not fail");
    assert!(replies.len() <= 64 + REPLY_BYTES_MAX * input.len(), "{} bytes", replies.len());
    stop.send(()).expect("the server runs");
    running.await.expect("no panic");
    let stats = &service.stats;
    assert_eq!((stats.open.get(), stats.in_flight.get(), service.payload_bytes()), (0, 0, 0));
    replies
}
