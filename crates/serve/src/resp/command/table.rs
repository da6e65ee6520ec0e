//! The table of all commands.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use engine::keyspace::Keyspace;

use super::row::{Command, Table};
use super::words::{SHOWN_BYTES_MAX, shown, wrong_arity};
use super::{
    catalogue, connection, hashes, keys, scan, server, sorted_sets, strings, transactions,
};
use crate::figures::Figures;
use crate::resp::reply::Reply;
use crate::resp::service::Service;
use crate::resp::settings::Settings;

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

/// The command of a request, found in the table.
#[derive(Clone, Copy)]
pub(in crate::resp) struct Found {
    /// The row.
    pub(in crate::resp) command: &'static Command,
    /// Its position, for statistics.
    pub(in crate::resp) index: usize,
}

impl Found {
    /// The command at `index` of the table.
    pub(in crate::resp) fn at(index: usize) -> Self {
        Self { command: TABLE[index], index }
    }
}

/// Finds the command that `words` call, and checks the number of words.
///
/// # Errors
/// Redis' own error for an unknown command, or too few or too many words.
pub(in crate::resp) fn find(words: &[Bytes]) -> Result<Found, Reply> {
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

/// Every command.
pub(in crate::resp) fn table() -> &'static Table {
    &TABLE
}

impl Service {
    /// A service of `keyspace`.
    #[must_use]
    pub fn new(settings: Settings, keyspace: Arc<Keyspace>, figures: Arc<dyn Figures>) -> Self {
        Self::of(settings, keyspace, figures, TABLE.iter().map(|row| row.name).collect())
    }
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
