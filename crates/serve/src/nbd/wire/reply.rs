//! Replies to requests: simple ones, and those of chunks.

use bytes::BufMut;

use super::code::{ChunkKind, Errno};
use super::request::Headers;
use super::{Malformed, STRING_BYTES_MAX, end, flags, take_text, take_u16, take_u32, take_u64};

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_MAGIC: u32 = 0x6e8a_278c;

/// The head of a reply, as a client reads it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReplyHead {
    /// The whole reply; if it is one to a `Read` without an error, the data follows.
    Simple {
        /// Why the request failed, if it did.
        error: Option<Errno>,
        /// The request's.
        cookie: u64,
    },
    /// A piece of the reply.
    Chunk {
        /// Whether it is the last.
        is_last: bool,
        /// What it holds.
        kind: ChunkKind,
        /// The request's.
        cookie: u64,
        /// The bytes that follow.
        len: u64,
    },
}

impl ReplyHead {
    /// The bytes of a head, by its first four.
    ///
    /// # Errors
    /// It is no reply.
    pub fn bytes(first: [u8; 4]) -> Result<usize, Malformed> {
        match u32::from_be_bytes(first) {
            SIMPLE_MAGIC => Ok(16),
            STRUCTURED_MAGIC => Ok(20),
            EXTENDED_MAGIC => Ok(32),
            _ => Err(Malformed("a reply begins with another number")),
        }
    }

    /// Reads a head, from its first four bytes on.
    ///
    /// # Errors
    /// It is too short, or no reply.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, Malformed> {
        let input = &mut bytes;
        let magic = take_u32(input)?;
        if magic == SIMPLE_MAGIC {
            let error = take_u32(input)?;
            let error = (error != 0).then(|| error.into());
            return Ok(Self::Simple { error, cookie: take_u64(input)? });
        }
        let [bits, kind] = [take_u16(input)?, take_u16(input)?];
        let cookie = take_u64(input)?;
        let len = match magic {
            STRUCTURED_MAGIC => take_u32(input)?.into(),
            EXTENDED_MAGIC => {
                let _offset = take_u64(input)?;
                take_u64(input)?
            }
            _ => return Err(Malformed("a reply begins with another number")),
        };
        Ok(Self::Chunk { is_last: bits & flags::DONE != 0, kind: kind.into(), cookie, len })
    }
}

/// An extent of a context.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Status {
    /// Bytes.
    pub len: u64,
    /// What the context says of them.
    pub flags: u64,
}

/// The body of a chunk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Chunk {
    /// Nothing.
    None,
    /// Data: its offset on the device. It makes up the rest of the chunk, behind these 8 bytes.
    Data {
        /// On the device, not in the request.
        offset: u64,
    },
    /// Zeros.
    Hole {
        /// On the device, not in the request.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Extents, from the request's offset on.
    Status {
        /// The number of the context.
        context: u32,
        /// The extents.
        extents: Vec<Status>,
    },
    /// The request failed.
    Error {
        /// Why.
        error: Errno,
        /// For people.
        message: String,
        /// Where, if it is known.
        offset: Option<u64>,
    },
}

impl Chunk {
    /// The bytes that precede the data of a chunk [`ChunkKind::OffsetData`].
    pub const DATA_OFFSET_BYTES: usize = 8;

    /// Reads the body of a chunk; of a chunk [`ChunkKind::OffsetData`] the first [`Self::DATA_OFFSET_BYTES`] are enough.
    ///
    /// # Errors
    /// It has another form.
    pub fn decode(kind: ChunkKind, mut body: &[u8]) -> Result<Self, Malformed> {
        let input = &mut body;
        let chunk = match kind {
            ChunkKind::None => Self::None,
            ChunkKind::OffsetData => return Ok(Self::Data { offset: take_u64(input)? }),
            ChunkKind::OffsetHole => Self::Hole { offset: take_u64(input)?, len: take_u32(input)? },
            ChunkKind::BlockStatus => {
                let context = take_u32(input)?;
                let mut extents = Vec::with_capacity(input.len() / 8);
                while !input.is_empty() {
                    let [len, flags] = [take_u32(input)?, take_u32(input)?];
                    extents.push(Status { len: len.into(), flags: flags.into() });
                }
                Self::Status { context, extents }
            }
            ChunkKind::BlockStatusExt => {
                let [context, count] = [take_u32(input)?, take_u32(input)?];
                let mut extents = Vec::with_capacity(input.len() / 16);
                while !input.is_empty() {
                    extents.push(Status { len: take_u64(input)?, flags: take_u64(input)? });
                }
                if extents.len() as u64 != u64::from(count) {
                    return Err(Malformed("the number of extents is wrong"));
                }
                Self::Status { context, extents }
            }
            ChunkKind::Error | ChunkKind::ErrorOffset => {
                let error = take_u32(input)?.into();
                let len = take_u16(input)?;
                let message = take_text(input, len.into())?;
                let offset = match kind {
                    ChunkKind::ErrorOffset => Some(take_u64(input)?),
                    _ => None,
                };
                Self::Error { error, message, offset }
            }
            ChunkKind::Other(_) => return Err(Malformed("a chunk holds something unknown")),
        };
        end(body)?;
        Ok(chunk)
    }
}

