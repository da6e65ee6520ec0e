//! `COMMAND`: the table of commands, for clients.

use bytes::Bytes;

use super::row::{Call, Command, NO_KEYS, Run, Table};
use super::words::{shown, wrong_arity};
use crate::resp::glob::matches_any_case;
use crate::resp::reply::Reply;

/// `COMMAND`.
pub(super) static ROWS: &[Command] = &[Command {
    name: "command",
    arity: -1,
    flags: &["loading", "stale"],
    keys: NO_KEYS,
    group: "server",
    since: "2.8.13",
    summary: "Get array of command details",
    run: Run::Call(command),
}];

/// `COMMAND [COUNT | DOCS [name…] | INFO [name…] | LIST [FILTERBY PATTERN pattern]]`.
///
/// The only container command that also works without a subcommand.
fn command(call: &mut Call<'_>) -> Reply {
    let table = call.table;
    let [_, subcommand, args @ ..] = call.words else {
        return Reply::Array(table.iter().copied().map(details).collect());
    };
    let asked = || args.iter().map(|name| row(table, name));
    match &subcommand.to_ascii_lowercase()[..] {
        b"count" if args.is_empty() => Reply::count(table.len() as u64),
        b"count" => wrong_arity("command|count"),
        b"docs" if args.is_empty() => Reply::Map(table.iter().copied().map(documented).collect()),
        b"docs" => Reply::Map(asked().flatten().map(documented).collect()),
        b"info" if args.is_empty() => Reply::Array(table.iter().copied().map(details).collect()),
        b"info" => Reply::Array(asked().map(|row| row.map_or(Reply::Null, details)).collect()),
        b"list" => list(table, args),
        b"getkeys" => get_keys(table, args),
        b"help" if args.is_empty() => help_lines("COMMAND", SUBCOMMANDS.iter().copied()),
        _ => Reply::error(format_args!(
            "unknown subcommand '{}'. Try COMMAND HELP.",
            shown(subcommand)
        )),
    }
}

/// The subcommands of `COMMAND`, with help texts.
const SUBCOMMANDS: &[(&str, &str)] = &[
    ("count", "Return the number of commands"),
    ("docs", "Document commands: [name...]"),
    ("getkeys", "Return the keys of a command: command [arg...]"),
    ("help", "Print this help"),
    ("info", "Return details of commands: [name...]"),
    ("list", "Return the names of commands: [FILTERBY PATTERN pattern]"),
];

/// The reply to `HELP` of a container command.
pub(super) fn help(container: &str, rows: &'static [Command]) -> Reply {
    help_lines(container, rows.iter().map(|row| (row.name, row.summary)))
}

fn help_lines<'a>(container: &str, rows: impl Iterator<Item = (&'a str, &'a str)>) -> Reply {
    let heading = format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    let lines =
        rows.flat_map(|(name, summary)| [name.to_ascii_uppercase(), format!("    {summary}")]);
    let lines = std::iter::once(heading).chain(lines);
    Reply::Array(lines.map(|line| Reply::Bulk(line.into())).collect())
}

/// `COMMAND GETKEYS command arg…`.
fn get_keys(table: &Table, words: &[Bytes]) -> Reply {
    let [name, _, ..] = words else {
        return wrong_arity("command|getkeys");
    };
    let Some(row) = row(table, name) else { return Reply::error("Invalid command specified") };
    if !row.takes(words.len()) {
        return Reply::error("Invalid number of arguments specified for command");
    }
    let keys: Vec<_> = row.key_words(words).cloned().map(Reply::Bulk).collect();
    if keys.is_empty() {
        return Reply::error("The command has no key arguments");
    }
    Reply::Array(keys)
}

fn row(table: &Table, name: &[u8]) -> Option<&'static Command> {
    table.iter().copied().find(|row| name.eq_ignore_ascii_case(row.name.as_bytes()))
}

fn list(table: &Table, args: &[Bytes]) -> Reply {
    let pattern: &[u8] = match args {
        [] => b"*",
        [filter, kind, pattern]
            if filter.eq_ignore_ascii_case(b"filterby")
                && kind.eq_ignore_ascii_case(b"pattern") =>
        {
            pattern
        }
        _ => return Reply::error("syntax error"),
    };
    let names =
        table.iter().map(|row| row.name).filter(|name| matches_any_case(pattern, name.as_bytes()));
    Reply::Array(names.map(Reply::word).collect())
}

/// The name of a row for clients: `get`, or `config|get` for a subcommand of `config`.
fn full_name(row: &Command, above: Option<&Command>) -> Reply {
    match above {
        None => Reply::word(row.name),
        Some(above) => Reply::Bulk(format!("{}|{}", above.name, row.name).into()),
    }
}

/// A row of `COMMAND`. Hints and key specifications are empty: clients route by the fields before them.
fn details(row: &Command) -> Reply {
    details_below(row, None)
}

fn details_below(row: &Command, above: Option<&Command>) -> Reply {
    let below = |row| subcommands(row).iter().map(|sub| details_below(sub, Some(row))).collect();
    let (first, last, step) = row.keys;
    let flags = row.flags.iter().map(|flag| Reply::Status(flag)).collect();
    Reply::Array(vec![
        full_name(row, above),
        Reply::Integer(row.arity.into()),
        Reply::Set(flags),
        Reply::Integer(first),
        Reply::Integer(last),
        Reply::Integer(step),
        Reply::Set(categories(row).into_iter().map(Reply::Status).collect()),
        Reply::Set(Vec::new()),
        Reply::Set(Vec::new()),
        Reply::Array(below(row)),
    ])
}

/// Redis' ACL categories, as far as they follow from the rest of the row.
fn categories(row: &Command) -> Vec<&'static str> {
    let is = |flag| row.flags.contains(&flag);
    let group = match row.group {
        "connection" => Some("@connection"),
        "generic" => Some("@keyspace"),
        "hash" => Some("@hash"),
        "sorted-set" => Some("@sortedset"),
        "string" => Some("@string"),
        "transactions" => Some("@transaction"),
        _ => None,
    };
    let all = [
        is("readonly").then_some("@read"),
        is("write").then_some("@write"),
        is("admin").then_some("@admin"),
        is("admin").then_some("@dangerous"),
        group,
        Some(if is("fast") { "@fast" } else { "@slow" }),
    ];
    all.into_iter().flatten().collect()
}

/// A row of `COMMAND DOCS`.
fn documented(row: &Command) -> (Reply, Reply) {
    documented_below(row, None)
}

fn documented_below(row: &Command, above: Option<&Command>) -> (Reply, Reply) {
    let mut docs = vec![
        (Reply::word("summary"), Reply::word(row.summary)),
        (Reply::word("since"), Reply::word(row.since)),
        (Reply::word("group"), Reply::word(row.group)),
    ];
    let below = subcommands(row);
    if !below.is_empty() {
        let below = below.iter().map(|sub| documented_below(sub, Some(row))).collect();
        docs.push((Reply::word("subcommands"), Reply::Map(below)));
    }
    (full_name(row, above), Reply::Map(docs))
}

fn subcommands(row: &Command) -> &'static [Command] {
    match row.run {
        Run::Subcommands(rows) => rows,
        _ => &[],
    }
}
