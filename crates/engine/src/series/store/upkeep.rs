//! What is done beside writes: making room, checkpoints, deletes, expiry.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use bytes::Bytes;
use parking_lot::MutexGuard;
use policy::time::Instant;

use super::ask::Asking;
use super::catalogue::DatabaseFacts;
use super::flush::{Which, Writing};
use super::key::{self, BlockKey, GROUP_BITS, Owner, Slot};
use super::overwritten::Search;
use super::owed::Cuts;
use super::pages::Meta;
use super::wal;
use super::{Counts, Inner, failed, in_doubt};
use crate::log::Edit;
use crate::series::block::{Block, Table};
use crate::series::{Database, Error, Result, Selector, Span};

/// From this fullness on, points that were overwritten are looked for.
const SCARCE: f64 = 0.9;
/// Keys looked at at a time for those that are expired.
const EXPIRED: usize = 4096;
/// How long expired blocks may stay: they are read no more at once.
const EXPIRY_EVERY: std::time::Duration = std::time::Duration::from_secs(60);
/// The same while writes are refused.
const EXPIRY_EVERY_FULL: std::time::Duration = std::time::Duration::from_secs(1);
/// Sources forgotten between two moments in which others get the lock.
const FORGOTTEN: usize = 256;
/// Blocks deleted at a time where there is no room.
const OLDEST: usize = 256;

/// How often is stored how far the databases' own time has gone: what a restart may take back of it.
const TIMES_EVERY: std::time::Duration = std::time::Duration::from_secs(3600);
/// How often what is owed is tried again.
const OWED_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// All of them are in one record. Whoever writes to any name makes one.
const DATABASES_MAX: usize = 10_000;

/// What the one knows who writes blocks.
#[derive(Default)]
pub(super) struct Upkeep {
    pub(super) regroup: BTreeSet<Slot>,
    overwritten: Search,
    /// Segments of the log before this one are removed.
    pub(super) floor: u32,
    /// Where the look for expired blocks goes on.
    expiry: Option<Bytes>,
    expired_at: Option<Instant>,
    /// When databases were told last what time has passed.
    aged_at: Option<Instant>,
    /// When that was stored last.
    stored_at: Option<Instant>,
    /// A database was dropped, and that is not stored yet.
    is_meta_owed: bool,
    /// When what is owed was tried last.
    owed_at: Option<Instant>,
}

/// Where the log tells something: the ticket to wait for, and the segment.
struct Logged {
    ticket: u64,
    segment: u32,
}

impl Upkeep {
    pub(super) fn new(floor: u32) -> Self {
        Self { floor, ..Self::default() }
    }
}

impl Inner {
    /// Does a piece of upkeep; says whether there may be more.
    pub(super) async fn tend_once(&self) -> Result<bool> {
        let mut upkeep = self.upkeep.lock().await;
        let upkeep = &mut *upkeep;
        let now = self.clock.now();
        match self.write_what_waits(upkeep, now).await {
            Ok(false) => self.free_room(upkeep, now).await,
            // What expired or was overwritten may give the room that is missing.
            Err(error @ Error::OutOfSpace(_)) => match self.free_room(upkeep, now).await? {
                true => Ok(true),
                false => Err(error),
            },
            done => done,
        }
    }

