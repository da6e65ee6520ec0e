//! `/volumes`: the volumes of the pool, changed while it serves; what is asked and answered, as JSON.

use serde::{Deserialize, Serialize};

/// What `GET /volumes` answers.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct List {
    /// The name of the pool.
    pub pool: String,
    /// Its volumes, in the order it took them in.
    pub volumes: Vec<Volume>,
    /// Copies of everything that it promises.
    #[serde(default)]
    pub copies: u64,
    /// Objects with fewer of them on volumes that are here and stay.
    #[serde(default)]
    pub short_objects: u64,
    /// Their bytes.
    #[serde(default)]
    pub short_bytes: u64,
    /// Objects of which no copy can be read: what they were on is away, or lost.
    #[serde(default)]
    pub unreadable_objects: u64,
}

/// A volume of the pool.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Volume {
    /// Its name in the settings.
    pub name: String,
    /// Whether it takes new tables.
    pub state: State,
    /// What was bought, in words; none while it is away.
    pub contract: Option<String>,
    /// Bytes it has; none while it does not answer.
    pub size_bytes: Option<u64>,
    /// Bytes that can still be written; none while it does not answer.
    pub free_bytes: Option<u64>,
    /// Objects of the pool that lie on it, copies and parts too.
    pub objects: u64,
    /// Their bytes there.
    pub bytes: u64,
    /// Those of them that lie nowhere else: what is lost with it.
    pub only_here: u64,
    /// How far it is emptied, while that goes on.
    pub drain: Option<Drain>,
    /// What is wrong with it, for people.
    pub problem: Option<String>,
}

/// Whether a volume takes new tables.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It does.
    Active,
    /// It takes none, and what it holds goes to others.
    Draining,
    /// It is not there.
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

/// How far a volume is emptied.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Drain {
    /// Objects that left it since the program was asked, or started.
    pub moved: u64,
    /// Objects it still holds.
    pub left: u64,
    /// Whether it is over, and the volume empty.
    pub done: bool,
    /// Why it does not go on, for people; none while it does, and when it is done.
    pub stopped: Option<String>,
}

/// What `POST /volumes` is asked.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct New {
    /// The name of the volume.
    pub name: String,
    /// The keys of its section in the settings file. Empty: the file has the section already.
    #[serde(default)]
    pub settings: serde_json::Map<String, serde_json::Value>,
}

/// What `POST /volumes` and `DELETE /volumes/NAME` answer.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Changed {
    /// What was done, for people, a line each.
    pub told: Vec<String>,
    /// What the settings file has to say from now on, in TOML; empty if it says so already.
    pub settings: String,
}
