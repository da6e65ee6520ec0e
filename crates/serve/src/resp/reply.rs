//! The reply to a command, and its encoding in both versions of the protocol.

use bytes::{Bytes, BytesMut};
use redis_protocol::resp2::{encode as encode2, types::BytesFrame as Frame2};
use redis_protocol::resp3::encode::complete as encode3;
use redis_protocol::resp3::types::{BytesFrame as Frame3, VerbatimStringFormat};

use super::settings::BYTES_PER_ELEMENT;

/// The protocol version of a connection; `HELLO` changes it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Protocol {
    /// RESP2, which every client supports.
    #[default]
    Resp2,
    /// RESP3, which distinguishes maps, sets, nulls and texts.
    Resp3,
}

impl Protocol {
    /// Its number in `HELLO`.
    #[must_use]
    pub(super) const fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// The limit that a reply exceeds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ReplyLimit {
    /// Its encoded length.
    Length,
    /// The bytes in memory for it.
    Read,
    /// The elements in memory for it.
    Elements,
}

/// One reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    /// A word such as `OK`.
    Status(&'static str),
    /// An error: a code word, a blank, one line of text.
    Error(String),
    /// A number.
    Integer(i64),
    /// Any bytes.
    Bulk(Bytes),
    /// Human-readable text: bytes in RESP2.
    Text(String),
    /// A missing value.
    Null,
    /// A missing list, for which RESP2 has a separate null.
    NullArray,
    /// A float: its digits as bytes in RESP2.
    Double(f64),
    /// Several replies.
    Array(Vec<Reply>),
    /// Several replies without order: an array in RESP2.
    Set(Vec<Reply>),
    /// Pairs in their given order: a flat array in RESP2.
    Map(Vec<(Reply, Reply)>),
}

impl Reply {
    /// `OK`.
    pub(super) const OK: Self = Self::Status("OK");

    /// An error with Redis' general code, `ERR`.
    #[must_use]
    pub(super) fn error(text: impl std::fmt::Display) -> Self {
        Self::coded("ERR", text)
    }

    /// An error with a code that clients know. Line breaks in `text` become blanks, since a line break ends a simple
    /// error.
    #[must_use]
    pub(super) fn coded(code: &str, text: impl std::fmt::Display) -> Self {
        Self::Error(format!("{code} {text}").replace(['\r', '\n'], " "))
    }

    /// A count.
    #[must_use]
    pub(super) fn count(count: u64) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Static bytes.
    #[must_use]
    pub(super) const fn word(text: &'static str) -> Self {
        Self::Bulk(Bytes::from_static(text.as_bytes()))
    }

    /// The error in place of a reply beyond a limit; `request_bytes_max` is `request_max` of the settings.
    pub(super) fn too_long(limit: ReplyLimit, request_bytes_max: usize) -> Self {
        const LESS: &str = "ask for less at a time; SCAN, HSCAN and ZSCAN walk in steps";
        let elements = request_bytes_max / BYTES_PER_ELEMENT;
        Self::error(match limit {
            ReplyLimit::Length => {
                format!("the reply is longer than {request_bytes_max} bytes (request_max): {LESS}")
            }
            ReplyLimit::Read => format!(
                "what is read for the reply is longer than {request_bytes_max} bytes (request_max): {LESS}"
            ),
            ReplyLimit::Elements => format!(
                "the reply has more than {elements} elements, one for each {BYTES_PER_ELEMENT} bytes of \
                 request_max: {LESS}"
            ),
        })
    }

