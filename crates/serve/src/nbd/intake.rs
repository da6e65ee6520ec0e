//! What a client sends: requests with their payloads, read into buffers that devices write from without a copy.
//!
//! ```text
//! stream -> input -> head -> room? -> payload, from the input and then from the stream -> arrived
//!                      ^                                                              |
//!                      +---------- a write: does the next one continue it? -----------+
//!                         -> refused: the payload is read away
//! ```
//!
//! A payload's memory grows with the bytes that arrive, so a client cannot make the server hold what it only announces.
//!
//! The kernel's client cuts long writes into requests that follow each other at once, of 128 KiB by default. A write and those
//! that continue it become one, as far as they have arrived: see [`Next::Continue`].

use std::io;

use bytes::{Buf, BytesMut};
use engine::block::{Durable, IoBuf, IoBufMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::transmission::{Agreed, Plan, Refusal, payload, plan};
use super::wire::flags::RELEASE;
use super::wire::{Command, Malformed, Request};

/// The read buffer. A larger one takes more requests at once, and copies more of long payloads.
const INPUT_BYTES: usize = 32 * 1024;
/// The steps in which the buffer of a payload grows.
const STEP_BYTES: usize = 256 * 1024;
/// The longest write that several become. Providers of volumes count up to 256 KiB or 1 MiB as one operation, so a longer
/// one saves none.
const MERGED_BYTES_MAX: usize = 1024 * 1024;

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
    /// The payload of a write is arriving, behind the writes that it continues.
    Payload {
        writes: Writes,
        request: Request,
        len: usize,
    },
    /// A write has arrived. The next request may continue it.
    Arrived(Writes),
    Skipped {
        request: Request,
        refusal: Refusal,
        left: u64,
    },
}

/// Writes that continue each other.
struct Writes {
    /// Those that have arrived.
    requests: Vec<Request>,
    offset: u64,
    durable: Durable,
    /// The bytes of `requests`.
    whole: usize,
    /// These, and those of a payload that is arriving.
    data: IoBufMut,
}

/// What the next request is to writes that have arrived.
enum Following {
    Continues(Request),
    Differs,
    /// Not enough of it has arrived.
    Unknown,
}

/// What came from the client.
#[derive(Debug)]
pub(super) enum Arrived {
    /// Requests that become one call. Only writes are ever more than one: each begins where the one before ends, and
    /// they differ in nothing else. With the data of writes.
    Requests(Vec<Request>, Plan, Option<IoBuf>),
    /// A request that makes no sense, or asks for too much.
    Refused(Request, Refusal),
    /// The client is done, and gives up its lease if it says so.
    Disconnect { releases: bool },
}

/// What to do when nothing has arrived.
#[derive(Debug)]
pub(super) enum Next {
    Arrived(Arrived),
    /// [`Intake::read`] more.
    Read,
    /// A write has arrived, and the request behind it may continue it: [`Intake::read`] if that needs no wait. Otherwise
    /// [`Intake::release`] the write.
    Continue,
    /// Wait for room.
    Wait,
}

impl Intake {
    /// `input` was read with the last message of the negotiation.
    pub(super) fn new(agreed: Agreed, input: BytesMut) -> Self {
        Self { agreed, input, state: State::Head }
    }

