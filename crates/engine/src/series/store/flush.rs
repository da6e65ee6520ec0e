//! Writing buffered rows as blocks.
//!
//! Blocks that might exceed the log store's limit ([`Sizes`](super::sizes::Sizes)) are divided: any accepted row can be
//! written.
//!
//! The write-ahead log is synced first: a block uses numbers of sources and fields that the log defines. Writing a
//! block reads nothing; several blocks of one slot are regrouped later.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::cuts::Cuts;
use super::key::{self, BlockKey, Owner, Slot};
use super::state::Taken;
use super::upkeep::Upkeep;
use super::writing::Writing;
use super::{Inner, failed, pages, rows};
use crate::log::Edit;
use crate::series::Result;
use crate::series::block::{self, Table};

/// How many sources are written at a time: from full buffers some megabytes; from others enough to share a sync.
const READY: usize = 256;
/// See `READY`.
const OLDEST: usize = 1024;
/// A source with fewer points in a slot shares a block with others.
const OWN_POINTS: usize = 256;
/// A slot with this many blocks is regrouped before it has ended.
const PARTS_MAX: usize = 8;

/// The buffers to write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Which {
    /// Full ones.
    Ready,
    /// Those whose oldest row is in this segment of the log, or in an older one.
    Through(u32),
    /// Only rows that are taken already.
    Taken,
}

/// The tables of each block, by database, turn and slot. A slot with too many rows takes several turns.
type Parts = BTreeMap<(u32, u32, Slot), Vec<(u32, Table)>>;

/// Changes of the catalogue that are being stored. They are owed again if that fails, or its future is dropped.
struct Dirty<'a> {
    inner: &'a Inner,
    measurements: BTreeSet<u32>,
    pages: BTreeSet<u32>,
}

impl Drop for Dirty<'_> {
    fn drop(&mut self) {
        let catalogue = &mut self.inner.state().catalogue;
        catalogue.dirty_measurements.append(&mut self.measurements);
        catalogue.dirty_pages.append(&mut self.pages);
    }
}

impl Inner {
    /// Writes some buffers as blocks; says whether there were any.
    pub(super) async fn write_blocks(
        &self,
        upkeep: &mut Upkeep,
        which: Which,
        cuts: Option<&Cuts>,
    ) -> Result<bool> {
        let (taken, shapes, databases, ticket, is_catalogue_owed) = {
            let mut state = self.state();
            if state.taken.is_empty() {
                match which {
                    Which::Ready => state.take_ready(READY),
                    Which::Through(segment) => state.take_oldest(segment, OLDEST),
                    Which::Taken => {}
                }
            }
            if state.taken.is_empty() {
                return Ok(false);
            }
            let taken: Vec<(u32, Arc<Taken>)> =
                state.taken.iter().map(|(&source, taken)| (source, Arc::clone(taken))).collect();
            let databases: HashMap<u32, u32> = taken
                .iter()
                .map(|&(source, _)| {
                    (source, state.catalogue.database_of(source).map_or(0, |facts| facts.id))
                })
                .collect();
            let shapes = state.catalogue.shapes.clone();
            (taken, shapes, databases, state.queue.standing(), state.queue.is_catalogue_owed)
        };
        if self.commit(ticket, true).await.is_err() || is_catalogue_owed {
            self.write_catalogue().await?;
            self.log.sync().await.map_err(|error| failed(&error))?;
            self.state().queue.is_catalogue_owed = false;
        }
        let mut parts = Parts::new();
        let mut counts = HashMap::new();
        for (source, taken) in &taken {
            let mut table = rows::table(&taken.rows, &shapes, &mut counts);
            if let Some(cuts) = cuts {
                cuts.apply(*source, &mut table);
            }
            divide(*source, table, databases[source], &mut parts);
        }
        drop(shapes);
        let mut blocks = Vec::with_capacity(parts.len());
        for ((database, turn, slot), sources) in parts {
            let pieces = pieces(sources, self.sizes.block).into_iter().enumerate();
            blocks.extend(pieces.map(|(piece, sources)| ((database, turn, piece), slot, sources)));
        }
        // Blocks in one slot need different rounds.
        blocks.sort_by_key(|(turn, slot, _)| (*turn, *slot));
        let mut round = self.state().round;
        let mut last = None;
        let mut writing = Writing::new(self);
        let mut slots = Vec::with_capacity(blocks.len());
        let count = blocks.chunk_by(|a, b| a.0 == b.0).count() as u64;
        self.state().round = round + count;
        for (turn, slot, sources) in blocks {
            if last.is_some_and(|last| last != turn) {
                round += 1;
            }
            last = Some(turn);
            writing.add(self.put_block(BlockKey { slot, round }, &sources, None)).await?;
            slots.push(slot);
        }
        writing.end().await?;
        self.state().put_down(&taken, &counts);
        slots.into_iter().for_each(|slot| self.look_at(upkeep, slot));
        Ok(true)
    }

