//! `MULTI` and related commands. The session executes these itself, since they act on its other commands.

use engine::keyspace::Watched;

use super::row::{Command, Control, NO_KEYS, Run};
use super::table::Found;
use crate::resp::reply::Reply;
use crate::resp::wire::Request;

/// Commands queued for `EXEC`.
#[derive(Default)]
pub(in crate::resp) struct Queue {
    /// The commands.
    pub(in crate::resp) kept: Vec<(Request, Found)>,
    /// Their size in bytes.
    bytes: usize,
    /// Whether `EXEC` executes none of them: one was refused, or the client's rights changed.
    pub(in crate::resp) broken: bool,
}

/// The state of a client between `WATCH`, `MULTI` and `EXEC`.
#[derive(Default)]
pub(in crate::resp) struct Pending {
    /// The queue, between `MULTI` and `EXEC`.
    pub(in crate::resp) queue: Option<Queue>,
    /// The keys that must be unchanged at `EXEC`.
    pub(in crate::resp) watched: Vec<Watched>,
}

impl Queue {
    /// Queues a command, unless the queue gets too long.
    pub(in crate::resp) fn keep(&mut self, request: Request, found: Found, max: usize) -> Reply {
        // Counts some bytes for each word itself: many empty words are not free.
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

    /// Drops the commands: `EXEC` executes neither these nor later ones.
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
