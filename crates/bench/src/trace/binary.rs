//! Records of a fixed length.

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use super::number::Origin;
use super::{BLOCK, Request};

/// The blocks that 64 bits of bytes can name.
const BLOCKS_MAX: u64 = u64::MAX / BLOCK;

/// Reads the next record; `None` at the end of the file.
///
/// # Errors
/// The file ends inside the record ([`ErrorKind::UnexpectedEof`]), or cannot be read.
pub(super) fn record<const N: usize>(from: &mut dyn Read) -> io::Result<Option<[u8; N]>> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match from.read(&mut bytes[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(bytes))
}

/// libCacheSim's `oracleGeneral`. Its ids may be hashes of names, so each id is one block of 4 KiB, and a larger size
/// does not reach into the next. The format does not tell writes from reads.
pub(super) fn oracle_general(record: [u8; 24], origin: &mut Origin) -> Request {
    let [secs, size] = [&record[..4], &record[12..16]].map(little_endian);
    let block = little_endian(&record[4..12]) % BLOCKS_MAX;
    let at = origin.since(Duration::from_secs(secs));
    let len = u32::try_from(size.clamp(1, BLOCK)).unwrap_or(BLOCK as u32);
    Request { at, volume: 0, offset: block * BLOCK, len, is_write: false }
}

/// The number of a block.
pub(super) fn block_u32(record: [u8; 4]) -> Request {
    let offset = u64::from(u32::from_le_bytes(record)) * BLOCK;
    Request { at: Duration::ZERO, volume: 0, offset, len: BLOCK as u32, is_write: false }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}
