//! Which blocks of which objects the log has newer than their places, and which files of it are needed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use volume::BlockSum;

use super::value::Value;
use crate::leaf::ObjectId;

/// The newest value of a block, and when it came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// The file whose record says so.
    file: u64,
    /// The batch of that record.
    pub(super) batch: u64,
    /// Unique: a later value of the block has another.
    version: u64,
    /// What the block has in place.
    below: Below,
}

/// What a block has in place while the log has a newer value of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Below {
    /// The value that its store knew until the write that is in the log.
    Latest,
    /// Bytes with this checksum.
    Sum(BlockSum),
    /// An older value.
    Unknown,
}

/// A block, and its newest value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Live {
    pub(super) object: ObjectId,
    pub(super) block: u64,
    pub(super) entry: Entry,
}

/// A row of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) object: ObjectId,
    pub(super) number: u64,
    /// Blocks of a row.
    pub(super) width: u64,
}

impl Row {
    /// Its blocks, by their numbers in the object.
    pub(super) const fn blocks(self) -> Range<u64> {
        self.number * self.width..(self.number + 1) * self.width
    }
}

/// The newest values of all blocks that are not known to be in place.
#[derive(Default)]
pub(super) struct Index {
    objects: BTreeMap<ObjectId, BTreeMap<u64, Entry>>,
    files: BTreeMap<u64, Use>,
    /// Changes of rows that may have to be repeated, each with the file that says so.
    changes: HashMap<u64, u64>,
    /// Changes that ended before their records were written.
    ended: HashSet<u64>,
    version: u64,
}

/// What needs a file.
#[derive(Default)]
struct Use {
    /// Blocks whose newest value a record of it says.
    live: u64,
    /// Changes of rows that a crash would repeat from it.
    pins: u64,
    /// The blocks that its records say, in their order: some have newer values.
    written: Vec<(ObjectId, u64)>,
}

impl Entry {
    /// The file whose record says so.
    pub(super) const fn file(&self) -> u64 {
        self.file
    }

    /// The checksum of what the block has in place, if it is known.
    pub(super) const fn below(&self) -> Option<BlockSum> {
        match self.below {
            Below::Sum(sum) => Some(sum),
            Below::Latest | Below::Unknown => None,
        }
    }
}

impl Index {
    /// Takes note of a file, which has no record yet.
    pub(super) fn add_file(&mut self, file: u64) {
        self.files.entry(file).or_default();
    }

    /// The newest value of a block: a record of a batch in `file` says so.
    pub(super) fn put(
        &mut self,
        (object, block): (ObjectId, u64),
        value: Value,
        (file, batch): (u64, u64),
    ) {
        self.version += 1;
        let entries = self.objects.entry(object).or_default();
        let below = match entries.get(&block).map(|old| old.below) {
            None => Below::Latest,
            Some(Below::Sum(sum)) => Below::Sum(sum),
            Some(Below::Latest | Below::Unknown) => Below::Unknown,
        };
        let entry = Entry { value, file, batch, version: self.version, below };
        let old = entries.insert(block, entry);
        self.release(old);
        self.add(file, (object, block));
    }

    /// A record of a file says the newest value of a block.
    fn add(&mut self, file: u64, block: (ObjectId, u64)) {
        let used = self.files.entry(file).or_default();
        used.live += 1;
        used.written.push(block);
    }

    /// The entries of a range of blocks, in order.
    pub(super) fn get(&self, object: ObjectId, blocks: Range<u64>) -> Vec<(u64, Entry)> {
        let Some(entries) = self.objects.get(&object) else { return Vec::new() };
        entries.range(blocks).map(|(&block, &entry)| (block, entry)).collect()
    }

    /// The number of entries of a range of blocks.
    pub(super) fn count(&self, object: ObjectId, blocks: Range<u64>) -> u64 {
        self.objects.get(&object).map_or(0, |entries| entries.range(blocks).count() as u64)
    }

