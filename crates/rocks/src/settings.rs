//! Settings of a database's I/O.

use std::time::Duration;

use policy::units::MIB;

/// The memory of the shim, and how long a log may stay unsynced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Memory for all tables under construction of a database, in bytes. Default 256 MiB. The buffers
    /// of the last two tables are kept for the next ones. When it is used up, a table is streamed to
    /// its volume, as if it were over `table_buffer_max`: its builder then waits for the volume.
    /// `jobs × target_file_size` is enough for every background job at once; less costs exact
    /// placement, not safety.
    pub table_buffers: u64,
    /// The largest table that is kept in memory until it is complete, in bytes. Default 64 MiB.
    /// Larger ones are placed by family and level, not by their keys.
    pub table_buffer_max: u64,
    /// Memory for the ends of fresh tables, in bytes. Default 16 MiB. RocksDB reads index and filter
    /// back at once; an end that was dropped too early costs a read or two.
    pub table_tails: u64,
    /// The time between syncs of a log that RocksDB does not sync itself. Default 1 s. Less costs
    /// operations; more loses more in a crash of the machine. A crash of the process loses nothing
    /// either way.
    pub wal_sync_interval: Duration,
    /// Write-ahead logs kept for reuse. Default 0. A recycled log has its full length already, so a
    /// sync need not write the file system's journal; each takes the space of a log. But RocksDB
    /// 11.12 distinguishes the end of a recycled log from damage only by the next log. After a crash
    /// it may confuse them: the database does not open, or opens without writes that were synced
    /// (docs/adr/0008). RocksDB refuses writes that skip the log unless this is 0.
    pub wal_recycled: usize,
    /// Lines of RocksDB's info log that may wait to be written, at least 1. Default 4096. When that
    /// many wait, further lines are dropped and counted: RocksDB never waits for its log.
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
