//! The messages before an export is chosen: greeting, options, and the replies to them.

use bytes::BufMut;

use super::code::{InfoKind, OptionCode, OptionReply};
use super::{Malformed, end, len_u32, take, take_text, take_u16, take_u32, take_u64, text_of};

/// `NBDMAGIC`.
const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`.
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// The bytes of a greeting.
pub const GREETING_BYTES: usize = 18;
/// The bytes of the client's answer to it: a number, its flags.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// The bytes of an [`OptionHead`].
pub const OPTION_BYTES: usize = 16;
/// The bytes of an [`OptionReplyHead`].
pub const OPTION_REPLY_BYTES: usize = 20;
/// The zeros at the end of the reply to `EXPORT_NAME`.
const EXPORT_ZEROES: usize = 124;

/// Writes a server's first bytes.
pub fn encode_greeting(handshake_flags: u16, out: &mut impl BufMut) {
    out.put_u64(INIT_MAGIC);
    out.put_u64(OPTION_MAGIC);
    out.put_u16(handshake_flags);
}

/// Reads a server's first bytes: its handshake flags.
///
/// # Errors
/// The peer is no NBD server, or one of the old style.
pub fn decode_greeting(bytes: &[u8; GREETING_BYTES]) -> Result<u16, Malformed> {
    let mut input = &bytes[..];
    if take_u64(&mut input)? != INIT_MAGIC {
        return Err(Malformed("the greeting is not that of a server"));
    }
    if take_u64(&mut input)? != OPTION_MAGIC {
        return Err(Malformed("the server speaks the protocol's old style"));
    }
    take_u16(&mut input)
}

/// The head of an option.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OptionHead {
    /// What is asked for.
    pub option: OptionCode,
    /// The bytes that follow.
    pub len: u32,
}

impl OptionHead {
    /// Writes the head; the caller writes `len` bytes behind it.
    pub fn encode(self, out: &mut impl BufMut) {
        out.put_u64(OPTION_MAGIC);
        out.put_u32(self.option.into());
        out.put_u32(self.len);
    }

    /// Reads a head.
    ///
    /// # Errors
    /// The peer does not negotiate.
    pub fn decode(bytes: &[u8; OPTION_BYTES]) -> Result<Self, Malformed> {
        let mut input = &bytes[..];
        if take_u64(&mut input)? != OPTION_MAGIC {
            return Err(Malformed("an option begins with another number"));
        }
        Ok(Self { option: take_u32(&mut input)?.into(), len: take_u32(&mut input)? })
    }
}

/// The head of a reply to an option.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OptionReplyHead {
    /// The option.
    pub option: OptionCode,
    /// What is answered.
    pub reply: OptionReply,
    /// The bytes that follow.
    pub len: u32,
}

impl OptionReplyHead {
    /// Writes a whole reply.
    pub fn encode(option: OptionCode, reply: OptionReply, body: &[u8], out: &mut impl BufMut) {
        out.put_u64(OPTION_REPLY_MAGIC);
        out.put_u32(option.into());
        out.put_u32(reply.into());
        out.put_u32(len_u32(body.len()));
        out.put_slice(body);
    }

    /// Reads a head.
    ///
    /// # Errors
    /// The peer does not negotiate.
    pub fn decode(bytes: &[u8; OPTION_REPLY_BYTES]) -> Result<Self, Malformed> {
        let mut input = &bytes[..];
        if take_u64(&mut input)? != OPTION_REPLY_MAGIC {
            return Err(Malformed("a reply to an option begins with another number"));
        }
        let [option, reply, len] =
            [take_u32(&mut input)?, take_u32(&mut input)?, take_u32(&mut input)?];
        Ok(Self { option: option.into(), reply: reply.into(), len })
    }
}

/// The body of `INFO` and `GO`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InfoRequest {
    /// The export.
    pub name: String,
    /// What the client would like to know. The server may tell less, and more.
    pub wanted: Vec<InfoKind>,
}

impl InfoRequest {
    /// Writes the body.
    ///
    /// # Panics
    /// With more than 65535 kinds.
    pub fn encode(&self, out: &mut impl BufMut) {
        put_text(&self.name, out);
        out.put_u16(u16::try_from(self.wanted.len()).expect("there are few kinds"));
        for &kind in &self.wanted {
            out.put_u16(kind.into());
        }
    }

    /// Reads a body.
    ///
    /// # Errors
    /// It has another form.
    pub fn decode(mut body: &[u8]) -> Result<Self, Malformed> {
        let name = take_name(&mut body)?;
        let count = take_u16(&mut body)?;
        if body.len() != 2 * usize::from(count) {
            return Err(Malformed("the number of kinds of information is wrong"));
        }
        let mut wanted = Vec::with_capacity(count.into());
        for _ in 0..count {
            wanted.push(take_u16(&mut body)?.into());
        }
        Ok(Self { name, wanted })
    }
}

/// The body of `TakeLease`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeaseRequest {
    /// The export.
    pub name: String,
    /// Who takes it: equal ones need no force.
    pub holder: [u8; 16],
    /// What people call the holder.
    pub holder_name: String,
    /// What the earlier connection of this client got: the request fails if the lease is another one now. `None` takes the
    /// lease.
    pub token: Option<u64>,
    /// Take it also from another holder, and end connections without a lease that may write.
    pub force: bool,
}

impl LeaseRequest {
    const FORCE: u16 = 1;

    /// Writes the body.
    pub fn encode(&self, out: &mut impl BufMut) {
        put_text(&self.name, out);
        out.put_slice(&self.holder);
        put_text(&self.holder_name, out);
        out.put_u64(self.token.unwrap_or(0));
        out.put_u16(if self.force { Self::FORCE } else { 0 });
    }

    /// Reads a body.
    ///
    /// # Errors
    /// It has another form.
    pub fn decode(mut body: &[u8]) -> Result<Self, Malformed> {
        let name = take_name(&mut body)?;
        let holder = take(&mut body)?;
        let holder_name = take_name(&mut body)?;
        let token = Some(take_u64(&mut body)?).filter(|&token| token > 0);
        let force = match take_u16(&mut body)? {
            0 => false,
            Self::FORCE => true,
            _ => return Err(Malformed("a request for a lease has unknown flags")),
        };
        end(body)?;
        Ok(Self { name, holder, holder_name, token, force })
    }
}

/// The body of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MetaRequest {
    /// The export.
    pub name: String,
    /// Names of contexts, and namespaces such as `base:`.
    pub queries: Vec<String>,
}

impl MetaRequest {
    /// Writes the body.
    pub fn encode(&self, out: &mut impl BufMut) {
        put_text(&self.name, out);
        out.put_u32(len_u32(self.queries.len()));
        for query in &self.queries {
            put_text(query, out);
        }
    }

    /// Reads a body.
    ///
    /// # Errors
    /// It has another form.
    pub fn decode(mut body: &[u8]) -> Result<Self, Malformed> {
        let name = take_name(&mut body)?;
        let count = take_u32(&mut body)?;
        let mut queries = Vec::new();
        for _ in 0..count {
            queries.push(take_name(&mut body)?);
        }
        end(body)?;
        Ok(Self { name, queries })
    }
}

/// Writes the body of a reply `Server`: the name of an export.
pub fn encode_server_name(name: &str, out: &mut impl BufMut) {
    put_text(name, out);
}

/// Reads the body of a reply `Server`. A server may say more behind the name, for people.
///
/// # Errors
/// It has another form.
pub fn decode_server_name(mut body: &[u8]) -> Result<String, Malformed> {
    take_name(&mut body)
}

/// The body of a reply `MetaContext`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Context {
    /// Its number in replies to `BlockStatus`.
    pub id: u32,
    /// Its name.
    pub name: String,
}

impl Context {
    /// Writes the body.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_u32(self.id);
        out.put_slice(self.name.as_bytes());
    }

    /// Reads a body.
    ///
    /// # Errors
    /// It has another form.
    pub fn decode(mut body: &[u8]) -> Result<Self, Malformed> {
        Ok(Self { id: take_u32(&mut body)?, name: text_of(body)? })
    }
}

/// Size and flags of an export.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Export {
    /// Bytes.
    pub size: u64,
    /// What it can do.
    pub flags: u16,
}

impl Export {
    /// The bytes of the reply to `EXPORT_NAME`.
    #[must_use]
    pub fn bytes(no_zeroes: bool) -> usize {
        if no_zeroes { 10 } else { 10 + EXPORT_ZEROES }
    }

    /// Writes the reply to `EXPORT_NAME`, which has no head.
    pub fn encode(self, no_zeroes: bool, out: &mut impl BufMut) {
        out.put_u64(self.size);
        out.put_u16(self.flags);
        if !no_zeroes {
            out.put_bytes(0, EXPORT_ZEROES);
        }
    }

    /// Reads the first bytes of the reply to `EXPORT_NAME`; the rest says nothing.
    ///
    /// # Errors
    /// It is too short.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, Malformed> {
        Ok(Self { size: take_u64(&mut bytes)?, flags: take_u16(&mut bytes)? })
    }
}

/// The body of a reply `Info`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Info {
    /// Size and flags.
    Export(Export),
    /// The export's own name.
    Name(String),
    /// A description for people.
    Description(String),
    /// Sizes of requests in bytes: powers of two, but for the last.
    BlockSize {
        /// Requests are multiples of it.
        min: u32,
        /// Requests should be multiples of it.
        preferred: u32,
        /// No payload is longer.
        payload_max: u32,
    },
    /// Some other.
    Other(u16),
}

impl Info {
    /// Writes the body.
    pub fn encode(&self, out: &mut impl BufMut) {
        match self {
            Self::Export(export) => {
                out.put_u16(InfoKind::Export.into());
                export.encode(true, out);
            }
            Self::Name(name) => {
                out.put_u16(InfoKind::Name.into());
                out.put_slice(name.as_bytes());
            }
            Self::Description(text) => {
                out.put_u16(InfoKind::Description.into());
                out.put_slice(text.as_bytes());
            }
            &Self::BlockSize { min, preferred, payload_max } => {
                out.put_u16(InfoKind::BlockSize.into());
                for size in [min, preferred, payload_max] {
                    out.put_u32(size);
                }
            }
            &Self::Other(kind) => out.put_u16(kind),
        }
    }

    /// Reads a body.
    ///
    /// # Errors
    /// It has another form.
    pub fn decode(mut body: &[u8]) -> Result<Self, Malformed> {
        let info = match take_u16(&mut body)?.into() {
            InfoKind::Export => {
                let export = Export::decode(body)?;
                body = &body[Export::bytes(true)..];
                Self::Export(export)
            }
            InfoKind::Name => return text_of(body).map(Self::Name),
            InfoKind::Description => return text_of(body).map(Self::Description),
            InfoKind::BlockSize => {
                let [min, preferred] = [take_u32(&mut body)?, take_u32(&mut body)?];
                let payload_max = take_u32(&mut body)?;
                Self::BlockSize { min, preferred, payload_max }
            }
            InfoKind::Other(kind) => return Ok(Self::Other(kind)),
        };
        end(body)?;
        Ok(info)
    }
}

fn take_name(input: &mut &[u8]) -> Result<String, Malformed> {
    let len = take_u32(input)?;
    take_text(input, usize::try_from(len).unwrap_or(usize::MAX))
}

fn put_text(text: &str, out: &mut impl BufMut) {
    out.put_u32(len_u32(text.len()));
    out.put_slice(text.as_bytes());
}
