//! The negotiation of a connection, in the protocol's fixed new style: pure, bytes in and bytes out.
//!
//! ```text
//! greeting -> client flags -> option -> reply -> option … -> GO: the device, and transmission
//!                             STARTTLS -> TLS -> option …
//!                             TAKE_OVER -> earlier connections of the client's device end -> option …
//!                             TAKE_LEASE -> all other connections that may write to it end -> option …
//! ```
//!
//! With TLS, a client learns nothing before it: not even the names of devices.

use bytes::{Buf, BytesMut};
use engine::block::{Error, Geometry};

use super::leases::DeviceId;
use super::transmission::{ALLOCATION, Agreed, CONTEXT, Replies, block_size};
use super::wire::flags::{FIXED_NEWSTYLE, NO_ZEROES};
use super::wire::{
    CLIENT_FLAGS_BYTES, CacheEpoch, Context, Info, InfoKind, InfoRequest, LeaseRequest, Malformed,
    MetaRequest, OPTION_BYTES, OptionCode, OptionHead, OptionReply, OptionReplyHead,
    STRING_BYTES_MAX, Token, encode_greeting, encode_server_name,
};

/// The longest data of an option. A name has at most 4 KiB.
const OPTION_BYTES_MAX: u32 = 64 * 1024;
/// Longer data of an option is not even read away.
const OPTION_BYTES_ABSURD: u32 = 16 * 1024 * 1024;
/// The most options of a connection. Clients send about ten.
const OPTIONS_MAX: u32 = 1000;

/// Whether connections have TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Security {
    /// The server has no certificate.
    Plain,
    /// The client must begin TLS next.
    Required,
    /// TLS is agreed on.
    Agreed,
}

/// The negotiation of one connection.
#[derive(Debug)]
pub(super) struct Handshake {
    security: Security,
    reading: Reading,
    no_zeroes: bool,
    /// The client understands replies to options.
    is_fixed: bool,
    options: u32,
    replies: Replies,
    /// The device whose `base:allocation` was selected.
    allocation_of: Option<String>,
    /// What the client calls its device.
    device_id: Option<DeviceId>,
    /// The client asked for a lease.
    wants_lease: bool,
}

/// What the client sends next.
#[derive(Debug)]
enum Reading {
    Flags,
    Head,
    Data(OptionHead),
    Skipped { option: OptionCode, left: u32 },
}

/// What is to be done next, after what was written is sent.
#[derive(Debug)]
pub(super) enum Next {
    /// More bytes are needed.
    Read,
    /// An option was answered.
    Answered,
    /// Open a device, and tell [`Handshake::opened`].
    Open(Wanted),
    /// End earlier connections with this id, and tell [`Handshake::took_over`]. A client may ask again, with the same id.
    TakeOver(DeviceId),
    /// Take the lease of a device, and tell [`Handshake::leased`]. A client asks once.
    TakeLease(LeaseRequest),
    /// Begin TLS, and tell [`Handshake::is_secure`].
    StartTls,
    /// The client is done.
    Close,
}

/// A client's wish for a device.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Wanted {
    /// The device's name.
    pub(super) name: String,
    option: OptionCode,
    kinds: Vec<InfoKind>,
}

impl Wanted {
    /// Whether the client begins to use the device, and does not just ask about it.
    pub(super) fn begins(&self) -> bool {
        self.option != OptionCode::Info
    }
}

impl Handshake {
    /// Writes the greeting.
    pub(super) fn new(has_tls: bool, out: &mut BytesMut) -> Self {
        encode_greeting(FIXED_NEWSTYLE | NO_ZEROES, out);
        Self {
            security: if has_tls { Security::Required } else { Security::Plain },
            reading: Reading::Flags,
            no_zeroes: false,
            is_fixed: false,
            options: 0,
            replies: Replies::Simple,
            allocation_of: None,
            device_id: None,
            wants_lease: false,
        }
    }

