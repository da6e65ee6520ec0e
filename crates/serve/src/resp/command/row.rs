//! What a command is: a row of the table, and what its implementation is given and returns.

use bytes::Bytes;
use engine::keyspace::{self, Touch, Touches, Transaction};
use engine::kv;

use super::words::{is, shown, wrong_arity};
use crate::May;
use crate::resp::client::Client;
use crate::resp::reply::{Protocol, Reply, ReplyLimit};
use crate::resp::service::Service;

/// One row of the table.
pub(in crate::resp) struct Command {
    /// The name, in lower case.
    pub(in crate::resp) name: &'static str,
    /// The number of words of a call, including the name; negative for "at least".
    pub(super) arity: i32,
    /// Redis' flags, for clients that route by them.
    pub(super) flags: &'static [&'static str],
    /// Which words are keys: first, last (negative: from the end) and step; zeros for none.
    pub(super) keys: (i64, i64, i64),
    /// Redis' group, and the version that introduced it.
    pub(super) group: &'static str,
    pub(super) since: &'static str,
    /// A summary in one sentence.
    pub(super) summary: &'static str,
    /// Its implementation.
    pub(in crate::resp) run: Run,
}

/// The implementation of a command.
#[derive(Clone, Copy)]
pub(in crate::resp) enum Run {
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

/// The effect of `MULTI` or a related command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::resp) enum Control {
    /// `MULTI`: queues the commands that follow.
    Multi,
    /// `EXEC`: executes all queued commands together.
    Exec,
    /// `DISCARD`: drops the queue.
    Discard,
    /// `WATCH key…`: the next `EXEC` does nothing if one of the keys has changed.
    Watch,
    /// `UNWATCH`.
    Unwatch,
}

/// All commands, sorted by name.
pub(in crate::resp) type Table = [&'static Command];

/// A command on keys during execution.
pub(in crate::resp) struct Data<'a, 'k> {
    /// All its words, the name first; their number fits the table.
    pub(in crate::resp) words: &'a [Bytes],
    /// The client's protocol.
    pub(in crate::resp) protocol: Protocol,
    /// Locks the keys of the command, and applies its changes.
    pub(in crate::resp) transaction: &'a mut Transaction<'k>,
    /// The state that all clients share.
    pub(in crate::resp) service: &'a Service,
}

/// The result of a command on keys.
pub(in crate::resp) type Outcome = Result<Reply, Failure>;

/// Why a command on keys failed.
#[derive(Debug)]
pub(in crate::resp) enum Failure {
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

impl From<keyspace::Error> for Reply {
    fn from(error: keyspace::Error) -> Self {
        match Failure::from(error.clone()) {
            Failure::Refused(reply) => reply,
            Failure::Failed(error) => error.into(),
            Failure::TooLong(_) => Self::error(error),
        }
    }
}

/// A command that is not about keys, during execution.
pub(in crate::resp) struct Call<'a> {
    /// All its words, the name first; their number fits the table.
    pub(in crate::resp) words: &'a [Bytes],
    /// The table in which it was found.
    pub(in crate::resp) table: &'static Table,
    /// The calling client.
    pub(in crate::resp) client: &'a mut Client,
    /// The state that all clients share.
    pub(in crate::resp) service: &'a Service,
}

/// The flags of a fast command that reads.
pub(super) const READS_FAST: &[&str] = &["readonly", "fast"];
/// The flags of a command that reads.
pub(super) const READS: &[&str] = &["readonly"];
/// The flags of a fast command that writes.
pub(super) const WRITES_FAST: &[&str] = &["write", "denyoom", "fast"];
/// The flags of a command that writes.
pub(super) const WRITES: &[&str] = &["write", "denyoom"];
/// The flags of a command that only removes.
pub(super) const REMOVES: &[&str] = &["write", "fast"];
/// The first word after the name is the key.
pub(super) const FIRST: (i64, i64, i64) = (1, 1, 1);
/// All words after the name are keys.
pub(super) const ALL: (i64, i64, i64) = (1, -1, 1);
/// No keys.
pub(super) const NO_KEYS: (i64, i64, i64) = (0, 0, 0);

impl Command {
    /// The row of a command on keys, without its documentation.
    pub(super) const fn data(
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
    pub(super) const fn call(
        name: &'static str,
        arity: i32,
        flags: &'static [&'static str],
        run: fn(&mut Call<'_>) -> Reply,
    ) -> Self {
        let run = Run::Call(run);
        Self { name, arity, flags, keys: NO_KEYS, group: "", since: "", summary: "", run }
    }

    /// The row with its documentation.
    pub(super) const fn about(
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

    /// Whether a client may call it before it authenticates.
    pub(in crate::resp) fn needs_no_auth(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    /// Whether it may write to the store.
    pub(in crate::resp) fn writes(&self) -> bool {
        self.flags.contains(&"write") || matches!(self.run, Run::Control(Control::Exec))
    }

    /// Whether a client with the rights `may` may call it with these words.
    pub(in crate::resp) fn is_for(&self, may: May, words: &[Bytes]) -> bool {
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
    pub(in crate::resp) fn is_done_at_once(&self) -> bool {
        matches!(self.name, "quit" | "reset")
    }

    /// The number of keys in a call.
    pub(in crate::resp) fn keys_of(&self, words: &[Bytes]) -> usize {
        self.key_words(words).count()
    }

    /// Adds the keys that a call touches.
    pub(in crate::resp) fn touch(&self, words: &[Bytes], touches: &mut Touches) {
        match self.run {
            Run::Data(touch, _) => {
                self.key_words(words).for_each(|key| touches.add(key.clone(), touch));
            }
            Run::Everything(_) => touches.add_everything(),
            Run::Control(_) | Run::Call(_) | Run::Subcommands(_) => {}
        }
    }

    /// Executes a call that is not about keys.
    pub(in crate::resp) fn execute(&'static self, call: &mut Call<'_>) -> Reply {
        match self.run {
            Run::Call(run) => run(call),
            Run::Subcommands(rows) => {
                let second = &call.words[1];
                match rows.iter().find(|row| second.eq_ignore_ascii_case(row.name.as_bytes())) {
                    Some(row) if !row.takes(call.words.len()) => {
                        wrong_arity(&format!("{}|{}", self.name, row.name))
                    }
                    Some(row) => row.execute(call),
                    None => Reply::error(format_args!(
                        "unknown subcommand '{}'. Try {} HELP.",
                        shown(second),
                        self.name.to_ascii_uppercase(),
                    )),
                }
            }
            Run::Data(..) | Run::Everything(_) | Run::Control(_) => {
                unreachable!("a session does these itself")
            }
        }
    }

    /// The keys among the words of a call.
    pub(super) fn key_words<'w>(&self, words: &'w [Bytes]) -> impl Iterator<Item = &'w Bytes> {
        let (first, last, step) = self.keys;
        let len = words.len() as i64;
        let last = if last < 0 { len + last } else { last };
        let keys = (first..=last).step_by(usize::try_from(step).unwrap_or(0).max(1));
        keys.filter(move |&at| 0 < at && at < len).map(move |at| &words[at as usize])
    }

    pub(super) fn takes(&self, words: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { words >= wanted } else { words == wanted }
    }
}
