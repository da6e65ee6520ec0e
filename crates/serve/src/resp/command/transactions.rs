//! `MULTI` and what goes with it. A session does these itself: they are about its other commands.

use engine::keyspace::Watched;

use super::{Command, Found, NO_KEYS, Run};
use crate::resp::reply::Reply;
use crate::resp::wire::Request;

/// What such a command does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::resp) enum Control {
    /// `MULTI`: commands are kept from now on.
    Multi,
    /// `EXEC`: all that were kept are done, together.
    Exec,
    /// `DISCARD`: none of them is.
    Discard,
    /// `WATCH key…`: the next `EXEC` does nothing if one of them has changed.
    Watch,
    /// `UNWATCH`.
    Unwatch,
}

/// Commands that a client keeps for `EXEC`.
#[derive(Default)]
pub(in crate::resp) struct Queue {
    /// The commands.
    pub(in crate::resp) kept: Vec<(Request, Found)>,
    /// Their bytes.
    bytes: usize,
    /// Whether `EXEC` does none of them: one was refused, or the client's rights changed.
    pub(in crate::resp) broken: bool,
}

/// What a client has between `WATCH`, `MULTI` and `EXEC`.
#[derive(Default)]
pub(in crate::resp) struct Pending {
    /// What is kept, between `MULTI` and `EXEC`.
    pub(in crate::resp) queue: Option<Queue>,
    /// What has to be unchanged at `EXEC`.
    pub(in crate::resp) watched: Vec<Watched>,
}

impl Queue {
    /// Keeps a command, unless they get too long together.
    pub(in crate::resp) fn keep(&mut self, request: Request, found: Found, max: usize) -> Reply {
        // Some bytes for each word itself, or very many empty ones would cost nothing.
        const WORD_BYTES: usize = 32;
        self.bytes += request.iter().map(|word| word.len() + WORD_BYTES).sum::<usize>();
        if self.bytes > max {
            self.discard();
            return Reply::error(format_args!(
                "the commands of a transaction are too long together: {max} bytes at most \
                 (request_max)"
            ));
        }
        if !self.broken {
            self.kept.push((request, found));
        }
        Reply::Status("QUEUED")
    }

    /// Forgets the commands: `EXEC` does none of them, nor of those that come.
    pub(in crate::resp) fn discard(&mut self) {
        self.broken = true;
        self.kept.clear();
    }
}

const FLAGS: &[&str] = &["noscript", "loading", "stale", "fast", "allow_busy"];

/// The commands of this file.
pub(super) static ROWS: &[Command] = &[
    Command {
        name: "discard",
        arity: 1,
        flags: FLAGS,
        keys: NO_KEYS,
        group: "transactions",
        since: "2.0.0",
        summary: "Discard all commands issued after MULTI",
        run: Run::Control(Control::Discard),
    },
    Command {
        name: "exec",
        arity: 1,
        flags: &["noscript", "loading", "stale", "skip_slowlog"],
        keys: NO_KEYS,
        group: "transactions",
        since: "1.2.0",
        summary: "Execute all commands issued after MULTI, together or not at all",
        run: Run::Control(Control::Exec),
    },
    Command {
        name: "multi",
        arity: 1,
        flags: FLAGS,
        keys: NO_KEYS,
        group: "transactions",
        since: "1.2.0",
        summary: "Mark the start of a transaction block",
        run: Run::Control(Control::Multi),
    },
    Command {
        name: "unwatch",
        arity: 1,
        flags: FLAGS,
        keys: NO_KEYS,
        group: "transactions",
        since: "2.2.0",
        summary: "Forget about all watched keys",
        run: Run::Control(Control::Unwatch),
    },
    Command {
        name: "watch",
        arity: -2,
        flags: FLAGS,
        keys: (1, -1, 1),
        group: "transactions",
        since: "2.2.0",
        summary: "Watch the given keys to determine execution of the MULTI/EXEC block",
        run: Run::Control(Control::Watch),
    },
];
