//! Bodies of writes, as a stream of inflated pieces.
//!
//! Limits apply to the body (a kilobyte of gzip can inflate to a megabyte), to the memory of all bodies under way, and
//! to the time for each piece. Compressed pieces are inflated step by step, so that at most one step is ahead of the
//! parser of lines.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::{HeaderMap, header};
use flate2::write::MultiGzDecoder;
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Compressed bytes inflated at once; they become at most a thousand times as many.
const STEP: usize = 4 * 1024;

/// Why reading a body fails.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Trouble {
    /// It has more bytes than this limit.
    TooLong(usize),
    /// Other bodies use all the memory for bodies.
    Busy,
    /// It did not arrive in time.
    Slow(Duration),
    /// It does not match its header, or broke off.
    Broken(String),
    /// It has an encoding other than gzip.
    Encoding(String),
}

/// A body under way.
pub(super) struct Incoming {
    pieces: BodyDataStream,
    inflate: Option<MultiGzDecoder<Bounded>>,
    /// Received bytes that are not inflated yet.
    waiting: Bytes,
    /// Bytes that may still arrive.
    left: usize,
    max: usize,
    timeout: Duration,
    bodies: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
    /// Bytes received.
    pub(super) received: usize,
}

/// Reads and discards the body of a refused request, up to `max` bytes. Closing a connection with unread bytes resets
/// it, and the client, which still sends, may never see the answer.
pub(super) async fn let_pass(headers: &HeaderMap, body: Body, max: usize, timeout: Duration) {
    if headers.contains_key(header::EXPECT) {
        // The client sends the body only after 100 Continue.
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
    // Bytes that do not arrive in time stay unread.
    let _ = tokio::time::timeout(timeout, passing).await;
}

/// A sink for at most `left` more bytes.
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
    /// A body of at most `max` bytes, which takes memory from `bodies`.
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

    /// Appends the next piece to `into`; false at the end.
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

    /// Checks that the stream is complete, and appends the rest.
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

    /// Reserves memory for `bytes` more bytes, until the body is dropped.
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

    /// The permit for the body's memory, to be released when its rows are stored.
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
