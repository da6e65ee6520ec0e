//! What a client sends: requests with their payloads, read into buffers that devices write from without a copy.
//!
//! ```text
//! stream -> input -> head -> room? -> payload, from the input and then from the stream -> arrived
//!                         -> refused: the payload is read away
//! ```
//!
//! A payload's memory grows with the bytes that arrive, so a client cannot make the server hold what it only announces.

use std::io;

use bytes::{Buf, BytesMut};
use engine::block::{IoBuf, IoBufMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::transmission::{Agreed, Plan, Refusal, payload, plan};
use super::wire::{Command, Malformed, Request};

/// The read buffer. A larger one takes more requests at once, and copies more of long payloads.
const INPUT_BYTES: usize = 32 * 1024;
/// The steps in which the buffer of a payload grows.
const STEP_BYTES: usize = 256 * 1024;

/// The bytes of a client that are not requests yet.
pub(super) struct Intake {
    agreed: Agreed,
    input: BytesMut,
    state: State,
}

enum State {
    Head,
    /// It needs memory that other requests hold.
    Waiting(Request, Plan),
    Payload {
        request: Request,
        plan: Plan,
        len: usize,
        data: IoBufMut,
    },
    Skipped {
        request: Request,
        refusal: Refusal,
        left: u64,
    },
}

/// What came from the client.
#[derive(Debug)]
pub(super) enum Arrived {
    /// A request, with the data of a write.
    Request(Request, Plan, Option<IoBuf>),
    /// A request that makes no sense, or asks for too much.
    Refused(Request, Refusal),
    /// The client is done.
    Disconnect,
}

/// What to do when nothing has arrived.
#[derive(Debug)]
pub(super) enum Next {
    Arrived(Arrived),
    /// [`Intake::read`] more.
    Read,
    /// Wait for room.
    Wait,
}

impl Intake {
    /// `input` was read with the last message of the negotiation.
    pub(super) fn new(agreed: Agreed, input: BytesMut) -> Self {
        Self { agreed, input, state: State::Head }
    }

    /// Takes the next request for a device of `size` bytes, if `has_room` for one that needs this many bytes of memory.
    ///
    /// # Errors
    /// The client sends something else.
    pub(super) fn next(
        &mut self,
        size: u64,
        has_room: impl Fn(u64) -> bool,
    ) -> Result<Next, Malformed> {
        loop {
            match std::mem::replace(&mut self.state, State::Head) {
                State::Head => {
                    let headers = self.agreed.headers();
                    if self.input.len() < headers.request_bytes() {
                        return Ok(Next::Read);
                    }
                    if !has_room(0) {
                        return Ok(Next::Wait);
                    }
                    let request = Request::decode(&self.input, headers)?;
                    self.input.advance(headers.request_bytes());
                    let left = payload(&request, self.agreed)?;
                    if request.command == Command::Disconnect {
                        return Ok(Next::Arrived(Arrived::Disconnect));
                    }
                    self.state = match plan(&request, self.agreed, size) {
                        Ok(plan) => State::Waiting(request, plan),
                        Err(refusal) => State::Skipped { request, refusal, left },
                    };
                }
                State::Waiting(request, plan) => {
                    if !has_room(plan.memory()) {
                        self.state = State::Waiting(request, plan);
                        return Ok(Next::Wait);
                    }
                    let Plan::Write { len, .. } = plan else {
                        return Ok(Next::Arrived(Arrived::Request(request, plan, None)));
                    };
                    let data = IoBufMut::with_capacity(len);
                    self.state = State::Payload { request, plan, len, data };
                }
                State::Payload { request, plan, len, mut data } => {
                    let here = self.input.len().min(len - data.len());
                    data.extend_from_slice(&self.input[..here]);
                    self.input.advance(here);
                    if data.len() == len {
                        let data = Some(data.freeze());
                        return Ok(Next::Arrived(Arrived::Request(request, plan, data)));
                    }
                    self.state = State::Payload { request, plan, len, data };
                    return Ok(Next::Read);
                }
                State::Skipped { request, refusal, mut left } => {
                    let here = left.min(self.input.len() as u64);
                    self.input.advance(here as usize);
                    left -= here;
                    if left > 0 {
                        self.state = State::Skipped { request, refusal, left };
                        return Ok(Next::Read);
                    }
                    return Ok(Next::Arrived(Arrived::Refused(request, refusal)));
                }
            }
        }
    }

    /// Reads from the client; returns zero at its end. A caller may stop waiting at any time, and loses nothing.
    pub(super) async fn read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<usize> {
        if let State::Payload { len, data, .. } = &mut self.state
            && *len - data.len() >= INPUT_BYTES
        {
            let filled = data.len();
            data.resize(filled + STEP_BYTES.min(*len - filled));
            let unfilled = Unfilled { data, filled };
            return unfilled.read(stream).await;
        }
        self.input.reserve(INPUT_BYTES);
        stream.read_buf(&mut self.input).await
    }
}

/// A buffer that is longer than what was read into it, until it is dropped.
struct Unfilled<'a> {
    data: &'a mut IoBufMut,
    filled: usize,
}

