//! Keeps the hot blocks of a table as it is written, without any operation.
//!
//! A compaction replaces tables with hot blocks by new ones without heat. The keys tell which of their
//! blocks will be hot ([`policy::inherit`]), and while a table is placed all its bytes are in memory. So
//! the blocks that are worth their room by the rule of [`prefetch`](super::prefetch) are copied then.
//! Only whole blocks are re-warmed: the hot parts of a block are known only through the table's index.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use policy::heat::Block;
use policy::inherit::{Made, blocks, inherit};
use policy::prefetch::{Action, WARM, plan};
use volume::IoBuf;

use super::CachedObject;
use super::prefetch::FETCHES_MAX;
use super::prefetched::{Source, Table};
use crate::leaf::ObjectId;

impl CachedObject {
    /// Describes the object as a complete table, whose heat later ones may inherit.
    pub fn describe(&self, table: Table) {
        let inner = &self.cache.0;
        if let Some(prefetched) = inner.prefetched.as_ref().filter(|_| inner.rewarms) {
            prefetched.tables.lock().insert(self.object, Arc::new(table));
        }
    }

    /// Describes the object as a complete table of these `bytes`. Its blocks inherit the heat of those they
    /// replace, which must still be there, and the hottest are kept. Needs no operation and never waits.
    pub fn rewarm(&self, table: Table, bytes: &[u8], made: Made) {
        let inner = &self.cache.0;
        let Some(prefetched) = inner.prefetched.as_ref().filter(|_| inner.rewarms) else { return };
        let old = self.taken_over(&table, made);
        let now = inner.now();
        let mut heats = BTreeMap::new();
        let mut hot = HashMap::<ObjectId, Vec<(u32, f32)>>::new();
        prefetched.sweep(now, |block, heat| {
            heats.insert(block, heat);
            let object = ObjectId(block.object);
            if old.contains_key(&object) {
                hot.entry(object).or_default().push((block.index, heat));
            }
        });
        let old = old.iter().map(|(object, table)| {
            (&table.fences, hot.get(object).map_or(&[][..], |heats| &heats[..]))
        });
        let inherited = inherit(&table.fences, old, made);
        self.describe(table);
        let mut candidates = Vec::new();
        for (block, heat) in blocks(self.object.0, inherited) {
            prefetched.begin(block, heat, now);
            if heat > WARM {
                candidates.push((block, heat));
            }
        }
        if candidates.is_empty() {
            return;
        }
        let coming = prefetched.on_their_way();
        for step in plan(inner.state(prefetched, &heats, coming, candidates), FETCHES_MAX) {
            match step {
                Action::Drop(block) => prefetched.drop_block(block),
                Action::Fetch { block, instead_of } => {
                    instead_of.into_iter().for_each(|victim| prefetched.drop_block(victim));
                    self.keep(block, bytes);
                }
            }
        }
    }

    /// The tables whose reads a new table inherits.
    fn taken_over(&self, new: &Table, made: Made) -> HashMap<ObjectId, Arc<Table>> {
        let Some(prefetched) = &self.cache.0.prefetched else { return HashMap::new() };
        let tables = prefetched.tables.lock();
        let old = tables.iter().filter(|(object, old)| {
            // Tables below a compaction's output level are not among its inputs.
            **object != self.object
                && old.family == new.family
                && (made == Made::Flushed || old.level <= new.level)
                && old.fences.overlaps(&new.fences)
        });
        old.map(|(&object, table)| (object, Arc::clone(table))).collect()
    }

    /// Keeps a block of `bytes` if there is still room.
    fn keep(&self, block: Block, bytes: &[u8]) {
        let inner = &self.cache.0;
        let Some(prefetched) = &inner.prefetched else { return };
        let rest = usize::try_from(block.start()).ok().and_then(|start| bytes.get(start..));
        let Some(rest) = rest.filter(|rest| !rest.is_empty()) else { return };
        let Some(room) = inner.take_room(prefetched, block) else { return };
        // A copy, because the next table's writer reuses the buffer.
        let copy = IoBuf::from(&rest[..rest.len().min(Block::BYTES as usize)]);
        if room.keep(copy, Source::Writer) {
            prefetched.rewarmed.fetch_add(1, Ordering::Relaxed);
        }
    }
}
