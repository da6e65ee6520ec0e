//! The table of all commands; the modules below implement them.

mod catalogue;
mod client;
mod connection;
mod hashes;
mod keys;
mod scan;
mod server;
mod sorted_sets;
mod strings;
mod transactions;

use std::sync::LazyLock;

use bytes::Bytes;
use engine::keyspace::{self, Touch, Touches, Transaction};
use engine::kv;

use super::reply::{Protocol, Reply, ReplyLimit};
use super::service::Service;
use super::session::Client;
use crate::May;
pub(super) use transactions::{Control, Pending, Queue};

/// One row of the table.
pub(super) struct Command {
    /// The name, in lower case.
    pub(super) name: &'static str,
    /// The number of words of a call, including the name; negative for "at least".
    arity: i32,
    /// Redis' flags, for clients that route by them.
    flags: &'static [&'static str],
    /// Which words are keys: first, last (negative: from the end) and step; zeros for none.
    keys: (i64, i64, i64),
    /// Redis' group, and the version that introduced it.
    group: &'static str,
    since: &'static str,
    /// A summary in one sentence.
    summary: &'static str,
    /// Its implementation.
    run: Run,
}

/// The implementation of a command.
#[derive(Clone, Copy)]
pub(super) enum Run {
    /// Reads or changes its keys, in a transaction shared with its neighbours in the pipeline: their keys are fetched
    /// together, and one log record holds their changes.
    Data(Touch, fn(&mut Data<'_, '_>) -> Outcome),
    /// Changes keys that its words do not name.
    Everything(fn(&mut Data<'_, '_>) -> Outcome),
    /// Begins or ends a transaction of the client.
    Control(Control),
    /// Reads or changes state other than keys.
    Call(fn(&mut Call<'_>) -> Reply),
    /// Dispatches on its second word.
    Subcommands(&'static [Command]),
}

/// A command on keys during execution.
pub(super) struct Data<'a, 'k> {
    /// All its words, the name first; their number fits the table.
    pub(super) words: &'a [Bytes],
    /// The client's protocol.
    pub(super) protocol: Protocol,
    /// Locks the keys of the command, and applies its changes.
    pub(super) transaction: &'a mut Transaction<'k>,
    /// The state that all clients share.
    pub(super) service: &'a Service,
}

/// The result of a command on keys.
pub(super) type Outcome = Result<Reply, Failure>;

/// Why a command on keys failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The command is wrong, and changed nothing: this is its reply.
    Refused(Reply),
    /// The store failed: nothing of the transaction may be applied.
    Failed(kv::Error),
    /// Its reply is too long: nothing of the transaction may be applied.
    TooLong(ReplyLimit),
}

impl From<Reply> for Failure {
    fn from(reply: Reply) -> Self {
        Self::Refused(reply)
    }
}

impl From<keyspace::Error> for Failure {
    fn from(error: keyspace::Error) -> Self {
        match error {
            keyspace::Error::WrongKind => Self::Refused(Reply::coded(
                "WRONGTYPE",
                "Operation against a key holding the wrong kind of value",
            )),
            keyspace::Error::Store(error) => Self::Failed(error),
            keyspace::Error::TooLong(_) => Self::TooLong(ReplyLimit::Read),
            keyspace::Error::TooMany(_) => Self::TooLong(ReplyLimit::Elements),
            other => Self::Failed(kv::Error::Other(other.to_string())),
        }
    }
}

/// A command that is not about keys, during execution.
pub(super) struct Call<'a> {
    /// All its words, the name first; their number fits the table.
    pub(super) words: &'a [Bytes],
    /// The calling client.
    pub(super) client: &'a mut Client,
    /// The state that all clients share.
    pub(super) service: &'a Service,
}

/// The command of a request, found in the table.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// The row.
    pub(super) command: &'static Command,
    /// Its position, for statistics.
    pub(super) index: usize,
}

/// The flags of a fast command that reads.
const READS_FAST: &[&str] = &["readonly", "fast"];
/// The flags of a command that reads.
const READS: &[&str] = &["readonly"];
/// The flags of a fast command that writes.
const WRITES_FAST: &[&str] = &["write", "denyoom", "fast"];
/// The flags of a command that writes.
const WRITES: &[&str] = &["write", "denyoom"];
/// The flags of a command that only removes.
const REMOVES: &[&str] = &["write", "fast"];
/// The first word after the name is the key.
const FIRST: (i64, i64, i64) = (1, 1, 1);
/// All words after the name are keys.
const ALL: (i64, i64, i64) = (1, -1, 1);

