//! Deletes: recorded in the log, carried out in blocks, and removed from the catalogue.

use std::collections::BTreeSet;

use parking_lot::MutexGuard;

use super::Inner;
use super::cuts::Cuts;
use super::flush::Which;
use super::key::{GROUP_BITS, Owner};
use super::query::Query;
use super::upkeep::Upkeep;
use super::wal;
use super::writing::Writing;
use crate::log::Edit;
use crate::series::{Error, Result, Selector, Span};

/// How many sources are dropped before the lock is handed to other tasks.
const FORGOTTEN: usize = 256;

/// The place of a record in the log: the ticket to wait for, and the segment.
pub(super) struct Logged {
    pub(super) ticket: u64,
    pub(super) segment: u32,
}

impl Inner {
    pub(super) async fn delete(&self, selector: &Selector, span: Span) -> Result<u64> {
        let mut upkeep = self.upkeep.lock().await;
        let (logged, cuts) = self.queue_delete(&Query::new(self, selector), span)?;
        let durable = self.options.durability == crate::log::Durability::Always;
        self.commit(logged.ticket, durable).await?;
        let cuts = self.carry_out(&mut upkeep, cuts, logged.segment).await?;
        if span == Span::ALL {
            self.forget(&cuts);
        }
        Ok(cuts.fields.values().map(|fields| fields.len() as u64).sum())
    }

    /// Drops the sources whose points were all deleted, unless new rows of them came meanwhile.
    fn forget(&self, cuts: &Cuts) {
        let sources: Vec<(&u32, &Vec<u16>)> = cuts.fields.iter().collect();
        for sources in sources.chunks(FORGOTTEN) {
            let mut state = self.state();
            let staged = state.staged_sources();
            for &(&source, fields) in sources {
                let had = state.catalogue.fields_of(source);
                if had.iter().all(|field| fields.binary_search(field).is_ok())
                    && !state.is_waiting(source)
                    && !staged.contains(&source)
                {
                    state.catalogue.forget_source(source);
                }
            }
            MutexGuard::unlock_fair(state);
        }
        self.tidy();
    }

    /// Frees memory of deleted sources, in steps between which other tasks get the lock.
    pub(super) fn tidy(&self) {
        loop {
            let mut state = self.state();
            let more = state.catalogue.tidy();
            MutexGuard::unlock_fair(state);
            if !more {
                return;
            }
        }
    }

    /// Queues a delete for the log, and takes the buffered rows it applies to: later ones stay. A series created during
    /// the search has no points that the call is about.
    pub(super) fn queue_delete(&self, query: &Query<'_>, span: Span) -> Result<(Logged, Cuts)> {
        let fields = query.fields()?.into_iter().collect();
        let cuts = Cuts { span, fields };
        let records = cuts.encode();
        let mut state = self.state();
        let mut logged = Logged { ticket: state.queue.ticket, segment: state.queue.segment };
        for record in records {
            logged.ticket = state.queue.push(&[&[wal::DELETE], &record]);
        }
        let sources = cuts.fields.keys().copied().collect();
        state.stage_take(logged.ticket, sources, self.clock.now());
        Ok((logged, cuts))
    }

    /// Rewrites blocks without the deleted points, and writes taken rows without them. A rewritten block keeps its key,
    /// so no old version of it can come back.
    pub(super) async fn apply(&self, upkeep: &mut Upkeep, cuts: &Cuts) -> Result<()> {
        // Rewrite blocks first: that may free room.
        let cut = self.cut_blocks(cuts, u64::MAX).await;
        if matches!(cut, Ok(()) | Err(Error::Corrupt(_))) {
            self.write_blocks(upkeep, Which::Taken, Some(cuts)).await?;
        }
        cut
    }

    /// Rewrites blocks of rounds before `before` without the deleted points.
    pub(super) async fn cut_blocks(&self, cuts: &Cuts, before: u64) -> Result<()> {
        let mut keys = Vec::new();
        let mut groups = BTreeSet::new();
        for &source in cuts.fields.keys() {
            self.blocks_of(Owner::Source(source), cuts.span, &mut keys);
            groups.insert(source >> GROUP_BITS);
        }
        for group in groups {
            self.blocks_of(Owner::Group(group), cuts.span, &mut keys);
        }
        let mut damaged = None;
        // Each batch fits the reserve of upkeep; merges reclaim the blocks it replaces.
        let mut writing = Writing::new(self);
        for block in keys.iter().filter(|block| block.round < before) {
            let (mut tables, _) = match self.measured_tables(block).await {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error @ Error::Corrupt(_)) => {
                    damaged = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut is_changed = false;
            for (source, table) in &mut tables {
                is_changed |= cuts.apply(*source, table);
            }
            if is_changed {
                tables.retain(|(_, table)| !table.times.is_empty());
                let edit = match tables.is_empty() {
                    true => Edit::Delete { key: block.bytes() },
                    false => self.put_block(*block, &tables, None),
                };
                writing.add(edit).await?;
            }
        }
        writing.end().await?;
        damaged.map_or(Ok(()), Err)
    }
}