    /// The edit that stores a block.
    pub(super) fn put_block(
        &self,
        key: BlockKey,
        sources: &[(u32, Table)],
        lives: Option<u64>,
    ) -> Edit {
        let key = key.bytes();
        let block = block::encode(&key, sources);
        Edit::Put { key, value: block.into(), lives }
    }

    /// Queues for regrouping a slot with many blocks, and the previous slot, which has ended, if it has several.
    fn look_at(&self, upkeep: &mut Upkeep, slot: Slot) {
        let count = |slot: &Slot| self.log.keys(&slot.prefix(), None, PARTS_MAX).len();
        if count(&slot) >= PARTS_MAX {
            upkeep.regroup.insert(slot);
        }
        if let Some(start) = slot.start.checked_sub(1 << slot.level) {
            let before = Slot { start, ..slot };
            if !upkeep.regroup.contains(&before) && count(&before) > 1 {
                upkeep.regroup.insert(before);
            }
        }
    }

    /// Writes the changes of the catalogue. Durable after a sync of the log store.
    pub(super) async fn write_catalogue(&self) -> Result<()> {
        // Changes made meanwhile are dirty again.
        let mut dirty = {
            let catalogue = &mut self.state().catalogue;
            Dirty {
                inner: self,
                measurements: std::mem::take(&mut catalogue.dirty_measurements),
                pages: std::mem::take(&mut catalogue.dirty_pages),
            }
        };
        self.write_pages(&dirty.measurements, &dirty.pages).await?;
        dirty.measurements.clear();
        dirty.pages.clear();
        Ok(())
    }

    async fn write_pages<'a>(
        &self,
        measurements: impl IntoIterator<Item = &'a u32>,
        page_numbers: impl IntoIterator<Item = &'a u32>,
    ) -> Result<()> {
        let max = self.sizes.block;
        for &id in measurements {
            let records = pages::encode_measurement(&self.state().catalogue, id, max);
            self.put_record(key::numbered(key::MEASUREMENT, id), records).await?;
        }
        for &page in page_numbers {
            let records = pages::encode_page(&self.state().catalogue, page, max);
            self.put_record(key::numbered(key::PAGE, page), records).await?;
        }
        Ok(())
    }

    /// Replaces the parts of a record. A crash midway loses none: the old parts stay until all new ones are durable.
    pub(super) async fn put_record(&self, key: Bytes, records: Vec<Bytes>) -> Result<()> {
        let known = self.log.keys(&key, None, usize::MAX);
        let used: Vec<u8> =
            known.iter().filter_map(|part| key::generation_of(&key, part)).collect();
        let generation = (0..=u8::MAX).find(|one| !used.contains(one)).unwrap_or_default();
        let (is_alone, is_gone) = (records.len() == 1, records.is_empty());
        let name = |at: usize| match is_alone {
            true => key.clone(),
            false => key::part(&key, generation, at as u16),
        };
        let mut writing = Writing::new(self);
        for (at, value) in records.into_iter().enumerate() {
            writing.add(Edit::Put { key: name(at), value, lives: None }).await?;
        }
        writing.end().await?;
        let is_old = |part: &&Bytes| match is_alone {
            true => **part != key,
            false => key::generation_of(&key, part).is_none_or(|of| of != generation),
        };
        let old: Vec<&Bytes> = known.iter().filter(is_old).collect();
        if old.is_empty() {
            return Ok(());
        }
        if !is_gone {
            self.log.sync().await.map_err(|error| failed(&error))?;
        }
        let mut writing = Writing::new(self);
        for part in old {
            writing.add(Edit::Delete { key: part.clone() }).await?;
        }
        writing.end().await
    }
}

