//! Tests every example in README and guides: settings parse, commands exist, and Rust compiles. `tests/e2e/guide.rs`
//! runs those that a server on loopback can answer.
//!
//! A mark after the language of a fenced block, invisible to readers, says what the block is:
//!
//! | | |
//! |---|---|
//! | `toml complete` | a settings file |
//! | `toml fragment` | sections for the settings file of the README |
//! | `toml contract` | a contract |
//! | `rust no_run` | a program: a doc test compiles it |
//! | `rust quoted` | lines of `tests/guide.rs`, which is compiled, and run |

#[path = "../tests/e2e/markdown.rs"]
mod markdown;

use std::path::Path;

use clap::Parser;
use policy::contract::spec::Spec;
use serde_json::Value;
use toml::Table;

use self::markdown::{Block, blocks, of};
use crate::Cli;
use crate::settings::Settings;

/// The blocks that no test runs or reads, and why.
const NEVER_RUN: &[(&str, &str)] = &[
    ("python", "a client's program: tests/clients/test_influxdb.py asks the same"),
    ("toml telegraf", "the settings of another program"),
    ("text", "what a command prints"),
    ("http", "headers: crates/serve/tests/http sends them"),
    ("xml", "the settings of another program"),
];

/// It needs root and the kernel's driver.
const ATTACH: &str = "by hand, and in tests/uml";

/// Commands of other programs, and the tests that run them.
const OTHERS: &[(&str, &str)] = &[
    ("make", "a target of the Makefile, looked up below"),
    ("cargo", "how this test was built"),
    ("dev/devices", "by hand: it needs root, and limits for the whole machine's devices"),
    ("curl", "tests/e2e/guide.rs"),
    ("redis-cli", "tests/e2e/guide.rs"),
    ("qemu-img", "tests/clients/test_nbd.py"),
    ("modprobe", ATTACH),
    ("mkfs.ext4", ATTACH),
    ("mount", ATTACH),
    ("umount", ATTACH),
];

/// The complete example of the README.
fn readme() -> Table {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let complete = |block: &Block| block.info == ["toml", "complete"];
    let block = of(&file).into_iter().find(complete).expect("the README has settings");
    block.text.parse().expect("TOML")
}

/// Merges `from` into `into`, key by key.
fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(toml::Value::Table(into)), toml::Value::Table(from)) => merge(into, from),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// The README's settings merged with a fragment; adds the volumes that the fragment's pool names.
fn completed(fragment: Table) -> String {
    let mut settings = readme();
    let says_pool = fragment.contains_key("pool");
    merge(&mut settings, fragment);
    let names = |table: &Table| {
        let pools = table["pool"].as_table().expect("pools");
        let members = pools.values().flat_map(|pool| pool["volumes"].as_array().expect("a list"));
        let members = members.map(|name| name.as_str().expect("a name").to_owned());
        members.filter(|name| !pools.contains_key(name)).collect::<Vec<_>>()
    };
    if says_pool {
        for name in names(&settings) {
            let volumes = settings["volume"].as_table_mut().expect("volumes");
            let path = format!("/mnt/{name}");
            let like = Table::from_iter(
                [("path", path), ("contract", "gp3".into())]
                    .map(|(key, value)| (key.to_owned(), toml::Value::String(value))),
            );
            volumes.entry(name).or_insert(toml::Value::Table(like));
        }
    }
    // Adds a store of time series for sections that need one.
    if settings.contains_key("mqtt") || settings.contains_key("http") {
        let series = "[volume.series]\npath = \"/mnt/series\"\ncontract = \"gp3\"\n\
                      [series]\nvolumes = [\"series\"]\n";
        merge(&mut settings, series.parse().expect("TOML"));
    }
    toml::to_string(&settings).expect("a table is TOML")
}

#[test]
fn every_block_says_what_it_is() {
    for Block { place, info, .. } in blocks() {
        let info: Vec<_> = info.iter().map(String::as_str).collect();
        let known = matches!(
            info[..],
            ["sh" | "json" | "sql"]
                | ["toml", "complete" | "fragment" | "contract"]
                | ["rust", "no_run" | "quoted"]
        );
        let listed = NEVER_RUN.iter().any(|(never, _)| *never == info.join(" "));
        assert!(known || listed, "{place}: ```{}: say what it is, see {}", info.join(" "), file!());
    }
}

