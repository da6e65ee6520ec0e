//! Untrusted input: all kept examples, and some random ones. `dev/fuzz` searches for more with the same entry; its
//! findings are kept under `testdata/input`.

mod entry;

use std::fmt;
use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn kept_inputs_are_answered() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/input");
    let mut inputs = 0;
    for file in fs::read_dir(dir).expect("the inputs are in the repository") {
        let path = file.expect("a file").path();
        let data = fs::read(&path).expect("a file");
        println!("{}", path.display());
        // Every length of pieces, with and without a password; then every prefix.
        for how in 0..32 {
            entry::run(&[&[how], &data[..]].concat());
        }
        for end in 0..data.len() {
            entry::run(&[b"\0", &data[..end]].concat());
        }
        inputs += 1;
    }
    assert!(inputs > 0);
}

/// Words that make nearly valid commands.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "set",
        "get",
        "mset",
        "mget",
        "del",
        "incrby",
        "append",
        "setrange",
        "getrange",
        "expire",
        "persist",
        "ttl",
        "hset",
        "hgetall",
        "hincrby",
        "hdel",
        "zadd",
        "zrange",
        "zrangebyscore",
        "zincrby",
        "zrem",
        "scan",
        "hscan",
        "keys",
        "type",
        "multi",
        "exec",
        "discard",
        "watch",
        "hello",
        "auth",
        "client",
        "list",
        "kill",
        "config",
        "command",
        "info",
        "reset",
        "select",
        "k",
        "h",
        "z",
        "a",
        "p",
        "3",
        "0",
        "-1",
        "nx",
        "ex",
        "10",
        "(1",
        "+inf",
        "withscores",
        "*",
        "9223372036854775807",
        "1e308",
        "nan",
        "match",
        "count",
        "byscore",
        "limit",
        "rev",
    ]);
    prop_oneof![8 => known.prop_map(|word| word.as_bytes().to_vec()), 1 => vec(any::<u8>(), 0..9)]
}

/// A request as an array, as an inline command, or malformed.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let framed = vec(word(), 1..6).prop_map(|words| {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(&word);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    });
    let typed = vec(word(), 1..6).prop_map(|words| [words.join(&b' '), b"\r\n".to_vec()].concat());
    let noise = prop_oneof![
        vec(any::<u8>(), 0..20),
        Just(b"*3\r\n$3\r\nset\r\n$1\r\nk\r\n$2049\r\n".to_vec()),
        Just(b"*1048576\r\n".to_vec()),
        Just(b"*1048577\r\n".to_vec()),
        Just(b"$-1\r\n".to_vec()),
        Just(vec![b'x'; 70 << 10]),
    ];
    prop_oneof![20 => framed, 20 => typed, 1 => noise]
}

/// Bytes that print as a byte string.
#[derive(Clone)]
struct Input(Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_input_is_answered(
        how in any::<u8>(),
        input in vec(request(), 0..30).prop_map(|requests| Input(requests.concat())),
    ) {
        entry::run(&[vec![how], input.0].concat());
    }
}
