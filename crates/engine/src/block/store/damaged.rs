//! Blocks that no copy has as they were written, until they are written again, discarded, or read well.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::table::Id;

/// The damaged blocks that readers met, by device and offset.
#[derive(Default)]
pub(super) struct Damaged {
    blocks: Mutex<BTreeSet<(Id, u64)>>,
    /// Their number, so that writers take no lock while there is none.
    count: AtomicUsize,
}

impl Damaged {
    /// A reader found the block at an offset of a device damaged.
    pub(super) fn found(&self, device: Id, offset: u64) {
        let mut blocks = self.blocks.lock();
        blocks.insert((device, offset));
        self.count.store(blocks.len(), Ordering::Release);
    }

    /// The blocks of a range are good again, or gone.
    pub(super) fn mended(&self, device: Id, range: Range<u64>) {
        if self.count() == 0 {
            return;
        }
        let mut blocks = self.blocks.lock();
        blocks.retain(|&(of, offset)| of != device || !range.contains(&offset));
        self.count.store(blocks.len(), Ordering::Release);
    }

    /// The number of damaged blocks.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}