impl Command {
    /// The row of a command on keys, without its documentation.
    const fn data(
        name: &'static str,
        arity: i32,
        flags: &'static [&'static str],
        keys: (i64, i64, i64),
        touch: Touch,
        run: fn(&mut Data<'_, '_>) -> Outcome,
    ) -> Self {
        let run = Run::Data(touch, run);
        Self { name, arity, flags, keys, group: "", since: "", summary: "", run }
    }

    /// The row of a command that is not about keys, without its documentation.
    const fn call(
        name: &'static str,
        arity: i32,
        flags: &'static [&'static str],
        run: fn(&mut Call<'_>) -> Reply,
    ) -> Self {
        let run = Run::Call(run);
        Self { name, arity, flags, keys: NO_KEYS, group: "", since: "", summary: "", run }
    }

    /// The row with its documentation.
    const fn about(
        mut self,
        group: &'static str,
        since: &'static str,
        summary: &'static str,
    ) -> Self {
        self.group = group;
        self.since = since;
        self.summary = summary;
        self
    }

    /// Its implementation.
    pub(super) const fn run(&self) -> Run {
        self.run
    }

    /// Whether a client may call it before it authenticates.
    pub(super) fn needs_no_auth(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    /// Whether a client with the rights `may` may call it with these words.
    pub(super) fn is_for(&self, may: May, words: &[Bytes]) -> bool {
        if self.flags.contains(&"write") {
            return may.writes();
        }
        if self.flags.contains(&"readonly") {
            return may.reads();
        }
        // Only a client with all rights may end other connections.
        let kills = self.name == "client" && words.get(1).is_some_and(|word| is(word, "kill"));
        may == May::All || !kills
    }

    /// Whether it runs at once after `MULTI`, instead of waiting for `EXEC`.
    pub(super) fn is_done_at_once(&self) -> bool {
        matches!(self.name, "quit" | "reset")
    }

    /// The number of keys in a call.
    pub(super) fn keys_of(&self, words: &[Bytes]) -> usize {
        self.key_words(words).count()
    }

    /// Adds the keys that a call touches.
    pub(super) fn touch(&self, words: &[Bytes], touches: &mut Touches) {
        match self.run {
            Run::Data(touch, _) => {
                self.key_words(words).for_each(|key| touches.add(key.clone(), touch));
            }
            Run::Everything(_) => touches.add_everything(),
            Run::Control(_) | Run::Call(_) | Run::Subcommands(_) => {}
        }
    }

    /// The keys among the words of a call.
    fn key_words<'w>(&self, words: &'w [Bytes]) -> impl Iterator<Item = &'w Bytes> {
        let (first, last, step) = self.keys;
        let len = words.len() as i64;
        let last = if last < 0 { len + last } else { last };
        let keys = (first..=last).step_by(usize::try_from(step).unwrap_or(0).max(1));
        keys.filter(move |&at| 0 < at && at < len).map(move |at| &words[at as usize])
    }

    fn takes(&self, words: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { words >= wanted } else { words == wanted }
    }
}

/// Finds the command that `words` call, and checks the number of words.
///
/// # Errors
/// Redis' own error for an unknown command, or too few or too many words.
pub(super) fn find(words: &[Bytes]) -> Result<Found, Reply> {
    let (name, args) = words.split_first().expect("a request has at least one word");
    let lower = name.to_ascii_lowercase();
    let Ok(index) = TABLE.binary_search_by(|row| row.name.as_bytes().cmp(&lower)) else {
        return Err(unknown(name, args));
    };
    let command = TABLE[index];
    if !command.takes(words.len()) {
        return Err(wrong_arity(command.name));
    }
    Ok(Found { command, index })
}

/// The names of the table, in its order.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|row| row.name)
}

/// Executes a command that is not about keys.
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
        Run::Data(..) | Run::Everything(_) | Run::Control(_) => {
            unreachable!("a session does these itself")
        }
    }
}

fn wrong_arity(name: &str) -> Reply {
    Reply::error(format_args!("wrong number of arguments for '{name}' command"))
}

fn syntax_error() -> Reply {
    Reply::error("syntax error")
}

/// Redis' reply to an unknown command, which quotes its start.
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

/// The integer in a word.
fn integer(word: &[u8]) -> Result<i64, Reply> {
    std::str::from_utf8(word)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Reply::error("value is not an integer or out of range"))
}

/// The float in a word, including infinities.
fn double(word: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// The sum of two integers; overflow is an error.
fn sum(one: i64, other: i64) -> Result<i64, Reply> {
    let overflows = || Reply::error("increment or decrement would overflow");
    one.checked_add(other).ok_or_else(overflows)
}

/// The range from `start` to `end`, both included, of a sequence of length `len`. Negative ends count from the end; the
/// range is cut to the sequence.
fn index_range(start: i64, end: i64, len: usize) -> std::ops::Range<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let from_front = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let first = from_front(start).max(0);
    let behind = from_front(end).min(len - 1).max(-1) + 1;
    if first >= behind {
        return 0..0;
    }
    let index = |at| usize::try_from(at).expect("between zero and a length");
    index(first)..index(behind)
}

/// Redis' reply to an invalid expiry.
fn invalid_expire_time(name: &str) -> Reply {
    Reply::error(format_args!("invalid expire time in '{name}' command"))
}

/// Whether a word is this option, ignoring case.
fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// No keys.
const NO_KEYS: (i64, i64, i64) = (0, 0, 0);

/// Every command, sorted by name for a binary search.
static TABLE: LazyLock<Vec<&'static Command>> = LazyLock::new(|| {
    let files = [
        catalogue::ROWS,
        connection::ROWS,
        hashes::ROWS,
        keys::ROWS,
        scan::ROWS,
        server::ROWS,
        sorted_sets::ROWS,
        strings::ROWS,
        transactions::ROWS,
    ];
    let mut table: Vec<_> = files.into_iter().flatten().collect();
    table.sort_unstable_by_key(|row| row.name);
    table
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_commands_have_one_name() {
        assert!(TABLE.windows(2).all(|rows| rows[0].name < rows[1].name));
    }

    #[test]
    fn a_command_is_found_in_any_case() {
        let found = find(&[Bytes::from_static(b"GeT"), Bytes::from_static(b"k")]);
        assert!(matches!(found, Ok(Found { command: Command { name: "get", .. }, .. })));
    }

    #[test]
    fn keys_are_the_words_the_table_says() {
        let keys = |text: &str| {
            let words: Vec<_> = text.split(' ').map(|word| Bytes::from(word.to_owned())).collect();
            let command = find(&words).map(|found| found.command).expect("it is there");
            command.key_words(&words).cloned().collect::<Vec<_>>()
        };
        assert_eq!(keys("get a"), ["a"]);
        assert_eq!(keys("del a b c"), ["a", "b", "c"]);
        assert_eq!(keys("mset a 1 b 2"), ["a", "b"]);
        assert!(keys("ping").is_empty());
    }
}
