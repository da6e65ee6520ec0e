//! Reads the log at the opening: which blocks are newer than their places, and which changes of rows a crash cut off.
//!
//! Each batch names the one before it, and how far the log was durable when it was made. So the log is read along these names,
//! up to the first batch that is missing or lacks a block. That one was never synced, and so was nothing behind it, unless a
//! later batch says that it was durable: then it is damaged.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use policy::purpose::{Io, Origin, Step};
use policy::recycle::BLOCK;
use volume::{Error, ErrorKind, IoBuf, IoBufMut, Name, Object, Result};

use super::Shared;
use super::log::{File, PREFIX, are, note};
use super::record::{Head, PROBE, Parity, Record, Value, head_len};
use crate::leaf::ObjectId;
use crate::spread::{Patch, Spread};

/// Reads and syncs of the opening.
const IO: Io = Io::new(Origin::Open, Step::Data);

/// A batch that was found.
struct Found {
    file: Arc<File>,
    at: u64,
    head: Head,
}

/// A change of a row, and where its parity is.
struct Change {
    number: u64,
    data: Vec<(u64, Value)>,
    parity: Vec<Parity>,
    file: Arc<File>,
    at: u64,
}

/// The changes of rows in the log.
#[derive(Default)]
pub(super) struct Replay {
    /// The last one of each row.
    rows: BTreeMap<(ObjectId, u64), Change>,
    done: HashSet<u64>,
    /// The highest number of a change, also of one that is gone.
    last: u64,
}

/// The files of the log, the oldest first.
pub(super) async fn files(spread: &Spread) -> Result<Vec<(u64, Name)>> {
    let listed = spread.list_prefix(PREFIX).await?.into_iter();
    let mut all: Vec<_> = listed
        .filter_map(|listed| {
            let number = listed.name.as_str().strip_prefix(PREFIX)?;
            Some((u64::from_str_radix(number, 16).ok()?, listed.name))
        })
        .collect();
    all.sort();
    Ok(all)
}

