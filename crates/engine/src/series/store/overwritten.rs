//! Reclaiming the room of overwritten points.
//!
//! An overwritten point stays in its first block until the slot is regrouped, which may be never. Where room is scarce,
//! the search finds blocks with points that later blocks hide, and rewrites them without these. They keep their keys
//! and so their rounds: reads give the same points before and after, whatever a crash leaves.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use policy::time::Instant;

use super::key::{BlockKey, GROUP_BITS, Owner, Slot};
use super::sizes::Sizes;
use super::writing::Writing;
use super::{Inner, failed};
use crate::log::Edit;
use crate::series::block::Table;
use crate::series::{Error, Result, Span};

/// How many keys one step looks at.
const KEYS: usize = 256;
/// The pause between two searches, if there are new blocks.
const SEARCH_EVERY: Duration = Duration::from_secs(5);
/// A block is rewritten if at least an eighth of it goes.
const GAIN: usize = 8;
/// The most points of later blocks, some 16 bytes each, that a search holds for a slot; earlier blocks stay as they
/// are.
const HIDDEN_MAX: usize = 8 << 20;

/// The progress of the search.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Blocks of earlier rounds were searched.
    through: u64,
    /// The next round at the start of the search in progress.
    began: Option<u64>,
    /// Where the search resumes.
    after: Option<Bytes>,
    ended_at: Option<Instant>,
}

/// Counts, by owner, how often hidden points were dropped. A read that planned its blocks before may not know the
/// blocks that hide these points.
#[derive(Default)]
pub(super) struct Dropped([AtomicU64; 32]);

impl Dropped {
    pub(super) fn of(&self, source: u32) -> u64 {
        self.counter(source >> GROUP_BITS).load(Ordering::SeqCst)
    }

    /// Called before points are dropped.
    fn again(&self, owner: Owner) {
        let group = match owner {
            Owner::Source(source) => source >> GROUP_BITS,
            Owner::Group(group) => group,
        };
        self.counter(group).fetch_add(1, Ordering::SeqCst);
    }

    fn counter(&self, group: u32) -> &AtomicU64 {
        &self.0[group as usize % self.0.len()]
    }
}

/// The points of some sources in later blocks, which hide older ones.
struct Later {
    span: Span,
    sources: RangeInclusive<u32>,
    times: HashMap<(u32, u16), HashSet<i64>>,
    count: usize,
}

impl Later {
    fn add(&mut self, source: u32, table: &Table) {
        if !self.sources.contains(&source) {
            return;
        }
        for column in &table.columns {
            let times = self.times.entry((source, column.field)).or_default();
            times.extend(table.times_of(column).filter(|&time| self.span.contains(time)));
            self.count += column.values.len();
        }
    }

    /// Removes hidden points; says whether there were any.
    fn cut(&self, source: u32, table: &mut Table) -> bool {
        table.cut_points(|field| {
            let times = self.times.get(&(source, field))?;
            Some(move |time: i64| times.contains(&time))
        })
    }
}

impl Inner {
    /// Searches for overwritten points, and drops those of one slot. Says whether there is more to search.
    pub(super) async fn drop_overwritten(&self, search: &mut Search, now: Instant) -> Result<bool> {
        let round = self.state().round;
        let is_early = search.ended_at.is_some_and(|at| now.since(at) < SEARCH_EVERY);
        if search.began.is_none() && (round <= search.through || is_early) {
            return Ok(false);
        }
        let began = *search.began.get_or_insert(round);
        let keys = self.log.keys(b"", search.after.as_deref(), KEYS);
        let mut slots: Vec<Slot> =
            keys.iter().filter_map(|key| BlockKey::parse(key)).map(|key| key.slot).collect();
        slots.dedup();
        for slot in slots {
            // Resume behind all blocks of the slot.
            search.after = Some(BlockKey { slot, round: u64::MAX }.bytes());
            if self.drop_overwritten_in(slot, search.through).await? {
                return Ok(true);
            }
        }
        if keys.len() == KEYS {
            search.after = search.after.take().max(keys.last().cloned());
            return Ok(true);
        }
        *search = Search { through: began, ended_at: Some(now), ..Search::default() };
        Ok(false)
    }

    /// The blocks with points of some sources in an interval, the latest first.
    fn blocks_with(&self, sources: RangeInclusive<u32>, span: Span) -> Vec<BlockKey> {
        let mut keys = Vec::new();
        self.blocks_of(Owner::group_of(*sources.start()), span, &mut keys);
        sources.for_each(|source| self.blocks_of(Owner::Source(source), span, &mut keys));
        keys.sort_by_key(|key| std::cmp::Reverse(key.round));
        keys
    }

    /// Rewrites the blocks of a slot without the points that later blocks hide, if any block has at least that round.
    /// Says whether it read any.
    async fn drop_overwritten_in(&self, slot: Slot, round: u64) -> Result<bool> {
        let sources = match slot.owner {
            Owner::Source(source) => source..=source,
            Owner::Group(group) => {
                group << GROUP_BITS..=(group << GROUP_BITS) + (1 << GROUP_BITS) - 1
            }
        };
        let span = Span { from: slot.start, to: slot.end() };
        let keys = self.blocks_with(sources.clone(), span);
        let first = keys.iter().rposition(|key| key.slot == slot).unwrap_or(0);
        if first == 0 || keys[0].round < round {
            return Ok(false);
        }
        let mut later = Later { span, sources, times: HashMap::new(), count: 0 };
        let mut edits = Vec::new();
        for key in &keys[..=first] {
            let (mut tables, len) = match self.measured_tables(key).await {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                // A damaged block stays, and reads report it.
                Err(Error::Corrupt(_)) => continue,
                Err(error) => return Err(error),
            };
            if key.slot == slot {
                let mut is_changed = false;
                for (source, table) in &mut tables {
                    is_changed |= later.cut(*source, table);
                }
                tables.retain(|(_, table)| !table.times.is_empty());
                if tables.is_empty() {
                    edits.push(Edit::Delete { key: key.bytes() });
                } else if is_changed {
                    let put = self.put_block(*key, &tables, None);
                    if Sizes::edit(&put) <= len - len / GAIN {
                        edits.push(put);
                    }
                }
            }
            tables.iter().for_each(|(source, table)| later.add(*source, table));
            if later.count > HIDDEN_MAX {
                break;
            }
        }
        if edits.is_empty() {
            return Ok(true);
        }
        // The blocks that hide these points must survive a crash.
        self.log.sync().await.map_err(|error| failed(&error))?;
        self.dropped.again(slot.owner);
        let mut writing = Writing::new(self);
        for edit in edits {
            writing.add(edit).await?;
        }
        match writing.end().await {
            // The reserve has no room either.
            Err(Error::OutOfSpace(_)) => Ok(true),
            done => done.map(|()| true),
        }
    }
}