    /// Whether the store has not said yet what a block of the range has in place, and can: the log has one value of it.
    pub(super) fn lacks_sums(&self, object: ObjectId, blocks: Range<u64>) -> bool {
        let entries = self.objects.get(&object);
        entries.is_some_and(|all| all.range(blocks).any(|(_, e)| e.below == Below::Latest))
    }

    /// The store says what the latest value of a block was, before that of the log.
    pub(super) fn was(&mut self, object: ObjectId, block: u64, sum: Option<BlockSum>) {
        let entry = self.objects.get_mut(&object).and_then(|entries| entries.get_mut(&block));
        if let Some(entry) = entry.filter(|entry| entry.below == Below::Latest) {
            entry.below = sum.map_or(Below::Unknown, Below::Sum);
        }
    }

    /// A block is in place with this entry's value.
    pub(super) fn in_place(&mut self, object: ObjectId, block: u64, entry: Entry) {
        let Some(entries) = self.objects.get_mut(&object) else { return };
        match entries.get_mut(&block) {
            Some(now) if now.version == entry.version => {}
            Some(newer) => {
                newer.below = Below::Sum(entry.value.sum());
                return;
            }
            None => return,
        }
        let old = entries.remove(&block);
        if entries.is_empty() {
            self.objects.remove(&object);
        }
        self.release(old);
    }

    /// The object does not exist any more.
    pub(super) fn forget(&mut self, object: ObjectId) {
        let entries = self.objects.remove(&object).unwrap_or_default();
        entries.into_values().for_each(|entry| self.release(Some(entry)));
    }

    fn release(&mut self, old: Option<Entry>) {
        if let Some(used) = old.and_then(|old| self.files.get_mut(&old.file)) {
            used.live -= 1;
        }
    }

    /// A crash would repeat a change of a row from these files, until they are released.
    pub(super) fn pin(&mut self, files: &BTreeSet<u64>) {
        files.iter().for_each(|file| self.files.entry(*file).or_default().pins += 1);
    }

    /// The inverse of [`Index::pin`].
    pub(super) fn unpin(&mut self, files: &BTreeSet<u64>) {
        for file in files {
            if let Some(used) = self.files.get_mut(file) {
                used.pins -= 1;
            }
        }
    }

    /// A record of `file` says how a row changes: the file is needed until the change ends.
    pub(super) fn begin_change(&mut self, change: u64, file: u64) {
        if !self.ended.remove(&change) {
            self.changes.insert(change, file);
            self.pin(&BTreeSet::from([file]));
        }
    }

    /// A change is in place, or was given up before it was decided. Its record may still be on its way.
    pub(super) fn end_change(&mut self, change: u64) {
        match self.changes.remove(&change) {
            Some(file) => self.unpin(&BTreeSet::from([file])),
            None => {
                self.ended.insert(change);
            }
        }
    }

    /// The file of an entry's bytes, and that of its record.
    pub(super) fn files_of(entry: &Entry) -> impl Iterator<Item = u64> + use<> {
        let stored = match entry.value {
            Value::Stored(place) => Some(place.file),
            Value::Zeros => None,
        };
        [Some(entry.file), stored].into_iter().flatten()
    }

    /// The oldest file that has the newest value of a block.
    pub(super) fn first_live(&self) -> Option<u64> {
        self.files.iter().find(|(_, used)| used.live > 0).map(|(&file, _)| file)
    }

    /// The live blocks of the oldest file that has any, each once; none if that file is the `current` one, which is written.
    pub(super) fn oldest(&self, current: Option<u64>) -> Vec<Live> {
        let oldest = self.first_live().filter(|&file| Some(file) != current);
        let Some((oldest, used)) = oldest.and_then(|file| Some((file, self.files.get(&file)?)))
        else {
            return Vec::new();
        };
        let written: BTreeSet<_> = used.written.iter().copied().collect();
        let live = written.into_iter().filter_map(|(object, block)| {
            let entry = *self.objects.get(&object)?.get(&block)?;
            (entry.file == oldest).then_some(Live { object, block, entry })
        });
        live.collect()
    }

