//! How large things may be: one arithmetic for what is accepted, for blocks, and for the catalogue's records.
//!
//! ```text
//!   log store: value, batch ─▶ block, record: half a value ─▶ text, tags with fields: less the overhead
//! ```
//! So each row that was accepted fits a block, and each source a record. A block that is rewritten without what
//! was deleted takes at most twice what it took (it usually takes less), and so still fits.

use crate::log;
use crate::log::Edit;

/// What a block or record takes at most besides its longest value or the tags and fields of one source, in bytes.
const OVERHEAD: usize = 256;
/// What is written at a time, in bytes, if the log store takes so much: edits are encoded that long before they
/// are written.
const BATCH: usize = 8 << 20;
/// What an edit takes at most besides its key and value, in bytes.
const EDIT: usize = 64;

/// What a log store takes, and what follows from that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The longest block, and the longest record of the catalogue before it is compressed.
    pub(super) block: usize,
    /// The most that is written at a time.
    pub(super) batch: usize,
}

impl Sizes {
    pub(super) fn of(log: &log::Store) -> Self {
        let value = usize::try_from(log.value_max()).unwrap_or(usize::MAX);
        let batch = usize::try_from(log.batch_max()).unwrap_or(usize::MAX).min(BATCH.max(value));
        Self { block: value / 2, batch }
    }

    /// The longest text, and the longest tags and fields of a source.
    pub(super) fn text(&self) -> usize {
        self.block.saturating_sub(OVERHEAD)
    }

    /// What an edit counts in a batch.
    pub(super) fn edit(edit: &Edit) -> usize {
        match edit {
            Edit::Put { key, value, .. } => key.len() + value.len() + EDIT,
            Edit::Delete { key } => key.len() + EDIT,
        }
    }
}
