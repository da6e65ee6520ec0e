//! Requests for an export.

use bytes::BufMut;

use super::code::Command;
use super::{Malformed, take_u16, take_u32, take_u64};

const COMPACT_MAGIC: u32 = 0x2560_9513;
const EXTENDED_MAGIC: u32 = 0x21e4_1c71;

/// The form of the heads of requests and replies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Headers {
    /// Lengths have 32 bits.
    Compact,
    /// Lengths have 64 bits.
    Extended,
}

impl Headers {
    /// The bytes of the head of a request.
    #[must_use]
    pub fn request_bytes(self) -> usize {
        match self {
            Self::Compact => 28,
            Self::Extended => 32,
        }
    }
}

/// The head of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request {
    /// How it is to be done.
    pub flags: u16,
    /// What is to be done.
    pub command: Command,
    /// The replies bear it, too. It is unique among the requests that the client has in flight.
    pub cookie: u64,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes. With [`Headers::Compact`] below 4 GiB.
    pub len: u64,
}

impl Request {
    /// Writes the head. The data of a `Write` follows it.
    ///
    /// # Panics
    /// The length does not fit [`Headers::Compact`].
    pub fn encode(&self, headers: Headers, out: &mut impl BufMut) {
        out.put_u32(match headers {
            Headers::Compact => COMPACT_MAGIC,
            Headers::Extended => EXTENDED_MAGIC,
        });
        out.put_u16(self.flags);
        out.put_u16(self.command.into());
        out.put_u64(self.cookie);
        out.put_u64(self.offset);
        match headers {
            Headers::Compact => out.put_u32(u32::try_from(self.len).expect("it fits 32 bits")),
            Headers::Extended => out.put_u64(self.len),
        }
    }

    /// Reads a head from the first [`Headers::request_bytes`] of `bytes`.
    ///
    /// # Errors
    /// It is too short, or no request in this form.
    pub fn decode(mut bytes: &[u8], headers: Headers) -> Result<Self, Malformed> {
        let input = &mut bytes;
        let magic = match headers {
            Headers::Compact => COMPACT_MAGIC,
            Headers::Extended => EXTENDED_MAGIC,
        };
        if take_u32(input)? != magic {
            return Err(Malformed("a request begins with another number"));
        }
        let [flags, command] = [take_u16(input)?, take_u16(input)?];
        let [cookie, offset] = [take_u64(input)?, take_u64(input)?];
        let len = match headers {
            Headers::Compact => take_u32(input)?.into(),
            Headers::Extended => take_u64(input)?,
        };
        Ok(Self { flags, command: command.into(), cookie, offset, len })
    }
}