/// Divides a source's rows by slot; small parts go to the source's group.
fn divide(source: u32, table: Table, database: u32, parts: &mut Parts) {
    let level = key::level_of(&table.times);
    // The start of each slot, and of each turn of it.
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some(&first) = table.times.get(at) {
        starts.push(at);
        let slot = Slot { owner: Owner::Source(source), level, start: key::start_of(first, level) };
        let len = table.times[at..].partition_point(|&time| time < slot.end());
        at += len.min(block::ROWS_MAX);
    }
    let mut turn = 0;
    for table in table.divide(starts.get(1..).unwrap_or_default()) {
        let Some(&first) = table.times.first() else { continue };
        let mut slot =
            Slot { owner: Owner::Source(source), level, start: key::start_of(first, level) };
        let points: usize = table.columns.iter().map(|column| column.values.len()).sum();
        if points < OWN_POINTS {
            slot.owner = Owner::group_of(source);
        }
        let is_full = table.times.len() == block::ROWS_MAX;
        parts.entry((database, turn, slot)).or_default().push((source, table));
        turn += u32::from(is_full);
    }
}

/// Divides the tables of a block that might exceed `max` bytes: by source, then by row, then by column.
fn pieces(sources: Vec<(u32, Table)>, max: usize) -> Vec<Vec<(u32, Table)>> {
    let mut pieces = Vec::new();
    let (mut piece, mut bytes) = (Vec::new(), block::BYTES_MAX);
    for (source, table) in sources {
        let mut fitting = Vec::new();
        fit(table, max.saturating_sub(block::BYTES_MAX), &mut fitting);
        for table in fitting {
            let more = block::bytes_max(&table);
            let is_again = piece.last().is_some_and(|(last, _)| *last == source);
            if is_again || bytes + more > max && !piece.is_empty() {
                pieces.push(std::mem::take(&mut piece));
                bytes = block::BYTES_MAX;
            }
            piece.push((source, table));
            bytes += more;
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

fn fit(table: Table, max: usize, into: &mut Vec<Table>) {
    let rows = table.times.len();
    let halves = match block::bytes_max(&table) {
        bytes if bytes <= max => return into.push(table),
        _ if rows > 1 => table.divide(&[rows / 2]),
        _ if table.columns.len() > 1 => table.halve_columns().into(),
        // A single value always fits.
        _ => return into.push(table),
    };
    halves.into_iter().for_each(|half| fit(half, max, into));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Value;
    use crate::series::block::Builder;

    #[test]
    fn pieces_fit_and_hold_everything() {
        let text = "x".repeat(900);
        let mut sources = Vec::new();
        for source in 0..5u16 {
            let mut builder = Builder::default();
            for row in 0..40u16 {
                builder.row(i64::from(row));
                for field in 0..8 {
                    let is_text = source == 3 && field > 3;
                    let number = Value::Integer(i64::from(row * field) << 40);
                    builder.value(field, if is_text { Value::Text(&text) } else { number });
                }
            }
            sources.push((u32::from(source), builder.resolved()));
        }
        let points = |tables: &[(u32, Table)]| -> usize {
            let columns = tables.iter().flat_map(|(_, table)| &table.columns);
            columns.map(|column| column.values.len()).sum()
        };
        for max in [1500, 4000, 20_000, 1 << 20] {
            let pieces = pieces(sources.clone(), max);
            assert_eq!(pieces.iter().map(|piece| points(piece)).sum::<usize>(), points(&sources));
            for piece in &pieces {
                assert!(piece.is_sorted_by(|a, b| a.0 < b.0));
                let block = block::encode(b"key", piece);
                assert!(block.len() <= max, "{} of {max}", block.len());
            }
            assert!((pieces.len() == 1) == (max == 1 << 20), "{} of {max}", pieces.len());
        }
    }
}
