//! Limits of sizes: one arithmetic for accepted rows, for blocks, and for the catalogue's records.
//!
//! ```text
//!   log store: value, batch ─▶ block, record: half a value ─▶ text, tags with fields: less the overhead
//! ```
//! So each accepted row fits a block, and each source a record. A block rewritten without deleted points takes at most
//! twice its old size (usually less), and so still fits.

use crate::log;
use crate::log::Edit;

/// The most bytes of a block or record besides its longest value, or the tags and fields of one source.
const OVERHEAD: usize = 256;
/// The most bytes written at a time, if the log store takes that many: edits are encoded that long before they are
/// written.
const BATCH: usize = 8 << 20;
/// The most bytes of an edit besides its key and value.
const EDIT: usize = 64;

/// The limits of a log store, and those that follow from them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The longest block, and the longest record of the catalogue before it is compressed.
    pub(super) block: usize,
    /// The most bytes written at a time.
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

    /// The bytes that an edit counts in a batch.
    pub(super) fn edit(edit: &Edit) -> usize {
        match edit {
            Edit::Put { key, value, .. } => key.len() + value.len() + EDIT,
            Edit::Delete { key } => key.len() + EDIT,
        }
    }
}
