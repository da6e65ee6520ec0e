//! The durable map on the fast volume: a checkpoint of the units, and a log of those that do not count any more.
//!
//! ```text
//!   tier.map-0   checkpoint g     │ doubts at the switch │ doubt │ doubt
//!   tier.map-1   checkpoint g + 1 │ doubts at the switch │ doubt │ …
//! ```
//! Before the first change of a unit that the checkpoint names, and before another page gets one of its places, a *doubt*
//! is durable: after a crash the unit is empty. The doubts that wait together share one append.
//!
//! A generation counts once its second frame is whole. Doubts during a checkpoint go to the old log and to that frame; they
//! wait while it is written. Then the old generation is superseded before the next doubt.
//!
//! The pool's own journal (`crate::journal`) keeps a state on several volumes, and moves when one fails. A cache that
//! cannot be written is given up instead, and its checkpoint must follow a sync of the slab.

use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::cache::Slot;
use policy::purpose::{Io, Origin, Step};
use volume::task::yield_now;
use volume::{Error, ErrorKind, IoBuf, Name, Object, Result, Volume};

use super::figures::Counters;
use super::frames::{Content, Frames};
use super::map::{Map, Pages, Unit};
use super::places::Place;
use super::record::{self, Checkpoint, Edit, Head, Placed};
use super::slab::Slab;
use super::table::Run;
use super::turns::{self, Turns};

const IO: Io = Io::new(Origin::UserWrite, Step::Manifest);

const NAMES: &str = "tier.map";

/// Edits of this many bytes make a checkpoint due, unless the last one is longer.
const LOG_MIN: u64 = 16 << 20;

pub(super) struct Journal {
    head: Head,
    /// The entries that wait for a doubt.
    waiting: Mutex<Vec<Slot>>,
    /// The pages that wait to be named as dirty.
    recording: Mutex<Vec<Recording>>,
    /// The number of the last of them.
    last_recording: AtomicU64,
    /// Locked while the log is written.
    log: AsyncMutex<Log>,
    /// Locked during a checkpoint.
    checkpoint: AsyncMutex<Turns>,
    counters: Arc<Counters>,
}

/// Dirty pages of an object, whose bytes are durable.
struct Recording {
    number: u64,
    name: Name,
    pages: Vec<Pages>,
}

/// A record that waits. A caller that gives up takes it out of the queue: it claims the pages no longer, so another write may
/// change them before the record is made.
struct Waiting<'a> {
    recording: &'a Mutex<Vec<Recording>>,
    number: u64,
}

struct Log {
    object: Option<Arc<dyn Object>>,
    generation: u64,
    seal: u64,
    sequence: u64,
    /// The bytes of the checkpoint, with which it begins.
    checkpoint_len: u64,
    len: u64,
    /// Edits since the snapshot of the checkpoint that is being written.
    since_snapshot: Vec<Edit>,
    /// A checkpoint is being written.
    is_snapshotting: bool,
    /// An append was given up.
    is_end_unknown: bool,
    /// A newer generation, whose first frame is whole.
    next: Option<Box<Log>>,
}

/// What a fast volume holds.
pub(super) struct Stored {
    /// With the edits that follow it.
    pub(super) checkpoint: Checkpoint,
}

/// What was found on a fast volume.
#[derive(Default)]
pub(super) struct Found {
    /// The identity of the slow volume that it belonged to last.
    pub(super) identity: Option<u64>,
    pub(super) last: Option<Stored>,
    /// The highest number of a generation.
    pub(super) generation: u64,
}

