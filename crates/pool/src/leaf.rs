//! The names of a pool's objects on its volumes.
//!
//! | object | name |
//! |---|---|
//! | header of the volume | `pool.header` |
//! | copy of the manifest, generation g | `manifest-<g>.log` |
//! | bytes of object n | `o<n>.tab`, `o<n>.dat`, `o<n>.log`, `o<n>.inp` |
//! | copy c of object n | `o<n>-<c>.tab`, and so on |
//!
//! Numbers are sixteen lower-case hexadecimal digits. No generation, object or copy reuses the number of
//! an earlier one. Copies take theirs from the same sequence as objects; 0 is the copy without a number.
//! The suffix shows the kind. Everything else about an object is in the manifest.

use std::fmt;

use policy::intent;
use volume::Name;

/// The number of an object: never reused, even after a crash.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectId(pub u64);

/// The kind of an object, as stored in the manifest.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// A table: written once, sequentially, then read at random. Synced bytes are not written again.
    Table,
    /// Data that is written and read at any offset.
    Data,
    /// A log: appended through the page cache. Its length is its leaf's.
    Log,
    /// Data whose store knows the ranges that a crash left in doubt: only it aligns copies, by
    /// [`Object::align`](volume::Object::align).
    InPlace,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Table, Self::Data, Self::Log, Self::InPlace];

    /// The kind from the creator's intent.
    pub(crate) const fn of(intent: &intent::Intent) -> Self {
        match intent.kind {
            intent::Kind::Log => Self::Log,
            intent::Kind::Table { .. } => Self::Table,
            intent::Kind::Data => Self::Data,
            intent::Kind::InPlace => Self::InPlace,
        }
    }

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Table => 0,
            Self::Data => 1,
            Self::Log => 2,
            Self::InPlace => 3,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    const fn end(self) -> &'static str {
        match self {
            Self::Table => ".tab",
            Self::Data => ".dat",
            Self::Log => ".log",
            Self::InPlace => IN_PLACE,
        }
    }
}

/// The meaning of an object's name on a volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Leaf {
    Header,
    Manifest { generation: u64 },
    Object { id: ObjectId, kind: Kind, copy: u64 },
}

impl Leaf {
    pub(crate) fn name(self) -> Name {
        let name = match self {
            Self::Header => HEADER.to_owned(),
            Self::Manifest { generation } => format!("{MANIFEST}{generation:016x}{LOG}"),
            Self::Object { id, kind, copy: 0 } => format!("o{id}{}", kind.end()),
            Self::Object { id, kind, copy } => format!("o{id}-{copy:016x}{}", kind.end()),
        };
        Name::new(&name).expect("letters, digits, dots and dashes make a valid name")
    }

    /// The inverse of [`Leaf::name`]; `None` for a name that no pool gives.
    pub(crate) fn parse(name: &Name) -> Option<Self> {
        let text = name.as_str();
        if text == HEADER {
            return Some(Self::Header);
        }
        if let Some(rest) = text.strip_prefix(MANIFEST) {
            let generation = number(rest.strip_suffix(LOG)?)?;
            return Some(Self::Manifest { generation });
        }
        let rest = text.strip_prefix('o')?;
        Kind::ALL.into_iter().find_map(|kind| {
            let numbers = rest.strip_suffix(kind.end())?;
            let (id, copy) = match numbers.split_once('-') {
                None => (numbers, 0),
                Some((id, copy)) => (id, number(copy).filter(|&copy| copy != 0)?),
            };
            Some(Self::Object { id: ObjectId(number(id)?), kind, copy })
        })
    }
}

/// The object of a pool whose bytes have this name on its volumes; `None` if the name is of something else.
#[must_use]
pub fn object_of(leaf: &Name) -> Option<ObjectId> {
    match Leaf::parse(leaf)? {
        Leaf::Object { id, .. } => Some(id),
        Leaf::Header | Leaf::Manifest { .. } => None,
    }
}

const HEADER: &str = "pool.header";
const MANIFEST: &str = "manifest-";
const LOG: &str = ".log";
/// The names of objects in place end so.
pub(crate) const IN_PLACE: &str = ".inp";

fn number(digits: &str) -> Option<u64> {
    let canonical =
        digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    canonical.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_back() {
        let mut leaves = vec![Leaf::Header, Leaf::Manifest { generation: 0xabc }];
        for kind in Kind::ALL {
            for copy in [0, 1, u64::MAX] {
                leaves.push(Leaf::Object { id: ObjectId(u64::MAX), kind, copy });
            }
            assert_eq!(Kind::from_code(kind.code()), Some(kind));
        }
        for leaf in leaves {
            assert_eq!(Leaf::parse(&leaf.name()), Some(leaf), "{}", leaf.name());
        }
        let log = Leaf::Object { id: ObjectId(17), kind: Kind::Log, copy: 0 };
        assert_eq!(log.name().as_str(), "o0000000000000011.log");
        let copy = Leaf::Object { id: ObjectId(17), kind: Kind::Table, copy: 0x12 };
        assert_eq!(copy.name().as_str(), "o0000000000000011-0000000000000012.tab");
    }

    #[test]
    fn names_no_pool_gives_are_not_parsed() {
        for text in [
            "pool.header2",
            "manifest-1.log",
            "manifest-000000000000000A.log",
            "manifest-0000000000000001",
            "o11.tab",
            "o_000000000000011.tab",
            "o0000000000000011.sst",
            "O0000000000000011.tab",
            "o0000000000000011",
            "o0000000000000011-0000000000000000.tab",
            "o0000000000000011-12.tab",
            "o0000000000000011-.tab",
            "o-0000000000000011.tab",
            "x/o0000000000000011.tab",
        ] {
            assert_eq!(Leaf::parse(&Name::new(text).unwrap()), None, "{text}");
        }
    }
}