    /// Whether the log has no newer value of the block than this.
    pub(super) fn is_newest(&self, Live { object, block, entry }: Live) -> bool {
        let now = self.objects.get(&object).and_then(|entries| entries.get(&block));
        now.is_some_and(|now| now.version == entry.version)
    }

    /// The same value of a block is in another file as well now, unless there is a newer one. It stays the same value: a change of a
    /// row that began before brings it in place.
    pub(super) fn moved(&mut self, live: Live, value: Value, (file, batch): (u64, u64)) {
        let Live { object, block, entry } = live;
        let now = self.objects.get_mut(&object).and_then(|entries| entries.get_mut(&block));
        let Some(now) = now.filter(|now| now.version == entry.version) else { return };
        let old = *now;
        *now = Entry { value, file, batch, ..old };
        self.release(Some(old));
        self.add(file, (object, block));
    }

    /// The rows with the most blocks of the log, until these have `enough` blocks; `width` says how many blocks a row of an object
    /// has.
    pub(super) fn densest(&self, width: impl Fn(ObjectId) -> Option<u64>, enough: u64) -> Vec<Row> {
        let mut rows = Vec::<(u64, Row)>::new();
        for (&object, entries) in &self.objects {
            let Some(width) = width(object) else { continue };
            for &block in entries.keys() {
                let number = block / width;
                match rows.last_mut() {
                    Some((count, row)) if row.object == object && row.number == number => {
                        *count += 1;
                    }
                    _ => rows.push((1, Row { object, number, width })),
                }
            }
        }
        rows.sort_by_key(|&(count, _)| Reverse(count));
        let mut sum = 0;
        let taken = rows.into_iter().take_while(|(count, _)| {
            let more = sum < enough;
            sum += count;
            more
        });
        taken.map(|(_, row)| row).collect()
    }

    /// The oldest file, if nothing needs it and it is not being written. Files go in their order: a newer one may say that a
    /// record of an older one does not count.
    pub(super) fn unneeded(&self, current: Option<u64>) -> Option<u64> {
        let (&file, used) = self.files.first_key_value()?;
        (Some(file) != current && used.live == 0 && used.pins == 0).then_some(file)
    }

    /// A file was removed.
    pub(super) fn remove_file(&mut self, file: u64) {
        self.files.remove(&file);
    }

    /// The number of blocks whose newest value is in the log.
    pub(super) fn blocks(&self) -> u64 {
        self.files.values().map(|used| used.live).sum()
    }

