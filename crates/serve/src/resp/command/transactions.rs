//! `MULTI` and related commands. The session executes these itself, since they act on its other commands.

use super::row::{Command, Control, NO_KEYS, Run};

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
