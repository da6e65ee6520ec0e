//! Commands on strings.

use engine::keyspace::{Expiry, Touch};

use super::{Command, Data, Outcome, Run};
use crate::resp::reply::Reply;

/// The commands of this file.
pub(super) static ROWS: &[Command] = &[
    Command {
        name: "get",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: (1, 1, 1),
        group: "string",
        since: "1.0.0",
        summary: "Get the value of a key",
        run: Run::Data(Touch::Peek, get),
    },
    Command {
        name: "mset",
        arity: -3,
        flags: &["write", "denyoom"],
        keys: (1, -1, 2),
        group: "string",
        since: "1.0.1",
        summary: "Set multiple keys to multiple values",
        run: Run::Data(Touch::Replace, mset),
    },
    Command {
        name: "set",
        arity: -3,
        flags: &["write", "denyoom"],
        keys: (1, 1, 1),
        group: "string",
        since: "1.0.0",
        summary: "Set the string value of a key",
        run: Run::Data(Touch::Replace, set),
    },
];

/// `GET key`.
fn get(data: &mut Data<'_, '_>) -> Outcome {
    let value = data.transaction.string(&data.words[1])?;
    data.service.stats.looked_up(u64::from(value.is_some()), 1);
    Ok(value.into())
}

/// `MSET key value…`: all or none.
fn mset(data: &mut Data<'_, '_>) -> Outcome {
    let pairs = data.words[1..].chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(super::wrong_arity("mset").into());
    }
    for pair in pairs {
        data.transaction.put_string(&pair[0], pair[1].clone(), Expiry::Never)?;
    }
    Ok(Reply::OK)
}

/// `SET key value`.
fn set(data: &mut Data<'_, '_>) -> Outcome {
    let [_, key, value] = data.words else { return Err(super::syntax_error().into()) };
    data.transaction.put_string(key, value.clone(), Expiry::Never)?;
    Ok(Reply::OK)
}