    /// The number of bytes that [`Reply::encode`] appends.
    pub(super) fn encoded_len(&self, protocol: Protocol) -> usize {
        let line = |digits: usize| 1 + digits + 2;
        let bulk = |len: usize| line(decimal_len(len as u64)) + len + 2;
        let is_resp2 = protocol == Protocol::Resp2;
        match self {
            Self::Status(word) => line(word.len()),
            Self::Error(text) => line(text.len()),
            Self::Integer(number) => {
                line(usize::from(*number < 0) + decimal_len(number.unsigned_abs()))
            }
            Self::Bulk(bytes) => bulk(bytes.len()),
            // RESP3 puts the prefix "txt:" before text.
            Self::Text(text) => bulk(text.len() + if is_resp2 { 0 } else { 4 }),
            Self::Null | Self::NullArray => line(if is_resp2 { 2 } else { 0 }),
            Self::Double(number) if is_resp2 => bulk(digits(*number).len()),
            Self::Double(_) => {
                let mut out = BytesMut::new();
                self.clone().encode(protocol, &mut out);
                out.len()
            }
            Self::Array(replies) | Self::Set(replies) => {
                let all = replies.iter().map(|reply| reply.encoded_len(protocol));
                Self::head_len(replies.len()) + all.sum::<usize>()
            }
            Self::Map(pairs) => {
                let entries = if is_resp2 { 2 * pairs.len() } else { pairs.len() };
                let all = pairs.iter().flat_map(|(key, value)| [key, value]);
                let all = all.map(|reply| reply.encoded_len(protocol));
                Self::head_len(entries) + all.sum::<usize>()
            }
        }
    }

    /// The number of bytes before the first element of an encoded array of `len` replies.
    pub(super) fn head_len(len: usize) -> usize {
        1 + decimal_len(len as u64) + 2
    }

    /// Appends the encoded reply to `out`.
    pub(super) fn encode(self, protocol: Protocol, out: &mut BytesMut) {
        // Both encoders reserve the frame's length first, so they cannot fail.
        const ROOM: &str = "the buffer was extended by the length of the frame";
        match protocol {
            Protocol::Resp2 if self == Self::NullArray => {
                out.extend_from_slice(b"*-1\r\n");
            }
            Protocol::Resp2 => {
                encode2::extend_encode(out, &self.into_resp2(), false).expect(ROOM);
            }
            Protocol::Resp3 => {
                encode3::extend_encode(out, &self.into_resp3(), false).expect(ROOM);
            }
        }
    }

    fn into_resp2(self) -> Frame2 {
        let array =
            |replies: Vec<Self>| Frame2::Array(replies.into_iter().map(Self::into_resp2).collect());
        match self {
            Self::Status(word) => Frame2::SimpleString(Bytes::from_static(word.as_bytes())),
            Self::Error(text) => Frame2::Error(text.into()),
            Self::Integer(number) => Frame2::Integer(number),
            Self::Bulk(bytes) => Frame2::BulkString(bytes),
            Self::Text(text) => Frame2::BulkString(text.into()),
            Self::Null => Frame2::Null,
            Self::NullArray => Frame2::Null,
            Self::Double(number) => Frame2::BulkString(digits(number).into()),
            Self::Array(replies) | Self::Set(replies) => array(replies),
            Self::Map(pairs) => array(pairs.into_iter().flat_map(|(k, v)| [k, v]).collect()),
        }
    }

    fn into_resp3(self) -> Frame3 {
        let attributes = None;
        let all = |replies: Vec<Self>| replies.into_iter().map(Self::into_resp3);
        match self {
            Self::Status(word) => {
                Frame3::SimpleString { data: Bytes::from_static(word.as_bytes()), attributes }
            }
            Self::Error(text) => Frame3::SimpleError { data: text.into(), attributes },
            Self::Integer(data) => Frame3::Number { data, attributes },
            Self::Bulk(data) => Frame3::BlobString { data, attributes },
            Self::Text(text) => Frame3::VerbatimString {
                data: text.into(),
                format: VerbatimStringFormat::Text,
                attributes,
            },
            Self::Null | Self::NullArray => Frame3::Null,
            Self::Double(data) => Frame3::Double { data, attributes },
            Self::Array(replies) => Frame3::Array { data: all(replies).collect(), attributes },
            Self::Set(replies) => Frame3::Set { data: all(replies).collect(), attributes },
            Self::Map(pairs) => Frame3::Map {
                data: pairs.into_iter().map(|(k, v)| (k.into_resp3(), v.into_resp3())).collect(),
                attributes,
            },
        }
    }
}