    /// Takes the next message from `input`, and writes the answers. `names` are those of all devices.
    ///
    /// # Errors
    /// The client is none, or asks for too much.
    pub(super) fn next(
        &mut self,
        input: &mut BytesMut,
        names: impl FnOnce() -> Vec<String>,
        out: &mut BytesMut,
    ) -> Result<Next, Malformed> {
        loop {
            match self.reading {
                Reading::Flags => {
                    let Some(&bytes) = input.first_chunk::<CLIENT_FLAGS_BYTES>() else {
                        return Ok(Next::Read);
                    };
                    input.advance(CLIENT_FLAGS_BYTES);
                    let flags = u32::from_be_bytes(bytes);
                    if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
                        return Err(Malformed("the client has unknown flags"));
                    }
                    self.is_fixed = flags & u32::from(FIXED_NEWSTYLE) != 0;
                    self.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
                    self.reading = Reading::Head;
                }
                Reading::Head => {
                    let Some(bytes) = input.first_chunk() else { return Ok(Next::Read) };
                    let head = OptionHead::decode(bytes)?;
                    input.advance(OPTION_BYTES);
                    self.options += 1;
                    if self.options > OPTIONS_MAX || head.len > OPTION_BYTES_ABSURD {
                        return Err(Malformed("the client sends too many options, or too long"));
                    }
                    self.reading = if head.len > OPTION_BYTES_MAX {
                        Reading::Skipped { option: head.option, left: head.len }
                    } else {
                        Reading::Data(head)
                    };
                }
                Reading::Data(OptionHead { option, len }) => {
                    if input.len() < len as usize {
                        return Ok(Next::Read);
                    }
                    let data = input.split_to(len as usize);
                    self.reading = Reading::Head;
                    let next = self.answer(option, &data, names, out)?;
                    if matches!(next, Next::StartTls) && !input.is_empty() {
                        return Err(Malformed("the client goes on before TLS has begun"));
                    }
                    return Ok(next);
                }
                Reading::Skipped { option, left } => {
                    let here = input.len().min(left as usize);
                    input.advance(here);
                    let left = left - here as u32;
                    if left > 0 {
                        self.reading = Reading::Skipped { option, left };
                        return Ok(Next::Read);
                    }
                    self.reading = Reading::Head;
                    if self.closes(option) {
                        return Ok(Next::Close);
                    }
                    refuse(option, OptionReply::TooBig, "the option is too long", out);
                    return Ok(Next::Answered);
                }
            }
        }
    }

    /// TLS has begun: what was agreed on before it is void.
    pub(super) fn is_secure(&mut self) {
        self.security = Security::Agreed;
        self.replies = Replies::Simple;
        self.allocation_of = None;
    }

    /// Answers a client whose earlier connections have ended, with all of their requests.
    pub(super) fn took_over(epoch: &CacheEpoch, out: &mut BytesMut) {
        OptionReplyHead::encode(OptionCode::TakeOver, OptionReply::CacheEpoch, epoch, out);
        OptionReplyHead::encode(OptionCode::TakeOver, OptionReply::Ack, &[], out);
    }

    /// Answers a client that asked for a lease: its token, when no other connection writes to the device any more.
    pub(super) fn leased(token: &Result<Token, Error>, out: &mut BytesMut) {
        let option = OptionCode::TakeLease;
        match token {
            Ok(token) => {
                OptionReplyHead::encode(option, OptionReply::Token, &token.to_be_bytes(), out);
                OptionReplyHead::encode(option, OptionReply::Ack, &[], out);
            }
            Err(error) => {
                let reply = match error {
                    Error::Held(_) => OptionReply::Held,
                    error => reply_of(error),
                };
                refuse(option, reply, &error.to_string(), out);
            }
        }
    }

    /// Answers after the wanted device was opened: what was agreed on if the negotiation ended with it, and nothing if the
    /// client may go on with options.
    ///
    /// # Errors
    /// There is no such device, and the client understands no replies.
    pub(super) fn opened(
        &self,
        wanted: &Wanted,
        geometry: Result<Geometry, Error>,
        is_read_only: bool,
        out: &mut BytesMut,
    ) -> Result<Option<Agreed>, Malformed> {
        let has_allocation = self.allocation_of.as_ref() == Some(&wanted.name);
        let agreed = Agreed { replies: self.replies, has_allocation, is_read_only };
        let option = wanted.option;
        let geometry = match geometry {
            Ok(geometry) => geometry,
            Err(_) if option == OptionCode::ExportName => {
                return Err(Malformed("the client names no device"));
            }
            Err(error) => {
                refuse(option, reply_of(&error), &error.to_string(), out);
                return Ok(None);
            }
        };
        let export = agreed.export(&geometry);
        if option == OptionCode::ExportName {
            export.encode(self.no_zeroes, out);
            return Ok(Some(agreed));
        }
        let mut infos = vec![Info::Export(export), block_size(&geometry)];
        if wanted.kinds.contains(&InfoKind::Name) {
            infos.push(Info::Name(wanted.name.clone()));
        }
        for info in infos {
            let mut body = BytesMut::new();
            info.encode(&mut body);
            OptionReplyHead::encode(option, OptionReply::Info, &body, out);
        }
        OptionReplyHead::encode(option, OptionReply::Ack, &[], out);
        Ok((option == OptionCode::Go).then_some(agreed))
    }

    /// Whether an option that fails ends the connection.
    fn closes(&self, option: OptionCode) -> bool {
        option == OptionCode::ExportName || !self.is_fixed
    }

    fn answer(
        &mut self,
        option: OptionCode,
        data: &[u8],
        names: impl FnOnce() -> Vec<String>,
        out: &mut BytesMut,
    ) -> Result<Next, Malformed> {
        let mut ack = || OptionReplyHead::encode(option, OptionReply::Ack, &[], out);
        if option == OptionCode::Abort {
            ack();
            return Ok(Next::Close);
        }
        let refused = match option {
            // The only option that a client without replies to options knows.
            option if option != OptionCode::ExportName && !self.is_fixed => return Ok(Next::Close),
            OptionCode::StartTls => match self.security {
                Security::Required if data.is_empty() => {
                    ack();
                    return Ok(Next::StartTls);
                }
                Security::Plain => (OptionReply::Policy, "this server has no certificate"),
                _ => (OptionReply::Invalid, "TLS has begun, or the option has data"),
            },
            OptionCode::ExportName if self.security == Security::Required => {
                return Ok(Next::Close);
            }
            _ if self.security == Security::Required => {
                (OptionReply::TlsRequired, "this server requires TLS")
            }
            OptionCode::ExportName => {
                let name = std::str::from_utf8(data)
                    .map_err(|_| Malformed("the name of an export is not UTF-8"))?;
                let name = resolve(name, &names()).ok_or(Malformed("there is no such export"))?;
                return Ok(Next::Open(Wanted { name, option, kinds: Vec::new() }));
            }
            OptionCode::Info | OptionCode::Go => match InfoRequest::decode(data) {
                Ok(InfoRequest { name, wanted: kinds }) => match resolve(&name, &names()) {
                    Some(name) => return Ok(Next::Open(Wanted { name, option, kinds })),
                    None => UNKNOWN,
                },
                Err(Malformed(problem)) => (OptionReply::Invalid, problem),
            },
            OptionCode::ListMetaContext | OptionCode::SetMetaContext => {
                match MetaRequest::decode(data) {
                    Ok(asked) => match self.contexts(option, &asked, &names()) {
                        Ok(is_selected) => {
                            if is_selected {
                                let mut body = BytesMut::new();
                                let id = if option == OptionCode::SetMetaContext {
                                    ALLOCATION
                                } else {
                                    0
                                };
                                Context { id, name: CONTEXT.to_owned() }.encode(&mut body);
                                OptionReplyHead::encode(
                                    option,
                                    OptionReply::MetaContext,
                                    &body,
                                    out,
                                );
                            }
                            OptionReplyHead::encode(option, OptionReply::Ack, &[], out);
                            return Ok(Next::Answered);
                        }
                        Err(refused) => refused,
                    },
                    Err(Malformed(problem)) => {
                        if option == OptionCode::SetMetaContext {
                            self.allocation_of = None;
                        }
                        (OptionReply::Invalid, problem)
                    }
                }
            }
            OptionCode::List | OptionCode::StructuredReply | OptionCode::ExtendedHeaders
                if !data.is_empty() =>
            {
                (OptionReply::Invalid, "the option has data")
            }
            OptionCode::List => {
                for name in names() {
                    let mut body = BytesMut::new();
                    encode_server_name(&name, &mut body);
                    OptionReplyHead::encode(option, OptionReply::Server, &body, out);
                }
                OptionReplyHead::encode(option, OptionReply::Ack, &[], out);
                return Ok(Next::Answered);
            }
            OptionCode::StructuredReply if self.replies == Replies::Extended => {
                (OptionReply::ExtendedHeadersRequired, "extended headers are agreed on")
            }
            OptionCode::StructuredReply | OptionCode::ExtendedHeaders => {
                let replies = if option == OptionCode::ExtendedHeaders {
                    Replies::Extended
                } else {
                    Replies::Structured
                };
                if self.replies < replies {
                    self.replies = replies;
                    ack();
                    return Ok(Next::Answered);
                }
                (OptionReply::Invalid, "that is agreed on")
            }
            OptionCode::TakeOver => match (DeviceId::try_from(data), self.device_id) {
                (Ok(id), None) => {
                    self.device_id = Some(id);
                    return Ok(Next::TakeOver(id));
                }
                (Ok(id), Some(known)) if id == known => return Ok(Next::TakeOver(id)),
                _ => (OptionReply::Invalid, "a connection has one id, of 16 bytes"),
            },
            OptionCode::TakeLease if self.wants_lease => {
                (OptionReply::Invalid, "a connection has one lease")
            }
            OptionCode::TakeLease => match LeaseRequest::decode(data) {
                Ok(request) => match resolve(&request.name, &names()) {
                    Some(name) => {
                        self.wants_lease = true;
                        return Ok(Next::TakeLease(LeaseRequest { name, ..request }));
                    }
                    None => UNKNOWN,
                },
                Err(Malformed(problem)) => (OptionReply::Invalid, problem),
            },
            OptionCode::Abort | OptionCode::Other(_) => {
                (OptionReply::Unsupported, "the server does not know the option")
            }
        };
        let (reply, problem) = refused;
        refuse(option, reply, problem, out);
        Ok(Next::Answered)
    }

    /// Whether `base:allocation` is meant, which is the only context.
    fn contexts(
        &mut self,
        option: OptionCode,
        asked: &MetaRequest,
        names: &[String],
    ) -> Result<bool, (OptionReply, &'static str)> {
        let selects = option == OptionCode::SetMetaContext;
        if selects {
            self.allocation_of = None;
            if self.replies == Replies::Simple {
                return Err((OptionReply::Invalid, "structured replies come first"));
            }
        }
        let name = resolve(&asked.name, names).ok_or(UNKNOWN)?;
        let mut queries = asked.queries.iter();
        if selects {
            // A namespace selects nothing: the client would not know what it gets.
            let is_selected = queries.any(|query| query == CONTEXT);
            self.allocation_of = is_selected.then_some(name);
            return Ok(is_selected);
        }
        Ok(asked.queries.is_empty() || queries.any(|query| query == CONTEXT || query == "base:"))
    }
}

/// What a client is told of an error of the store.
fn reply_of(error: &Error) -> OptionReply {
    match error {
        Error::NotFound(_) => OptionReply::Unknown,
        Error::Closed(_) => OptionReply::Shutdown,
        _ => OptionReply::Policy,
    }
}

const UNKNOWN: (OptionReply, &str) = (OptionReply::Unknown, "there is no such device");

/// The device that a client means: the empty name is the only one's.
fn resolve(name: &str, names: &[String]) -> Option<String> {
    if names.iter().any(|known| known == name) {
        return Some(name.to_owned());
    }
    match names {
        [only] if name.is_empty() => Some(only.clone()),
        _ => None,
    }
}

fn refuse(option: OptionCode, reply: OptionReply, problem: &str, out: &mut BytesMut) {
    let problem = &problem[..problem.floor_char_boundary(STRING_BYTES_MAX)];
    OptionReplyHead::encode(option, reply, problem.as_bytes(), out);
}

#[cfg(test)]
mod tests;
