//! Brings what the log has newer in place, the oldest first, a row at a time, so that its files can go.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use policy::placement::Code;
use policy::price::Price;
use policy::purpose::{Io, Origin, Step};
use policy::recycle::room::MOVED;
use policy::recycle::{BLOCK, Cost};
use volume::{Error, ErrorKind, Expected, IoBuf, IoBufMut, Object, Result};

use super::Shared;
use super::fetch::Fetched;
use super::index::{Entry, Index, Live, Row};
use super::log::File;
use super::object::Base;
use super::record::{Parity, Record};
use super::value::Value;
use crate::leaf::ObjectId;
use crate::spread::{Dirty, InPlace};

/// Rows that change at the same time.
const AT_ONCE: usize = 8;

/// A block, its newest value, and the file that holds that.
type Newest = (u64, Entry, Option<Arc<File>>);

/// Rows after which operations and bytes are weighed anew.
const ROWS: u64 = 128;

/// What bringing blocks in place took of the volumes lately.
pub(super) struct Spending {
    /// The price for the next rows.
    pub(super) price: Price,
    rows: u64,
    operations: u64,
    bytes: u64,
    /// Bytes that the log appended before, and its syncs.
    appended: (u64, u64),
}

impl Spending {
    pub(super) const fn new(price: Price) -> Self {
        Self { price, rows: 0, operations: 0, bytes: 0, appended: (0, 0) }
    }
}

/// A change of a row whose record is on its way into the log. If it is given up, it has ended: nothing of it was written in
/// place, and what it would have brought in place is still in the log of blocks.
struct Undecided<'a> {
    shared: &'a Shared,
    change: u64,
    decided: bool,
}

impl Drop for Undecided<'_> {
    fn drop(&mut self) {
        if !self.decided {
            self.shared.rows.with_index(|index| index.end_change(self.change));
        }
    }
}

/// Files of blocks that a record of a row needs, on its way into the log.
struct Pinned<'a> {
    shared: &'a Shared,
    files: Option<BTreeSet<u64>>,
}

impl Pinned<'_> {
    /// They are needed until this change ends.
    fn until_ended(mut self, change: u64) {
        let files = self.files.take().unwrap_or_default();
        self.shared.needed.lock().insert(change, files);
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // The record may be in the log all the same. Without it a crash leaves the row as it is.
        if let Some(files) = self.files.take() {
            self.shared.blocks.with_index(|index| index.unpin(&files));
        }
    }
}

/// Who waits for blocks to go in place.
#[derive(Clone, Copy)]
enum For {
    /// Nobody waits, or writes that need room do: the fuller the log, the more urgent the work.
    Room,
    /// The caller.
    Caller,
}

impl Shared {
    /// The purpose of bringing blocks in place.
    fn io(&self, whom: For) -> Io {
        let space_pressure_percent = match whom {
            For::Room => self.room.percent(self.blocks.fill()),
            For::Caller => 100,
        };
        Io::new(Origin::Recycle { space_pressure_percent }, Step::Data)
    }

    /// Makes room: brings the rows in place that have the most blocks, and appends what is left of the oldest files again. False:
    /// there was nothing to do.
    ///
    /// # Errors
    /// The first of a row, after all were tried. If none went in place: that of appending blocks again.
    pub(super) async fn make_more_room(&self) -> Result<bool> {
        let before = self.figures.rows();
        let mut widths = HashMap::new();
        for object in self.blocks.with_index(|index| index.objects()) {
            match self.base(object) {
                Ok(base) => {
                    widths.insert(object, base.width());
                }
                Err(e) if e.kind() == ErrorKind::Gone => self.forget(object),
                Err(e) => return Err(e),
            }
        }
        let moved = self.move_oldest().await;
        let fill = self.blocks.fill();
        let width = |object| widths.get(&object).copied();
        let (dense, oldest) = self.blocks.with_index(|index| {
            let dense = index.densest(width, self.room.to_place(fill));
            // Where nothing can be appended again, all of the oldest goes in place.
            let oldest = if self.room.moves(fill) { index.oldest(None) } else { Vec::new() };
            (dense, oldest)
        });
        let of_oldest = oldest.into_iter().filter_map(|Live { object, block, .. }| {
            let width = width(object)?;
            Some(Row { object, number: block / width, width })
        });
        let mut seen = HashSet::new();
        let mut rows: Vec<_> = of_oldest.chain(dense).collect();
        rows.retain(|row| seen.insert((row.object, row.number)));
        let changed = self.recycle_rows(&rows, For::Room).await;
        let freed = self.trim().await?;
        changed?;
        let has_rows = self.figures.rows() > before;
        match moved {
            // A volume is full, or a block rotten: rows made room all the same.
            Err(e) if has_rows => {
                tracing::warn!("blocks of the oldest file of the log are not appended again: {e}");
                Ok(true)
            }
            moved => Ok(moved? || freed || has_rows),
        }
    }

