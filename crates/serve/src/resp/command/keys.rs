//! Commands on keys, whatever they hold.

use engine::keyspace::Touch;

use super::{Command, Data, Outcome, Run};
use crate::resp::reply::Reply;

/// The commands of this file.
pub(super) static ROWS: &[Command] = &[
    Command {
        name: "del",
        arity: -2,
        flags: &["write"],
        keys: (1, -1, 1),
        group: "generic",
        since: "1.0.0",
        summary: "Delete a key",
        run: Run::Data(Touch::Write, del),
    },
    Command {
        name: "exists",
        arity: -2,
        flags: &["readonly", "fast"],
        keys: (1, -1, 1),
        group: "generic",
        since: "1.0.0",
        summary: "Determine if a key exists",
        run: Run::Data(Touch::Peek, exists),
    },
    Command {
        name: "flushdb",
        arity: -1,
        flags: &["write"],
        keys: super::NO_KEYS,
        group: "server",
        since: "1.0.0",
        summary: "Remove all keys; space is reclaimed later, as it always is",
        run: Run::Everything(flushdb),
    },
    Command {
        name: "unlink",
        arity: -2,
        flags: &["write", "fast"],
        keys: (1, -1, 1),
        group: "generic",
        since: "4.0.0",
        summary: "Delete a key; space is reclaimed later, as it always is",
        run: Run::Data(Touch::Write, del),
    },
];

/// `DEL key…`, `UNLINK key…`: how many there were.
fn del(data: &mut Data<'_, '_>) -> Outcome {
    let mut deleted = 0;
    for key in &data.words[1..] {
        deleted += u64::from(data.transaction.delete(key)?);
    }
    Ok(Reply::count(deleted))
}

/// `EXISTS key…`: how many there are, a key named twice counting twice.
fn exists(data: &mut Data<'_, '_>) -> Outcome {
    let mut found = 0;
    for key in &data.words[1..] {
        found += u64::from(data.transaction.kind(key)?.is_some());
    }
    data.service.stats.looked_up(found, data.words.len() as u64 - 1);
    Ok(Reply::count(found))
}

/// `FLUSHDB [ASYNC | SYNC]`.
fn flushdb(data: &mut Data<'_, '_>) -> Outcome {
    match &data.words[1..] {
        [] => {}
        [how] if how.eq_ignore_ascii_case(b"async") || how.eq_ignore_ascii_case(b"sync") => {}
        _ => return Err(super::syntax_error().into()),
    }
    data.transaction.clear();
    Ok(Reply::OK)
}
