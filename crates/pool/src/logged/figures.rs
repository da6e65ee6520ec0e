//! What the log did.

use std::sync::atomic::{AtomicU64, Ordering};

/// Figures of a log, since the pool was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Bytes of its files, each copy counted once.
    pub bytes: u64,
    /// Blocks of 4 KiB that are newer in it than in their places.
    pub blocks: u64,
    /// Bytes appended to it and to the log of rows, each copy counted once.
    pub appended_bytes: u64,
    /// Syncs of both: of so many copies each as the pool keeps of logs.
    pub syncs: u64,
    /// Changes of rows that were made in place.
    pub rows_recycled: u64,
    /// Blocks that were brought in place by them.
    pub blocks_recycled: u64,
    /// Blocks that were appended again, so that the oldest files could go.
    pub blocks_moved: u64,
    /// Times that writes waited for room: until some of the log was in place, or for the rest of their group while little room was left.
    pub waits: u64,
}

/// The counts behind [`Figures`].
#[derive(Default)]
pub(super) struct Counts {
    rows: AtomicU64,
    blocks: AtomicU64,
    moved: AtomicU64,
    waits: AtomicU64,
}

impl Counts {
    pub(super) fn recycled(&self, blocks: u64) {
        self.rows.fetch_add(1, Ordering::Relaxed);
        self.blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Changes of rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    pub(super) fn moved(&self, blocks: u64) {
        self.moved.fetch_add(blocks, Ordering::Relaxed);
    }

    pub(super) fn waited(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// All figures, with the log's state.
    pub(super) fn with(
        &self,
        bytes: u64,
        blocks: u64,
        (appended_bytes, syncs): (u64, u64),
    ) -> Figures {
        Figures {
            bytes,
            blocks,
            appended_bytes,
            syncs,
            rows_recycled: self.rows(),
            blocks_recycled: self.blocks.load(Ordering::Relaxed),
            blocks_moved: self.moved.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
        }
    }
}
