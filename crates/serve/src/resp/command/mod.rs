//! Every command the door knows, as a table; the files beside it hold what they do.

mod catalogue;
mod connection;
mod keys;
mod server;

use bytes::Bytes;
use engine::kv::Change;

use super::reply::Reply;
use super::service::Service;
use super::session::Client;
pub(super) use connection::REDIS_VERSION;

/// One row of the table.
pub(super) struct Command {
    /// The name, in lower case.
    pub(super) name: &'static str,
    /// How many words a call has, its name among them; negative for "at least".
    arity: i32,
    /// What it does to the store, in Redis' words for clients that route by them.
    flags: &'static [&'static str],
    /// Which words are keys: first, last (negative: from the end) and step; zeros for none.
    keys: (i64, i64, i64),
    /// Redis' group and the version that brought it in.
    group: &'static str,
    since: &'static str,
    /// What it does, in a sentence.
    summary: &'static str,
    /// How it is done.
    run: Run,
}

/// How a command is done. Neighbours that only put, or only get, are done together.
#[derive(Clone, Copy)]
pub(super) enum Run {
    /// Changes one key and answers `OK`, whatever was there.
    Put(fn(&[Bytes]) -> Result<Change, Reply>),
    /// Answers with the value of its one key.
    Get,
    /// Anything else.
    Call(fn(&mut Call<'_>) -> Reply),
    /// Hands its second word on.
    Subcommands(&'static [Command]),
}

/// A command being executed.
pub(super) struct Call<'a> {
    /// All its words, the name first; as many as the table asks for.
    pub(super) words: &'a [Bytes],
    /// Whose call it is.
    pub(super) client: &'a mut Client,
    /// What all clients share.
    pub(super) service: &'a Service,
}

/// What a request asks for, once it was found in the table.
pub(super) struct Found {
    /// The row.
    pub(super) command: &'static Command,
    /// Its position, which statistics go by.
    pub(super) index: usize,
}

impl Command {
    /// How it is done.
    pub(super) const fn run(&self) -> Run {
        self.run
    }

    /// Whether a client may call it before it said who it is.
    pub(super) fn needs_no_auth(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    fn takes(&self, words: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { words >= wanted } else { words == wanted }
    }
}

/// Finds the command that `words` call, and checks that they are as many as it takes.
///
/// # Errors
/// Redis' own error for a command that is unknown or has too few or too many words.
pub(super) fn find(words: &[Bytes]) -> Result<Found, Reply> {
    let (name, args) = words.split_first().expect("a request has at least one word");
    let lower = name.to_ascii_lowercase();
    let Ok(index) = TABLE.binary_search_by(|row| row.name.as_bytes().cmp(&lower)) else {
        return Err(unknown(name, args));
    };
    let command = &TABLE[index];
    if !command.takes(words.len()) {
        return Err(wrong_arity(command.name));
    }
    Ok(Found { command, index })
}

/// The names of the table, in its order.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|row| row.name)
}

/// Executes a command that is neither put nor get.
pub(super) fn call(command: &'static Command, call: &mut Call<'_>) -> Reply {
    match command.run {
        Run::Call(run) => run(call),
        Run::Subcommands(rows) => {
            let second = &call.words[1];
            match rows.iter().find(|row| second.eq_ignore_ascii_case(row.name.as_bytes())) {
                Some(row) if !row.takes(call.words.len()) => {
                    wrong_arity(&format!("{}|{}", command.name, row.name))
                }
                Some(row) => self::call(row, call),
                None => Reply::error(format_args!(
                    "unknown subcommand '{}'. Try {} HELP.",
                    shown(second),
                    command.name.to_ascii_uppercase(),
                )),
            }
        }
        Run::Put(_) | Run::Get => unreachable!("a session does these in runs"),
    }
}

fn wrong_arity(name: &str) -> Reply {
    Reply::error(format_args!("wrong number of arguments for '{name}' command"))
}

/// Redis' answer to a command it does not know, which quotes the start of it.
fn unknown(name: &[u8], args: &[Bytes]) -> Reply {
    let mut quoted = String::new();
    for arg in args {
        let Some(room) = SHOWN_BYTES_MAX.checked_sub(quoted.len()).filter(|&room| room > 0) else {
            break;
        };
        quoted.push_str(&format!("'{}' ", shown(&arg[..arg.len().min(room)])));
    }
    let name = shown(name);
    Reply::error(format_args!("unknown command '{name}', with args beginning with: {quoted}"))
}

/// The most bytes of a client's words that an error quotes.
const SHOWN_BYTES_MAX: usize = 128;

fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(&word[..word.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

/// The number a word stands for.
fn integer(word: &[u8]) -> Result<i64, Reply> {
    std::str::from_utf8(word)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Reply::error("value is not an integer or out of range"))
}

/// Shorthand for rows without keys.
const NO_KEYS: (i64, i64, i64) = (0, 0, 0);

/// Every command, by name: it is searched by halves.
static TABLE: &[Command] = &[
    Command {
        name: "auth",
        arity: -2,
        flags: &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        keys: NO_KEYS,
        group: "connection",
        since: "1.0.0",
        summary: "Authenticate to the server",
        run: Run::Call(connection::auth),
    },
    Command {
        name: "client",
        arity: -2,
        flags: &[],
        keys: NO_KEYS,
        group: "connection",
        since: "2.4.0",
        summary: "A container for client connection commands",
        run: Run::Subcommands(connection::CLIENT),
    },
    Command {
        name: "command",
        arity: -1,
        flags: &["loading", "stale"],
        keys: NO_KEYS,
        group: "server",
        since: "2.8.13",
        summary: "Get array of command details",
        run: Run::Call(catalogue::command),
    },
    Command {
        name: "config",
        arity: -2,
        flags: &[],
        keys: NO_KEYS,
        group: "server",
        since: "2.0.0",
        summary: "A container for server configuration commands",
        run: Run::Subcommands(server::CONFIG),
    },
    Command {
        name: "dbsize",
        arity: 1,
        flags: &["readonly", "fast"],
        keys: NO_KEYS,
        group: "server",
        since: "1.0.0",
        summary: "Return the number of keys: counted while they are few, else estimated",
        run: Run::Call(server::dbsize),
    },
    Command {
        name: "del",
        arity: -2,
        flags: &["write"],
        keys: (1, -1, 1),
        group: "generic",
        since: "1.0.0",
        summary: "Delete a key",
        run: Run::Call(keys::del),
    },
    Command {
        name: "echo",
        arity: 2,
        flags: &["loading", "stale", "fast"],
        keys: NO_KEYS,
        group: "connection",
        since: "1.0.0",
        summary: "Echo the given string",
        run: Run::Call(connection::echo),
    },
    Command {
        name: "exists",
        arity: -2,
        flags: &["readonly", "fast"],
        keys: (1, -1, 1),
        group: "generic",
        since: "1.0.0",
        summary: "Determine if a key exists",
        run: Run::Call(keys::exists),
    },
    Command {
        name: "get",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: (1, 1, 1),
        group: "string",
        since: "1.0.0",
        summary: "Get the value of a key",
        run: Run::Get,
    },
    Command {
        name: "hello",
        arity: -1,
        flags: &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        keys: NO_KEYS,
        group: "connection",
        since: "6.0.0",
        summary: "Handshake: choose the protocol, authenticate, name the connection",
        run: Run::Call(connection::hello),
    },
    Command {
        name: "info",
        arity: -1,
        flags: &["loading", "stale"],
        keys: NO_KEYS,
        group: "server",
        since: "1.0.0",
        summary: "Get information and statistics about the server",
        run: Run::Call(server::info),
    },
    Command {
        name: "ping",
        arity: -1,
        flags: &["fast"],
        keys: NO_KEYS,
        group: "connection",
        since: "1.0.0",
        summary: "Ping the server",
        run: Run::Call(connection::ping),
    },
    Command {
        name: "quit",
        arity: -1,
        flags: &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        keys: NO_KEYS,
        group: "connection",
        since: "1.0.0",
        summary: "Close the connection",
        run: Run::Call(connection::quit),
    },
    Command {
        name: "select",
        arity: 2,
        flags: &["loading", "stale", "fast"],
        keys: NO_KEYS,
        group: "connection",
        since: "1.0.0",
        summary: "Change the selected database: there is only number 0",
        run: Run::Call(connection::select),
    },
    Command {
        name: "set",
        arity: -3,
        flags: &["write", "denyoom"],
        keys: (1, 1, 1),
        group: "string",
        since: "1.0.0",
        summary: "Set the string value of a key",
        run: Run::Put(keys::set),
    },
    Command {
        name: "unlink",
        arity: -2,
        flags: &["write", "fast"],
        keys: (1, -1, 1),
        group: "generic",
        since: "4.0.0",
        summary: "Delete a key; space is reclaimed later, as it always is",
        run: Run::Call(keys::del),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_by_name() {
        assert!(TABLE.is_sorted_by_key(|row| row.name));
    }

    #[test]
    fn a_command_is_found_in_any_case() {
        let found = find(&[Bytes::from_static(b"GeT"), Bytes::from_static(b"k")]);
        assert!(matches!(found, Ok(Found { command: Command { name: "get", .. }, .. })));
    }
}
