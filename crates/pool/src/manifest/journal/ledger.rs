//! The in-memory part of an open manifest: its state, and edits not yet written.

use std::collections::VecDeque;

use volume::Result;

use super::{LEASE, LEASE_LOW, Lsn};
use crate::leaf::ObjectId;
use crate::manifest::{Dead, Record, State};

/// The state and counters in memory; locked only briefly.
pub(super) struct Ledger {
    pub(super) state: State,
    /// Edits that no write has taken yet, with their numbers.
    pub(super) pending: VecDeque<(Lsn, Vec<Record>)>,
    pub(super) recorded: Lsn,
    pub(super) written: Lsn,
    pub(super) durable: Lsn,
    /// The home of `durable_frames`.
    pub(super) generation: u64,
    pub(super) durable_frames: u64,
    /// The last attempt to write failed.
    pub(super) stuck: bool,
    pub(super) ids: Ids,
}

/// Ids for new objects.
pub(super) struct Ids {
    pub(super) next: u64,
    /// The lease of ids below this is durable.
    pub(super) safe: u64,
    /// A recorded lease: durable with this edit, up to this id.
    pub(super) renewal: Option<(Lsn, u64)>,
}

impl Ledger {
    pub(super) fn record(&mut self, edit: Vec<Record>) -> Result<(Lsn, Vec<Dead>)> {
        let dead = self.state.apply(&edit)?;
        self.recorded += 1;
        self.pending.push_back((self.recorded, edit));
        Ok((self.recorded, dead))
    }

    /// An id, or the edit that must be durable before the next attempt.
    pub(super) fn issue_id(&mut self) -> Result<std::result::Result<ObjectId, Lsn>> {
        if self.ids.next + LEASE_LOW >= self.ids.safe && self.ids.renewal.is_none() {
            let issued = self.state.issued();
            let upto = issued.end + LEASE;
            let (lsn, _) = self.record(vec![Record::Lease { from: issued.start, upto }])?;
            self.ids.renewal = Some((lsn, upto));
        }
        if self.ids.next < self.ids.safe {
            self.ids.next += 1;
            return Ok(Ok(ObjectId(self.ids.next - 1)));
        }
        let (lsn, _) = self.ids.renewal.expect("recorded above, if not before");
        Ok(Err(lsn))
    }

    pub(super) fn wrote(&mut self, upto: Lsn) {
        self.written = self.written.max(upto);
        self.stuck = false;
    }

    pub(super) fn synced(&mut self, generation: u64, frames: u64, upto: Lsn) {
        if self.generation == generation {
            self.durable_frames = self.durable_frames.max(frames);
        }
        self.durable = self.durable.max(upto);
        if let Some((_, safe)) = self.ids.renewal.take_if(|(lsn, _)| *lsn <= upto) {
            self.ids.safe = safe;
        }
    }

    /// Records a new home, whose snapshot holds all edits up to `upto`.
    pub(super) fn moved(&mut self, generation: u64, frames: u64, upto: Lsn) {
        self.pending.retain(|(lsn, _)| *lsn > upto);
        self.generation = generation;
        self.durable_frames = frames;
        self.wrote(upto);
        self.synced(generation, frames, upto);
    }
}