    /// Writes blocks where buffers or the log have grown, carries out deletes that are owed, and lets go of the log.
    async fn write_what_waits(&self, upkeep: &mut Upkeep, now: Instant) -> Result<bool> {
        let (has_ready, is_large, oldest, segment, floor, is_owing) = {
            let mut state = self.state();
            let oldest = state.oldest();
            let floor = state.floor();
            let is_large = state.memory > self.options.buffer_bytes as usize / 2
                || state.catalogue.has_many_shapes();
            let is_owing = !state.owed.is_empty();
            // What was taken and found no room is still to be written.
            let has_ready = state.has_ready() || !state.taken.is_empty();
            (has_ready, is_large, oldest, state.queue.segment, floor, is_owing)
        };
        if (is_owing || upkeep.is_meta_owed)
            && upkeep.owed_at.is_none_or(|at| now.since(at) >= OWED_EVERY)
        {
            upkeep.owed_at = Some(now);
            match self.pay(upkeep).await {
                Err(error) => {
                    tracing::warn!(store = %self.options.name, %error, "what is deleted still takes room, and is tried again");
                }
                Ok(()) => {
                    upkeep.owed_at = None;
                    return Ok(true);
                }
            }
        }
        if has_ready {
            return self.write_blocks(upkeep, Which::Ready, None).await;
        }
        if is_large && self.write_blocks(upkeep, Which::Through(u32::MAX), None).await? {
            return Ok(true);
        }
        let segments = u64::from(segment - upkeep.floor.min(segment));
        let is_long = segments * self.segment_bytes() > self.options.wal_bytes;
        if let Some((oldest, since)) = oldest
            && (is_long || now.since(since) >= self.options.age)
        {
            if oldest == segment {
                self.state().queue.rotate();
            }
            return self.write_blocks(upkeep, Which::Through(oldest), None).await;
        }
        if floor > upkeep.floor {
            self.checkpoint(upkeep).await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Regroups blocks, drops overwritten points and deletes what expired.
    async fn free_room(&self, upkeep: &mut Upkeep, now: Instant) -> Result<bool> {
        let fullness = self.log.fullness();
        let is_full = fullness >= 1.0;
        // To regroup takes room before it gives any.
        if !upkeep.regroup.is_empty() && !is_full {
            return self.regroup(&mut upkeep.regroup).await;
        }
        if fullness >= SCARCE && self.drop_overwritten(&mut upkeep.overwritten, now).await? {
            return Ok(true);
        }
        let every = if is_full { EXPIRY_EVERY_FULL } else { EXPIRY_EVERY };
        let is_due = upkeep.expired_at.is_none_or(|at| now.since(at) >= every);
        if is_due {
            return self.expire(upkeep, now).await;
        }
        Ok(false)
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        self.state().limits.segment_bytes
    }

    /// Writes blocks until buffers have room again.
    pub(super) async fn make_room(&self, upkeep: &mut Upkeep) -> Result<()> {
        let bound = self.options.buffer_bytes as usize;
        while self.state().memory >= bound / 4 * 3 {
            let which =
                if self.state().has_ready() { Which::Ready } else { Which::Through(u32::MAX) };
            if !self.write_blocks(upkeep, which, None).await? {
                break;
            }
        }
        Ok(())
    }

    pub(super) async fn flush_all(&self) -> Result<()> {
        let mut upkeep = self.upkeep.lock().await;
        let segment = {
            let queue = &mut self.state().queue;
            if !queue.is_untouched() {
                queue.rotate();
            }
            queue.segment
        };
        while self.write_blocks(&mut upkeep, Which::Through(segment), None).await? {}
        self.checkpoint(&mut upkeep).await
    }

    /// Makes durable what the log tells of rows that are in blocks, and removes what is not needed of it.
    pub(super) async fn checkpoint(&self, upkeep: &mut Upkeep) -> Result<()> {
        let (ticket, floor, sessions) = {
            let mut state = self.state();
            let sessions = state.sessions.encode(self.sizes.block);
            (state.queue.standing(), state.floor(), sessions)
        };
        // A session that outlives its batch would have it refused for ever.
        self.commit(ticket, true).await?;
        self.write_catalogue().await?;
        self.put_record(Bytes::from_static(key::SESSIONS), sessions).await?;
        self.log.sync().await.map_err(|error| failed(&error))?;
        // Only now may a segment be forgotten, and only then removed: one that came back after a crash
        // would put old points over newer ones.
        self.write_meta(floor).await?;
        self.forget_segments(upkeep.floor..floor).await;
        upkeep.floor = floor;
        Ok(())
    }

    pub(super) async fn write_meta(&self, floor: u32) -> Result<()> {
        let databases = self.state().catalogue.databases.clone();
        self.write_meta_with(floor, databases).await
    }

    async fn write_meta_with(
        &self,
        floor: u32,
        databases: BTreeMap<String, DatabaseFacts>,
    ) -> Result<()> {
        let (meta, clock) = {
            let state = self.state();
            let catalogue = &state.catalogue;
            let meta = Meta {
                floor,
                next_database: catalogue.next_database,
                next_measurement: catalogue.next_measurement,
                next_source: catalogue.sources.next(),
                databases,
            };
            (meta.encode(), state.away.encode(self.clock.wall()))
        };
        let put = |key, value| Edit::Put { key: Bytes::from_static(key), value, lives: None };
        let edits = vec![put(key::META, meta), put(key::CLOCK, clock)];
        self.log.write_upkeep(edits).await.map_err(|error| failed(&error))?;
        self.log.sync().await.map_err(|error| in_doubt(failed(&error)))
    }

    pub(super) async fn create_database(&self, database: Database) -> Result<()> {
        let Database { name, keep } = database;
        if !(1..=255).contains(&name.len()) {
            return Err(Error::Invalid(format!(
                "database {name:?}: give it a name of 1 to 255 bytes"
            )));
        }
        let upkeep = self.upkeep.lock().await;
        let max = self.sizes.block;
        let (id, databases) = {
            let catalogue = &mut self.state().catalogue;
            let count = catalogue.databases.len();
            // Names, and numbers of at most 40 bytes.
            let bytes: usize = catalogue.databases.keys().map(|name| name.len() + 40).sum();
            let mut databases = catalogue.databases.clone();
            let id = catalogue.next_database;
            match databases.get_mut(&name) {
                Some(facts) if facts.keep == keep => return Ok(()),
                Some(facts) => facts.keep = keep,
                None if count >= DATABASES_MAX || bytes + 600 > max => {
                    return Err(Error::Invalid(format!("there are {count} databases: drop some")));
                }
                None => {
                    catalogue.next_database += 1;
                    databases.insert(name.clone(), DatabaseFacts::new(id, keep));
                }
            }
            (id, databases)
        };
        // Nobody writes to it before it is durable: a start would not know whose points these are.
        self.write_meta_with(upkeep.floor, databases).await?;
        let mut state = self.state();
        let facts = state.catalogue.databases.entry(name);
        facts.or_insert_with(|| DatabaseFacts::new(id, keep)).keep = keep;
        Ok(())
    }

    pub(super) async fn drop_database(&self, name: &str) -> Result<bool> {
        let mut upkeep = self.upkeep.lock().await;
        // From here on nothing is written to it.
        let facts = self.state().catalogue.databases.remove(name);
        let Some(facts) = facts else {
            // It may be that nobody was told so yet.
            self.store_databases(&mut upkeep).await?;
            return Ok(false);
        };
        let id = facts.id;
        let told =
            match self.queue_delete(&Asking::dropped(self, &Selector::all(name), id), Span::ALL) {
                Ok((told, cuts)) => self.commit(told.ticket, true).await.map(|()| (told, cuts)),
                Err(error) => Err(error),
            };
        let (told, cuts) = match told {
            Ok(told) => told,
            Err(error) => {
                self.state().catalogue.databases.insert(name.to_string(), facts);
                return Err(error);
            }
        };
        upkeep.is_meta_owed = true;
        let done = self.carry_out(&mut upkeep, cuts, told.segment).await;
        self.state().catalogue.forget_database(id);
        self.tidy();
        done?;
        self.store_databases(&mut upkeep).await?;
        Ok(true)
    }

    /// Stores that databases were dropped, if that is not stored yet.
    async fn store_databases(&self, upkeep: &mut Upkeep) -> Result<()> {
        if upkeep.is_meta_owed {
            // The log says that it is deleted: it does not come back for want of room.
            self.write_catalogue().await.map_err(in_doubt)?;
            self.write_meta(upkeep.floor).await.map_err(in_doubt)?;
            upkeep.is_meta_owed = false;
        }
        Ok(())
    }

    pub(super) async fn delete(&self, selector: &Selector, span: Span) -> Result<u64> {
        let mut upkeep = self.upkeep.lock().await;
        let (told, cuts) = self.queue_delete(&Asking::new(self, selector), span)?;
        let durable = self.options.durability == crate::log::Durability::Always;
        self.commit(told.ticket, durable).await?;
        let cuts = self.carry_out(&mut upkeep, cuts, told.segment).await?;
        if span == Span::ALL {
            self.forget(&cuts);
        }
        Ok(cuts.fields.values().map(|fields| fields.len() as u64).sum())
    }

    /// Does what is owed.
    async fn pay(&self, upkeep: &mut Upkeep) -> Result<()> {
        self.pay_deletes().await?;
        self.store_databases(upkeep).await
    }

    /// Forgets the sources of which everything was deleted, unless rows of them came meanwhile.
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

    /// Gives back what only sources had that are gone, in steps between which others get the lock.
    fn tidy(&self) {
        loop {
            let mut state = self.state();
            let more = state.catalogue.tidy();
            MutexGuard::unlock_fair(state);
            if !more {
                return;
            }
        }
    }

    /// Tells the log what is deleted, and takes the rows that wait: those that come later stay. Series that are
    /// made while they are looked for have no points yet that the call is about.
    fn queue_delete(&self, asking: &Asking<'_>, span: Span) -> Result<(Logged, Cuts)> {
        let fields = asking.fields()?.into_iter().collect();
        let cuts = Cuts { span, fields };
        let records = cuts.encode();
        let mut state = self.state();
        let mut told = Logged { ticket: state.queue.ticket, segment: state.queue.segment };
        for record in records {
            told.ticket = state.queue.push(&[&[wal::DELETE], &record]);
        }
        let sources = cuts.fields.keys().copied().collect();
        state.stage_take(told.ticket, sources, self.clock.now());
        Ok((told, cuts))
    }

    /// Writes the blocks that have something of what is deleted anew, and what was taken without it. A block
    /// keeps its key, so nothing is left that could come back.
    pub(super) async fn apply(&self, upkeep: &mut Upkeep, cuts: &Cuts) -> Result<()> {
        // First what may give room.
        let cut = self.cut_blocks(cuts, u64::MAX).await;
        if matches!(cut, Ok(()) | Err(Error::Corrupt(_))) {
            self.write_blocks(upkeep, Which::Taken, Some(cuts)).await?;
        }
        cut
    }

    /// Writes the blocks of rounds before `before` that have something of what is deleted anew.
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
        // What is written anew at once has room in what is set aside; merges free what it replaces.
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

    /// What counts of a block; none if it is gone.
    pub(super) async fn tables(&self, key: &BlockKey) -> Result<Option<Vec<(u32, Table)>>> {
        let Some((mut tables, _)) = self.measured_tables(key).await? else { return Ok(None) };
        let owed = self.state().owed.clone();
        for owed in owed.iter().filter(|owed| key.round < owed.before) {
            for (source, table) in &mut tables {
                owed.cuts.apply(*source, table);
            }
        }
        tables.retain(|(_, table)| !table.times.is_empty());
        Ok(Some(tables))
    }

    /// What is in a block, with what is still to be deleted of it, and how long it is; none if it is gone.
    pub(super) async fn measured_tables(
        &self,
        key: &BlockKey,
    ) -> Result<Option<(Vec<(u32, Table)>, usize)>> {
        let name = key.bytes();
        let source = match key.slot.owner {
            Owner::Source(source) => source,
            Owner::Group(group) => group << GROUP_BITS,
        };
        let Some(bytes) = self.log.get(&name).await.map_err(|error| failed(&error))? else {
            return Ok(None);
        };
        let block = Block::open(&name, &bytes).map_err(|bad| self.of_block(key, source, bad))?;
        let tables = block.tables().map_err(|bad| self.of_block(key, source, bad))?;
        Ok(Some((tables, bytes.len())))
    }

    /// Tells databases what time has passed since the last call. One that gets no points grows older all the same; a
    /// clock that jumps makes none older than it is, as this time is measured.
    async fn age(&self, upkeep: &mut Upkeep, now: Instant) -> Result<()> {
        let passed =
            upkeep.aged_at.replace(now).map_or(std::time::Duration::ZERO, |at| now.since(at));
        let wall = self.clock.wall();
        let (does_keep, was_away) = {
            let mut state = self.state();
            let away = state.away.told(wall, now);
            let passed = passed.saturating_add(away.unwrap_or_default());
            let databases = &mut state.catalogue.databases;
            databases.values_mut().for_each(|facts| facts.age(passed, wall));
            (databases.values().any(|facts| facts.keep.is_some()), away.is_some())
        };
        let stored = *upkeep.stored_at.get_or_insert(now);
        if does_keep && (was_away || now.since(stored) >= TIMES_EVERY) {
            match self.write_meta(upkeep.floor).await {
                // The next call tries again; until then a restart takes the time back, and what expires gives room.
                Err(Error::OutOfSpace(_)) => {}
                written => {
                    written?;
                    upkeep.stored_at = Some(now);
                }
            }
        }
        Ok(())
    }

    /// Deletes blocks that expired, and, where there is no room, the oldest ones.
    async fn expire(&self, upkeep: &mut Upkeep, now: Instant) -> Result<bool> {
        self.age(upkeep, now).await?;
        if self.options.full < 1.0 && self.log.fullness() >= self.options.full {
            let oldest = self.oldest_blocks();
            if !oldest.is_empty() {
                self.delete_blocks(&oldest).await?;
                return Ok(true);
            }
        }
        let cutoffs: Option<BTreeMap<u32, i64>> = {
            let state = self.state();
            let all = state.catalogue.databases.values();
            let wall = self.clock.wall();
            let any = all.clone().any(|facts| facts.keep.is_some());
            any.then(|| all.map(|facts| (facts.id, facts.cutoff(wall))).collect())
        };
        let Some(cutoffs) = cutoffs else {
            upkeep.expired_at = Some(now);
            return Ok(false);
        };
        let keys = self.log.keys(b"", upkeep.expiry.as_deref(), EXPIRED);
        upkeep.expiry = keys.last().filter(|_| keys.len() == EXPIRED).cloned();
        if upkeep.expiry.is_none() {
            upkeep.expired_at = Some(now);
        }
        let expired: Vec<BlockKey> = {
            let state = self.state();
            let cutoff = |source: u32| {
                let (measurement, _) = state.catalogue.source_key(source)?;
                let database = state.catalogue.measurements.get(&measurement)?.database;
                cutoffs.get(&database).copied()
            };
            let is_expired = |key: &BlockKey| {
                let cutoff = match key.slot.owner {
                    Owner::Source(source) => cutoff(source),
                    // All that may share the block.
                    Owner::Group(group) => {
                        let first = group << GROUP_BITS;
                        (first..first + (1 << GROUP_BITS)).filter_map(cutoff).min()
                    }
                };
                cutoff.is_some_and(|cutoff| key.slot.end() <= cutoff)
            };
            keys.iter().filter_map(|key| BlockKey::parse(key)).filter(is_expired).collect()
        };
        self.delete_blocks(&expired).await?;
        Ok(!expired.is_empty() || upkeep.expiry.is_some())
    }

    async fn delete_blocks(&self, keys: &[BlockKey]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        Counts::add(&self.counts.expired, keys.len() as u64);
        let mut writing = Writing::new(self);
        for key in keys {
            writing.add(Edit::Delete { key: key.bytes() }).await?;
        }
        writing.end().await
    }

    /// The blocks whose slots ended first.
    fn oldest_blocks(&self) -> Vec<BlockKey> {
        let mut oldest: BinaryHeap<(i64, BlockKey)> = BinaryHeap::new();
        let mut after: Option<Bytes> = None;
        loop {
            let keys = self.log.keys(b"", after.as_deref(), EXPIRED);
            for key in keys.iter().filter_map(|key| BlockKey::parse(key)) {
                oldest.push((key.slot.end(), key));
                if oldest.len() > OLDEST {
                    oldest.pop();
                }
            }
            if keys.len() < EXPIRED {
                return oldest.into_iter().map(|(_, key)| key).collect();
            }
            after = keys.last().cloned();
        }
    }
}
