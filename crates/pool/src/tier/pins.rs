//! How many readers, writers and fills use the places of each entry now. The map gives these to no other page meanwhile.

use std::sync::atomic::{AtomicU32, Ordering};

use policy::cache::Slot;

/// The pins of each entry of a map. A user of its places pins it under the map's lock, and unpins it without.
pub(super) struct PinCounts(Box<[AtomicU32]>);

impl PinCounts {
    pub(super) fn new(entries: u32) -> Self {
        Self((0..entries).map(|_| AtomicU32::new(0)).collect())
    }

    /// The caller has locked the map.
    pub(super) fn pin(&self, entry: Slot) {
        self.0[entry as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn unpin(&self, entry: Slot) {
        self.0[entry as usize].fetch_sub(1, Ordering::Release);
    }

    /// If not, all that earlier users did is over. The caller has locked the map, so that no new one comes.
    pub(super) fn is_pinned(&self, entry: Slot) -> bool {
        self.0[entry as usize].load(Ordering::Acquire) > 0
    }
}
