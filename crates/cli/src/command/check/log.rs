//! `plimsoll check` of a log store.

use engine::log::{Flaw, Inspected};
use policy::units::Bytes;
use serde::Serialize;

/// All findings.
#[derive(Serialize)]
pub(super) struct Found {
    /// Whether all is well.
    pub(super) good: bool,
    /// The prefix of its objects' names.
    store: String,
    volumes: u16,
    /// Files, and the bytes of files and hints.
    files: u64,
    bytes: u64,
    /// Records, including dead ones.
    records: u64,
    /// Keys that have a value.
    keys: u64,
    /// Bytes of files that were read completely.
    read_bytes: u64,
    /// Files cut by a crash: they miss nothing that was acknowledged.
    torn: Vec<String>,
    flaws: Vec<FlawFound>,
}

#[derive(Serialize)]
struct FlawFound {
    /// The volume's directory, and the name of the object in it.
    file: String,
    /// In bytes, from its beginning.
    offset: u64,
    /// Characters other than ASCII's are escaped as in Rust; `None` if the key is unreadable.
    key: Option<String>,
    /// The problem, for readers.
    problem: &'static str,
    /// Whether the key's newest value is lost.
    lost: bool,
}

impl Found {
    pub(super) fn of(name: &str, found: Inspected) -> Self {
        let flaws = found.flaws.into_iter().map(|Flaw { what, offset, key, bad, is_lost }| {
            let file = what.strip_prefix("volume ").map_or(what.clone(), str::to_owned);
            let key = key.map(|key| key.escape_ascii().to_string());
            FlawFound { file, offset, key, problem: bad.what(), lost: is_lost }
        });
        let flaws: Vec<_> = flaws.collect();
        Self {
            good: flaws.is_empty(),
            store: name.to_owned(),
            volumes: found.volumes,
            files: found.files,
            bytes: found.bytes,
            records: found.records,
            keys: found.keys,
            read_bytes: found.read_bytes,
            torn: found.torn,
            flaws,
        }
    }

    pub(super) fn tell(&self, say: &dyn Fn(String)) {
        let Self { store, keys, records, files, volumes, .. } = self;
        say(format!(
            "log store {store}: {keys} keys, {records} records in {files} files of {} on {volumes} volumes",
            Bytes(self.bytes),
        ));
        say(format!("log store {store}: {} read back", Bytes(self.read_bytes)));
        for torn in &self.torn {
            say(format!("{torn}: a crash cut it short; no synced record is missing"));
        }
        for FlawFound { file, offset, key, problem, lost } in &self.flaws {
            let key = key.as_ref().map_or("key unknown".into(), |key| format!("key {key}"));
            let end = if *lost {
                "lost"
            } else {
                "harmless: the record is dead, or another copy is whole"
            };
            say(format!("{file}: byte {offset}, {key}: {problem}: {end}"));
        }
    }
}
