//! What can be set about a database's I/O.

use std::time::Duration;

use policy::units::MIB;

/// How the shim uses memory, and how long a log may stay unsynced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Memory for tables under construction, in bytes, all of a database's together. Default
    /// 256 MiB. The buffers of the last two are kept for the next. A table that finds it used up is streamed to its volume piece by piece as if it were
    /// over `table_buffer_max`, which holds its builder to the pace of the volume. Enough for every
    /// background job at once is `jobs × target_file_size`; less costs exact placement, not safety.
    pub table_buffers: u64,
    /// The largest table that is kept in memory until it is complete, in bytes. Default 64 MiB.
    /// Larger ones are placed by family and level, not by their keys.
    pub table_buffer_max: u64,
    /// Memory for the ends of fresh tables, in bytes. Default 16 MiB. RocksDB reads index and filter
    /// back at once; an end that was dropped early costs a read or two.
    pub table_tails: u64,
    /// The longest time a byte of a log waits for a sync if nobody asks for one. Default 1 s. Less
    /// costs operations, more loses more when the machine dies; the death of the process loses
    /// nothing either way.
    pub wal_sync_interval: Duration,
    /// Write-ahead logs kept for reuse. Default 0. A recycled log has its length already, so that a
    /// sync need not write the file system's journal; each takes as much room as a log. But RocksDB
    /// 11.12 tells the end of a recycled log from damage by the next one alone, and may take the one
    /// for the other after a crash: the database does not open, or without writes that were synced
    /// (docs/adr/0008). RocksDB refuses writes that skip the log unless this is 0.
    pub wal_recycled: usize,
    /// Lines of RocksDB's info log that may wait to be written, at least 1. Default 4096. What comes
    /// when all places are taken is counted and dropped: RocksDB never waits for its log.
    pub info_log_lines: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            table_buffers: 256 * MIB,
            table_buffer_max: 64 * MIB,
            table_tails: 16 * MIB,
            wal_sync_interval: Duration::from_secs(1),
            wal_recycled: 0,
            info_log_lines: 4096,
        }
    }
}
