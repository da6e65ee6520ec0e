//! Reads the log at the opening: which blocks are newer than their places, and which changes of rows a crash cut off.
//!
//! Each batch names the one before it, and how far the log was durable when it was made. So the log is read along these names,
//! up to the first batch that is missing or lacks a block. That one was never synced, and so was nothing behind it, unless a
//! later batch says that it was durable: then it is damaged.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use policy::placement::Code;
use policy::purpose::{Io, Origin, Step};
use policy::recycle::BLOCK;
use volume::{Check, Error, ErrorKind, IoBuf, IoBufMut, Name, Object, Result};

use super::Shared;
use super::log::{File, Log, PREFIX, are, note};
use super::record::{Head, Order, PROBE, Parity, Record, head_len, is_later};
use super::value::Value;
use crate::leaf::ObjectId;
use crate::spread::{Missed, Patch, Spread};

/// Reads and syncs of the opening.
const IO: Io = Io::new(Origin::Open, Step::Data);

/// Attempts to read a place of a file while volumes fail.
const ATTEMPTS: u32 = 3;

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
    missed: Missed,
    file: Arc<File>,
    at: u64,
}

/// Blocks behind the ends of objects that the log has all the same: a crash came before their length was recorded.
pub(super) type Behind = BTreeMap<ObjectId, Range<u64>>;

/// The changes of rows in the log.
#[derive(Default)]
pub(super) struct Changes {
    /// The last one of each row: those before it are in place, or it has all that they would have brought.
    rows: BTreeMap<(ObjectId, u64), Change>,
    /// Their numbers.
    numbers: Vec<u64>,
    /// What does not count.
    pub(super) behind: Behind,
}

/// Files of a log by their numbers, the oldest first.
pub(super) type Files = Vec<(u64, Name)>;

/// The files of a log.
pub(super) async fn files(spread: &Spread, log: &str) -> Result<Files> {
    let prefix = format!("{PREFIX}{log}/");
    let listed = spread.list_prefix(&prefix).await?.into_iter();
    let mut all: Vec<_> = listed
        .filter_map(|listed| {
            let number = listed.name.as_str().strip_prefix(&prefix)?;
            Some((u64::from_str_radix(number, 16).ok()?, listed.name))
        })
        .collect();
    all.sort();
    Ok(all)
}

