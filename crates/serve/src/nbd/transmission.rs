//! What each request of a client means for the device, and the bytes of its reply: pure.
//!
//! The limits of a request are here, too: a request beyond them is refused before anything is allocated for it.

use std::ops::Range;

use bytes::BytesMut;
use engine::block::{self, Durable, Extent, Geometry, Zeros};

use super::wire::flags::{
    CAN_MULTI_CONN, DF, FAST_ZERO, FUA, HAS_FLAGS, NO_HOLE, PAYLOAD_LEN, READ_ONLY, REQ_ONE,
    SEND_CACHE, SEND_DF, SEND_FAST_ZERO, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES,
    STATE_HOLE, STATE_ZERO,
};
use super::wire::{
    self, Chunk, Command, Errno, Export, Headers, Info, Malformed, Request, Status, encode_chunk,
    encode_data, encode_simple,
};

/// The longest read or write, in bytes: that of qemu and of the kernel's clients.
pub(super) const PAYLOAD_BYTES_MAX: u32 = 32 * 1024 * 1024;
/// The most extents of a reply. More of them would need fewer requests to map a device, and longer replies.
const EXTENTS_MAX: usize = 4096;
/// The memory for a reply of that many extents, and for the device's answer.
const EXTENTS_BYTES: u64 = EXTENTS_MAX as u64 * 48;
/// The smallest block that clients are told of. Requests that are not multiples of it are served all the same.
const BLOCK_BYTES_MIN: u32 = 512;
/// The number of the context `base:allocation` in replies.
pub(super) const ALLOCATION: u32 = 1;
/// The longest message of an error, in bytes.
const MESSAGE_BYTES_MAX: usize = 512;

/// The form of replies.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Replies {
    /// One error number, and data.
    #[default]
    Simple,
    /// Chunks where they are needed.
    Structured,
    /// Chunks everywhere, and lengths of 64 bits.
    Extended,
}

/// What client and server agreed on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Agreed {
    pub(super) replies: Replies,
    /// Whether the client may ask for `base:allocation`.
    pub(super) has_allocation: bool,
    /// Another one holds the lease of the device.
    pub(super) is_read_only: bool,
}

impl Agreed {
    pub(super) fn headers(self) -> Headers {
        if self.replies == Replies::Extended { Headers::Extended } else { Headers::Compact }
    }

    /// Size and flags of a device. Without a write cache there is nothing to flush, so clients are not told to.
    pub(super) fn export(self, geometry: &Geometry) -> Export {
        let mut flags = HAS_FLAGS | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO;
        flags |= SEND_CACHE | CAN_MULTI_CONN;
        if !geometry.writes_are_durable {
            flags |= SEND_FLUSH;
        }
        if self.replies >= Replies::Structured {
            flags |= SEND_DF;
        }
        if self.is_read_only {
            flags |= READ_ONLY;
        }
        Export { size: geometry.size, flags }
    }
}

/// The block sizes of a device.
pub(super) fn block_size(geometry: &Geometry) -> Info {
    let min = BLOCK_BYTES_MIN.min(geometry.block);
    Info::BlockSize { min, preferred: geometry.block, payload_max: PAYLOAD_BYTES_MAX }
}

/// What a request wants of the device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Plan {
    Read { offset: u64, len: usize },
    Write { offset: u64, len: usize, durable: Durable },
    Flush,
    Trim { range: Range<u64>, durable: Durable },
    Zero { range: Range<u64>, room: Zeros, fast: bool, durable: Durable },
    Prefetch { range: Range<u64> },
    Extents { range: Range<u64>, most: usize },
}

impl Plan {
    /// The memory it needs until its reply is sent, in bytes.
    pub(super) fn memory(&self) -> u64 {
        match self {
            Self::Read { len, .. } | Self::Write { len, .. } => *len as u64,
            Self::Extents { most, .. } => EXTENTS_BYTES.min(*most as u64 * 48),
            Self::Flush | Self::Trim { .. } | Self::Zero { .. } | Self::Prefetch { .. } => 0,
        }
    }
}

/// Why a request failed, for the client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Refusal {
    pub(super) error: Errno,
    pub(super) message: String,
}

impl Refusal {
    fn new(error: Errno, message: impl Into<String>) -> Self {
        Self { error, message: message.into() }
    }

    /// What a client is told of a device's error.
    pub(super) fn of(error: &block::Error) -> Self {
        let errno = match error {
            block::Error::OutOfSpace(_) => Errno::NoSpace,
            block::Error::Invalid(_) => Errno::Invalid,
            block::Error::Unsupported(_) => Errno::NotSupported,
            block::Error::Closed(_) | block::Error::NotFound(_) => Errno::Shutdown,
            // Busy, unavailable, corrupt, and kinds to come.
            _ => Errno::Io,
        };
        let mut message = error.to_string();
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        Self { error: errno, message }
    }
}

