//! The durable map on the fast volume: a checkpoint of the units, and a log of those that do not count any more.
//!
//! ```text
//!   tier.map-0   checkpoint g     │ doubts at the switch │ doubt │ doubt │ superseded
//!   tier.map-1   checkpoint g + 1 │ doubts at the switch │ doubt │ …
//! ```
//! Before the first change of a unit that the checkpoint names, and before another page gets one of its places, a *doubt*
//! is durable: after a crash the unit is empty. The doubts that wait together share one append.
//!
//! A generation counts once its second frame is whole. Doubts during a checkpoint go to the old log and to that frame; they
//! wait while it is written. Then the old generation is marked as superseded before the next doubt, so that damage of the
//! new one never brings the old one back.
//!
//! The pool's own journal (`crate::journal`) keeps a state on several volumes, and moves when one fails. A cache that
//! cannot be written is given up instead, and its checkpoint must follow a sync of the slab.

use std::sync::Arc;

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::cache::Slot;
use policy::purpose::{Io, Origin, Step};
use volume::{Error, ErrorKind, Intent, IoBuf, IoBufMut, Name, Object, Result, Volume};

use super::figures::Counters;
use super::map::{Map, Unit};
use super::record::{self, Checkpoint, Edit, Head, Placed};
use super::slab::Slab;

const IO: Io = Io::new(Origin::UserWrite, Step::Manifest);

/// A log of this many bytes makes a checkpoint due.
const LOG_MAX: u64 = 16 << 20;

pub(super) struct Journal {
    volume: Arc<dyn Volume>,
    head: Head,
    /// The entries that wait for a doubt.
    waiting: Mutex<Vec<Slot>>,
    /// Locked while the log is written.
    log: AsyncMutex<Log>,
    /// Locked during a checkpoint.
    checkpoint: AsyncMutex<()>,
    counters: Arc<Counters>,
}

struct Log {
    object: Option<Arc<dyn Object>>,
    generation: u64,
    seal: u64,
    sequence: u64,
    len: u64,
    /// Doubts since the snapshot of the checkpoint that is being written.
    since_snapshot: Vec<Slot>,
}

/// What a fast volume holds.
pub(super) struct Stored {
    pub(super) checkpoint: Checkpoint,
    /// Entries whose units do not count.
    pub(super) doubts: Vec<Slot>,
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
    for turn in 0..2 {
        let object = match volume.open(&name(turn)).await {
            Ok(object) => object,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        let len = usize::try_from(object.len()).unwrap_or(usize::MAX);
        let bytes = object.read_at(0, IoBufMut::zeroed(len), IO).await?;
        let Some(first) = record::read(&bytes) else { continue };
        let Some(head) = Checkpoint::decode_empty(first.body) else { continue };
        if found.identity.is_none() || head.generation > found.generation {
            found.identity = Some(head.head.identity);
        }
        found.generation = found.generation.max(head.generation);
        if let Some(stored) = replay(&bytes) {
            let newer = |last: &Stored| last.checkpoint.generation > head.generation;
            if !found.last.as_ref().is_some_and(newer) {
                found.last = Some(stored);
            }
        }
    }
    Ok(found)
}

/// A generation, if it is complete and none followed it.
fn replay(bytes: &[u8]) -> Option<Stored> {
    let first = record::read(bytes)?;
    let checkpoint = Checkpoint::decode(first.body)?;
    if first.seal != record::seal(checkpoint.head, checkpoint.generation) {
        return None;
    }
    let (mut at, mut doubts) = (first.len, Vec::new());
    for sequence in 1.. {
        let frame = bytes.get(at..).and_then(record::read);
        let frame = frame.filter(|frame| (frame.seal, frame.sequence) == (first.seal, sequence));
        match frame.map(|frame| (frame.len, Edit::decode(frame.body))) {
            Some((len, Some(Edit::Doubt(entries)))) => {
                doubts.extend(entries);
                at += len;
            }
            Some(_) => return None,
            None if sequence == 1 => return None,
            None => break,
        }
    }
    Some(Stored { checkpoint, doubts })
}

impl Journal {
    /// A journal without a checkpoint; `generation` is the highest number in use.
    pub(super) fn new(
        volume: Arc<dyn Volume>,
        head: Head,
        generation: u64,
        counters: &Arc<Counters>,
    ) -> Self {
        let log = Log {
            object: None,
            generation,
            seal: 0,
            sequence: 0,
            len: 0,
            since_snapshot: Vec::new(),
        };
        Self {
            volume,
            head,
            waiting: Mutex::default(),
            log: AsyncMutex::new(log),
            checkpoint: AsyncMutex::new(()),
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
            log.append(&Edit::Doubt(current.clone())).await?;
        }
        log.since_snapshot.extend_from_slice(&next);
        let mut map = map.lock();
        current.into_iter().chain(next).for_each(|entry| map.unmark(entry));
        Ok(())
    }

    /// Whether the log has become long.
    pub(super) async fn is_long(&self) -> bool {
        self.log.lock().await.len > LOG_MAX
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
        let _one_at_a_time = self.checkpoint.lock().await;
        let (generation, mut units, places) = {
            let mut log = self.log.lock().await;
            log.since_snapshot.clear();
            let mut map = map.lock();
            (log.generation + 1, map.snapshot(counts), map.places())
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
        let object = self.new_object(generation).await?;
        object.write_at(0, IoBuf::from(&bytes[..]), IO).await?;
        object.sync(IO).await?;

        let mut log = self.log.lock().await;
        // From here on a crash may find either generation. Until both logs say which one counts, no doubt can be recorded:
        // if this call is given up or fails, the next doubt fails, and the fast volume is given up.
        let old = log.object.take();
        let mut new = Log {
            object: Some(object),
            generation,
            seal,
            sequence: 1,
            len: bytes.len() as u64,
            since_snapshot: Vec::new(),
        };
        new.append(&Edit::Doubt(std::mem::take(&mut log.since_snapshot))).await?;
        if let Some(old) = old {
            let mut old = Log { object: Some(old), ..log.end() };
            old.append(&Edit::Superseded).await?;
        }
        *log = new;
        map.lock().switch_checkpoint();
        self.counters.checkpoints.add(1);
        Ok(())
    }

    async fn new_object(&self, generation: u64) -> Result<Arc<dyn Object>> {
        let name = name(generation % 2);
        match self.volume.remove(&name).await {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        self.volume.create(&name, &Intent::DATA).await
    }
}

impl Log {
    /// The same position, without an object.
    const fn end(&self) -> Self {
        let Self { generation, seal, sequence, len, .. } = *self;
        Self { object: None, generation, seal, sequence, len, since_snapshot: Vec::new() }
    }

    /// Durable on return.
    async fn append(&mut self, edit: &Edit) -> Result<()> {
        let Some(object) = &self.object else {
            let what = "the map of a tier has no checkpoint yet";
            return Err(Error::new(ErrorKind::Invalid, what));
        };
        let mut bytes = Vec::new();
        record::frame(&mut bytes, self.seal, self.sequence, &edit.encode());
        object.write_durable(self.len, IoBuf::from(&bytes[..]), IO).await?;
        self.len += bytes.len() as u64;
        self.sequence += 1;
        Ok(())
    }
}

fn name(turn: u64) -> Name {
    Name::new(&format!("tier.map-{turn}")).expect("a valid name")
}