    /// Takes the next request for a device of `size` bytes. `has_room` says whether the connection may begin one more: its
    /// arguments are the requests and bytes that this call has taken already, and the bytes of memory that the next one needs.
    ///
    /// # Errors
    /// The client sends something else.
    pub(super) fn next(
        &mut self,
        size: u64,
        has_room: impl Fn(usize, usize, u64) -> bool,
    ) -> Result<Next, Malformed> {
        loop {
            match std::mem::replace(&mut self.state, State::Head) {
                State::Head => {
                    let headers = self.agreed.headers();
                    if self.input.len() < headers.request_bytes() {
                        return Ok(Next::Read);
                    }
                    if !has_room(0, 0, 0) {
                        return Ok(Next::Wait);
                    }
                    let request = Request::decode(&self.input, headers)?;
                    self.input.advance(headers.request_bytes());
                    let left = payload(&request, self.agreed)?;
                    if request.command == Command::Disconnect {
                        let releases = request.flags & RELEASE != 0;
                        return Ok(Next::Arrived(Arrived::Disconnect { releases }));
                    }
                    self.state = match plan(&request, self.agreed, size) {
                        Ok(plan) => State::Waiting(request, plan),
                        Err(refusal) => State::Skipped { request, refusal, left },
                    };
                }
                State::Waiting(request, plan) => {
                    if !has_room(0, 0, plan.memory()) {
                        self.state = State::Waiting(request, plan);
                        return Ok(Next::Wait);
                    }
                    let Plan::Write { offset, len, durable } = plan else {
                        return Ok(Next::Arrived(Arrived::Requests(vec![request], plan, None)));
                    };
                    let writes = Writes::new(offset, durable, IoBufMut::with_capacity(len));
                    self.state = State::Payload { writes, request, len };
                }
                State::Payload { mut writes, request, len } => {
                    let here = self.input.len().min(writes.missing(len));
                    writes.data.extend_from_slice(&self.input[..here]);
                    self.input.advance(here);
                    if writes.missing(len) == 0 {
                        writes.requests.push(request);
                        writes.whole += len;
                        self.state = State::Arrived(writes);
                        continue;
                    }
                    let next = if writes.requests.is_empty() { Next::Read } else { Next::Continue };
                    self.state = State::Payload { writes, request, len };
                    return Ok(next);
                }
                State::Arrived(mut writes) => match self.following(&writes, size, &has_room) {
                    Following::Continues(request) => {
                        self.input.advance(self.agreed.headers().request_bytes());
                        let len = request.len as usize;
                        writes.make_room(len);
                        self.state = State::Payload { writes, request, len };
                    }
                    Following::Differs => return Ok(Next::Arrived(writes.into())),
                    Following::Unknown => {
                        self.state = State::Arrived(writes);
                        return Ok(Next::Continue);
                    }
                },
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

    /// Looks at the head of the next request, and takes nothing.
    fn following(
        &self,
        writes: &Writes,
        size: u64,
        has_room: impl Fn(usize, usize, u64) -> bool,
    ) -> Following {
        let headers = self.agreed.headers();
        if writes.whole >= MERGED_BYTES_MAX {
            return Following::Differs;
        }
        if self.input.len() < headers.request_bytes() {
            return Following::Unknown;
        }
        // What is no request is reported by the next call.
        let Ok(request) = Request::decode(&self.input, headers) else { return Following::Differs };
        let end = writes.offset + writes.whole as u64;
        let has_same_flags = writes.requests.last().is_some_and(|last| last.flags == request.flags);
        let fits = request.len <= (MERGED_BYTES_MAX - writes.whole) as u64;
        let continues = request.command == Command::Write
            && has_same_flags
            && request.offset == end
            && fits
            && plan(&request, self.agreed, size).is_ok()
            && has_room(writes.requests.len(), writes.whole, request.len);
        if continues { Following::Continues(request) } else { Following::Differs }
    }

    /// Returns the writes that have arrived, after [`Next::Continue`].
    pub(super) fn release(&mut self) -> Option<Arrived> {
        match std::mem::replace(&mut self.state, State::Head) {
            State::Arrived(writes) => Some(writes.into()),
            State::Payload { mut writes, request, len } if !writes.requests.is_empty() => {
                let mut data = IoBufMut::with_capacity(len);
                data.extend_from_slice(&writes.data[writes.whole..]);
                writes.data.resize(writes.whole);
                let rest = Writes::new(request.offset, writes.durable, data);
                self.state = State::Payload { writes: rest, request, len };
                Some(writes.into())
            }
            other => {
                self.state = other;
                None
            }
        }
    }

    /// The bytes of payloads that were not returned yet.
    pub(super) fn held(&self) -> u64 {
        match &self.state {
            State::Payload { writes, .. } | State::Arrived(writes) => writes.data.len() as u64,
            State::Head | State::Waiting(..) | State::Skipped { .. } => 0,
        }
    }

    /// Reads from the client; returns zero at its end. A caller may stop waiting at any time, and loses nothing.
    pub(super) async fn read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<usize> {
        if let State::Payload { writes, len, .. } = &mut self.state
            && writes.missing(*len) >= INPUT_BYTES
        {
            let missing = writes.missing(*len);
            let data = &mut writes.data;
            let filled = data.len();
            data.resize(filled + STEP_BYTES.min(missing));
            let unfilled = Unfilled { data, filled };
            return unfilled.read(stream).await;
        }
        self.input.reserve(INPUT_BYTES);
        stream.read_buf(&mut self.input).await
    }
}

impl Writes {
    fn new(offset: u64, durable: Durable, data: IoBufMut) -> Self {
        Self { requests: Vec::with_capacity(1), offset, durable, whole: 0, data }
    }

    /// The bytes that have not arrived of a payload of `len` bytes, which follows those that have.
    fn missing(&self, len: usize) -> usize {
        self.whole + len - self.data.len()
    }

    /// For `more` bytes. The steps are large, as each copies all bytes so far.
    fn make_room(&mut self, more: usize) {
        let needed = self.whole + more;
        if needed > self.data.capacity() {
            let mut data = IoBufMut::with_capacity((4 * needed).min(MERGED_BYTES_MAX));
            data.extend_from_slice(&self.data);
            self.data = data;
        }
    }
}

impl From<Writes> for Arrived {
    fn from(writes: Writes) -> Self {
        let Writes { requests, offset, durable, whole: len, data } = writes;
        Self::Requests(requests, Plan::Write { offset, len, durable }, Some(data.freeze()))
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
    use crate::nbd::wire::flags::FUA;

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
                match intake.next(SIZE, |_, _, _| true).expect("a client") {
                    Next::Arrived(request) => arrived.push(request),
                    Next::Continue if piece.is_empty() => arrived.extend(intake.release()),
                    Next::Read if piece.is_empty() => break,
                    Next::Read | Next::Continue => {
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
            let [Arrived::Requests(_, _, Some(written)), Arrived::Requests(_, read, None)] =
                &arrived[..]
            else {
                panic!("{arrived:?}");
            };
            assert!(**written == *data && *read == Plan::Read { offset: 0, len: 9 });
        }
    }

    const KIB: usize = 1024;

    /// Its offset, length and flags.
    type Write = (usize, usize, u16);

    /// Offsets and lengths of writes with their flags, and which of them become one when they come together.
    #[tokio::test]
    async fn writes_that_continue_each_other_become_one() {
        let cases: [(&[Write], &[usize]); 9] = [
            (&[(0, 64 * KIB, 0); 1], &[1]),
            (&[(0, 4096, 0), (4096, 1, 0), (4097, 70 * KIB, 0)], &[3]),
            (&[(0, 4096, 0), (8192, 4096, 0)], &[1, 1]),
            (&[(4096, 4096, 0), (0, 4096, 0)], &[1, 1]),
            (&[(0, 4096, 0), (0, 4096, 0)], &[1, 1]),
            (&[(0, 4096, FUA), (4096, 4096, FUA), (8192, 4096, 0), (12288, 4096, 0)], &[2, 2]),
            (&[(0, KIB * KIB - 4096, 0), (KIB * KIB - 4096, 4096, 0), (KIB * KIB, 1, 0)], &[2, 1]),
            (&[(0, KIB * KIB - 4096, 0), (KIB * KIB - 4096, 4097, 0)], &[1, 1]),
            (&[(SIZE as usize - 4096, 4096, 0), (SIZE as usize, 4096, 0)], &[1, 0]),
        ];
        for (writes, wanted) in cases {
            let (mut sent, mut bytes, mut random) = (Vec::new(), Vec::new(), 1u32);
            for (at, &(offset, len, flags)) in writes.iter().enumerate() {
                let (offset, command) = (offset as u64, Command::Write);
                let cookie = at as u64;
                let request = Request { flags, command, cookie, offset, len: len as u64 };
                request.encode(Headers::Compact, &mut sent);
                for _ in 0..len {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    sent.push((random >> 24) as u8);
                    bytes.push((random >> 24) as u8);
                }
            }
            for piece in [sent.len(), 70_000, 5000] {
                let pieces: Vec<_> = sent.chunks(piece).collect();
                let (mut groups, mut cookies, mut written) = (Vec::new(), 0, Vec::new());
                for one in feed(&mut intake(), &pieces).await {
                    let Arrived::Requests(requests, Plan::Write { offset, len, .. }, Some(data)) =
                        one
                    else {
                        groups.push(0);
                        continue;
                    };
                    assert_eq!((offset, len), (requests[0].offset, data.len()));
                    for request in &requests {
                        assert_eq!(request.cookie, cookies);
                        cookies += 1;
                    }
                    groups.push(requests.len());
                    written.extend_from_slice(&data);
                }
                assert_eq!(written[..], bytes[..written.len()]);
                if piece == sent.len() {
                    assert_eq!(groups, wanted, "{writes:?}");
                }
                let refused = groups.iter().filter(|&&count| count == 0).count();
                assert_eq!(cookies as usize + refused, writes.len(), "{writes:?}");
            }
        }
    }

    /// What has arrived of the next payload is not lost.
    #[tokio::test]
    async fn a_write_does_not_wait_for_the_rest_of_the_next_one() {
        let mut second = request(Command::Write, 100_000);
        second[16..24].copy_from_slice(&5u64.to_be_bytes());
        let sent = [request(Command::Write, 5), vec![1; 5], second, vec![2; 100_000]].concat();
        let (first, rest) = sent.split_at(60_000);
        let mut intake = intake();
        let arrived = feed(&mut intake, &[first]).await;
        assert!(
            matches!(&arrived[..], [Arrived::Requests(of, _, Some(data))] if of.len() == 1 && **data == [1; 5])
        );
        let arrived = feed(&mut intake, &[rest]).await;
        assert!(
            matches!(&arrived[..], [Arrived::Requests(_, _, Some(data))] if **data == [2; 100_000])
        );
    }

    #[tokio::test]
    async fn writes_beyond_the_limits_are_not_merged() {
        let mut intake = intake();
        let mut second = request(Command::Write, 5);
        second[16..24].copy_from_slice(&5u64.to_be_bytes());
        let sent = [request(Command::Write, 5), vec![1; 5], second, vec![2; 5]].concat();
        intake.input.extend_from_slice(&sent);
        let next = intake.next(SIZE, |requests, bytes, _| (requests, bytes) == (0, 0));
        let Ok(Next::Arrived(Arrived::Requests(requests, ..))) = &next else { panic!("{next:?}") };
        assert_eq!(requests.len(), 1);
    }

    #[tokio::test]
    async fn the_payload_of_a_refused_write_is_read_away() {
        let sent =
            [request(Command::Write, 40 << 20), vec![0; 40 << 20], request(Command::Read, 9)];
        let arrived = feed(&mut intake(), &[&sent.concat()]).await;
        assert!(
            matches!(
                &arrived[..],
                [Arrived::Refused(..), Arrived::Requests(_, Plan::Read { .. }, _)]
            ),
            "{arrived:?}"
        );
    }

    #[tokio::test]
    async fn announced_bytes_take_no_memory_before_they_come() {
        let mut intake = intake();
        let sent = [request(Command::Write, 32 << 20), vec![0; 100_000]].concat();
        assert!(feed(&mut intake, &[&sent]).await.is_empty());
        let State::Payload { writes, .. } = &intake.state else { panic!("it waits for more") };
        assert_eq!(writes.data.len(), 100_000);
    }

    #[tokio::test]
    async fn without_room_a_request_waits() {
        let mut intake = intake();
        intake.input.extend_from_slice(&request(Command::Write, 5));
        for has_room in [false, true] {
            let waits = intake.next(SIZE, |_, _, bytes| bytes == 0 && has_room).expect("a client");
            assert!(matches!(waits, Next::Wait));
        }
        assert!(feed(&mut intake, &[b"12345"]).await.len() == 1);
    }
}