/// Reads the map of a fast volume.
///
/// # Errors
/// Those of the volume.
pub(super) async fn read(volume: &dyn Volume) -> Result<Found> {
    let mut found = Found::default();
    for (_, content) in turns::read(volume, NAMES, IO).await? {
        let (identity, generation, last) = match content {
            Content::Headless(_) => continue,
            Content::Superseded { identity, by } => (identity, by, None),
            Content::Frames(frames) => {
                let Some(head) = Checkpoint::decode_empty(frames.first()) else { continue };
                (head.head.identity, head.generation, replay(&frames))
            }
        };
        if found.identity.is_none() || generation > found.generation {
            found.identity = Some(identity);
        }
        found.generation = found.generation.max(generation);
        if let Some(stored) = last {
            let newer = |last: &Stored| last.checkpoint.generation > generation;
            if !found.last.as_ref().is_some_and(newer) {
                found.last = Some(stored);
            }
        }
    }
    Ok(found)
}

/// A generation, if it is complete.
fn replay(frames: &Frames) -> Option<Stored> {
    let checkpoint = Checkpoint::decode(frames.first())?;
    if frames.seal != record::seal(checkpoint.head, checkpoint.generation) {
        return None;
    }
    let edits = frames.others();
    if edits.len() == 0 {
        return None;
    }
    if frames.is_cut {
        tracing::warn!(
            "the map of a tier's fast volume is damaged: what it says of units does not count"
        );
        return None;
    }
    let mut units = Replayed::new(&checkpoint);
    for body in edits {
        Edit::decode(body)?.into_iter().for_each(|edit| units.apply(edit));
    }
    Some(Stored { checkpoint: Checkpoint { objects: units.objects(), ..checkpoint } })
}

/// Units by entry, while edits are applied.
struct Replayed(BTreeMap<Slot, Held>);

/// The object and the number of a unit, the runs of its clean pages, and the places of its dirty ones.
type Held = (Name, u32, Vec<Run>, BTreeMap<u32, Place>);

impl Replayed {
    fn new(checkpoint: &Checkpoint) -> Self {
        let units = checkpoint.objects.iter().flat_map(|(name, units)| {
            units.iter().map(|placed| {
                let Placed { extent, entry, runs, dirty } = placed.clone();
                (entry, (name.clone(), extent, runs, by_page(&dirty)))
            })
        });
        Self(units.collect())
    }

    fn apply(&mut self, edit: Edit) {
        match edit {
            Edit::Doubt(entries) => {
                for entry in entries {
                    if let Some((_, _, clean, _)) = self.0.get_mut(&entry) {
                        clean.clear();
                    }
                }
            }
            Edit::Dirty { name, extent, entry, runs } => {
                let unit = self.0.entry(entry).or_insert_with(|| Self::empty(&name, extent));
                if (&unit.0, unit.1) != (&name, extent) {
                    // The entry's last unit has left it.
                    *unit = Self::empty(&name, extent);
                }
                unit.3.extend(by_page(&runs));
            }
            Edit::Clean { entry, runs } => {
                if let Some((_, _, _, dirty)) = self.0.get_mut(&entry) {
                    runs.iter().flat_map(|run| run.pages()).for_each(|page| {
                        dirty.remove(&page);
                    });
                }
            }
        }
    }

    fn empty(name: &Name, extent: u32) -> Held {
        (name.clone(), extent, Vec::new(), BTreeMap::new())
    }

    fn objects(self) -> Vec<(Name, Vec<Placed>)> {
        let mut objects = BTreeMap::<Name, Vec<Placed>>::new();
        for (entry, (name, extent, runs, dirty)) in self.0 {
            if !runs.is_empty() || !dirty.is_empty() {
                let dirty = dirty.iter().map(|(&page, &place)| Run::new(&(page..page + 1), place));
                let placed = Placed { extent, entry, runs, dirty: dirty.collect() };
                objects.entry(name).or_default().push(placed);
            }
        }
        objects.into_iter().collect()
    }
}

/// What of pages that wait the log does not name yet, each page once.
fn to_record<'a>(batch: &'a [Recording], map: &Map) -> Vec<(&'a Name, Pages)> {
    let mut waiting: BTreeMap<(Slot, Unit), (&Name, Pages)> = BTreeMap::new();
    for Recording { name, pages, .. } in batch {
        for pages in pages {
            match waiting.entry((pages.entry, pages.unit)) {
                btree_map::Entry::Occupied(of) => of.into_mut().1.runs.extend(&pages.runs),
                btree_map::Entry::Vacant(of) => drop(of.insert((name, pages.clone()))),
            }
        }
    }
    let dirty = waiting.into_values();
    dirty.filter_map(|(name, pages)| Some((name, map.to_record(&pages)?))).collect()
}

