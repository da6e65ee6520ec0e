//! What a store of block devices counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

/// The counters of one device.
#[derive(Default)]
pub(super) struct DeviceCounts {
    pub(super) reads: Count,
    pub(super) bytes_read: Count,
    pub(super) writes: Count,
    pub(super) bytes_written: Count,
    pub(super) limited: Count,
    pub(super) limited_nanos: Count,
}

/// What clients had a device do since the store was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeviceFigures {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Writes, ranges made zeros, and discards.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Calls that waited because the device was at its limit.
    pub limited: u64,
    /// How long they waited, in all.
    pub limited_for: Duration,
}

impl DeviceCounts {
    pub(super) fn figures(&self) -> DeviceFigures {
        DeviceFigures {
            reads: self.reads.get(),
            bytes_read: self.bytes_read.get(),
            writes: self.writes.get(),
            bytes_written: self.bytes_written.get(),
            limited: self.limited.get(),
            limited_for: Duration::from_nanos(self.limited_nanos.get()),
        }
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
    /// Blocks read because a write covers a part of them: an operation each.
    completing_reads,
    /// Extents made: a write each, and what the file system's journal and the pool's manifest take.
    extents_made,
    /// Writes of marks of regions: an operation each.
    region_marks,
    /// Regions of 4 MiB whose copies were read and made equal after a crash.
    regions_aligned,
    /// Blocks read that have no checksum yet, since a crash or a failed write left them in doubt.
    unverified_reads,
    /// Blocks and pages of checksums that one copy gave wrongly, and another one had.
    repaired,
    /// Reads of blocks that no copy has as they were written, and pages of checksums that were lost.
    damaged,
}
