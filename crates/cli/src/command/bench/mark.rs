//! The mark of a bench's store: who owns it, and which records it holds.

use std::fmt;
use std::str::FromStr;

use bench::ycsb::Shape;
use bytes::Bytes;
use engine::kv::{Change, KeyRange, KeyValue, Scan};

/// Sorts before every record's key, which is hexadecimal: no scan from a record meets it.
const KEY: &[u8] = b"!plimsoll-bench";

/// The entry under [`KEY`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Mark {
    /// Records loaded.
    pub(super) loaded: u64,
    /// Records stored; `None` during a run, which may have been killed.
    pub(super) records: Option<u64>,
    pub(super) shape: Shape,
    pub(super) keys: Keys,
}

/// The order of the keys of records.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Keys {
    /// That of a hash of their numbers: YCSB.
    Hashed,
    /// That of their numbers: mixgraph.
    Numbered,
}

impl Keys {
    const fn name(self) -> &'static str {
        match self {
            Self::Hashed => "",
            Self::Numbered => " numbered",
        }
    }
}

/// The owner of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Owner {
    Nobody,
    Bench(Mark),
    Somebody,
}

/// Determines the owner from the first key.
pub(super) fn owner(store: &dyn KeyValue) -> engine::kv::Result<Owner> {
    let first =
        Scan { range: KeyRange::ALL, reverse: false, entries_max: 1, bytes_max: usize::MAX };
    Ok(match store.scan(&first)?.first() {
        None => Owner::Nobody,
        Some((key, value)) if key == KEY => std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse().ok())
            .map_or(Owner::Somebody, Owner::Bench),
        Some(_) => Owner::Somebody,
    })
}

impl Mark {
    pub(super) fn write(&self, store: &dyn KeyValue) -> engine::kv::Result<()> {
        let text = Bytes::from(self.to_string());
        store.apply(&[Change::Put(Bytes::from_static(KEY), text)])
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loaded, records, shape: Shape { key_bytes, value_bytes }, keys } = self;
        let records = records.map_or("?".into(), |records| records.to_string());
        let keys = keys.name();
        write!(f, "2 {loaded} {records} {key_bytes} {value_bytes}{keys}")
    }
}

impl FromStr for Mark {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let words: Vec<_> = text.split(' ').collect();
        let (words, keys) = match words.split_last() {
            Some((&"numbered", words)) => (words, Keys::Numbered),
            _ => (&words[..], Keys::Hashed),
        };
        let ["2", loaded, records, key_bytes, value_bytes] = *words else { return Err(()) };
        let number = |word: &str| word.parse::<u64>().map_err(drop);
        let size = |word: &str| word.parse::<usize>().map_err(drop);
        Ok(Self {
            loaded: number(loaded)?,
            records: if records == "?" { None } else { Some(number(records)?) },
            shape: Shape { key_bytes: size(key_bytes)?, value_bytes: size(value_bytes)? },
            keys,
        })
    }
}

#[cfg(test)]
mod tests {
    use engine::kv::Memory;

    use super::*;

    #[test]
    fn a_store_is_nobodys_a_benchs_or_somebodys() {
        let store = Memory::default();
        let is = || owner(&store).expect("memory does not fail");
        assert_eq!(is(), Owner::Nobody);
        let put = |key, value| {
            let change = Change::Put(Bytes::from_static(key), Bytes::from_static(value));
            store.apply(&[change]).expect("memory does not fail");
        };
        put(b"0123456789abcdef", b"a record");
        assert_eq!(is(), Owner::Somebody);
        let shape = Shape { key_bytes: 16, value_bytes: 256 };
        let (hashed, numbered) = (Keys::Hashed, Keys::Numbered);
        for (records, keys) in [(None, hashed), (Some(1_020), hashed), (Some(7), numbered)] {
            let mark = Mark { loaded: 1000, records, shape, keys };
            mark.write(&store).expect("memory does not fail");
            assert_eq!(is(), Owner::Bench(mark));
        }
        put(KEY, b"3 of another version");
        assert_eq!(is(), Owner::Somebody);
    }
}
