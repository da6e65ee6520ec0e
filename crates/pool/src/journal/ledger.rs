//! The in-memory part of an open journal: its state, and edits not yet written.

use std::collections::VecDeque;

use volume::Result;

use super::{Lsn, Replay};

/// The state and counters in memory; locked only briefly.
pub(super) struct Ledger<S: Replay> {
    pub(super) state: S,
    /// Edits that no write has taken yet, with their numbers.
    pub(super) pending: VecDeque<(Lsn, Vec<S::Record>)>,
    pub(super) recorded: Lsn,
    pub(super) written: Lsn,
    pub(super) durable: Lsn,
    /// The home of `durable_frames`.
    pub(super) generation: u64,
    pub(super) durable_frames: u64,
    /// The last attempt to write failed.
    pub(super) stuck: bool,
}

impl<S: Replay> Ledger<S> {
    /// The ledger of a state that no home holds yet; `generation` is the highest number in use.
    pub(super) fn new(state: S, generation: u64) -> Self {
        Self {
            state,
            pending: VecDeque::new(),
            recorded: 0,
            written: 0,
            durable: 0,
            generation,
            durable_frames: 0,
            stuck: false,
        }
    }

    pub(super) fn record(&mut self, edit: Vec<S::Record>) -> Result<(Lsn, S::Applied)> {
        let applied = self.state.apply(&edit)?;
        self.recorded += 1;
        self.pending.push_back((self.recorded, edit));
        Ok((self.recorded, applied))
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
