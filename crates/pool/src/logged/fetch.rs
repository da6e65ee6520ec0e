//! Blocks of the log that are about to go in place and are not in memory: read for many rows at once.
//!
//! ```text
//!   file 7   │ · A · B · · C · · · · · · · · A │    A, B, C: rows of a group
//!   reads      ╰─────────╯                 ╰─╯     across a gap where it weighs less than another read
//! ```
//! A row has blocks in many files, and a file has blocks of many rows. Read row by row, each block would cost an operation.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use policy::price::Price;
use policy::purpose::Io;
use policy::recycle::{self, BLOCK};
use volume::{IoBuf, IoBufMut, Object};

use super::Shared;
use super::index::Row;
use super::log::File;
use super::value::{Place, Value};

/// Reads at the same time.
const AT_ONCE: usize = 8;

/// Blocks by their places in the log.
#[derive(Default)]
pub(super) struct Fetched(HashMap<(u64, u64), IoBuf>);

impl Fetched {
    /// The block at a place, if it was read and is whole.
    pub(super) fn get(&self, place: Place) -> Option<IoBuf> {
        let block = self.0.get(&(place.file, place.at))?;
        (crc32c::crc32c(block) == place.checksum).then(|| block.clone())
    }
}

impl Shared {
    /// Cuts rows into groups whose blocks in the log take at most half of its memory, or that are of one row.
    pub(super) fn groups(&self, rows: &[Row]) -> Vec<Vec<Row>> {
        let most = self.options.memory / 2 / BLOCK;
        let (mut groups, mut blocks) = (Vec::<Vec<Row>>::new(), 0);
        self.blocks.with_index(|index| {
            for row in rows {
                let count = index.count(row.object, row.blocks());
                match groups.last_mut() {
                    Some(group) if blocks + count <= most => group.push(*row),
                    _ => {
                        groups.push(vec![*row]);
                        blocks = 0;
                    }
                }
                blocks += count;
            }
        });
        groups
    }

    /// Reads the blocks of a group that are not in memory. Those that cannot be read are left out: the row reads them
    /// again, and that error counts.
    pub(super) async fn fetch(&self, group: &[Row], price: Price, io: Io) -> Fetched {
        let blocks = group.iter().flat_map(|row| self.blocks.look_up(row.object, row.blocks()));
        let places = blocks.filter_map(|(_, entry, _)| match entry.value {
            Value::Stored(place) => Some(place),
            Value::Zeros => None,
        });
        self.fetch_places(places, price, io).await
    }

    /// The same by their places.
    pub(super) async fn fetch_places(
        &self,
        places: impl Iterator<Item = Place>,
        price: Price,
        io: Io,
    ) -> Fetched {
        let mut files = BTreeMap::<u64, Vec<u64>>::new();
        for place in places {
            if !self.blocks.is_in_memory(place) {
                files.entry(place.file).or_default().push(place.at);
            }
        }
        let mut reads = Vec::new();
        for (number, mut blocks) in files {
            let Some(file) = self.blocks.file(number) else { continue };
            blocks.sort_unstable();
            for span in recycle::reads(&blocks, price) {
                let [from, to] =
                    [span.start, span.end].map(|end| blocks.partition_point(|&at| at < end));
                reads.push(read_blocks(Arc::clone(&file), span, blocks[from..to].to_vec(), io));
            }
        }
        let read: Vec<_> = stream::iter(reads).buffer_unordered(AT_ONCE).collect().await;
        Fetched(read.into_iter().flatten().collect())
    }
}

/// Reads a span of a file, and keeps these blocks of it; none if it cannot be read.
async fn read_blocks(
    file: Arc<File>,
    span: Range<u64>,
    blocks: Vec<u64>,
    io: Io,
) -> Vec<((u64, u64), IoBuf)> {
    let into = IoBufMut::unread((span.end - span.start) as usize);
    let Ok(read) = file.object.read_at(span.start, into, io).await else { return Vec::new() };
    let block = |at: u64| {
        let from = (at - span.start) as usize;
        // A copy: the gaps are let go.
        let bytes = read.get(from..from + BLOCK as usize)?;
        Some(((file.number, at), IoBuf::from(bytes)))
    };
    blocks.into_iter().filter_map(block).collect()
}
