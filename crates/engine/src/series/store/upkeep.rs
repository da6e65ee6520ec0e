//! The state of upkeep between its rounds.

use std::collections::BTreeSet;

use bytes::Bytes;
use policy::time::Instant;

use super::key::Slot;
use super::overwritten::Search;

/// Held by the task that writes blocks.
#[derive(Default)]
pub(super) struct Upkeep {
    pub(super) regroup: BTreeSet<Slot>,
    pub(super) overwritten: Search,
    /// Segments of the log before this one are removed.
    pub(super) floor: u32,
    /// Where the search for expired blocks resumes.
    pub(super) expiry: Option<Bytes>,
    pub(super) expired_at: Option<Instant>,
    /// When databases were aged last.
    pub(super) aged_at: Option<Instant>,
    /// When their age was stored last.
    pub(super) stored_at: Option<Instant>,
    /// A database was dropped, and that is not stored yet.
    pub(super) is_meta_owed: bool,
    /// When owed work was tried last.
    pub(super) owed_at: Option<Instant>,
}

impl Upkeep {
    pub(super) fn new(floor: u32) -> Self {
        Self { floor, ..Self::default() }
    }
}