/// The bytes that follow a request.
///
/// # Errors
/// The client announces more bytes than any client sends: close the connection.
pub(super) fn payload(request: &Request, agreed: Agreed) -> Result<u64, Malformed> {
    let is_flagged = agreed.replies == Replies::Extended && request.flags & PAYLOAD_LEN != 0;
    if request.command != Command::Write && !is_flagged {
        return Ok(0);
    }
    if request.len > u32::MAX.into() {
        return Err(Malformed("a request announces more than 4 GiB of payload"));
    }
    Ok(request.len)
}

/// What a request wants of a device of `size` bytes. `Command::Disconnect` wants nothing of it.
pub(super) fn plan(request: &Request, agreed: Agreed, size: u64) -> Result<Plan, Refusal> {
    let &Request { flags, command, offset, len, .. } = request;
    // The specification lets every command bear FUA.
    let allowed = FUA
        | match command {
            Command::Read if agreed.replies >= Replies::Structured => DF,
            Command::Write if agreed.replies == Replies::Extended => PAYLOAD_LEN,
            Command::WriteZeroes => NO_HOLE | FAST_ZERO,
            Command::BlockStatus => REQ_ONE,
            _ => 0,
        };
    if flags & !allowed != 0 {
        return Err(Refusal::new(Errno::Invalid, format!("flags {flags:#x} of {command:?}")));
    }
    let changes = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes);
    if agreed.is_read_only && changes {
        return Err(Refusal::new(Errno::Perm, "another client holds the lease of the device"));
    }
    let durable = if flags & FUA != 0 { Durable::Now } else { Durable::Later };
    if command == Command::Flush {
        return if (offset, len) == (0, 0) {
            Ok(Plan::Flush)
        } else {
            Err(Refusal::new(Errno::Invalid, "a flush is of the whole device"))
        };
    }
    if let Command::Other(number) = command {
        return Err(Refusal::new(Errno::Invalid, format!("there is no command {number}")));
    }
    let Some(end) = offset.checked_add(len).filter(|&end| end <= size) else {
        let grows = matches!(command, Command::Write | Command::WriteZeroes);
        let error = if grows { Errno::NoSpace } else { Errno::Invalid };
        let message = format!("{len} bytes at {offset} of a device that has {size}");
        return Err(Refusal::new(error, message));
    };
    let range = offset..end;
    let has_payload = matches!(command, Command::Read | Command::Write);
    if has_payload && len > PAYLOAD_BYTES_MAX.into() {
        let error = if flags & DF != 0 { Errno::Overflow } else { Errno::Invalid };
        let message = format!("{len} bytes at once, of at most {PAYLOAD_BYTES_MAX}");
        return Err(Refusal::new(error, message));
    }
    match command {
        Command::Read => Ok(Plan::Read { offset, len: len as usize }),
        Command::Write => Ok(Plan::Write { offset, len: len as usize, durable }),
        Command::Trim => Ok(Plan::Trim { range, durable }),
        Command::Cache => Ok(Plan::Prefetch { range }),
        Command::WriteZeroes => {
            let room = if flags & NO_HOLE != 0 { Zeros::Keep } else { Zeros::Free };
            Ok(Plan::Zero { range, room, fast: flags & FAST_ZERO != 0, durable })
        }
        Command::BlockStatus if !agreed.has_allocation => {
            Err(Refusal::new(Errno::Invalid, "no context was selected"))
        }
        Command::BlockStatus if range.is_empty() => {
            Err(Refusal::new(Errno::Invalid, "the status of no bytes"))
        }
        Command::BlockStatus => {
            let most = if flags & REQ_ONE != 0 { 1 } else { EXTENTS_MAX };
            Ok(Plan::Extents { range, most })
        }
        Command::Flush | Command::Disconnect | Command::Other(_) => {
            Err(Refusal::new(Errno::Invalid, "it has no range"))
        }
    }
}

/// What a request ended with.
#[derive(Debug)]
pub(super) enum Done<'a> {
    /// It is done.
    Changed,
    /// The number of bytes that were read. They follow the reply.
    Read(usize),
    /// The extents from the request's offset on.
    Extents(&'a [Extent]),
}

