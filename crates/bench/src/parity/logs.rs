//! The logs of new data, and what they have: the state of the scheme [`logged`](super::logged).

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use policy::contract::Mechanics;
use policy::placement::Code;
use policy::price::Price;
use policy::units::MIB;

use super::layout::{Block, DATA, PARITY, SERVERS, STRIP};

/// Copies of a log, on different servers.
pub(super) const COPIES: usize = PARITY + 1;

/// Bytes of a log's file, as a pool has them unless it is told otherwise.
const FILE: u64 = 32 * MIB;

/// Where a record's first copy is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) server: usize,
    pub(super) at: u64,
}

/// Goes on when a record is durable.
pub(super) type Logged<W> = Box<dyn FnOnce(&mut W, Place)>;

/// The log of blocks, or that of rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Which {
    Blocks,
    Rows,
}

pub(super) struct Log<W> {
    /// The server of the first copy of the first file.
    first: usize,
    /// Bytes that were ever appended.
    pub(super) appended: u64,
    /// Records that wait for a sync, with their lengths.
    pub(super) waiting: Vec<(u64, Logged<W>)>,
    pub(super) is_syncing: bool,
    /// What was appended, by its first copies.
    pub(super) extents: Vec<(Place, u64)>,
}

impl<W> Log<W> {
    const fn new(first: usize) -> Self {
        Self { first, appended: 0, waiting: Vec::new(), is_syncing: false, extents: Vec::new() }
    }

    /// The servers that have the file which is written.
    pub(super) fn servers(&self) -> [usize; COPIES] {
        let file = (self.appended / FILE) as usize;
        std::array::from_fn(|copy| (self.first + file * COPIES + copy) % SERVERS)
    }
}

/// A block that the log has newer than its strip.
pub(super) struct Newer {
    pub(super) bytes: Arc<[u8]>,
    pub(super) place: Place,
}

/// The logs of a pool, and what they have.
pub(super) struct Logs<W> {
    pub(super) code: Code,
    pub(super) price: Price,
    pub(super) blocks: Log<W>,
    rows: Log<W>,
    pub(super) newer: BTreeMap<Block, Newer>,
}

impl<W> Logs<W> {
    /// Empty logs. Rows are planned at the price of a disk: an operation weighs as much as the bytes that it could transfer
    /// while it moves to another place.
    ///
    /// # Errors
    /// There is no such code.
    pub(super) fn new(mechanics: &Mechanics) -> anyhow::Result<Self> {
        let bytes = mechanics.transfer_per_sec as f64 / mechanics.random_iops(0);
        Ok(Self {
            code: Code::new(DATA as u64, PARITY as u64, STRIP).context("the bench's code")?,
            price: Price::new(Some(bytes as u64), STRIP),
            blocks: Log::new(0),
            rows: Log::new(COPIES),
            newer: BTreeMap::new(),
        })
    }

    pub(super) fn log(&mut self, which: Which) -> &mut Log<W> {
        match which {
            Which::Blocks => &mut self.blocks,
            Which::Rows => &mut self.rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_file_lie_on_different_servers_and_the_next_file_on_others() {
        let mut log: Log<()> = Log::new(0);
        assert_eq!(log.servers(), [0, 1, 2]);
        log.appended = FILE;
        assert_eq!(log.servers(), [3, 4, 5]);
    }
}
