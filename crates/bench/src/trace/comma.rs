//! Lines of fields between commas: MSR-Cambridge, SPC, libCacheSim's CSV; and block numbers, one a line.

use std::time::Duration;

use super::number::{self, Origin};
use super::volumes::Volumes;
use super::{BLOCK, LineParser, Parsed, Request, SECTOR};

/// Ticks of a Windows file time in a second.
const FILETIME_HZ: u64 = 10_000_000;

/// Nanoseconds of such a tick.
const FILETIME_NANOS: u32 = 100;

/// `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`; the time in Windows' 100 ns since 1601.
#[derive(Default)]
pub(super) struct Msr {
    origin: Origin,
    volumes: Volumes,
}

impl LineParser for Msr {
    fn parse(&mut self, line: &str) -> Parsed {
        const EXPECTED: &str = "filetime,host,disk,Read or Write,offset,bytes,response time";
        let mut fields = line.split(',');
        let ticks: u64 = number::next(fields.next(), EXPECTED)?;
        let (host, disk) = fields.next().zip(fields.next()).ok_or(EXPECTED)?;
        let is_write = match fields.next().map(str::trim) {
            Some(kind) if kind.eq_ignore_ascii_case("write") => true,
            Some(kind) if kind.eq_ignore_ascii_case("read") => false,
            _ => return Err(EXPECTED),
        };
        let offset = number::next(fields.next(), EXPECTED)?;
        let len = number::next(fields.next(), EXPECTED)?;
        let nanos = u32::try_from(ticks % FILETIME_HZ).unwrap_or(0) * FILETIME_NANOS;
        let at = self.origin.since(Duration::new(ticks / FILETIME_HZ, nanos));
        let volume = self.volumes.number(&format!("{host},{disk}"))?;
        number::within_bounds(Request { at, volume, offset, len, is_write })
    }
}

/// `ASU,LBA,Size,Opcode,Timestamp`, then fields of the user's; the size in bytes, the time in seconds.
#[derive(Default)]
pub(super) struct Spc {
    origin: Origin,
}

impl LineParser for Spc {
    fn parse(&mut self, line: &str) -> Parsed {
        const EXPECTED: &str = "unit,block,bytes,R or W,seconds";
        let mut fields = line.split(',');
        let volume = number::next(fields.next(), EXPECTED)?;
        let block = number::next(fields.next(), EXPECTED)?;
        let len = number::next(fields.next(), EXPECTED)?;
        let is_write = match fields.next().map(str::trim) {
            Some("W" | "w") => true,
            Some("R" | "r") => false,
            _ => return Err(EXPECTED),
        };
        let at = self.origin.since_secs(number::next(fields.next(), EXPECTED)?)?;
        let offset = number::bytes(block, SECTOR)?;
        number::within_bounds(Request { at, volume, offset, len, is_write })
    }
}

/// `version,time,op,size,lbn` after a header of these names: seconds, a SCSI code in hexadecimal, bytes, sector.
#[derive(Default)]
pub(super) struct VscsiCsv {
    origin: Origin,
    is_past_header: bool,
}

impl LineParser for VscsiCsv {
    fn parse(&mut self, line: &str) -> Parsed {
        const EXPECTED: &str = "version,seconds,op (28 or 2a),bytes,block";
        if !self.is_past_header {
            self.is_past_header = true;
            if line.starts_with("version,") {
                return Ok(None);
            }
        }
        let mut fields = line.split(',').skip(1);
        let secs = number::next(fields.next(), EXPECTED)?;
        let is_write = match fields.next().map(str::trim) {
            // WRITE (6), (10), (12) and (16) of SCSI, and the reads.
            Some("a" | "0a" | "2a" | "2A" | "aa" | "AA" | "8a" | "8A") => true,
            Some("8" | "08" | "28" | "a8" | "A8" | "88") => false,
            _ => return Err(EXPECTED),
        };
        let len = number::next(fields.next(), EXPECTED)?;
        let offset = number::bytes(number::next(fields.next(), EXPECTED)?, SECTOR)?;
        let at = self.origin.since(Duration::from_secs(secs));
        number::within_bounds(Request { at, volume: 0, offset, len, is_write })
    }
}

/// A block number. Reads of whole blocks, without a time.
#[derive(Default)]
pub(super) struct Blocks;

impl LineParser for Blocks {
    fn parse(&mut self, line: &str) -> Parsed {
        let block = number::next(Some(line), "the number of a block")?;
        let offset = number::bytes(block, BLOCK)?;
        let (at, len) = (Duration::ZERO, BLOCK as u32);
        number::within_bounds(Request { at, volume: 0, offset, len, is_write: false })
    }
}