    /// While the log wants it and that gives room, appends what is live of its oldest files again, so that they can go. False: it
    /// appended nothing.
    async fn move_oldest(&self) -> Result<bool> {
        // One at a time.
        let Some(_alone) = self.moving.try_lock() else { return Ok(false) };
        let mut moved = false;
        while self.room.moves(self.blocks.fill()) {
            let current = self.blocks.current().await;
            let live = self.blocks.with_index(|index| index.oldest(current));
            let bytes = live.first().map_or(0, |live| self.blocks.len_of(live.entry.file()));
            if !self.room.gains(live.len() as u64, bytes) {
                break;
            }
            for some in live.chunks(MOVED as usize) {
                let read = self.bytes_of(some).await?;
                self.blocks.move_blocks(read).await?;
                self.blocks.sync().await?;
                self.figures.moved(some.len() as u64);
            }
            moved = true;
            self.wake_waiting();
            self.trim().await?;
        }
        Ok(moved)
    }

    /// Reads blocks of the log that are about to be appended again.
    async fn bytes_of(&self, live: &[Live]) -> Result<Vec<(Live, Option<IoBuf>)>> {
        let io = self.io(For::Room);
        let places = live.iter().filter_map(|live| match live.entry.value {
            Value::Stored(place) => Some(place),
            Value::Zeros => None,
        });
        let price = self.spending.lock().price;
        let fetched = self.fetch_places(places, price, io).await;
        let mut all = Vec::new();
        for &live in live {
            let bytes = match live.entry.value {
                Value::Zeros => None,
                Value::Stored(place) => match fetched.get(place) {
                    Some(bytes) => Some(bytes),
                    None => match self.blocks.read_block(place, io).await {
                        // The file may have gone meanwhile.
                        Err(_) if !self.blocks.with_index(|index| index.is_newest(live)) => {
                            continue;
                        }
                        read => Some(read?),
                    },
                },
            };
            all.push((live, bytes));
        }
        Ok(all)
    }

    /// Brings these rows in place.
    ///
    /// # Errors
    /// The first of a row, after all were tried.
    async fn recycle_rows(&self, rows: &[Row], whom: For) -> Result<()> {
        let mut all = Ok(());
        for group in self.groups(rows) {
            let price = self.spending.lock().price;
            let fetched = self.fetch(&group, price, self.io(whom)).await;
            let changed = group.into_iter().map(|row| self.recycle(row, whom, &fetched));
            let changed: Vec<_> = stream::iter(changed).buffer_unordered(AT_ONCE).collect().await;
            all = all.and(changed.into_iter().collect());
        }
        all
    }

    /// Removes files that nothing needs; false if there is none. Those of blocks are needed as long as a crash would repeat a
    /// change from them.
    async fn trim(&self) -> Result<bool> {
        self.rows.trim().await?;
        let freed = self.blocks.trim().await?;
        if freed {
            self.wake_waiting();
        }
        Ok(freed)
    }

    /// Brings rows of an object in place.
    ///
    /// # Errors
    /// Those of the pool.
    pub(super) async fn bring_in_place(&self, base: &Arc<Base>, rows: Range<u64>) -> Result<()> {
        let (object, width) = (base.handle.id(), base.width());
        let blocks = rows.start * width..rows.end * width;
        let newer = self.blocks.with_index(|index| index.get(object, blocks));
        let mut rows: Vec<_> = newer.into_iter().map(|(block, _)| block / width).collect();
        rows.dedup();
        let rows: Vec<_> = rows.into_iter().map(|number| Row { object, number, width }).collect();
        self.recycle_rows(&rows, For::Caller).await
    }

