//! Arbitrary bytes as a client's input: the common entry of tests and fuzzer.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::BytesMut;
use engine::keyspace::Keyspace;
use engine::kv::Memory;
use serve::Secret;
use serve::resp::{Decoder, Request, Service, Session, Settings};

/// Small limits, so that short inputs reach them.
const BULK_BYTES_MAX: usize = 2 << 10;
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Replies gathered before they are sent, and the most that one command may add: each of its words may name the longest
/// value.
const REPLY_BYTES_AT_ONCE: usize = 4 << 10;
const REPLY_BYTES_MAX: usize = REPLY_BYTES_AT_ONCE + REQUEST_BYTES_MAX * BULK_BYTES_MAX;
/// Bytes of a line that are examined before its end is known.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The deepest nesting of replies.
const DEPTH_MAX: usize = 8;

/// Serves `data` with a new store twice, in pieces and at once. The first byte sets whether there is a password, and
/// the length of the pieces.
///
/// # Panics
/// On a violation: a request without exactly one reply, a malformed reply, replies that depend on the pieces, or more
/// memory than the limits allow.
pub(crate) fn run(data: &[u8]) {
    let Some((&how, stream)) = data.split_first() else { return };
    let password = how & 1 == 1;
    let step = 1 + usize::from(how >> 1 & 0xf);
    let pieces = serve(stream, step, password);
    let whole = serve(stream, stream.len().max(1), password);
    assert!(
        pieces == whole,
        "in pieces of {step}: {}\nat once: {}",
        pieces.escape_ascii(),
        whole.escape_ascii()
    );
}

/// Returns every reply to `stream`, which arrives in pieces.
fn serve(stream: &[u8], step: usize, password: bool) -> Vec<u8> {
    let settings = Settings {
        password: password.then(|| Secret::new("p")),
        bulk_bytes_max: BULK_BYTES_MAX,
        request_bytes_max: REQUEST_BYTES_MAX,
        ..Settings::default()
    };
    let store = Arc::new(Memory::default());
    let keyspace =
        Keyspace::open(store, Box::new(|| 1_700_000_000_000), 1).expect("the store is empty");
    let service = Service::new(settings, Arc::new(keyspace), Arc::new(()));
    let mut session = Session::new(1, &service);
    let mut decoder = Decoder::new(service.limits(session.is_authenticated()));
    let mut input = BytesMut::new();
    let mut replies = Vec::new();
    for piece in stream.chunks(step) {
        input.extend_from_slice(piece);
        if !arrived(&service, &mut session, &mut decoder, &mut input, &mut replies) {
            break;
        }
        let longest = REQUEST_BYTES_MAX.max(LINE_BYTES_MAX) + step;
        assert!(input.len() <= longest, "{} bytes wait for their end", input.len());
    }
    replies
}

/// Processes `input` as a connection does; false when the connection is closing.
fn arrived(
    service: &Service,
    session: &mut Session,
    decoder: &mut Decoder,
    input: &mut BytesMut,
    replies: &mut Vec<u8>,
) -> bool {
    loop {
        decoder.set_limits(service.limits(session.is_authenticated()));
        let at_once = if session.is_authenticated() { usize::MAX } else { 1 };
        let mut requests = VecDeque::new();
        let mut broken = None;
        while requests.len() < at_once && broken.is_none() {
            match decoder.next(input) {
                Ok(Some(request)) => requests.push_back(request),
                Ok(None) => break,
                Err(error) => broken = Some(error),
            }
        }
        let done = requests.is_empty();
        while !requests.is_empty() && !session.is_closing() {
            let asked: Vec<_> = requests.iter().map(is_http).collect();
            let mut out = BytesMut::new();
            session.execute(service, &mut requests, &mut out, REPLY_BYTES_AT_ONCE);
            let executed = asked.len() - requests.len();
            // A web page's connection is closed without a reply.
            let expected = asked[..executed].iter().filter(|&&http| !http).count();
            check(&out, expected);
            replies.extend_from_slice(&out);
        }
        if session.is_closing() {
            return false;
        }
        if let Some(error) = broken {
            let mut out = BytesMut::new();
            session.refuse(service, error, &mut out);
            check(&out, 1);
            assert!(out.starts_with(b"-"), "the reply to nonsense is an error");
            replies.extend_from_slice(&out);
            return false;
        }
        if done {
            return true;
        }
    }
}

fn is_http(request: &Request) -> bool {
    request[0].eq_ignore_ascii_case(b"post") || request[0].eq_ignore_ascii_case(b"host:")
}

/// Checks that `out` consists of `expected` whole replies, and is not too long.
fn check(out: &[u8], expected: usize) {
    assert!(out.len() <= REPLY_BYTES_MAX, "{} bytes of replies", out.len());
    let mut rest = out;
    let mut found = 0;
    while !rest.is_empty() {
        rest = after_reply(rest, 0)
            .unwrap_or_else(|| panic!("no reply: {}", rest[..rest.len().min(200)].escape_ascii()));
        found += 1;
    }
    assert_eq!(found, expected, "each request has one reply: {}", out.escape_ascii());
}

/// The bytes after the first reply of `bytes`, in either version of the protocol; `None` if it is malformed.
fn after_reply(bytes: &[u8], depth: usize) -> Option<&[u8]> {
    let (&kind, rest) = bytes.split_first()?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let (line, rest) = (&rest[..end], &rest[end + 2..]);
    if line.contains(&b'\n') || line.contains(&b'\r') {
        return None;
    }
    let number = || std::str::from_utf8(line).ok()?.parse::<i64>().ok();
    let several = |each: usize| {
        let count = usize::try_from(number()?).ok()?;
        (0..count.checked_mul(each)?).try_fold(rest, |rest, _| after_reply(rest, depth + 1))
    };
    if depth > DEPTH_MAX {
        return None;
    }
    match kind {
        b'+' | b'-' => Some(rest),
        b':' => number().map(|_| rest),
        b',' => std::str::from_utf8(line).ok()?.parse::<f64>().ok().map(|_| rest),
        b'_' => line.is_empty().then_some(rest),
        b'#' => (line == b"t" || line == b"f").then_some(rest),
        b'$' | b'*' if line == b"-1" => Some(rest),
        b'$' | b'=' => {
            let (_, rest) = rest.split_at_checked(usize::try_from(number()?).ok()?)?;
            rest.strip_prefix(b"\r\n")
        }
        b'*' | b'~' => several(1),
        b'%' => several(2),
        _ => None,
    }
}
