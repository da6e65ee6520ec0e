//! Brings what the log has newer in place, the oldest first, a row at a time, so that its files can go.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use policy::purpose::{Io, Origin, Step};
use policy::recycle::BLOCK;
use volume::{ErrorKind, IoBuf, IoBufMut, Result};

use super::Shared;
use super::index::Index;
use super::object::Base;
use super::record::{Parity, Record, Value};
use crate::leaf::ObjectId;
use crate::spread::Dirty;

/// Rows that change at the same time.
const AT_ONCE: usize = 8;

/// A change of a row whose record is on its way into the log. If it is given up, it counts as finished: nothing of it was
/// written in place, and what it would have brought in place is still in the log.
struct Undecided<'a> {
    shared: &'a Shared,
    change: u64,
    files: BTreeSet<u64>,
    decided: bool,
}

impl Drop for Undecided<'_> {
    fn drop(&mut self) {
        if !self.decided {
            self.shared.log.finished(self.change, std::mem::take(&mut self.files));
        }
    }
}

impl Shared {
    /// The purpose of bringing blocks in place: more urgent, the fuller the log.
    fn io(&self) -> Io {
        let full = 100 * self.log.bytes() / self.options.limit.max(1);
        let space_pressure_percent = u8::try_from(full).unwrap_or(u8::MAX);
        Io::new(Origin::Merge { space_pressure_percent }, Step::Data)
    }

    /// Brings in place what the oldest file has the newest values of, and removes files that nothing needs then.
    ///
    /// # Errors
    /// The first of a row, after all were tried.
    pub(super) async fn recycle_oldest(&self) -> Result<()> {
        let blocks = self.log.with_index(|index| index.oldest());
        let mut rows = BTreeSet::new();
        for (object, block) in blocks {
            match self.base(object) {
                Ok(base) => {
                    rows.insert((object, block / base.width()));
                }
                Err(e) if e.kind() == ErrorKind::Gone => self.forget(object),
                Err(e) => return Err(e),
            }
        }
        let changed = rows.into_iter().map(|(object, row)| self.recycle(object, row));
        let changed: Vec<_> = stream::iter(changed).buffer_unordered(AT_ONCE).collect().await;
        self.log.trim().await?;
        changed.into_iter().collect()
    }

    /// Brings rows of an object in place.
    ///
    /// # Errors
    /// Those of the pool.
    pub(super) async fn bring_in_place(&self, base: &Arc<Base>, rows: Range<u64>) -> Result<()> {
        for row in rows {
            self.recycle_row(base, row).await?;
        }
        Ok(())
    }

    /// The object does not exist any more.
    pub(super) fn forget(&self, object: ObjectId) {
        self.log.with_index(|index| index.forget(object));
        let decided =
            self.decided.lock().extract_if(.., |(id, _), _| *id == object).collect::<Vec<_>>();
        for (_, changes) in decided {
            changes.into_iter().for_each(|(change, files)| self.log.finished(change, files));
        }
    }

    async fn recycle(&self, object: ObjectId, row: u64) -> Result<()> {
        let changed = match self.base(object) {
            Ok(base) => self.recycle_row(&base, row).await,
            Err(e) => Err(e),
        };
        match changed {
            Err(e) if e.kind() == ErrorKind::Gone => {
                self.forget(object);
                Ok(())
            }
            changed => changed,
        }
    }

    async fn recycle_row(&self, base: &Arc<Base>, row: u64) -> Result<()> {
        let (object, io) = (base.handle.id(), self.io());
        let rows = base.handle.rows(base.code, row..row + 1, io).await?;
        // What was decided before is in place now.
        let settled = self.decided.lock().remove(&(object, row));
        for (change, files) in settled.into_iter().flatten() {
            self.log.finished(change, files);
        }
        let first = row * base.width();
        let newer = self.log.look_up(object, first..first + base.width());
        if newer.is_empty() {
            return Ok(());
        }
        let mut dirty = Vec::new();
        let mut runs = newer.iter().peekable();
        while let Some((block, entry, file)) = runs.next() {
            let (Value::Stored(place), Some(file)) = (entry.value, file) else {
                dirty.push(self.dirty(base, *block, IoBufMut::zeroed(BLOCK as usize).freeze()));
                continue;
            };
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
            let bytes = self.log.read(file, place.at, &checksums, io).await?.freeze();
            for (nth, block) in (0..checksums.len()).zip(*block..) {
                let at = nth * BLOCK as usize;
                dirty.push(self.dirty(base, block, bytes.slice(at..at + BLOCK as usize)));
            }
        }
        dirty.sort_by_key(|dirty| (dirty.fragment, dirty.block));
        let staged = rows.stage(&dirty, self.options.price, io).await?;
        let change = self.next_change();
        let files: BTreeSet<_> =
            newer.iter().flat_map(|(_, entry, _)| Index::files_of(entry)).collect();
        self.log.with_index(|index| index.pin(&files));
        let mut undecided = Undecided { shared: self, change, files, decided: false };
        let data = newer.iter().map(|(block, entry, _)| (*block, entry.value)).collect();
        let (mut parity, mut blocks) = (Vec::new(), Vec::new());
        for patch in &staged.parity {
            let checksum = crc32c::crc32c(&patch.bytes);
            let block = patch.at / BLOCK;
            parity.push(Parity { fragment: patch.fragment as u8, block, checksum });
            blocks.push(patch.bytes.clone());
        }
        let record = Record::Row { change, object, row, data, parity };
        let file = self.log.append([(record, blocks)]).await?;
        let own = BTreeSet::from([file]);
        if undecided.files.insert(file) {
            self.log.with_index(|index| index.pin(&own));
        }
        self.log.sync().await?;
        undecided.decided = true;
        let files = std::mem::take(&mut undecided.files);
        self.decided.lock().entry((object, row)).or_default().push((change, files));
        rows.decide(staged.writes);
        rows.settle(io).await?;
        self.log.with_index(|index| {
            newer.iter().for_each(|(block, entry, _)| index.in_place(object, *block, *entry));
        });
        let settled = self.decided.lock().remove(&(object, row));
        for (change, files) in settled.into_iter().flatten() {
            self.log.finished(change, files);
        }
        self.figures.recycled(newer.len() as u64);
        Ok(())
    }

    /// A block of an object as one of its row.
    fn dirty(&self, base: &Base, block: u64, bytes: IoBuf) -> Dirty {
        let (fragment, inner) = base.code.chunks().locate(block * BLOCK);
        let block = (inner % base.code.strip() / BLOCK) as u32;
        Dirty { fragment, block, bytes }
    }
}