impl Shared {
    /// Reads all files. What counts of them is durable on return.
    ///
    /// # Errors
    /// Those of the pool: too few copies of a file can be read. `Corrupt`: durable batches are damaged in all copies.
    pub(super) async fn read_files(&self, files: &[(u64, Name)]) -> Result<Replay> {
        let mut found = Vec::new();
        for (number, name) in files {
            let object = self.spread.open_handle(name).await?;
            let file = Arc::new(File { number: *number, object });
            self.log.adopt(Arc::clone(&file), file.object.len());
            // What is read now must be there after the next crash, too.
            file.object.sync(IO).await?;
            find(&file, &mut found).await?;
        }
        let seen = found.iter().map(|found| found.head.order.sequence).max().unwrap_or(0);
        let durable = found.iter().map(|found| found.head.order.durable).max().unwrap_or(0);
        let mut replay = Replay::default();
        let mut last = found.first().map_or(0, |first| first.head.order.previous);
        while let Some(next) = next(&mut found, last, durable).await? {
            last = next.head.order.sequence;
            self.take_note(next, &mut replay);
        }
        if last < durable {
            let what = format!(
                "the log of objects in place ({PREFIX}*) is damaged in all copies behind batch {last} of {durable}: \
                 bring back volumes that are away, or restore block devices"
            );
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        self.log.go_on(last, seen);
        Ok(replay)
    }

    fn take_note(&self, Found { file, at, head }: Found, replay: &mut Replay) {
        let mut blocks_at = at + head.blocks_at;
        let counts = self.existing(&head);
        self.log.with_index(|index| {
            note(index, &head.records, file.number, blocks_at, &|object, block| {
                counts.get(&object).is_some_and(|&len| block * BLOCK < len)
            });
        });
        for record in head.records {
            let blocks = record.blocks();
            if let Record::Row { change, object, row, data, parity } = record {
                replay.last = replay.last.max(change);
                let file = Arc::clone(&file);
                let change = Change { number: change, data, parity, file, at: blocks_at };
                replay.rows.insert((object, row), change);
            } else if let Record::Done { change } = record {
                // The change itself may be gone. Its number must not be used again while this says that it is in place.
                replay.last = replay.last.max(change);
                replay.done.insert(change);
            }
            blocks_at += blocks * BLOCK;
        }
    }

    /// The objects of a batch that exist, and their lengths.
    fn existing(&self, head: &Head) -> HashMap<ObjectId, u64> {
        let mut all = HashMap::new();
        for record in &head.records {
            if let Record::Blocks { object, .. } | Record::Zeros { object, .. } = record
                && !all.contains_key(object)
                && let Ok(base) = self.base(*object)
            {
                all.insert(*object, base.handle.len());
            }
        }
        all
    }

    /// Repeats the changes of rows that may not be in place.
    ///
    /// # Errors
    /// Those of the pool: too few fragments can be written, or a block of the log can be read in no copy.
    pub(super) async fn repeat(&self, replay: Replay) -> Result<()> {
        self.changes.store(replay.last, Ordering::Release);
        for ((object, row), change) in replay.rows {
            if replay.done.contains(&change.number) {
                continue;
            }
            let Ok(base) = self.base(object) else { continue };
            let patches = self.patches(base.code, &change).await?;
            let rows = base.handle.rows(base.code, row..row + 1, IO).await?;
            rows.decide(patches);
            rows.settle(IO).await?;
            self.log.finished(change.number, BTreeSet::new());
        }
        Ok(())
    }

    /// The new bytes of a row.
    async fn patches(&self, code: policy::placement::Code, change: &Change) -> Result<Vec<Patch>> {
        let mut patches = Vec::new();
        for &(block, value) in &change.data {
            let bytes = match value {
                Value::Zeros => IoBufMut::zeroed(BLOCK as usize).freeze(),
                Value::Stored(place) => self.log.read_block(place, IO).await?,
            };
            let (fragment, at) = code.chunks().locate(block * BLOCK);
            patches.push(Patch { fragment, at, bytes });
        }
        let checksums: Vec<_> = change.parity.iter().map(|parity| parity.checksum).collect();
        let bytes = match checksums.is_empty() {
            true => IoBuf::from(&[][..]),
            false => self.log.read(&change.file, change.at, &checksums, IO).await?.freeze(),
        };
        for (nth, Parity { fragment, block, .. }) in change.parity.iter().enumerate() {
            let from = nth * BLOCK as usize;
            let bytes = bytes.slice(from..from + BLOCK as usize);
            patches.push(Patch { fragment: usize::from(*fragment), at: block * BLOCK, bytes });
        }
        Ok(patches)
    }
}

/// Reads the records of the batches of a file, one after the other, as far as they can be read.
async fn find(file: &Arc<File>, found: &mut Vec<Found>) -> Result<()> {
    let mut at = 0;
    while let Some(head) = read_head(file, at).await? {
        let next = at + head.len();
        found.push(Found { file: Arc::clone(file), at, head });
        at = next;
    }
    Ok(())
}

/// Takes the batch that comes after `last` out of those that were found: of several attempts, the last that is whole.
async fn next(found: &mut Vec<Found>, last: u64, durable: u64) -> Result<Option<Found>> {
    let follows =
        |found: &Found| found.head.order.previous == last && found.head.order.sequence > last;
    loop {
        let candidates = found.iter().enumerate().filter(|(_, found)| follows(found));
        let newest = candidates.max_by_key(|(_, found)| found.head.order.sequence);
        let Some((at, _)) = newest else { return Ok(None) };
        let next = found.swap_remove(at);
        if next.head.order.sequence <= durable || has_blocks(&next).await? {
            return Ok(Some(next));
        }
    }
}

/// The records of the batch at `at`, from any copy that has it.
async fn read_head(file: &Arc<File>, at: u64) -> Result<Option<Head>> {
    if at >= file.object.len() {
        return Ok(None);
    }
    let probe = read_if(file, at, PROBE, |bytes| head_len(bytes).is_some()).await?;
    let Some(end) = probe.as_deref().and_then(head_len) else { return Ok(None) };
    let of = file.number;
    let is_whole = move |bytes: &[u8]| Head::decode(bytes, of).is_some();
    let bytes = read_if(file, at, end.max(PROBE), is_whole).await?;
    Ok(bytes.and_then(|bytes| Head::decode(&bytes, of)))
}

/// Whether a batch has all of its blocks.
async fn has_blocks(Found { file, at, head }: &Found) -> Result<bool> {
    let checksums: Vec<_> = head.records.iter().flat_map(Record::checksums).collect();
    let len = checksums.len() * BLOCK as usize;
    let check = move |bytes: &[u8]| are(bytes, &checksums);
    Ok(read_if(file, at + head.blocks_at, len, check).await?.is_some())
}

/// The bytes at `at`, from any copy that `check` accepts.
async fn read_if(
    file: &File,
    at: u64,
    len: usize,
    check: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
) -> Result<Option<IoBufMut>> {
    let read = file.object.read_at(at, IoBufMut::zeroed(len), IO).await?;
    if check(&read) {
        return Ok(Some(read));
    }
    match file.object.read_again(at, IoBufMut::zeroed(len), IO, Arc::new(check)).await {
        Ok(read) => Ok(Some(read)),
        Err(e) if e.kind() == ErrorKind::Corrupt => Ok(None),
        Err(e) => Err(e),
    }
}