impl Unfilled<'_> {
    async fn read(mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        let read = stream.read(&mut self.data[self.filled..]).await?;
        self.filled += read;
        Ok(read)
    }
}

impl Drop for Unfilled<'_> {
    fn drop(&mut self) {
        self.data.resize(self.filled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::wire::Headers;

    const SIZE: u64 = 1 << 30;

    fn intake() -> Intake {
        Intake::new(Agreed::default(), BytesMut::new())
    }

    fn request(command: Command, len: usize) -> Vec<u8> {
        let request = Request { flags: 0, command, cookie: 1, offset: 0, len: len as u64 };
        let mut out = Vec::new();
        request.encode(Headers::Compact, &mut out);
        out
    }

    /// Feeds `bytes` in pieces that `read` returns one by one, and returns what arrives.
    async fn feed(intake: &mut Intake, pieces: &[&[u8]]) -> Vec<Arrived> {
        let mut arrived = Vec::new();
        for mut piece in pieces.iter().copied() {
            loop {
                match intake.next(SIZE, |_| true).expect("a client") {
                    Next::Arrived(request) => arrived.push(request),
                    Next::Read if piece.is_empty() => break,
                    Next::Read => {
                        intake.read(&mut piece).await.expect("memory");
                    }
                    Next::Wait => panic!("there is room"),
                }
            }
        }
        arrived
    }

    #[tokio::test]
    async fn payloads_arrive_whole_however_they_are_cut() {
        let data: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
        let sent = [request(Command::Write, data.len()), data.clone(), request(Command::Read, 9)];
        let sent = sent.concat();
        for piece in [7, 1000, 40_000, 300_000, sent.len()] {
            let pieces: Vec<_> = sent.chunks(piece).collect();
            let arrived = feed(&mut intake(), &pieces).await;
            let [Arrived::Request(_, _, Some(written)), Arrived::Request(_, read, None)] =
                &arrived[..]
            else {
                panic!("{arrived:?}");
            };
            assert!(**written == *data && *read == Plan::Read { offset: 0, len: 9 });
        }
    }

    #[tokio::test]
    async fn the_payload_of_a_refused_write_is_read_away() {
        let sent =
            [request(Command::Write, 40 << 20), vec![0; 40 << 20], request(Command::Read, 9)];
        let arrived = feed(&mut intake(), &[&sent.concat()]).await;
        assert!(
            matches!(
                &arrived[..],
                [Arrived::Refused(..), Arrived::Request(_, Plan::Read { .. }, _)]
            ),
            "{arrived:?}"
        );
    }

    #[tokio::test]
    async fn announced_bytes_take_no_memory_before_they_come() {
        let mut intake = intake();
        let sent = [request(Command::Write, 32 << 20), vec![0; 100_000]].concat();
        assert!(feed(&mut intake, &[&sent]).await.is_empty());
        let State::Payload { data, .. } = &intake.state else { panic!("it waits for more") };
        assert_eq!(data.len(), 100_000);
    }

    #[tokio::test]
    async fn without_room_a_request_waits() {
        let mut intake = intake();
        intake.input.extend_from_slice(&request(Command::Write, 5));
        for has_room in [false, true] {
            let waits = intake.next(SIZE, |bytes| bytes == 0 && has_room).expect("a client");
            assert!(matches!(waits, Next::Wait));
        }
        assert!(feed(&mut intake, &[b"12345"]).await.len() == 1);
    }
}
