use proptest::collection::vec;
use proptest::prelude::*;
use redis_protocol::resp2::decode::decode as oracle;
use redis_protocol::resp2::types::OwnedFrame;

use super::*;

const LIMITS: Limits =
    Limits { bulk_bytes_max: 64, request_bytes_max: 256, args_max: 8, authenticated: true };

/// Feeds `bytes` in pieces of `step`; returns the requests, and the error that ended them.
fn decode(bytes: &[u8], step: usize, limits: Limits) -> (Vec<Request>, Option<String>) {
    let mut decoder = Decoder::new(limits);
    let mut input = BytesMut::new();
    let mut requests = Vec::new();
    for piece in bytes.chunks(step.max(1)) {
        input.extend_from_slice(piece);
        loop {
            match decoder.next(&mut input) {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(error) => return (requests, Some(error.to_string())),
            }
        }
    }
    (requests, None)
}

fn words(request: &Request) -> Vec<String> {
    request.iter().map(|word| word.escape_ascii().to_string()).collect()
}

fn encoded(request: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
    for arg in request {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[test]
fn arrays_and_lines_come_out_as_words() {
    let cases: &[(&str, &[&[&str]])] = &[
        ("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", &[&["GET", "k"]]),
        ("*1\r\n$0\r\n\r\n", &[&[""]]),
        ("PING\r\nPING\n", &[&["PING"], &["PING"]]),
        ("\r\n\r\n*0\r\n*-1\r\n PING \r\n", &[&["PING"]]),
        ("set 'a b' \"c\\x41\\n\\\"\"\r\n", &[&["set", "a b", "cA\\n\\\""]]),
        ("set a\"b c\" '\\''\r\n", &[&["set", "ab c", "\\'"]]),
    ];
    for &(bytes, expected) in cases {
        for step in [1, 3, bytes.len()] {
            let (requests, error) = decode(bytes.as_bytes(), step, LIMITS);
            assert_eq!(error, None, "{bytes:?}");
            assert_eq!(requests.iter().map(words).collect::<Vec<_>>(), expected, "{bytes:?}");
        }
    }
}

#[test]
fn broken_streams_are_refused_in_redis_words() {
    let long_line = "x".repeat(INLINE_BYTES_MAX + 1);
    let many_digits = format!("*{}", "0".repeat(LENGTH_LINE_BYTES_MAX));
    let cases = [
        ("*a\r\n", "invalid multibulk length"),
        ("*9\r\n", "invalid multibulk length"),
        ("*99999999999999999999\r\n", "invalid multibulk length"),
        ("*1\r\nfoo\r\n", "expected '$', got 'f'"),
        ("*1\r\n\0", "expected '$', got '\\x00'"),
        ("*1\r\n*1\r\n", "expected '$', got '*'"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$x\r\n", "invalid bulk length"),
        ("*1\r\n$65\r\n", "invalid bulk length"),
        ("*1\r\n$9223372036854775807\r\n", "invalid bulk length"),
        ("SET \"a\r\n", "unbalanced quotes in request"),
        ("SET 'a'b\r\n", "unbalanced quotes in request"),
        (&many_digits, "too big mbulk count string"),
        (&long_line, "too big inline request"),
    ];
    for (bytes, expected) in cases {
        let (_, error) = decode(bytes.as_bytes(), bytes.len(), LIMITS);
        assert_eq!(error, Some(format!("Protocol error: {expected}")), "{bytes:?}");
    }
    let whole = encoded(&vec![vec![b'x'; 60]; 5]);
    assert_eq!(
        decode(&whole, 7, LIMITS).1.as_deref(),
        Some("Protocol error: too big request"),
        "five arguments within the limit of one, not within that of all"
    );
}

#[test]
fn strangers_get_little_room() {
    let limits = Limits::unauthenticated();
    let error = |bytes: &str| decode(bytes.as_bytes(), 1, limits).1.unwrap_or_default();
    assert_eq!(error("*11\r\n"), "Protocol error: unauthenticated multibulk length");
    assert_eq!(error("*1\r\n$16385\r\n"), "Protocol error: unauthenticated bulk length");
    assert_eq!(error("*1\r\n$16384\r\n"), "");
}

#[test]
fn the_good_requests_before_a_broken_one_are_kept() {
    let (requests, error) = decode(b"PING\r\n*1\r\nPING\r\n", 100, LIMITS);
    assert_eq!(requests.len(), 1);
    assert_eq!(error.as_deref(), Some("Protocol error: expected '$', got 'P'"));
}

/// Arbitrary bytes, and pieces of RESP that get further into the decoder.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just(b"*".to_vec()),
        Just(b"$".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"*2\r\n$3\r\nGET\r\n".to_vec()),
        Just(b"'".to_vec()),
        Just(b"\"\\x".to_vec()),
        any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        (0..100_u8).prop_map(|n| n.to_string().into_bytes()),
        vec(any::<u8>(), 0..20),
    ];
    vec(token, 0..40).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn whatever_arrives_is_decoded_the_same_in_any_pieces(bytes in hostile(), step in 1..9_usize) {
        prop_assert_eq!(decode(&bytes, step, LIMITS), decode(&bytes, bytes.len(), LIMITS));
    }

    #[test]
    fn nothing_arriving_is_held_beyond_its_own_bytes(bytes in hostile()) {
        let mut decoder = Decoder::new(LIMITS);
        let mut input = BytesMut::new();
        for byte in bytes {
            input.extend_from_slice(&[byte]);
            match decoder.next(&mut input) {
                Ok(Some(request)) => prop_assert!(request.len() <= LIMITS.args_max.max(INLINE_BYTES_MAX)),
                Ok(None) => {}
                Err(_) => return Ok(()),
            }
            prop_assert!(input.len() <= LIMITS.request_bytes_max.max(INLINE_BYTES_MAX) + 2);
            prop_assert!(decoder.args.capacity() <= 2 * LIMITS.args_max);
        }
    }

    #[test]
    fn arrays_are_what_the_crates_decoder_says(
        request in vec(vec(any::<u8>(), 0..64), 1..4),
        cut in 0..200_usize,
    ) {
        let bytes = encoded(&request);
        let part = &bytes[..cut.min(bytes.len())];
        let ours = decode(part, 5, LIMITS).0;
        let theirs = match oracle(part).expect("a prefix of an array") {
            None => vec![],
            Some((OwnedFrame::Array(frames), _)) => vec![
                frames
                    .into_iter()
                    .map(|frame| match frame {
                        OwnedFrame::BulkString(bytes) => Bytes::from(bytes),
                        other => panic!("only bulk strings were encoded, not {other:?}"),
                    })
                    .collect::<Request>(),
            ],
            Some((other, _)) => panic!("an array was encoded, not {other:?}"),
        };
        prop_assert_eq!(ours, theirs);
    }
}