impl Shared {
    /// Reads all files of a log. What counts of them is durable on return.
    ///
    /// # Errors
    /// Those of the pool: too few copies of a file can be read. `Corrupt`: durable batches are damaged in all copies.
    pub(super) async fn read(&self, log: &Log, files: &Files) -> Result<Changes> {
        let (mut found, mut never_synced) = (Vec::new(), BTreeSet::new());
        for (number, name) in files {
            // Of a file that was never synced a crash of the machine may have left any copy, or none: nothing of it was promised. The
            // death of the process alone has left all, which must not be given up because the pool takes no change now.
            let was_synced = self.spread.was_synced(name);
            let mut file = self.find(*number, name, was_synced).await;
            if file.is_err() && !was_synced {
                self.spread.takes_changes().await?;
                file = self.find(*number, name, was_synced).await;
            }
            match file {
                Ok((file, batches)) => {
                    if !was_synced {
                        never_synced.insert(*number);
                    }
                    log.adopt(Arc::clone(&file), file.object.len());
                    found.extend(batches);
                }
                Err(e) if !was_synced => {
                    tracing::debug!("{name} was never synced, and is removed: {e}");
                    self.spread.remove_soon(name).await?;
                }
                Err(e) => return Err(e),
            }
        }
        let seen = found.iter().map(|found| found.head.order.sequence).max().unwrap_or(0);
        let durable = found.iter().map(|found| found.head.order.durable).max().unwrap_or(0);
        found.retain(|found: &Found| {
            may_count(found.head.order, durable, !never_synced.contains(&found.file.number))
        });
        let mut changes = Changes::default();
        let mut last = begin(found.iter().map(|found| found.head.order));
        while let Some(next) = next(&mut found, last, durable).await? {
            last = next.head.order.sequence;
            self.take_note(log, next, &mut changes);
        }
        if last < durable {
            let name = files.first().map_or(PREFIX, |(_, name)| name.as_str());
            let what = format!(
                "the log of objects in place ({name} and later) is damaged in all copies behind batch {last} of {durable}: \
                 bring back volumes that are away, or restore block devices"
            );
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        log.go_on(last, seen);
        Ok(changes)
    }

    /// Opens a file, and finds its batches.
    async fn find(
        &self,
        number: u64,
        name: &Name,
        was_synced: bool,
    ) -> Result<(Arc<File>, Vec<Found>)> {
        let file = Arc::new(File { number, object: self.spread.open_handle(name).await? });
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(head) = read_head(&file, at).await? {
            let next = at + head.len();
            found.push(Found { file: Arc::clone(&file), at, head });
            at = next;
        }
        if file.object.copies_differ() {
            // Repairs the blocks of which one copy is damaged, before that could spread.
            for found in &found {
                has_blocks(found).await?;
            }
        }
        // What was read must be there after the next crash, too.
        if was_synced {
            file.object.sync(IO).await?;
            return Ok((file, found));
        }
        // And after as many losses as other files survive: a file that was never synced may have one copy left. Before the sync,
        // from which on it counts; where copies differed, after it.
        self.spread.make_missing_copies(&file.object, IO).await;
        file.object.sync(IO).await?;
        self.spread.make_missing_copies(&file.object, IO).await;
        Ok((file, found))
    }

    fn take_note(&self, log: &Log, Found { file, at, head }: Found, changes: &mut Changes) {
        let mut blocks_at = at + head.blocks_at;
        let counts = self.existing(&head);
        log.with_index(|index| {
            let of = (file.number, head.order.sequence);
            note(index, &head.records, of, blocks_at, &|object, block| {
                counts.get(&object).is_some_and(|&len| block * BLOCK < len)
            });
        });
        for record in head.records {
            let blocks = record.blocks();
            note_behind(&record, &counts, &mut changes.behind);
            if let Record::Row { change, object, row, data, parity, missed } = record {
                changes.numbers.push(change);
                let file = Arc::clone(&file);
                changes.rows.insert(
                    (object, row),
                    Change { number: change, data, parity, missed, file, at: blocks_at },
                );
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

    /// Says in the log that bytes behind the ends of objects are zeros, before one becomes longer and they would count.
    /// Durable on return.
    ///
    /// # Errors
    /// Those of the pool.
    pub(super) async fn clear_behind_ends(&self, behind: Behind) -> Result<()> {
        let mut records: Vec<_> = behind
            .iter()
            .map(|(&object, blocks)| {
                let (block, count) = (blocks.start, blocks.end - blocks.start);
                (Record::Zeros { object, block, count }, Vec::new())
            })
            .collect();
        for object in self.blocks.with_index(|index| index.objects()) {
            records.extend(self.end_without_tail(object).await?);
        }
        if records.is_empty() {
            return Ok(());
        }
        self.blocks.append_durably(records).await?;
        self.blocks.with_index(|index| {
            for (object, blocks) in behind {
                // Nothing of it goes in place.
                let entries = index.get(object, blocks);
                entries.into_iter().for_each(|(block, entry)| index.in_place(object, block, entry));
            }
        });
        Ok(())
    }

    /// The last block of an object without the bytes behind its end, if the log has any.
    async fn end_without_tail(&self, object: ObjectId) -> Result<Option<(Record, Vec<IoBuf>)>> {
        let len = self.base(object)?.handle.len();
        let (block, inside) = (len / BLOCK, (len % BLOCK) as usize);
        let found = self.blocks.look_up(object, block..block + 1).pop();
        let Some(Value::Stored(place)) = found.map(|(_, entry, _)| entry.value) else {
            return Ok(None);
        };
        let bytes = self.blocks.read_block(place, IO).await?;
        if bytes[inside..].iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let mut bytes = IoBufMut::from(&bytes[..]);
        bytes[inside..].fill(0);
        let checksums = vec![crc32c::crc32c(&bytes)];
        Ok(Some((Record::Blocks { object, block, checksums }, vec![bytes.freeze()])))
    }

    /// Repeats the changes of rows.
    ///
    /// # Errors
    /// Those of the pool: too few fragments can be written, or a block of the log can be read in no copy.
    pub(super) async fn repeat(&self, changes: Changes) -> Result<()> {
        self.changes.store(changes.numbers.iter().copied().max().unwrap_or(0), Ordering::Release);
        let mut numbers = changes.numbers;
        for ((object, row), change) in changes.rows {
            // Files of blocks stay as long as a change that was decided needs them.
            let is_there = |(_, value): &(u64, Value)| match value {
                Value::Stored(place) => self.blocks.has(place.file),
                Value::Zeros => true,
            };
            if !change.data.iter().all(is_there) {
                continue;
            }
            let Ok(base) = self.base(object) else { continue };
            let patches = self.patches(base.code, &change).await?;
            let rows = base.handle.rows(base.code, row..row + 1, IO).await?;
            rows.decide(patches, change.missed.clone());
            match rows.settle(IO).await {
                Err(e) if e.kind() == ErrorKind::OutOfSpace => {
                    tracing::warn!("a row stays in the log of objects in place for now: {e}");
                    numbers.retain(|&number| number != change.number);
                    self.keep_decided((object, row), &change);
                }
                settled => settled?,
            }
        }
        self.rows.with_index(|index| {
            numbers.into_iter().for_each(|change| index.end_change(change));
        });
        self.rows.trim().await.map(drop)
    }

    /// A row has no room on a volume: its change and the bytes of it stay in the log.
    fn keep_decided(&self, row: (ObjectId, u64), change: &Change) {
        let files = change.data.iter().filter_map(|(_, value)| match value {
            Value::Stored(place) => Some(place.file),
            Value::Zeros => None,
        });
        let files: BTreeSet<_> = files.collect();
        self.blocks.with_index(|index| index.pin(&files));
        self.needed.lock().insert(change.number, files);
        self.decided.lock().entry(row).or_default().push(change.number);
    }

    /// The new bytes of a row.
    async fn patches(&self, code: Code, change: &Change) -> Result<Vec<Patch>> {
        let mut patches = Vec::new();
        for &(block, value) in &change.data {
            let bytes = match value {
                Value::Zeros => IoBufMut::zeroed(BLOCK as usize).freeze(),
                Value::Stored(place) => self.blocks.read_block(place, IO).await?,
            };
            let (fragment, at) = code.chunks().locate(block * BLOCK);
            patches.push(Patch { fragment, at, bytes });
        }
        let checksums: Vec<_> = change.parity.iter().map(|parity| parity.checksum).collect();
        let bytes = match checksums.is_empty() {
            true => IoBuf::from(&[][..]),
            false => self.rows.read(&change.file, change.at, &checksums, IO).await?,
        };
        for (nth, Parity { fragment, block, .. }) in change.parity.iter().enumerate() {
            let from = nth * BLOCK as usize;
            let bytes = bytes.slice(from..from + BLOCK as usize);
            patches.push(Patch { fragment: usize::from(*fragment), at: block * BLOCK, bytes });
        }
        Ok(patches)
    }
}

/// Takes note of what a record says of blocks behind the end of an object.
fn note_behind(record: &Record, lens: &HashMap<ObjectId, u64>, behind: &mut Behind) {
    let (object, blocks) = match record {
        Record::Blocks { object, block, checksums } => {
            (object, *block..*block + checksums.len() as u64)
        }
        Record::Zeros { object, block, count } => {
            let is_all = |of: &Range<u64>| *block <= of.start && of.end <= block + count;
            if behind.get(object).is_some_and(is_all) {
                behind.remove(object);
            }
            return;
        }
        Record::Row { .. } => return,
    };
    let Some(len) = lens.get(object) else { return };
    let blocks = blocks.start.max(len.div_ceil(BLOCK))..blocks.end;
    if !blocks.is_empty() {
        let of = behind.entry(*object).or_insert_with(|| blocks.clone());
        *of = of.start.min(blocks.start)..of.end.max(blocks.end);
    }
}

/// Whether a batch may count. Those that do up to the durable one are in files that were synced: one in another file is of an
/// attempt that failed, and the file could not be removed.
const fn may_count(order: Order, durable: u64, was_synced: bool) -> bool {
    was_synced || order.sequence > durable
}

/// The last batch that went with a file, or zero: the others that count come after it. Files go in their order, so no
/// batch before it is left. A batch that was left out by an earlier opening may be, and name one that never counted; but
/// those that count and came later have higher numbers.
fn begin(orders: impl Iterator<Item = Order>) -> u64 {
    let (mut lowest, mut follow) = (u64::MAX, BTreeMap::<u64, u64>::new());
    for Order { sequence, previous, .. } in orders {
        lowest = lowest.min(sequence);
        let newest = follow.entry(previous).or_default();
        *newest = sequence.max(*newest);
    }
    let end = |begin: u64| {
        let mut last = begin;
        while let Some(&next) = follow.get(&last).filter(|&&next| next > last) {
            last = next;
        }
        last
    };
    let begins = follow.range(..lowest).map(|(&begin, _)| begin);
    begins.max_by_key(|&begin| end(begin)).unwrap_or(0)
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
    let is_head = |bytes: &[u8]| head_len(bytes).is_some() || is_later(bytes);
    let probe = read_if(file, at, PROBE, is_head).await?;
    if probe.as_deref().is_some_and(is_later) {
        let what = "a later version of the program wrote the log of objects in place: open the pool with that";
        return Err(Error::new(ErrorKind::Invalid, what));
    }
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
///
/// A copy that does not answer may have a batch that the others lack. That batch was never acknowledged, since not all
/// copies have it. So such a copy is dropped, lest it counts when it comes back.
async fn read_if(
    file: &File,
    at: u64,
    len: usize,
    check: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
) -> Result<Option<IoBufMut>> {
    let check: Check = Arc::new(check);
    let mut attempt = 1;
    loop {
        match read_any(file, at, len, &check).await {
            Err(e) if attempt < ATTEMPTS => {
                tracing::debug!("a file of the log is read again without copies that fail: {e}");
                // It drops the copies that fail.
                file.object.sync(IO).await?;
                attempt += 1;
            }
            read => return read,
        }
    }
}

/// # Errors
/// Those of a copy, if `check` accepts no other one.
async fn read_any(file: &File, at: u64, len: usize, check: &Check) -> Result<Option<IoBufMut>> {
    let read = file.object.read_at(at, IoBufMut::zeroed(len), IO).await?;
    if check(&read) {
        return Ok(Some(read));
    }
    match file.object.read_again(at, IoBufMut::zeroed(len), IO, Arc::clone(check)).await {
        Ok(read) => Ok(Some(read)),
        Err(e) if e.kind() == ErrorKind::Corrupt => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin_of(orders: &[[u64; 3]]) -> u64 {
        let order =
            |&[sequence, previous, durable]: &[u64; 3]| Order { sequence, previous, durable };
        begin(orders.iter().map(order))
    }

    /// Batches 3 to 5 were lost in a crash, so 6 does not count. Then the file with 1 and 2 went, and 6 was the first one.
    #[test]
    fn a_batch_that_never_counted_is_not_taken_for_the_first_when_older_files_went() {
        let left = [[6, 5, 0], [7, 2, 2], [8, 7, 7], [9, 8, 8]];
        assert_eq!(begin_of(&left), 2);
        assert_eq!(begin_of(&left[..2]), 2, "also before a later one says what is durable");
        assert_eq!(begin_of(&[[1, 0, 0], [2, 1, 0], [6, 5, 0], [7, 2, 2]]), 0);
    }

    #[test]
    fn a_batch_that_is_missing_between_others_is_not_passed_over() {
        assert_eq!(begin_of(&[]), 0);
        assert_eq!(begin_of(&[[4, 3, 0], [5, 4, 4]]), 3, "its file went");
        assert_eq!(begin_of(&[[1, 0, 0], [2, 1, 1], [4, 3, 3], [5, 4, 4]]), 0);
    }

    /// The attempt at batch 3 failed, and so did the removal of its file. Later files came and went: the opening took it for
    /// the first batch of the log, and those before 8 for damaged.
    #[test]
    fn a_failed_attempt_in_a_file_that_stayed_does_not_count() {
        let mut left = vec![([3, 1, 1], false), ([8, 7, 7], true), ([9, 8, 8], false)];
        let order = |&([sequence, previous, durable], _): &([u64; 3], bool)| Order {
            sequence,
            previous,
            durable,
        };
        assert_eq!(begin(left.iter().map(order)), 1);
        left.retain(|found| may_count(order(found), 8, found.1));
        assert_eq!(begin(left.iter().map(order)), 7);
        assert_eq!(left.len(), 2, "what is not durable may count");
    }

    #[test]
    fn of_several_attempts_any_may_come_first() {
        assert_eq!(begin_of(&[[3, 2, 2], [4, 2, 2], [5, 4, 2]]), 2);
    }
}