    /// The object does not exist any more.
    pub(super) fn forget(&self, object: ObjectId) {
        self.blocks.with_index(|index| index.forget(object));
        let mut decided = self.decided.lock();
        let decided = decided.extract_if(.., |(id, _), _| *id == object);
        decided.for_each(|(_, changes)| self.end(changes));
    }

    /// Changes of rows are in place, and durable there. An opening that finds one of them does not find all of its blocks, or repeats
    /// it.
    fn end(&self, changes: Vec<u64>) {
        self.rows.with_index(|index| changes.iter().for_each(|change| index.end_change(*change)));
        let mut needed = self.needed.lock();
        let files: Vec<_> = changes.iter().filter_map(|change| needed.remove(change)).collect();
        drop(needed);
        self.blocks.with_index(|index| files.iter().for_each(|files| index.unpin(files)));
    }

    async fn recycle(&self, row: Row, whom: For, fetched: &Fetched) -> Result<()> {
        let changed = match self.base(row.object) {
            Ok(base) => self.recycle_row(&base, row.number, self.io(whom), fetched).await,
            Err(e) => Err(e),
        };
        if let Err(e) = self.move_oldest().await {
            tracing::debug!("blocks of the log of objects in place are not appended again: {e}");
        }
        match changed {
            Err(e) if e.kind() == ErrorKind::Gone => {
                self.forget(row.object);
                Ok(())
            }
            changed => changed,
        }
    }

    async fn recycle_row(
        &self,
        base: &Arc<Base>,
        row: u64,
        io: Io,
        fetched: &Fetched,
    ) -> Result<()> {
        let object = base.handle.id();
        let first = row * base.width();
        // Before the claim: the checksums may be in a row that has to be claimed to be read.
        let of_row = first..first + base.width();
        self.spread.expected(base.handle.object_name(), of_row, Some(io)).await;
        let (rows, newer, pinned) = loop {
            let rows = base.handle.rows(base.code, row..row + 1, io).await?;
            // Also what had no room before.
            rows.settle(io).await?;
            // What was decided before is in place now.
            let settled = self.decided.lock().remove(&(object, row));
            self.end(settled.unwrap_or_default());
            let (newer, pinned) = self.pinned(object, first..first + base.width());
            if newer.is_empty() {
                return Ok(());
            }
            if base.is_committed(base.handle.len()) {
                break (rows, newer, pinned);
            }
            drop(pinned);
            // Nothing goes in place behind an end that a crash may bring back. Writers that make the object longer may
            // wait for these rows.
            drop(rows);
            base.commit(&self.blocks).await?;
        };
        base.handle.recorded().await?;
        let mut dirty = Vec::new();
        let mut runs = newer.iter().peekable();
        while let Some((block, entry, file)) = runs.next() {
            let Value::Stored(place) = entry.value else {
                dirty.push(self.dirty(base, *block, IoBufMut::zeroed(BLOCK as usize).freeze()));
                continue;
            };
            let Some(file) = file else {
                let what = format!("object {object}: block {block} is in no file of the log");
                return Err(Error::new(ErrorKind::Corrupt, what));
            };
            if let Some(bytes) = fetched.get(place) {
                dirty.push(self.dirty(base, *block, bytes));
                continue;
            }
            let mut checksums = vec![place.checksum];
            while let Some((next, other, _)) = runs.peek()
                && let Value::Stored(other) = other.value
                && *next == block + checksums.len() as u64
                && other.file == place.file
                && other.at == place.at + checksums.len() as u64 * BLOCK
            {
                checksums.push(other.checksum);
                runs.next();
            }
            let bytes = self.blocks.read(file, place.at, &checksums, io).await?;
            for (nth, block) in (0..checksums.len()).zip(*block..) {
                let at = nth * BLOCK as usize;
                dirty.push(self.dirty(base, block, bytes.slice(at..at + BLOCK as usize)));
            }
        }
        dirty.sort_by_key(|dirty| (dirty.fragment, dirty.block));
        let price = self.spending.lock().price;
        let in_place = self.in_place(base, first).await;
        let staged = rows.stage(&dirty, &in_place, price, io).await?;
        self.spent(staged.cost, base.code);
        let change = self.next_change();
        let mut undecided = Undecided { shared: self, change, decided: false };
        let data = newer.iter().map(|(block, entry, _)| (*block, entry.value)).collect();
        let (mut parity, mut blocks) = (Vec::new(), Vec::new());
        for patch in &staged.parity {
            let checksum = crc32c::crc32c(&patch.bytes);
            let block = patch.at / BLOCK;
            parity.push(Parity { fragment: patch.fragment as u8, block, checksum });
            blocks.push(patch.bytes.clone());
        }
        let record = Record::Row { change, object, row, data, parity, missed: None };
        let newest = newer.iter().map(|(_, entry, _)| entry.batch).max().unwrap_or(0);
        self.blocks.sync_batch(newest).await?;
        self.rows.append_durably([(record, blocks)]).await?;
        pinned.until_ended(change);
        undecided.decided = true;
        self.decided.lock().entry((object, row)).or_default().push(change);
        rows.decide(staged.writes, None);
        rows.settle(io).await?;
        self.blocks.with_index(|index| {
            newer.iter().for_each(|(block, entry, _)| index.in_place(object, *block, *entry));
        });
        let settled = self.decided.lock().remove(&(object, row));
        self.end(settled.unwrap_or_default());
        self.came_in_place(newer.len() as u64);
        Ok(())
    }

