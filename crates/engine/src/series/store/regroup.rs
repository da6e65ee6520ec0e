//! Regrouping: merges the blocks of a slot.

use std::collections::{BTreeMap, BTreeSet};

use super::key::{BlockKey, Owner, Slot};
use super::sizes::Sizes;
use super::writing::Writing;
use super::{Counts, Inner, failed};
use crate::log::Edit;
use crate::series::block::{self, ROWS_MAX, Table};
use crate::series::{Error, Result, Span};

/// Slots regrouped between two syncs.
const REGROUPED: usize = 32;
/// A slot with more bytes of blocks is not regrouped: they would hardly fit one block.
const REGROUPED_BYTES: usize = 64 << 20;

impl Inner {
    /// Regroups the blocks of some slots.
    pub(super) async fn regroup(&self, slots: &mut BTreeSet<Slot>) -> Result<bool> {
        let mut puts = Writing::new(self);
        let mut deletes = Vec::new();
        for _ in 0..REGROUPED {
            let Some(slot) = slots.pop_first() else { break };
            match self.regrouped(slot).await {
                Ok(Some((put, mut replaced))) => {
                    puts.add(put).await?;
                    deletes.append(&mut replaced);
                    Counts::add(&self.counts.regrouped, 1);
                }
                Ok(None) => {}
                // They stay as they are, and reads report the damage.
                Err(Error::Corrupt(error)) => {
                    tracing::warn!(%error, "blocks stay as they are, because one is damaged")
                }
                Err(error) => {
                    slots.insert(slot);
                    return Err(error);
                }
            }
        }
        if deletes.is_empty() {
            return Ok(false);
        }
        puts.end().await?;
        self.log.sync().await.map_err(|error| failed(&error))?;
        let mut writing = Writing::new(self);
        for delete in deletes {
            writing.add(delete).await?;
        }
        writing.end().await?;
        Ok(true)
    }

    /// The blocks of a slot as one, and the deletes of the replaced ones. It takes the key of the last of them, so that
    /// earlier ones, if a crash leaves them, change nothing.
    async fn regrouped(&self, slot: Slot) -> Result<Option<(Edit, Vec<Edit>)>> {
        let keys = self.log.keys(&slot.prefix(), None, usize::MAX);
        let keys: Vec<BlockKey> = keys.iter().filter_map(|key| BlockKey::parse(key)).collect();
        let [first, .., last] = keys[..] else { return Ok(None) };
        let mut sources: BTreeMap<u32, Table> = BTreeMap::new();
        let (mut rows, mut bytes) = (0, block::BYTES_MAX);
        for key in &keys {
            for (source, table) in self.tables(key).await?.unwrap_or_default() {
                rows += table.times.len();
                bytes += block::bytes_max(&table);
                sources.entry(source).or_default().append(table);
            }
            if rows > ROWS_MAX / 2 || bytes > REGROUPED_BYTES {
                return Ok(None);
            }
        }
        // A block of a round between them, with another slot length or owner, would then hide or be hidden wrongly. One
        // of the last round counts, too: its points are newer than those of the first block.
        let span = Span { from: slot.start, to: slot.end() };
        let mut others = Vec::new();
        for &source in sources.keys() {
            self.blocks_of(Owner::Source(source), span, &mut others);
        }
        let group = sources.keys().next().map(|&source| Owner::group_of(source));
        group.into_iter().for_each(|group| self.blocks_of(group, span, &mut others));
        let is_between = |other: &BlockKey| {
            other.slot != slot && first.round < other.round && other.round <= last.round
        };
        if others.iter().any(is_between) {
            return Ok(None);
        }
        if sources.is_empty() {
            return Ok(None);
        }
        sources.values_mut().for_each(Table::resolve);
        let sources: Vec<(u32, Table)> = sources.into_iter().collect();
        let lives = self.lives(&slot, sources.first().map(|(source, _)| *source));
        let replaced = keys[..keys.len() - 1].iter();
        let replaced = replaced.map(|key| Edit::Delete { key: key.bytes() }).collect();
        let put = self.put_block(last, &sources, lives);
        Ok((Sizes::edit(&put) <= self.sizes.block).then_some((put, replaced)))
    }

    /// How many more bytes of blocks will be written until a slot expires, at the rate since the store was opened.
    fn lives(&self, slot: &Slot, source: Option<u32>) -> Option<u64> {
        let (wall, now) = (self.clock.wall(), self.clock.now());
        let keep = self.state().catalogue.database_of(source?)?.keep?;
        let end = i128::from(slot.end()) + keep.as_nanos() as i128;
        let left = u64::try_from(end - wall.as_nanos() as i128).ok()?;
        let bytes = self.counts.block_bytes.load(std::sync::atomic::Ordering::Relaxed);
        let took = now.since(self.opened).as_secs_f64().max(1.0);
        Some((bytes as f64 / took * (left as f64 / 1e9)) as u64)
    }
}
