//! What a store of block devices counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that grows.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The store's counters.
        #[derive(Default)]
        pub(super) struct Counts {
            $(pub(super) $name: Count,)*
        }

        /// What a store has done since it was opened, and holds now.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct Figures {
            $($(#[$doc])* pub $name: u64,)*
            /// Regions of 4 MiB that are being written, or were lately: a crash leaves them in doubt.
            pub dirty_regions: u64,
            /// The memory of checksums, in bytes.
            pub checksum_bytes: u64,
            /// Devices.
            pub devices: u64,
        }

        impl Counts {
            /// The figures of the counters alone.
            pub(super) fn figures(&self) -> Figures {
                Figures { $($name: self.$name.get(),)* ..Figures::default() }
            }
        }
    };
}

counts! {
    /// Reads.
    reads,
    /// Bytes read.
    bytes_read,
    /// Writes, and ranges made zeros.
    writes,
    /// Bytes written.
    bytes_written,
    /// Discards.
    discards,
    /// Flushes.
    flushes,
    /// Pages of checksums read, since they were not in memory: an operation each.
    checksum_fetches,
    /// Pages of checksums written: an operation each.
    checksum_writes,
    /// Writes of marks of regions: an operation each.
    region_marks,
    /// Blocks read that have no checksum yet, since a crash or a failed write left them in doubt.
    unverified_reads,
    /// Blocks and pages of checksums that one copy gave wrongly, and another one had.
    repaired,
    /// Reads of blocks that no copy has as they were written, and pages of checksums that were lost.
    damaged,
}
