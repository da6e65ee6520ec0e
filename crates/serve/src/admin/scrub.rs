//! `/scrub`: the passes that read back every copy of the objects of pools; answers as JSON.

use serde::{Deserialize, Serialize};

/// The answer to `GET /scrub` and `POST /scrub`, of all pools or of the one that `?pool=` names.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Scrubs {
    /// Each pool that stores are on. After a `POST`, its current pass is the one begun, or going on.
    pub pools: Vec<Scrub>,
}

/// What a request is about.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Wanted {
    /// The name of a pool; all if there is none.
    pub(super) pool: Option<String>,
}

/// The scrub of one pool.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Scrub {
    /// The name of the pool.
    pub pool: String,
    /// The pass under way.
    pub current: Option<Pass>,
    /// The last pass that ended since the program started.
    pub last: Option<Pass>,
    /// Seconds since the last pass over all objects ended, perhaps before the program started; `None` before the first.
    pub age_s: Option<u64>,
}

/// One pass.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Pass {
    /// Its number: each pass has a higher one than the pass before.
    pub number: u64,
    /// Whether it reads as fast as the volumes have tokens to spare, since it was asked for; else it takes the time of
    /// the setting `scrub_every`.
    pub on_demand: bool,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// When it ended, in seconds since 1970.
    pub ended_unix_s: Option<u64>,
    /// Objects read so far.
    pub objects: u64,
    /// Bytes read so far: those of each copy count.
    pub bytes: u64,
    /// Bytes to read when it began.
    pub bytes_of: u64,
    /// Copies with missing, wrong or unreadable bytes.
    pub damaged: u64,
    /// Those of them that were repaired: dropped because another copy is good, and made anew, or written over in place.
    pub repaired: u64,
    /// Copies that were not read: their volume was away, or refused.
    pub unread: u64,
    /// What it found since the program started; the first thousand.
    pub findings: Vec<Finding>,
}

/// A problem with a copy of an object.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// The name of its volume.
    pub volume: String,
    /// The name of the object.
    pub object: String,
    /// The problem, for readers.
    pub problem: String,
    /// Whether bytes are lost.
    pub lost: bool,
    /// Whether it needs no action.
    pub harmless: bool,
    /// Whether another copy is good.
    pub elsewhere: bool,
}
