//! Untrusted input: all kept examples, and some nearly valid ones. `dev/fuzz` searches for more with the same entries;
//! its findings are kept under `testdata`.

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::{entry_influxql, entry_line};

/// Runs every kept input, and all its prefixes.
fn kept(of: &str, run: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(of);
    let mut inputs = 0;
    for file in fs::read_dir(dir).expect("the inputs are in the repository") {
        let path = file.expect("a file").path();
        println!("{}", path.display());
        let data = fs::read(&path).expect("a file");
        for end in 0..=data.len() {
            run(&data[..end]);
        }
        inputs += 1;
    }
    assert!(inputs > 0);
}

#[test]
fn kept_lines_are_read() {
    kept("line", entry_line::run);
}

#[test]
fn kept_statements_are_read() {
    kept("influxql", entry_influxql::run);
}

const WORDS: &[&str] = &[
    "select",
    "from",
    "where",
    "group by",
    "time",
    "(",
    ")",
    "1m",
    "now()",
    "-",
    "+",
    "*",
    "/",
    "=",
    "!=",
    "=~",
    "/a/",
    "and",
    "or",
    "m",
    "\"m\"",
    "'t'",
    "1",
    "1.5",
    ",",
    ";",
    "fill",
    "null",
    "limit",
    "order by time desc",
    "show",
    "tag values",
    "with key",
    "in",
    "delete",
    "drop series",
    "::tag",
    ".",
    "mean(",
    "on",
    "--",
    "/*",
    "*/",
    "\\",
    "'",
    "\"",
    "<",
    "é",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_words_are_a_statement_or_an_error(words in vec(prop::sample::select(WORDS), 0..20)) {
        entry_influxql::run(words.join(" ").as_bytes());
    }

    #[test]
    fn any_bytes_are_lines_or_errors(how: u8, bytes in vec(prop::sample::select(
        &b"m,t= \"\\\n1i.-e#\xc3\xbc\ru"[..]), 0..400)) {
        entry_line::run(&[&[how], &bytes[..]].concat());
    }
}
