//! Bodies of writes, as a stream of inflated pieces.
//!
//! Three things are bounded: the body (a gzip of a kilobyte can stand for a megabyte), what all bodies
//! under way hold together, and how long each piece may take. Compressed pieces are inflated a little
//! at a time, so that no more than that is ahead of who reads the lines.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::{HeaderMap, header};
use flate2::write::MultiGzDecoder;
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is inflated at once, compressed: a thousand times as much at most comes of it.
const STEP: usize = 4 * 1024;

/// Why a body cannot be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Trouble {
    /// It has more than so many bytes.
    TooLong(usize),
    /// Other bodies hold all the memory there is for them.
    Busy,
    /// It did not come in time.
    Slow(Duration),
    /// It is not what its header says, or broke off.
    Broken(String),
    /// It is encoded in another way than gzip.
    Encoding(String),
}

/// A body under way.
pub(super) struct Incoming {
    pieces: BodyDataStream,
    inflate: Option<MultiGzDecoder<Bounded>>,
    /// What came and was not inflated.
    waiting: Bytes,
    /// Bytes that may still come.
    left: usize,
    max: usize,
    timeout: Duration,
    bodies: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
    /// Bytes as they came.
    pub(super) received: usize,
}

/// Reads a body of at most `max` bytes that is refused, and keeps nothing of it. The client still sends it: a
/// connection that is closed on unread bytes is reset, and the client may never see why it was refused.
pub(super) async fn let_pass(headers: &HeaderMap, body: Body, max: usize, timeout: Duration) {
    if headers.contains_key(header::EXPECT) {
        // The client waits to be asked for it.
        return;
    }
    let mut pieces = body.into_data_stream();
    let passing = async {
        let mut left = max;
        while let Some(Ok(piece)) = pieces.next().await {
            let Some(rest) = left.checked_sub(piece.len()) else { return };
            left = rest;
        }
    };
    // What does not come in time is left unread.
    let _ = tokio::time::timeout(timeout, passing).await;
}

/// Takes so many bytes.
struct Bounded {
    bytes: Vec<u8>,
    left: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.left {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.left -= bytes.len();
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Incoming {
    /// A body of at most `max` bytes, that holds memory of `bodies`.
    pub(super) fn new(
        headers: &HeaderMap,
        body: Body,
        max: usize,
        timeout: Duration,
        bodies: Arc<Semaphore>,
    ) -> Result<Self, Trouble> {
        let encoding = headers.get(header::CONTENT_ENCODING);
        let encoding = encoding.map_or("", |value| value.to_str().unwrap_or("?")).trim();
        let inflate = match encoding.to_ascii_lowercase().as_str() {
            "" | "identity" => None,
            "gzip" | "x-gzip" => {
                Some(MultiGzDecoder::new(Bounded { bytes: Vec::new(), left: max }))
            }
            other => return Err(Trouble::Encoding(other.escape_debug().to_string())),
        };
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: usize| length > max) {
            return Err(Trouble::TooLong(max));
        }
        Ok(Self {
            pieces: body.into_data_stream(),
            inflate,
            waiting: Bytes::new(),
            left: max,
            max,
            timeout,
            bodies,
            held: None,
            received: 0,
        })
    }

    /// Writes the next piece behind what is in `into`; false at the end.
    pub(super) async fn read(&mut self, into: &mut Vec<u8>) -> Result<bool, Trouble> {
        loop {
            let before = into.len();
            if self.waiting.is_empty() && !self.receive().await? {
                self.finish(into)?;
                return Ok(into.len() > before);
            }
            self.take(into)?;
            if into.len() > before {
                return Ok(true);
            }
        }
    }

    /// Waits for a piece; false at the end.
    async fn receive(&mut self) -> Result<bool, Trouble> {
        let next = tokio::time::timeout(self.timeout, self.pieces.next()).await;
        match next.map_err(|_| Trouble::Slow(self.timeout))? {
            Some(Ok(piece)) => {
                self.received += piece.len();
                self.waiting = piece;
                Ok(true)
            }
            Some(Err(error)) => Err(Trouble::Broken(error.to_string())),
            None => Ok(false),
        }
    }

    /// Whether all of it came, and as it was sent.
    fn finish(&mut self, into: &mut Vec<u8>) -> Result<(), Trouble> {
        let Some(inflate) = &mut self.inflate else { return Ok(()) };
        inflate.try_finish().map_err(|e| broken(self.max, &e))?;
        into.append(&mut inflate.get_mut().bytes);
        Ok(())
    }

    fn take(&mut self, into: &mut Vec<u8>) -> Result<(), Trouble> {
        let before = into.len();
        match &mut self.inflate {
            None => {
                let piece = std::mem::take(&mut self.waiting);
                if piece.len() > self.left {
                    return Err(Trouble::TooLong(self.max));
                }
                self.left -= piece.len();
                into.extend_from_slice(&piece);
            }
            Some(inflate) => {
                let step = self.waiting.split_to(self.waiting.len().min(STEP));
                inflate.write_all(&step).map_err(|e| broken(self.max, &e))?;
                inflate.flush().map_err(|e| broken(self.max, &e))?;
                into.append(&mut inflate.get_mut().bytes);
            }
        }
        self.hold(into.len() - before)
    }

    /// Takes memory for so many bytes more, until the body is done with.
    fn hold(&mut self, bytes: usize) -> Result<(), Trouble> {
        let bytes = u32::try_from(bytes).map_err(|_| Trouble::TooLong(self.max))?;
        let more = Arc::clone(&self.bodies).try_acquire_many_owned(bytes);
        let more = more.map_err(|_| Trouble::Busy)?;
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }

    /// What it holds of the memory for bodies, to be let go when its rows are stored.
    pub(super) fn into_held(self) -> Option<OwnedSemaphorePermit> {
        self.held
    }
}

fn broken(max: usize, error: &io::Error) -> Trouble {
    match error.kind() {
        io::ErrorKind::FileTooLarge => Trouble::TooLong(max),
        _ => Trouble::Broken(format!("its gzip is damaged: {error}")),
    }
}