/// The number of digits of a number.
fn decimal_len(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// A number as Redis prints it: the shortest text that parses back to it, with an exponent if it is long.
pub(super) fn digits(number: f64) -> String {
    const LONG: std::ops::Range<f64> = 1e-5..1e17;
    if number == 0.0 || number.is_infinite() || LONG.contains(&number.abs()) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    // Redis prints the sign of every exponent.
    if text.contains("e-") { text } else { text.replace('e', "e+") }
}

impl From<Option<Bytes>> for Reply {
    fn from(value: Option<Bytes>) -> Self {
        value.map_or(Self::Null, Self::Bulk)
    }
}

impl From<engine::kv::Error> for Reply {
    /// Codes that trigger the right reaction of clients: they retry after `TRYAGAIN`. `OOM` is Redis' code for a write
    /// without space; deletions still work.
    fn from(error: engine::kv::Error) -> Self {
        use engine::kv::Error;
        let code = match error {
            Error::Busy(_) | Error::Unavailable(_) => "TRYAGAIN",
            // The store's message includes the way out.
            Error::OutOfSpace(why) => {
                return Self::coded("OOM", format_args!("command not allowed: {why}"));
            }
            _ => "ERR",
        };
        Self::coded(code, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(reply: &Reply, protocol: Protocol) -> String {
        let mut out = BytesMut::new();
        reply.clone().encode(protocol, &mut out);
        String::from_utf8(out.to_vec()).expect("these replies are text")
    }

    #[test]
    fn each_reply_has_its_bytes_in_both_versions() {
        let map = Reply::Map(vec![
            (Reply::word("z"), Reply::Integer(-3)),
            (Reply::word("a"), Reply::Null),
        ]);
        let cases = [
            (Reply::OK, "+OK\r\n", "+OK\r\n"),
            (Reply::error("no"), "-ERR no\r\n", "-ERR no\r\n"),
            (Reply::Null, "$-1\r\n", "_\r\n"),
            (Reply::Text("hi".into()), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            (Reply::Set(vec![Reply::Integer(1)]), "*1\r\n:1\r\n", "~1\r\n:1\r\n"),
            (Reply::Array(vec![]), "*0\r\n", "*0\r\n"),
            (Reply::NullArray, "*-1\r\n", "_\r\n"),
            (Reply::Double(-1.5), "$4\r\n-1.5\r\n", ",-1.5\r\n"),
            (Reply::Double(3.0), "$1\r\n3\r\n", ",3\r\n"),
            (Reply::Double(f64::INFINITY), "$3\r\ninf\r\n", ",inf\r\n"),
            (Reply::Integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (Reply::Integer(10), ":10\r\n", ":10\r\n"),
            (Reply::word("0123456789"), "$10\r\n0123456789\r\n", "$10\r\n0123456789\r\n"),
            (Reply::Text("sevenen".into()), "$7\r\nsevenen\r\n", "=11\r\ntxt:sevenen\r\n"),
            (Reply::Double(1e20), "$5\r\n1e+20\r\n", ",100000000000000000000\r\n"),
            (
                map,
                "*4\r\n$1\r\nz\r\n:-3\r\n$1\r\na\r\n$-1\r\n",
                "%2\r\n$1\r\nz\r\n:-3\r\n$1\r\na\r\n_\r\n",
            ),
        ];
        for (reply, resp2, resp3) in cases {
            for (protocol, encoded) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
                assert_eq!(bytes(&reply, protocol), encoded);
                assert_eq!(reply.encoded_len(protocol), encoded.len(), "{encoded}");
            }
        }
    }

    #[test]
    fn an_error_stays_on_its_line() {
        let reply = Reply::error("one\r\ntwo\n+OK");
        assert_eq!(bytes(&reply, Protocol::Resp2), "-ERR one  two +OK\r\n");
    }
}