/// Writes the reply to a request, but for the bytes that were read.
pub(super) fn reply(
    request: &Request,
    agreed: Agreed,
    outcome: Result<Done<'_>, Refusal>,
    out: &mut BytesMut,
) {
    let &Request { cookie, offset, .. } = request;
    let headers = agreed.headers();
    let chunk = match outcome {
        Ok(Done::Read(len)) if len > 0 && agreed.replies >= Replies::Structured => {
            return encode_data(cookie, offset, len, headers, out);
        }
        Ok(Done::Read(_)) if agreed.replies == Replies::Structured => Chunk::None,
        Ok(Done::Changed | Done::Read(_)) if agreed.replies <= Replies::Structured => {
            return encode_simple(cookie, None, out);
        }
        Ok(Done::Changed | Done::Read(_)) => Chunk::None,
        Ok(Done::Extents(extents)) => status(extents),
        Err(Refusal { error, .. }) if agreed.replies == Replies::Simple => {
            return encode_simple(cookie, Some(error), out);
        }
        Err(Refusal { error, message }) => Chunk::Error { error, message, offset: None },
    };
    encode_chunk(cookie, offset, &chunk, headers, out);
}

fn status(extents: &[Extent]) -> Chunk {
    let extents = extents.iter().map(|extent| Status {
        len: extent.range.end - extent.range.start,
        flags: if extent.is_hole { STATE_HOLE | STATE_ZERO } else { 0 },
    });
    Chunk::Status { context: ALLOCATION, extents: extents.collect() }
}

/// The name of a context that clients may select.
pub(super) const CONTEXT: &str = wire::BASE_ALLOCATION;

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 50;
    const EXTENDED: Agreed =
        Agreed { replies: Replies::Extended, has_allocation: true, is_read_only: false };

    fn ask(command: Command, flags: u16, len: u64) -> Request {
        Request { flags, command, cookie: 1, offset: 4096, len }
    }

    fn refused(request: &Request, agreed: Agreed) -> Option<Errno> {
        plan(request, agreed, SIZE).err().map(|refusal| refusal.error)
    }

    #[test]
    fn ten_terabytes_are_discarded_by_one_request() {
        let (len, durable) = (10 << 40, Durable::Now);
        let range = 4096..4096 + len;
        let trim = plan(&ask(Command::Trim, FUA, len), EXTENDED, SIZE);
        assert_eq!(trim, Ok(Plan::Trim { range: range.clone(), durable }));
        let zero = ask(Command::WriteZeroes, NO_HOLE | FAST_ZERO, len);
        let (room, fast, durable) = (Zeros::Keep, true, Durable::Later);
        assert_eq!(plan(&zero, EXTENDED, SIZE), Ok(Plan::Zero { range, room, fast, durable }));
    }

    #[test]
    fn long_payloads_are_refused_and_endless_ones_are_not_read_away() {
        let most = u64::from(PAYLOAD_BYTES_MAX);
        for (command, flags, len, error) in [
            (Command::Read, 0, most, None),
            (Command::Read, 0, most + 1, Some(Errno::Invalid)),
            (Command::Read, DF, most + 1, Some(Errno::Overflow)),
            (Command::Write, PAYLOAD_LEN, most, None),
            (Command::Write, PAYLOAD_LEN, most + 1, Some(Errno::Invalid)),
            (Command::Trim, PAYLOAD_LEN, 8, Some(Errno::Invalid)),
        ] {
            assert_eq!(refused(&ask(command, flags, len), EXTENDED), error, "{command:?} {len}");
        }
        let payload_of = |command, flags, len| payload(&ask(command, flags, len), EXTENDED);
        assert_eq!(payload_of(Command::Write, PAYLOAD_LEN, most + 1), Ok(most + 1));
        assert_eq!(payload_of(Command::Trim, PAYLOAD_LEN, 8), Ok(8));
        assert_eq!(payload_of(Command::Trim, 0, 10 << 40), Ok(0));
        assert!(payload_of(Command::Write, PAYLOAD_LEN, 1 << 32).is_err());
        let compact = ask(Command::Trim, PAYLOAD_LEN, 8);
        assert_eq!(payload(&compact, Agreed::default()), Ok(0), "the flag means nothing there");
    }

    #[test]
    fn commands_need_what_was_agreed_on() {
        let simple = Agreed::default();
        for (command, flags) in [(Command::Read, DF), (Command::BlockStatus, 0)] {
            let request = ask(command, flags, 512);
            assert_eq!(refused(&request, simple), Some(Errno::Invalid));
            assert_eq!(refused(&request, EXTENDED), None);
        }
    }

    #[test]
    fn long_messages_of_devices_are_cut() {
        let refusal = Refusal::of(&block::Error::Corrupt("é".repeat(1000)));
        assert_eq!((refusal.error, refusal.message.len()), (Errno::Io, 511));
    }
}