    /// The newest values of a range of blocks, with the files that hold them. These stay until the returned value is dropped.
    fn pinned(&self, object: ObjectId, blocks: Range<u64>) -> (Vec<Newest>, Pinned<'_>) {
        let (entries, files) = self.blocks.with_index(|index| {
            let entries = index.get(object, blocks);
            let files = entries.iter().flat_map(|(_, entry)| Index::files_of(entry));
            let files: BTreeSet<_> = files.collect();
            index.pin(&files);
            (entries, files)
        });
        let pinned = Pinned { shared: self, files: Some(files) };
        let file = |value| match value {
            Value::Stored(place) => self.blocks.file(place.file),
            Value::Zeros => None,
        };
        let newest = entries.into_iter().map(|(block, entry)| (block, entry, file(entry.value)));
        (newest.collect(), pinned)
    }

    /// What the store of an object expects in place in the row whose blocks begin with `first`. The caller has claimed it.
    async fn in_place(&self, base: &Base, first: u64) -> InPlace {
        let blocks = first..first + base.width();
        let mut all = self.spread.expected(base.handle.object_name(), blocks.clone(), None).await;
        // Only now: of a block that is not in the log after the answer, it was the value in place.
        for (block, entry) in
            self.blocks.with_index(|index| index.get(base.handle.id(), blocks.clone()))
        {
            let expected = &mut all[(block - first) as usize];
            if *expected != Expected::Unchecked {
                *expected = entry.below().map_or(Expected::Unknown, Expected::Sum);
            }
        }
        InPlace::new(base.code, all)
    }

    /// Bytes appended to both logs, and their syncs.
    pub(super) fn appended(&self) -> (u64, u64) {
        let (blocks, rows) = (self.blocks.appended(), self.rows.appended());
        (blocks.0 + rows.0, blocks.1 + rows.1)
    }

    /// Takes note of what a row cost, and weighs operations and bytes anew now and then: what the volumes had more of.
    fn spent(&self, cost: Cost, code: Code) {
        let copies = code.parity() as u64 + 1;
        let (bytes, syncs) = self.appended();
        let mut spending = self.spending.lock();
        spending.rows += 1;
        spending.operations += cost.operations;
        spending.bytes += cost.bytes;
        if spending.rows < ROWS {
            return;
        }
        let (log_bytes, log_syncs) = spending.appended;
        let operations = spending.operations + copies * (syncs - log_syncs);
        let all_bytes = spending.bytes + copies * (bytes - log_bytes);
        let price = spending.price.rebalanced(operations, all_bytes);
        *spending = Spending { appended: (bytes, syncs), ..Spending::new(price) };
    }

    /// A block of an object as one of its row.
    fn dirty(&self, base: &Base, block: u64, bytes: IoBuf) -> Dirty {
        let (fragment, inner) = base.code.chunks().locate(block * BLOCK);
        let block = (inner % base.code.strip() / BLOCK) as u32;
        Dirty { fragment, block, bytes }
    }
}
