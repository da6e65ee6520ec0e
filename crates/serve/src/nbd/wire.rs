//! The bytes of the NBD protocol, for servers and for clients: pure, and without limits on what is asked for.
//!
//! ```text
//! server: greeting                  option reply …                    simple reply | chunk …
//! client:          client flags, option …          (transmission)   request …
//! ```
//!
//! Every message is a head of fixed size and a body whose length the head tells. A reader reads the head, decides
//! whether it accepts the length, and then reads the body. All numbers are big-endian. The names are those of the
//! specification (NetworkBlockDevice/nbd, `doc/proto.md`) where it has short ones.

mod code;
pub mod flags;
mod negotiation;
mod reply;
mod request;

pub use code::{ChunkKind, Command, Errno, InfoKind, OptionCode, OptionReply};
pub use negotiation::{
    CLIENT_FLAGS_BYTES, Context, Export, GREETING_BYTES, Info, InfoRequest, LeaseRequest,
    MetaRequest, OPTION_BYTES, OPTION_REPLY_BYTES, OptionHead, OptionReplyHead, decode_greeting,
    decode_server_name, encode_greeting, encode_server_name,
};
pub use reply::{Chunk, ReplyHead, Status, encode_chunk, encode_data, encode_simple};
pub use request::{Headers, Request};

/// The longest string of the protocol, in bytes.
pub const STRING_BYTES_MAX: usize = 4096;

/// What a server answers to [`OptionCode::TakeOver`]: while it stays the same, the server has lost no acknowledged change.
pub type CacheEpoch = [u8; 16];

/// What a server answers to [`OptionCode::TakeLease`]: larger than that of all earlier takes of the device, and above 0.
pub type Token = u64;

/// The context that tells holes from data.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// The bytes are not what the protocol has there: close the connection, or refuse the option.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not NBD: {0}")]
pub struct Malformed(pub &'static str);

/// The next `N` bytes of `input`.
fn take<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (first, rest) = input.split_first_chunk().ok_or(Malformed("a message is too short"))?;
    *input = rest;
    Ok(*first)
}

/// The next number of 16 bits.
fn take_u16(input: &mut &[u8]) -> Result<u16, Malformed> {
    take(input).map(u16::from_be_bytes)
}

/// The next number of 32 bits.
fn take_u32(input: &mut &[u8]) -> Result<u32, Malformed> {
    take(input).map(u32::from_be_bytes)
}

/// The next number of 64 bits.
fn take_u64(input: &mut &[u8]) -> Result<u64, Malformed> {
    take(input).map(u64::from_be_bytes)
}

/// The next `len` bytes, as text.
fn take_text(input: &mut &[u8], len: usize) -> Result<String, Malformed> {
    if len > STRING_BYTES_MAX {
        return Err(Malformed("a string is too long"));
    }
    let (text, rest) = input.split_at_checked(len).ok_or(Malformed("a string is cut off"))?;
    *input = rest;
    text_of(text)
}

/// All of `bytes`, as text.
fn text_of(bytes: &[u8]) -> Result<String, Malformed> {
    if bytes.len() > STRING_BYTES_MAX {
        return Err(Malformed("a string is too long"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(Malformed("a string is not UTF-8")),
    }
}

/// Requires that nothing is left.
fn end(input: &[u8]) -> Result<(), Malformed> {
    if input.is_empty() { Ok(()) } else { Err(Malformed("a message is too long")) }
}

/// The length of a string or body that this program made, as the wire has it.
fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("messages that are made here are shorter than 4 GiB")
}

#[cfg(test)]
mod tests;