/// Writes a simple reply. The data of a `Read` without an error follows it.
pub fn encode_simple(cookie: u64, error: Option<Errno>, out: &mut impl BufMut) {
    out.put_u32(SIMPLE_MAGIC);
    out.put_u32(error.map_or(0, Into::into));
    out.put_u64(cookie);
}

/// Writes the only chunk of a reply. `offset` is the request's. [`Chunk::Data`] takes [`encode_data`]. Lengths of
/// [`Chunk::Status`] that do not fit [`Headers::Compact`] are cut to the last multiple of 64 KiB that does, and the
/// extents behind are left out.
///
/// # Panics
/// With [`Chunk::Data`].
pub fn encode_chunk(
    cookie: u64,
    offset: u64,
    chunk: &Chunk,
    headers: Headers,
    out: &mut impl BufMut,
) {
    let mut head = |kind, len| put_head(cookie, offset, kind, len, headers, out);
    match chunk {
        Chunk::None => head(ChunkKind::None, 0),
        Chunk::Data { .. } => panic!("data has a chunk of its own"),
        &Chunk::Hole { offset, len } => {
            head(ChunkKind::OffsetHole, 12);
            out.put_u64(offset);
            out.put_u32(len);
        }
        Chunk::Status { context, extents } if headers == Headers::Extended => {
            head(ChunkKind::BlockStatusExt, 8 + 16 * extents.len());
            out.put_u32(*context);
            out.put_u32(super::len_u32(extents.len()));
            for extent in extents {
                out.put_u64(extent.len);
                out.put_u64(extent.flags);
            }
        }
        Chunk::Status { context, extents } => {
            const LEN_MAX: u64 = 0xffff_0000;
            let whole = extents.iter().take_while(|extent| extent.len <= LEN_MAX).count();
            let extents = &extents[..extents.len().min(whole + 1)];
            head(ChunkKind::BlockStatus, 4 + 8 * extents.len());
            out.put_u32(*context);
            for extent in extents {
                out.put_u32(u32::try_from(extent.len.min(LEN_MAX)).expect("it is cut"));
                out.put_u32(u32::try_from(extent.flags).expect("flags of 32 bits"));
            }
        }
        Chunk::Error { error, message, offset } => {
            let message = &message[..message.floor_char_boundary(STRING_BYTES_MAX)];
            let kind = if offset.is_some() { ChunkKind::ErrorOffset } else { ChunkKind::Error };
            head(kind, 6 + message.len() + if offset.is_some() { 8 } else { 0 });
            out.put_u32((*error).into());
            out.put_u16(u16::try_from(message.len()).expect("it is cut"));
            out.put_slice(message.as_bytes());
            if let Some(offset) = offset {
                out.put_u64(*offset);
            }
        }
    }
}

/// Writes the head of the only chunk of a reply with `len` bytes of data, which follow it.
pub fn encode_data(cookie: u64, offset: u64, len: usize, headers: Headers, out: &mut impl BufMut) {
    let body = Chunk::DATA_OFFSET_BYTES + len;
    put_head(cookie, offset, ChunkKind::OffsetData, body, headers, out);
    out.put_u64(offset);
}

/// Writes the head of a chunk that is the last of its reply.
fn put_head(
    cookie: u64,
    offset: u64,
    kind: ChunkKind,
    len: usize,
    headers: Headers,
    out: &mut impl BufMut,
) {
    out.put_u32(match headers {
        Headers::Compact => STRUCTURED_MAGIC,
        Headers::Extended => EXTENDED_MAGIC,
    });
    out.put_u16(flags::DONE);
    out.put_u16(kind.into());
    out.put_u64(cookie);
    match headers {
        Headers::Compact => out.put_u32(super::len_u32(len)),
        Headers::Extended => {
            out.put_u64(offset);
            out.put_u64(len as u64);
        }
    }
}