fn by_page(runs: &[Run]) -> BTreeMap<u32, Place> {
    runs.iter().flat_map(|run| run.pages().map(|page| (page, run.place_of(page)))).collect()
}

impl Journal {
    /// A journal without a checkpoint; `generation` is the highest number in use.
    pub(super) fn new(
        volume: Arc<dyn Volume>,
        head: Head,
        generation: u64,
        counters: &Arc<Counters>,
    ) -> Self {
        let log = Log::new(generation, 0);
        Self {
            head,
            waiting: Mutex::default(),
            recording: Mutex::default(),
            last_recording: AtomicU64::new(0),
            log: AsyncMutex::new(log),
            checkpoint: AsyncMutex::new(Turns::new(volume, NAMES, IO)),
            counters: Arc::clone(counters),
        }
    }

    /// Makes durable that the units of these entries are not as a checkpoint says, and removes their marks.
    ///
    /// # Errors
    /// Those of the fast volume: it must be given up.
    pub(super) async fn doubt(&self, entries: &[Slot], map: &Mutex<Map>) -> Result<()> {
        self.waiting.lock().extend_from_slice(entries);
        let mut log = self.log.lock().await;
        log.finish_switch(self.head.identity, map).await?;
        let mut batch = std::mem::take(&mut *self.waiting.lock());
        // An append that was given up took them out of the queue.
        batch.extend_from_slice(entries);
        batch.sort_unstable();
        batch.dedup();
        let (mut current, mut next) = (Vec::new(), Vec::new());
        {
            let map = map.lock();
            current.extend(batch.iter().copied().filter(|&entry| map.is_current(entry)));
            next.extend(batch.iter().copied().filter(|&entry| map.is_next(entry)));
        }
        if !current.is_empty() {
            self.counters.doubts.add(current.len() as u64);
            self.counters.appends.add(1);
            log.append(&[Edit::Doubt(current.clone())]).await?;
        }
        if !next.is_empty() {
            log.since_snapshot.push(Edit::Doubt(next.clone()));
        }
        let mut map = map.lock();
        current.into_iter().chain(next).for_each(|entry| map.unmark(entry));
        Ok(())
    }

    /// Makes durable that these pages of an object, whose bytes are durable, are dirty. Those who wait together share an append.
    /// False if a unit of them is not marked on the slow volume: it is left out.
    ///
    /// # Errors
    /// Those of the fast volume: it must be given up.
    pub(super) async fn record(
        &self,
        name: &Name,
        pages: &[Pages],
        map: &Mutex<Map>,
        is_marked: impl Fn(&Name, Unit) -> bool,
    ) -> Result<bool> {
        let number = self.last_recording.fetch_add(1, Ordering::Relaxed);
        let own = || Recording { number, name: name.clone(), pages: pages.to_vec() };
        self.recording.lock().push(own());
        let _waiting = Waiting { recording: &self.recording, number };
        let mut log = self.log.lock().await;
        log.finish_switch(self.head.identity, map).await?;
        let mut batch = std::mem::take(&mut *self.recording.lock());
        // An append that was given up, or failed, took it out of the queue.
        if !batch.iter().any(|one| one.number == number) {
            batch.push(own());
        }
        // While the log is locked, no page becomes clean.
        let mut dirty = to_record(&batch, &map.lock());
        dirty.retain(|(name, pages)| is_marked(name, pages.unit));
        let edits = dirty.iter().map(|(name, Pages { entry, unit, runs })| Edit::Dirty {
            name: (*name).clone(),
            extent: unit.extent,
            entry: *entry,
            runs: runs.clone(),
        });
        log.edit(edits.collect()).await?;
        let mut map = map.lock();
        dirty.iter().for_each(|(_, pages)| map.set_recorded(pages));
        Ok(pages.iter().all(|pages| map.to_record(pages).is_none()))
    }

