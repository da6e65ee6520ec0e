//! Block traces: the requests that a device once got, read from a file or made up by a seeded generator.
//!
//! | [`Format`] | a record | blocks of |
//! |---|---|---|
//! | `msr` | text: `filetime,host,disk,Read or Write,offset,bytes,response` (Narayanan et al., FAST'08) | bytes |
//! | `spc` | text: `unit,block,bytes,r or w,seconds` (Storage Performance Council) | 512 B |
//! | `blkparse` | text: blkparse's own output; counts its queued requests (`Q`) | 512 B |
//! | `fiu` | text: `time pid process block count W or R major minor hash` (Koller and Rangaswami, FAST'10) | 512 B |
//! | `vscsi-csv` | text: `version,time,op,size,lbn`, op 28 or 2a (libCacheSim's sample of CloudPhysics) | 512 B |
//! | `oracle-general` | 24 bytes: u32 seconds, u64 id, u32 size, i64 next access (libCacheSim) | 4 KiB |
//! | `blocks` | text: the number of a block | 4 KiB |
//! | `blocks-u32` | 4 bytes: the number of a block (Caffeine's sample of CloudPhysics) | 4 KiB |
//!
//! Numbers in binary records are little endian. A file may be compressed with gzip, xz or zstd. Readers stream: they
//! hold one record, and no line may be longer than 4 KiB. A record that does not match its format ends the trace with
//! an error that names the file, the line or record, and the form that was expected.

mod binary;
mod blkparse;
mod comma;
mod compression;
mod fiu;
mod format;
mod lines;
mod number;
mod reader;
mod stand_in;
mod volumes;

pub use format::Format;
pub use reader::Reader;
pub use stand_in::{Requests, StandIn};

use std::time::Duration;

/// Bytes of a block where a format counts in sectors.
const SECTOR: u64 = 512;

/// Bytes of a block in formats that name blocks and give no unit.
const BLOCK: u64 = 4096;

/// A request that a device got.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request {
    /// When, since the first request of the trace; zero if it is earlier or the format has no time.
    pub at: Duration,
    /// The device or volume, numbered by the format or in the order of appearance.
    pub volume: u32,
    /// The first byte on the volume.
    pub offset: u64,
    /// The number of bytes; `offset + len` fits in 64 bits.
    pub len: u32,
    /// Whether it is a write, else a read. Formats that do not say have reads only.
    pub is_write: bool,
}

/// The meaning of one line of text.
type Parsed = Result<Option<Request>, Mismatch>;

/// What a record should have been.
type Mismatch = &'static str;

/// Reads lines of one format, in order. `None` is a line without a request: a header, or an event of another kind.
trait LineParser: Send {
    fn parse(&mut self, line: &str) -> Parsed;

    /// Judges the whole file, at its end.
    fn finish(&self) -> Result<(), Mismatch> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
