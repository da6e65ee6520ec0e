//! `/volumes`: the volumes of the pools, changed in service; requests and answers as JSON.

use serde::{Deserialize, Serialize};

/// The answer to `GET /volumes`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct List {
    /// The name of the pool that the stores are on.
    pub pool: String,
    /// Its volumes in the order they joined, then those of the pools below.
    pub volumes: Vec<Volume>,
    /// The replication target.
    #[serde(default)]
    pub copies: u64,
    /// The erasure code that cuts complete objects into fragments, such as "4+2". Only others have copies then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Objects with fewer copies, or fragments, on volumes that are present and stay.
    #[serde(default)]
    pub short_objects: u64,
    /// Their bytes.
    #[serde(default)]
    pub short_bytes: u64,
    /// Objects without a readable copy, or with too few fragments: their volumes are away or lost.
    #[serde(default)]
    pub unreadable_objects: u64,
    /// The other pools that stores are on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<Self>,
}

impl List {
    /// The volumes of all pools.
    pub fn into_volumes(self) -> impl Iterator<Item = Volume> {
        let more = self.more.into_iter().flat_map(|list| list.volumes);
        self.volumes.into_iter().chain(more)
    }
}

/// A volume of a pool.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Volume {
    /// Its name in the settings.
    pub name: String,
    /// The pool that it is a member of.
    #[serde(default)]
    pub pool: String,
    /// Whether it takes new tables.
    pub state: State,
    /// The contract, in words; `None` while it is away.
    pub contract: Option<String>,
    /// Its size in bytes; `None` while it does not answer.
    pub size_bytes: Option<u64>,
    /// Bytes still writable; `None` while it does not answer.
    pub free_bytes: Option<u64>,
    /// Objects of the pool on it, including copies and parts.
    pub objects: u64,
    /// Their bytes there.
    pub bytes: u64,
    /// Objects that are only on it, and would be lost with it.
    pub only_here: u64,
    /// The progress of its drain, if one is under way.
    pub drain: Option<Drain>,
    /// Its problem, in words.
    pub problem: Option<String>,
}

/// Whether a volume takes new tables.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It takes new tables.
    Active,
    /// It takes none, and its objects move to other volumes.
    Draining,
    /// It is missing.
    Away,
}

impl State {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Away => "away",
        }
    }
}

/// The progress of a drain.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Drain {
    /// Objects that left it since the request, or since the program started.
    pub moved: u64,
    /// Objects it still holds.
    pub left: u64,
    /// Whether the drain is over, and the volume empty.
    pub done: bool,
    /// Why the drain stopped, in words; `None` while it goes on, and once it is done.
    pub stopped: Option<String>,
}

/// The request of `POST /volumes`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct New {
    /// The name of the volume.
    pub name: String,
    /// The keys of its section in the settings file. Empty if the file has the section already.
    #[serde(default)]
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// The pool that it joins; if none is named, the one that stores are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// The answer to `POST /volumes` and `DELETE /volumes/NAME`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Changed {
    /// What was done, in words, one on each line.
    pub told: Vec<String>,
    /// The change that the settings file needs, in TOML; empty if it has it already.
    pub settings: String,
}