    /// Makes durable that those of these pages that did not change since their flush are not dirty any more; returns how many
    /// became clean. The caller has claimed them.
    ///
    /// # Errors
    /// Those of the fast volume: it must be given up.
    pub(super) async fn clean(&self, pages: &[Pages], map: &Mutex<Map>) -> Result<u32> {
        let mut log = self.log.lock().await;
        log.finish_switch(self.head.identity, map).await?;
        let flushed: Vec<_> = {
            let map = map.lock();
            pages.iter().map(|pages| map.flushed(pages)).collect()
        };
        let edits = flushed.iter().filter(|(_, recorded)| !recorded.is_empty());
        let edits = edits
            .map(|(pages, runs)| Edit::Clean { entry: pages.entry, runs: runs.clone() })
            .collect();
        log.edit(edits).await?;
        let mut map = map.lock();
        let mut count = 0;
        for (pages, _) in &flushed {
            count += pages.runs.iter().map(|run| u32::from(run.count)).sum::<u32>();
            map.set_clean(pages);
        }
        Ok(count)
    }

    /// Whether the log has become long.
    pub(super) async fn is_long(&self) -> bool {
        let log = self.log.lock().await;
        turns::is_long(log.len, log.checkpoint_len, LOG_MIN)
    }

    /// Writes the units for which `counts` holds as the next checkpoint. `names` gives the names of objects by number.
    /// Durable on return.
    ///
    /// # Errors
    /// Those of the fast volume: it must be given up.
    pub(super) async fn checkpoint(
        &self,
        map: &Mutex<Map>,
        slab: &Slab,
        unit: u32,
        counts: impl Fn(Unit) -> bool,
        names: impl Fn(u32) -> Option<Name>,
    ) -> Result<()> {
        let mut turns = self.checkpoint.lock().await;
        let (generation, mut units, places) = {
            let mut log = self.log.lock().await;
            log.finish_switch(self.head.identity, map).await?;
            log.since_snapshot.clear();
            log.is_snapshotting = true;
            // While the log is locked, no unit that was looked at changes: that takes a doubt, or an edit.
            let mut snapshot = map.lock().begin_snapshot();
            while map.lock().add_to(&mut snapshot, &counts) {
                yield_now().await;
            }
            (log.generation + 1, snapshot.units, map.lock().places())
        };
        // What the snapshot names was written before it.
        slab.sync().await?;
        units.sort_unstable_by_key(|(object, placed)| (*object, placed.extent));
        let mut objects: Vec<(Name, Vec<Placed>)> = Vec::new();
        for group in units.chunk_by(|(one, _), (other, _)| one == other) {
            if let Some(name) = names(group[0].0) {
                objects.push((name, group.iter().map(|(_, placed)| placed.clone()).collect()));
            }
        }
        let checkpoint = Checkpoint { head: self.head, generation, unit, places, objects };
        let seal = record::seal(self.head, generation);
        let mut bytes = Vec::new();
        record::frame(&mut bytes, seal, 0, &checkpoint.encode());
        let len = bytes.len() as u64;
        let object = turns.begin(generation, IoBuf::from(&bytes[..])).await?;

        let mut log = self.log.lock().await;
        // From here on a crash may find either generation. Until both logs say which one counts, nothing else is appended: if
        // this call is given up, the next append ends the switch.
        log.next = Some(Box::new(Log {
            object: Some(object),
            sequence: 1,
            checkpoint_len: len,
            len,
            ..Log::new(generation, seal)
        }));
        log.finish_switch(self.head.identity, map).await?;
        self.counters.checkpoints.add(1);
        Ok(())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.recording.lock().retain(|one| one.number != self.number);
    }
}