    /// The objects with blocks in the log.
    pub(super) fn objects(&self) -> Vec<ObjectId> {
        self.objects.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::Place;
    use super::*;

    fn stored(file: u64, at: u64) -> Value {
        Value::Stored(Place { file, at, checksum: 0 })
    }

    const A: ObjectId = ObjectId(1);
    const B: ObjectId = ObjectId(2);

    #[test]
    fn a_file_is_needed_as_long_as_it_has_the_newest_value_of_a_block() {
        let oldest = |index: &Index| {
            let live = index.oldest(None).into_iter();
            live.map(|live| (live.object, live.block)).collect::<Vec<_>>()
        };
        let mut index = Index::default();
        index.put((A, 0), stored(1, 0), (1, 0));
        index.put((A, 1), stored(1, 4096), (1, 0));
        index.put((A, 0), stored(2, 0), (2, 0));
        index.put((B, 0), Value::Zeros, (2, 0));
        assert_eq!(oldest(&index), [(A, 1)]);
        assert_eq!(index.unneeded(Some(3)), None);
        let (_, entry) = index.get(A, 1..2)[0];
        index.in_place(A, 1, entry);
        assert_eq!(index.unneeded(Some(3)), Some(1));
        assert_eq!(index.unneeded(Some(1)), None, "it is being written");
        index.remove_file(1);
        assert_eq!(oldest(&index), [(A, 0), (B, 0)]);
        index.forget(B);
        index.forget(A);
        assert_eq!((index.unneeded(Some(3)), index.blocks()), (Some(2), 0));
    }

    #[test]
    fn a_value_that_was_written_over_meanwhile_is_not_in_place() {
        let mut index = Index::default();
        index.put((A, 7), stored(1, 0), (1, 0));
        let (_, old) = index.get(A, 0..9)[0];
        index.put((A, 7), stored(1, 0), (1, 0));
        index.in_place(A, 7, old);
        assert_eq!(index.get(A, 0..9).len(), 1);
        assert_eq!(index.blocks(), 1);
    }

    #[test]
    fn a_value_that_is_moved_stays_the_newest_and_one_that_was_written_over_does_not_come_back() {
        let mut index = Index::default();
        for block in 0..3 {
            index.put((A, block), stored(1, block * 4096), (1, 1));
        }
        index.was(A, 0, Some(BlockSum::of_zeros()));
        assert_eq!(index.oldest(Some(1)), [], "it is being written");
        let live = index.oldest(Some(2));
        assert_eq!(live.len(), 3);
        let first = live[0].entry;
        // Between the look and the move: one has a newer value, one is in place.
        index.put((A, 1), stored(2, 0), (2, 2));
        index.in_place(A, 2, live[2].entry);
        for (nth, live) in live.into_iter().enumerate() {
            index.moved(live, stored(3, nth as u64 * 4096), (3, 3));
        }
        let entries = index.get(A, 0..9);
        let values: Vec<_> = entries.iter().map(|(block, entry)| (*block, entry.value)).collect();
        assert_eq!(values, [(0, stored(3, 0)), (1, stored(2, 0))]);
        assert_eq!(entries[0].1.below(), Some(BlockSum::of_zeros()), "in place is what was");
        assert_eq!((index.first_live(), index.blocks()), (Some(2), 2));
        assert_eq!(index.unneeded(Some(3)), Some(1));
        // A change that began before the move.
        index.in_place(A, 0, first);
        assert_eq!(index.get(A, 0..1), []);
        assert_eq!(index.blocks(), 1);
    }

    #[test]
    fn the_rows_with_the_most_blocks_come_first() {
        let mut index = Index::default();
        for (object, block) in [(A, 0), (A, 5), (A, 6), (A, 7), (A, 8), (B, 1), (B, 2)] {
            index.put((object, block), Value::Zeros, (1, 1));
        }
        let densest = |enough| {
            let width = |object| (object == A || object == B).then_some(4);
            let rows = index.densest(width, enough).into_iter();
            rows.map(|row| (row.object, row.number)).collect::<Vec<_>>()
        };
        assert_eq!(densest(0), []);
        assert_eq!(densest(3), [(A, 1)]);
        assert_eq!(densest(4), [(A, 1), (B, 0)]);
        assert_eq!(densest(99), [(A, 1), (B, 0), (A, 0), (A, 2)]);
        assert_eq!(index.densest(|object| (object == B).then_some(4), 9).len(), 1);
    }

    #[test]
    fn a_file_is_needed_until_the_changes_that_it_says_have_ended() {
        let mut index = Index::default();
        index.begin_change(1, 5);
        index.end_change(2);
        index.begin_change(2, 5);
        index.begin_change(3, 6);
        assert_eq!(index.unneeded(Some(6)), None);
        index.end_change(1);
        assert_eq!(index.unneeded(Some(6)), Some(5));
        index.remove_file(5);
        assert_eq!(index.unneeded(Some(7)), None);
        index.end_change(3);
        assert_eq!(index.unneeded(Some(7)), Some(6));
    }

    #[test]
    fn a_newer_file_stays_while_an_older_one_is_needed() {
        let mut index = Index::default();
        index.put((A, 0), stored(1, 0), (1, 0));
        index.put((A, 1), stored(2, 0), (2, 0));
        let (_, entry) = index.get(A, 1..2)[0];
        index.in_place(A, 1, entry);
        assert_eq!(index.unneeded(Some(3)), None);
        index.pin(&BTreeSet::from([1]));
        let (_, entry) = index.get(A, 0..1)[0];
        index.in_place(A, 0, entry);
        assert_eq!(index.unneeded(Some(3)), None, "a crash would repeat a change from it");
        index.unpin(&BTreeSet::from([1]));
        assert_eq!(index.unneeded(Some(3)), Some(1));
    }
}
