//! Blocks: the points of some sources in a slot, column by column.
//!
//! ```text
//!   block:  key's checksum │ sources and their lengths │ chunk │ chunk │ …
//!   chunk:  rows │ times │ field, kind, length of each column │ column │ column │ …
//! ```
//! The fields of a source are written together and share their times, so a chunk stores the times once. One field can
//! be read without decoding the others. Bytes: `docs/format/series.md`.

mod chunk;
mod numbers;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;

#[cfg(test)]
use self::table::Column;
pub(super) use self::table::{Builder, Table};
use super::batch::{put_varint, take_varint};
use super::value::Points;

const MAGIC: [u8; 4] = *b"PlSe";
/// The version in which a column may list its rows.
const VERSION: u8 = 2;
/// The version of blocks without such columns, which older programs can read.
const VERSION_WITHOUT_LISTS: u8 = 1;
const HEAD: usize = 9;

/// The most rows of a chunk: larger ones are never written, and rejected when read.
pub(super) const ROWS_MAX: usize = 1 << 20;

/// Why a block is invalid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Bad {
    /// It is no block.
    Magic,
    /// It has a version unknown to this program.
    Version(u8),
    /// Its checksum is wrong, or it belongs to another key.
    Checksum,
    /// Its checksum fits, but its contents are inconsistent: names the part.
    Sense(&'static str),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("it is not a block"),
            Self::Version(found) => write!(f, "it has version {found}: use a newer program"),
            Self::Checksum => f.write_str("its checksum is wrong"),
            Self::Sense(what) => write!(f, "its {what} are invalid"),
        }
    }
}

/// The most that a block takes besides its sources, in bytes.
pub(super) const BYTES_MAX: usize = HEAD + 10;

/// The most that a source takes in a block, in bytes. Fewer rows or values take no more.
pub(super) fn bytes_max(table: &Table) -> usize {
    // Its number, and the length of its chunk.
    10 + chunk::bytes_max(table)
}

/// Encodes the tables of some sources under a key. Sources ascend, tables are resolved.
pub(super) fn encode(key: &[u8], sources: &[(u32, Table)]) -> Vec<u8> {
    let mut directory = Vec::new();
    let mut chunks = Vec::new();
    put_varint(&mut directory, sources.len() as u64);
    let mut last = 0;
    let mut version = VERSION_WITHOUT_LISTS;
    for (source, table) in sources {
        let start = chunks.len();
        if chunk::encode(table, &mut chunks) {
            version = VERSION;
        }
        put_varint(&mut directory, u64::from(source - last));
        put_varint(&mut directory, (chunks.len() - start) as u64);
        last = *source;
    }
    let mut block = Vec::with_capacity(HEAD + directory.len() + chunks.len());
    block.extend_from_slice(&MAGIC);
    block.extend_from_slice(&[0; 4]);
    block.push(version);
    block.extend_from_slice(&directory);
    block.extend_from_slice(&chunks);
    let sum = checksum(key, &block);
    block[4..8].copy_from_slice(&sum.to_le_bytes());
    block
}

fn checksum(key: &[u8], block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), &block[8..])
}

/// A block that was read and has the right checksum.
pub(super) struct Block<'a> {
    chunks: Vec<(u32, &'a [u8])>,
}

impl<'a> Block<'a> {
    /// Opens the block stored under a key.
    pub(super) fn open(key: &[u8], bytes: &'a [u8]) -> Result<Self, Bad> {
        if bytes.len() < HEAD || bytes[..4] != MAGIC {
            return Err(Bad::Magic);
        }
        if !super::sum_fits(checksum(key, bytes), &bytes[4..8]) {
            return Err(Bad::Checksum);
        }
        if !(VERSION_WITHOUT_LISTS..=VERSION).contains(&bytes[8]) {
            return Err(Bad::Version(bytes[8]));
        }
        let mut rest = &bytes[HEAD..];
        let count = take_varint(&mut rest).ok_or(Bad::Sense("sources"))?;
        let mut lens = Vec::new();
        let mut source = 0u32;
        for _ in 0..count {
            let step = take_varint(&mut rest).and_then(|step| u32::try_from(step).ok());
            let next =
                step.and_then(|step| source.checked_add(step)).ok_or(Bad::Sense("sources"))?;
            let len = take_varint(&mut rest).ok_or(Bad::Sense("sources"))?;
            lens.push((next, usize::try_from(len).map_err(|_| Bad::Sense("sources"))?));
            source = next;
        }
        let mut chunks = Vec::with_capacity(lens.len());
        for (source, len) in lens {
            let (chunk, behind) = rest.split_at_checked(len).ok_or(Bad::Sense("lengths"))?;
            chunks.push((source, chunk));
            rest = behind;
        }
        Ok(Self { chunks })
    }

    /// The points of each of some fields; `None` for a field without any.
    pub(super) fn points(&self, source: u32, fields: &[u16]) -> Result<Vec<Option<Points>>, Bad> {
        match self.chunks.binary_search_by_key(&source, |(source, _)| *source) {
            Ok(at) => chunk::points(self.chunks[at].1, fields),
            Err(_) => Ok(vec![None; fields.len()]),
        }
    }

    /// All of its tables, by source.
    pub(super) fn tables(&self) -> Result<Vec<(u32, Table)>, Bad> {
        self.chunks.iter().map(|(source, chunk)| Ok((*source, chunk::decode(chunk)?))).collect()
    }
}