#[test]
fn settings_can_be_read() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let (mut complete, mut contracts) = (0, 0);
    for Block { place, info, text } in blocks() {
        let file = dir.path().join("plimsoll.toml");
        let info: Vec<_> = info.iter().map(String::as_str).collect();
        let text = match info[..] {
            ["toml", "contract"] => {
                Spec::parse(&text).unwrap_or_else(|error| panic!("{place}: {error}"));
                // The file that `plimsoll probe` writes and a guide names.
                std::fs::write(dir.path().join("ebs-a.toml"), text).expect("room for a file");
                contracts += 1;
                continue;
            }
            ["toml", "complete"] => {
                complete += 1;
                text
            }
            ["toml", "fragment"] => completed(text.parse().expect("TOML")),
            _ => continue,
        };
        Settings::parse(&file, &text).unwrap_or_else(|mistakes| panic!("{place}: {mistakes}"));
    }
    assert!(complete >= 2 && contracts >= 1, "{complete} settings, {contracts} contracts");
}

/// The words of a command; single quotes enclose one word.
fn words(command: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (n, part) in command.split('\'').enumerate() {
        match n % 2 {
            0 => words.extend(part.split_whitespace()),
            _ => words.push(part),
        }
    }
    words
}

#[test]
fn commands_are_those_of_the_program() {
    let makefile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Makefile");
    let makefile = std::fs::read_to_string(makefile).expect("there is one");
    let mut ours = 0;
    for block in blocks().iter().filter(|block| block.language() == "sh") {
        for command in block.commands() {
            let words = words(&command);
            match words[0] {
                "plimsoll" | "target/release/plimsoll" => {
                    ours += 1;
                    if let Err(error) = Cli::try_parse_from(&words) {
                        panic!("{}: {command}: {error}", block.place);
                    }
                }
                "make" => {
                    let target = format!("\n{}:", words.get(1).expect("a target"));
                    assert!(makefile.contains(&target), "{}: {command}", block.place);
                }
                other => assert!(
                    OTHERS.iter().any(|(known, _)| *known == other),
                    "{}: {command}: who runs this? see {}",
                    block.place,
                    file!()
                ),
            }
        }
    }
    assert!(ours >= 15, "{ours} commands");
}

#[test]
fn examples_of_commands_in_their_help_are_right() {
    let mut command = <Cli as clap::CommandFactory>::command();
    command.build();
    let (mut waiting, mut examples) = (vec![command], 0);
    while let Some(command) = waiting.pop() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.strip_prefix("  plimsoll "));
        for line in lines {
            let line = line.split(" #").next().unwrap_or_default();
            let words = std::iter::once("plimsoll").chain(words(line));
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{line}: {error}");
            }
            examples += 1;
        }
        waiting.extend(command.get_subcommands().cloned());
    }
    assert!(examples >= 10, "{examples} examples");
}

#[test]
fn statements_and_documents_can_be_read() {
    for Block { place, info, text } in blocks() {
        match info.first().map_or("", String::as_str) {
            "json" => {
                let read: Result<Value, _> = serde_json::from_str(&text);
                read.unwrap_or_else(|error| panic!("{place}: {error}"));
            }
            "sql" => {
                for line in text.lines() {
                    // `|` separates alternatives.
                    let (first, rest) = line.split_once(' ').expect("a statement");
                    let statements: Vec<_> = match first {
                        "SHOW" => rest.split(" | ").map(|what| format!("SHOW {what}")).collect(),
                        _ => vec![line.to_owned()],
                    };
                    for statement in statements {
                        serve::http::influxql::parse(&statement, 0)
                            .unwrap_or_else(|error| panic!("{place}: {statement}: {error}"));
                    }
                }
            }
            _ => {}
        }
    }
}

/// The nonempty lines, without indentation and comments.
fn lines(text: &str) -> Vec<&str> {
    let code = text.lines().map(|line| line.split(" //").next().unwrap_or_default().trim());
    code.filter(|line| !line.is_empty()).collect()
}

#[test]
fn quoted_rust_is_compiled() {
    let compiled = include_str!("../../plimsoll/tests/guide.rs");
    let compiled = lines(compiled);
    let mut quoted = 0;
    for Block { place, info, text } in blocks() {
        if info != ["rust", "quoted"] {
            continue;
        }
        quoted += 1;
        let wanted = lines(&text);
        let found = compiled.windows(wanted.len()).any(|window| window == wanted);
        assert!(found, "{place}: these lines are not in tests/guide.rs");
    }
    assert!(quoted >= 2, "{quoted} blocks");
}
