//! From rows to blocks.
//!
//! The log is synced first: a block uses numbers of sources and fields that the log tells. Nothing is read
//! to write a block; several of one slot are regrouped later.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::key::{self, BlockKey, Owner, Slot};
use super::state::Taken;
use super::upkeep::Upkeep;
use super::{Counts, Inner, failed, pages, rows};
use crate::log::Edit;
use crate::series::block::{self, Table};
use crate::series::{Result, Span};

/// How many sources' rows are written at a time: of full buffers some megabytes, of others what shares a sync.
const READY: usize = 256;
/// See `READY`.
const OLDEST: usize = 1024;
/// A source with fewer points in a slot shares a block with others.
const OWN_POINTS: usize = 256;
/// So many blocks of a slot are regrouped before it has ended.
const PARTS_MAX: usize = 8;

/// Which buffers are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Which {
    /// Those that are full.
    Ready,
    /// Those whose oldest row is in this segment of the log or an older one.
    Through(u32),
    /// What was taken already.
    Taken,
}

/// What is deleted.
pub(super) struct Cuts {
    pub(super) span: Span,
    /// Fields of each source.
    pub(super) fields: HashMap<u32, Vec<u16>>,
}

impl Cuts {
    /// Takes it away from what is known of a source; says whether there was anything.
    pub(super) fn apply(&self, source: u32, table: &mut Table) -> bool {
        self.fields.get(&source).is_some_and(|fields| {
            table.cut(|field| fields.binary_search(&field).is_ok(), self.span)
        })
    }
}

/// By database, turn and slot: what one block holds. A slot with too many rows takes several turns.
type Parts = BTreeMap<(u32, u32, Slot), Vec<(u32, Table)>>;

impl Inner {
    /// Writes some buffers as blocks; says whether there were any.
    pub(super) async fn write_blocks(
        &self,
        upkeep: &mut Upkeep,
        which: Which,
        cuts: Option<&Cuts>,
    ) -> Result<bool> {
        let (taken, shapes, databases, ticket, is_untold) = {
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
            (taken, shapes, databases, state.queue.ticket, state.queue.is_untold)
        };
        if self.commit(ticket, true).await.is_err() || is_untold {
            self.write_catalogue().await?;
            self.log.sync().await.map_err(|error| failed(&error))?;
            self.state().queue.is_untold = false;
        }
        let mut parts = Parts::new();
        for (source, taken) in &taken {
            let mut table = rows::table(&taken.rows, &shapes);
            table.resolve();
            if let Some(cuts) = cuts {
                cuts.apply(*source, &mut table);
            }
            divide(*source, table, databases[source], &mut parts);
        }
        let mut edits = Vec::with_capacity(parts.len());
        let mut slots = Vec::with_capacity(parts.len());
        let mut round = self.state().round;
        let mut last = None;
        for ((database, turn, slot), sources) in parts {
            // Several blocks in one slot are of several rounds.
            if last.is_some_and(|last| last != (database, turn)) {
                round += 1;
            }
            last = Some((database, turn));
            edits.push(self.put_block(BlockKey { slot, round }, &sources, None));
            slots.push(slot);
        }
        self.state().round = round + 1;
        self.log.write(edits).await.map_err(|error| failed(&error))?;
        self.state().put_down(&taken);
        slots.into_iter().for_each(|slot| self.look_at(upkeep, slot));
        Ok(true)
    }

    /// A block as it is given to the log store.
    pub(super) fn put_block(
        &self,
        key: BlockKey,
        sources: &[(u32, Table)],
        lives: Option<u64>,
    ) -> Edit {
        let key = key.bytes();
        let block = block::encode(&key, sources);
        Counts::add(&self.counts.blocks, 1);
        Counts::add(&self.counts.block_bytes, block.len() as u64);
        Edit::Put { key, value: block.into(), lives }
    }

    /// A slot that has many blocks, or has ended and has several, is to be regrouped.
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

    /// Writes what changed of the catalogue. Durable after a sync of the log store.
    pub(super) async fn write_catalogue(&self) -> Result<()> {
        // What changes meanwhile is dirty again.
        let (measurements, page_numbers) = {
            let catalogue = &mut self.state().catalogue;
            (
                std::mem::take(&mut catalogue.dirty_measurements),
                std::mem::take(&mut catalogue.dirty_pages),
            )
        };
        let written = self.write_pages(&measurements, &page_numbers).await;
        if written.is_err() {
            let catalogue = &mut self.state().catalogue;
            catalogue.dirty_measurements.extend(measurements);
            catalogue.dirty_pages.extend(page_numbers);
        }
        written
    }

    async fn write_pages<'a>(
        &self,
        measurements: impl IntoIterator<Item = &'a u32>,
        page_numbers: impl IntoIterator<Item = &'a u32>,
    ) -> Result<()> {
        let put = |key: Bytes, value: Bytes| Edit::Put { key, value, lives: None };
        for &id in measurements {
            let record = pages::encode_measurement(&self.state().catalogue, id);
            if let Some(record) = record {
                let edits = vec![put(key::numbered(key::MEASUREMENT, id), record)];
                self.log.write(edits).await.map_err(|error| failed(&error))?;
            }
        }
        for &page in page_numbers {
            let record = pages::encode_page(&self.state().catalogue, page);
            let edits = vec![put(key::numbered(key::PAGE, page), record)];
            self.log.write(edits).await.map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

/// Cuts a source's rows at slots; those of sources that write little go to their group.
fn divide(source: u32, mut table: Table, database: u32, parts: &mut Parts) {
    let level = key::level_of(&table.times);
    let mut turn = 0;
    while let Some(&first) = table.times.first() {
        let mut slot =
            Slot { owner: Owner::Source(source), level, start: key::start_of(first, level) };
        let until = table.times.partition_point(|&time| time < slot.end()).min(block::ROWS_MAX);
        let rest;
        (table, rest) =
            if until < table.times.len() { table.split(until) } else { (table, Table::default()) };
        let points: usize = table.columns.iter().map(|column| column.values.len()).sum();
        if points < OWN_POINTS {
            slot.owner = Owner::group_of(source);
        }
        parts.entry((database, turn, slot)).or_default().push((source, table));
        turn += u32::from(until == block::ROWS_MAX);
        table = rest;
    }
}