impl Log {
    const fn new(generation: u64, seal: u64) -> Self {
        Self {
            object: None,
            generation,
            seal,
            sequence: 0,
            checkpoint_len: 0,
            len: 0,
            since_snapshot: Vec::new(),
            is_snapshotting: false,
            is_end_unknown: false,
            next: None,
        }
    }

    /// Makes the generation that is whole the one that counts. What it appends is the same if it is called again.
    async fn finish_switch(&mut self, identity: u64, map: &Mutex<Map>) -> Result<()> {
        let Some(next) = &mut self.next else { return Ok(()) };
        if next.sequence == 1 {
            next.append(&self.since_snapshot).await?;
        }
        if let Some(object) = &self.object {
            turns::supersede(&**object, identity, next.generation, IO).await?;
        }
        if let Some(next) = self.next.take() {
            *self = *next;
            map.lock().switch_checkpoint();
        }
        Ok(())
    }

    /// Appends edits, and keeps them for the checkpoint that is being written.
    async fn edit(&mut self, edits: Vec<Edit>) -> Result<()> {
        // An append that was given up may be there: then what it says is overwritten.
        if edits.is_empty() && !self.is_end_unknown {
            return Ok(());
        }
        self.append(&edits).await?;
        if self.is_snapshotting {
            self.since_snapshot.extend(edits);
        }
        Ok(())
    }

    /// Durable on return.
    async fn append(&mut self, edits: &[Edit]) -> Result<()> {
        let Some(object) = &self.object else {
            let what = "the map of a tier has no checkpoint yet";
            return Err(Error::new(ErrorKind::Invalid, what));
        };
        let mut bytes = Vec::new();
        record::frame(&mut bytes, self.seal, self.sequence, &Edit::encode(edits));
        self.is_end_unknown = true;
        object.write_durable(self.len, IoBuf::from(&bytes[..]), IO).await?;
        self.is_end_unknown = false;
        self.len += bytes.len() as u64;
        self.sequence += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use policy::cache::Kind;
    use volume::mem::Mem;
    use volume::task::block_on;

    use super::super::map::Size;
    use super::*;

    #[test]
    fn while_a_checkpoint_looks_at_units_readers_go_on_and_no_record_is_made() {
        let volume: Arc<dyn Volume> = Arc::new(Mem::new("fast"));
        let (slab, _) = block_on(Slab::open(&volume, 4)).unwrap();
        let head = Head { identity: 1, epoch: 1 };
        let journal = Journal::new(volume, head, 0, &Arc::default());
        let size = Size { places: 4, entries: 4, pages: 1, at_once: 1 };
        let map = Mutex::new(Map::new(size, Kind::Lru));
        for extent in 0..4 {
            map.lock().take_entry(Unit { object: 1, extent }).unwrap();
        }
        let mut checkpoint = Box::pin(journal.checkpoint(&map, &slab, 4096, |_| true, |_| None));
        for _ in 0..7 {
            assert!(checkpoint.as_mut().now_or_never().is_none());
            assert!(map.try_lock().is_some());
            assert!(journal.log.try_lock().is_none());
        }
        block_on(checkpoint).unwrap();
        assert_eq!(journal.log.try_lock().unwrap().generation, 1);
    }

    #[test]
    fn who_gives_up_waiting_for_a_record_leaves_none_to_be_made() {
        let head = Head { identity: 1, epoch: 1 };
        let journal = Journal::new(Arc::new(Mem::new("fast")), head, 0, &Arc::default());
        let map =
            Mutex::new(Map::new(Size { places: 1, entries: 1, pages: 1, at_once: 1 }, Kind::Lru));
        let name = Name::new("a").unwrap();
        let held = journal.log.try_lock().unwrap();
        let mut record = Box::pin(journal.record(&name, &[], &map, |_, _| true));
        assert!(record.as_mut().now_or_never().is_none());
        assert_eq!(journal.recording.lock().len(), 1);
        drop(record);
        assert_eq!(journal.recording.lock().len(), 0);
        drop(held);
    }
}
