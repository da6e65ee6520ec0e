//! The bits of the protocol's flags.

/// Both sides' handshake: the server answers every option.
pub const FIXED_NEWSTYLE: u16 = 1 << 0;
/// Both sides' handshake: the reply to `EXPORT_NAME` has no 124 zeros.
pub const NO_ZEROES: u16 = 1 << 1;

/// Export: there are flags. Always set.
pub const HAS_FLAGS: u16 = 1 << 0;
/// Export: it takes no changes.
pub const READ_ONLY: u16 = 1 << 1;
/// Export: it takes `Flush`.
pub const SEND_FLUSH: u16 = 1 << 2;
/// Export: it takes [`FUA`].
pub const SEND_FUA: u16 = 1 << 3;
/// Export: it takes `Trim`.
pub const SEND_TRIM: u16 = 1 << 5;
/// Export: it takes `WriteZeroes`.
pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Export: it takes [`DF`].
pub const SEND_DF: u16 = 1 << 7;
/// Export: a flush covers the acknowledged changes of every connection.
pub const CAN_MULTI_CONN: u16 = 1 << 8;
/// Export: it takes `Cache`.
pub const SEND_CACHE: u16 = 1 << 10;
/// Export: it takes [`FAST_ZERO`].
pub const SEND_FAST_ZERO: u16 = 1 << 11;

/// Request: the change is durable before the reply.
pub const FUA: u16 = 1 << 0;
/// Request: zeros keep their room.
pub const NO_HOLE: u16 = 1 << 1;
/// Request: the reply has one chunk of data.
pub const DF: u16 = 1 << 2;
/// Request: the reply has one extent.
pub const REQ_ONE: u16 = 1 << 3;
/// Request: do not write zeros where that would be slow.
pub const FAST_ZERO: u16 = 1 << 4;
/// Request with an extended header: the length is that of the payload.
pub const PAYLOAD_LEN: u16 = 1 << 5;
/// `Disconnect` by the holder of a lease: it ends here. Plimsoll's own, for servers that gave a token.
pub const RELEASE: u16 = 1 << 15;

/// Chunk: it is the last of the reply.
pub const DONE: u16 = 1 << 0;

/// Extent of [`BASE_ALLOCATION`](super::BASE_ALLOCATION): it takes no room.
pub const STATE_HOLE: u64 = 1 << 0;
/// Extent of [`BASE_ALLOCATION`](super::BASE_ALLOCATION): it reads as zeros.
pub const STATE_ZERO: u64 = 1 << 1;
