//! What a slow volume knows of bytes that are newer on a fast one: marks of units, and ranges that are stale.
//!
//! ```text
//!   tier.dirty-0   state g     │ marked, cleared │ marked, cleared │ …
//!   tier.dirty-1   state g + 1 │ …
//! ```
//! Before a mark goes to generation g + 1, generation g is superseded: if the newer one is damaged, the marks are unknown.
//!
//! A unit is marked before a write that is only on the fast volume is durable, and cleared some time after the slow volume
//! has everything of it. An opening without that fast volume finds all ranges that may be older than what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::purpose::{Io, Origin, Step};
use volume::{Error, ErrorKind, IoBuf, Name, Object, Result, Volume};

use super::frames::{Content, Frames};
use super::identity;
use super::record::{self, Ranges, decode_ranges, encode_ranges};
use super::turns::{self, Turns};

const IO: Io = Io::new(Origin::UserWrite, Step::Manifest);
const NAMES: &str = "tier.dirty";

/// A log with changes of this many bytes is written anew, unless its state is longer.
const LOG_MIN: u64 = 4 << 20;

type Marked = BTreeMap<Name, BTreeSet<u32>>;

pub(super) struct DirtyLog {
    unit: u64,
    identity: u64,
    marked: Mutex<Kept>,
    /// Units that wait for a mark.
    waiting: Mutex<Vec<(Name, u32)>>,
    log: AsyncMutex<Log>,
}

/// The marks that are durable.
#[derive(Default)]
struct Kept {
    /// The looks for cold ones so far.
    looks: u32,
    /// Of each unit of an object, the number of looks when its mark was needed last.
    units: BTreeMap<Name, BTreeMap<u32, u32>>,
}

struct Log {
    turns: Turns,
    /// `None` if there is no generation yet.
    object: Option<Arc<dyn Object>>,
    /// Otherwise the next append writes a new state.
    is_end_known: bool,
    /// That of the generation before, until it is superseded.
    last: Option<Arc<dyn Object>>,
    generation: u64,
    sequence: u64,
    /// The bytes of the state, with which it begins.
    state_len: u64,
    len: u64,
    stale: Ranges,
}

/// What an opening finds.
#[derive(Default)]
pub(super) struct Found {
    /// The last generation, and its object.
    generation: u64,
    object: Option<Arc<dyn Object>>,
    damage: Damage,
    /// In bytes of objects.
    pub(super) marked: Ranges,
    pub(super) stale: Ranges,
}

/// What of the last generation no copy has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Damage {
    #[default]
    None,
    /// Changes of marks.
    Changes,
    /// All of it, stale ranges too.
    State,
}

/// Bytes of a slow volume that a tier has newer elsewhere, or lost.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Marks {
    /// Objects with units that may be newer on the fast volume.
    pub objects: u64,
    /// Bytes of these units: what is newer is at most as much.
    pub bytes: u64,
    /// Bytes that were only on a fast volume that is lost: a tier does not give the older ones.
    pub stale_bytes: u64,
}

/// Reads which bytes of a slow volume may be newer on a fast one. Changes nothing. All are none if no tier was on the volume.
///
/// # Errors
/// `Corrupt`: the marks are damaged. Else those of the volume.
pub async fn dirty_marks(slow: &dyn Volume) -> Result<Marks> {
    let Some(head) = identity::read(slow).await? else { return Ok(Marks::default()) };
    let found = read(slow, head.identity).await?;
    found.check(false)?;
    found.marks(slow).await
}

impl Found {
    /// Whether enough of the log is whole: with a fast volume that has all newer bytes (`is_warm`) only its stale ranges count.
    ///
    /// # Errors
    /// `Corrupt`: it is not.
    pub(super) fn check(&self, is_warm: bool) -> Result<()> {
        let way_out = match self.damage {
            Damage::None => return Ok(()),
            Damage::Changes if is_warm => return Ok(()),
            Damage::Changes => "bring back the fast volume that the tier had last",
            Damage::State => "restore the slow volume from a backup",
        };
        let what = format!(
            "{NAMES}-0 and {NAMES}-1, which say what is newer on a fast volume, or was lost with one, are damaged: {way_out}, or \
             remove both if reads may give older bytes"
        );
        Err(Error::new(ErrorKind::Corrupt, what))
    }

    /// What counts of it: objects that were removed may be marked still.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn marks(&self, slow: &dyn Volume) -> Result<Marks> {
        if self.marked.is_empty() && self.stale.is_empty() {
            return Ok(Marks::default());
        }
        let listed: BTreeSet<_> = slow.list().await?.into_iter().map(|of| of.name).collect();
        let present = |(name, of): &&(Name, Vec<_>)| !of.is_empty() && listed.contains(name);
        let bytes = |ranges: &Ranges| {
            let all = ranges.iter().filter(present).flat_map(|(_, of)| of);
            all.map(|range| range.end - range.start).sum()
        };
        let objects = self.marked.iter().filter(present).count() as u64;
        Ok(Marks { objects, bytes: bytes(&self.marked), stale_bytes: bytes(&self.stale) })
    }
}

/// Reads what is on a slow volume.
///
/// # Errors
/// Those of the volume.
pub(super) async fn read(volume: &dyn Volume, identity: u64) -> Result<Found> {
    let (mut found, mut newest) = (Found::default(), 0);
    for (object, content) in turns::read(volume, NAMES, IO).await? {
        match content {
            Content::Frames(frames) => {
                newest = newest.max(generation(frames.seal, identity));
                if let Some(state) = replay(&frames, identity)
                    && state.generation >= found.generation
                {
                    found = Found { object: Some(object), ..state };
                }
            }
            Content::Superseded { identity: of, by } if of == identity => newest = newest.max(by),
            Content::Superseded { .. } => {}
            Content::Headless(seals) => {
                let generations = seals.into_iter().map(|seal| generation(seal, identity));
                newest = generations.fold(newest, u64::max);
            }
        }
    }
    if newest > found.generation {
        found = Found { generation: newest, damage: Damage::State, ..found };
    }
    Ok(found)
}

fn replay(frames: &Frames, identity: u64) -> Option<Found> {
    let (generation, body) = frames.first().split_first_chunk()?;
    let generation = u64::from_le_bytes(*generation);
    let [marked, stale] = decode_ranges(body)?;
    if frames.seal != seal(identity, generation) {
        return None;
    }
    let mut all: BTreeMap<Name, BTreeSet<(u64, u64)>> = BTreeMap::new();
    let add = |all: &mut BTreeMap<Name, BTreeSet<(u64, u64)>>, list: Ranges| {
        for (name, ranges) in list {
            all.entry(name).or_default().extend(ranges.iter().map(|r| (r.start, r.end)));
        }
    };
    add(&mut all, marked);
    for body in frames.others() {
        let [marked, cleared] = decode_ranges(body)?;
        for (name, ranges) in cleared {
            let units = all.entry(name).or_default();
            ranges.iter().for_each(|range| {
                units.remove(&(range.start, range.end));
            });
        }
        add(&mut all, marked);
    }
    let list = |(name, units): (Name, BTreeSet<(u64, u64)>)| {
        (name, units.into_iter().map(|(start, end)| start..end).collect())
    };
    let damage = if frames.is_cut { Damage::Changes } else { Damage::None };
    let marked = all.into_iter().map(list).collect();
    Some(Found { generation, object: None, damage, marked, stale })
}

impl DirtyLog {
    /// With nothing marked.
    pub(super) fn new(volume: Arc<dyn Volume>, unit: u64, identity: u64, found: &Found) -> Self {
        let log = AsyncMutex::new(Log {
            turns: Turns::new(volume, NAMES, IO),
            object: found.object.clone(),
            is_end_known: false,
            last: None,
            generation: found.generation,
            sequence: 0,
            state_len: 0,
            len: 0,
            stale: found.stale.clone(),
        });
        let (marked, waiting) = Default::default();
        Self { unit, identity, marked, waiting, log }
    }

    /// Marks units that were marked before the opening; durable after [`DirtyLog::set_stale`].
    pub(super) fn restore(&self, name: &Name, extents: impl Iterator<Item = u32>) {
        self.marked.lock().add(name.clone(), extents);
    }

    /// Whether a unit is marked, durably.
    pub(super) fn is_marked(&self, name: &Name, extent: u32) -> bool {
        self.marked.lock().units.get(name).is_some_and(|units| units.contains_key(&extent))
    }

    /// All marked units.
    pub(super) fn marked(&self) -> Vec<(Name, u32)> {
        self.marked.lock().of(|_| true)
    }

    /// The marked units whose mark was not needed since the last look.
    pub(super) fn cold(&self) -> Vec<(Name, u32)> {
        let mut marked = self.marked.lock();
        let now = marked.looks;
        marked.looks = now.wrapping_add(1);
        marked.of(|needed| needed != now)
    }

    /// Makes durable that these units may be newer on the fast volume. Those who wait together share an append.
    ///
    /// # Errors
    /// Those of the slow volume.
    pub(super) async fn mark(&self, name: &Name, extents: &[u32]) -> Result<()> {
        if self.marked.lock().need(name, extents) {
            return Ok(());
        }
        let own = || extents.iter().map(|&extent| (name.clone(), extent));
        self.waiting.lock().extend(own());
        let mut log = self.log.lock().await;
        let mut batch = std::mem::take(&mut *self.waiting.lock());
        batch.extend(own());
        batch.retain(|(name, extent)| !self.is_marked(name, *extent));
        let mut new = Marked::new();
        for (name, extent) in batch {
            new.entry(name).or_default().insert(extent);
        }
        if new.is_empty() {
            return Ok(());
        }
        self.append(&mut log, &new, &Marked::new()).await?;
        let mut marked = self.marked.lock();
        new.into_iter().for_each(|(name, units)| marked.add(name, units));
        Ok(())
    }

    /// Clears the marks of units of which `is_clean` holds at one moment.
    ///
    /// # Errors
    /// Those of the slow volume: the units are not marked any more all the same.
    pub(super) async fn clear(
        &self,
        units: &[(Name, u32)],
        is_clean: impl FnOnce(&mut dyn FnMut(&dyn Fn(usize) -> bool)),
    ) -> Result<()> {
        let mut log = self.log.lock().await;
        let mut cleared = Marked::new();
        is_clean(&mut |holds| {
            let mut marked = self.marked.lock();
            for (at, (name, extent)) in units.iter().enumerate() {
                if let Some(of) = marked.units.get_mut(name)
                    && holds(at)
                    && of.remove(extent).is_some()
                {
                    cleared.entry(name.clone()).or_default().insert(*extent);
                }
            }
        });
        if cleared.is_empty() {
            return Ok(());
        }
        self.append(&mut log, &Marked::new(), &cleared).await
    }

    /// No unit of a removed object is marked any more.
    pub(super) async fn forget(&self, name: &Name) {
        let mut log = self.log.lock().await;
        let Some(units) = self.marked.lock().units.remove(name) else { return };
        let cleared = Marked::from([(name.clone(), units.into_keys().collect())]);
        if let Err(e) = self.append(&mut log, &Marked::new(), &cleared).await {
            // An opening drops marks of names that are gone.
            tracing::warn!("a removed object is still marked: {e}");
        }
    }

    /// Makes `stale` what is stale, durably; with `forgets`, no unit is marked any more. `then` is done before anything else is
    /// written.
    ///
    /// # Errors
    /// Those of the slow volume.
    pub(super) async fn set_stale(
        &self,
        forgets: bool,
        stale: impl FnOnce() -> Ranges,
        then: impl FnOnce(),
    ) -> Result<()> {
        let mut log = self.log.lock().await;
        let stale = stale();
        if forgets {
            self.marked.lock().units.clear();
        }
        let is_new = log.generation == 0 && stale.is_empty() && self.marked().is_empty();
        if !is_new {
            log.stale = stale;
            self.rewrite(&mut log, &Marked::new()).await?;
        }
        then();
        Ok(())
    }

    fn ranges(&self, marked: &Marked) -> Ranges {
        let bytes = |&extent: &u32| {
            let at = u64::from(extent) * self.unit;
            at..at + self.unit
        };
        marked.iter().map(|(name, of)| (name.clone(), of.iter().map(bytes).collect())).collect()
    }

    async fn append(&self, log: &mut Log, marked: &Marked, cleared: &Marked) -> Result<()> {
        self.supersede(log).await?;
        let is_long = turns::is_long(log.len, log.state_len, LOG_MIN);
        let Some(object) = log.object.clone().filter(|_| log.is_end_known && !is_long) else {
            return self.rewrite(log, marked).await;
        };
        let (mut body, mut bytes) = (Vec::new(), Vec::new());
        encode_ranges(&mut body, &self.ranges(marked));
        encode_ranges(&mut body, &self.ranges(cleared));
        record::frame(&mut bytes, seal(self.identity, log.generation), log.sequence, &body);
        // If this fails or is given up, it may be there or not.
        log.is_end_known = false;
        object.write_durable(log.len, IoBuf::from(&bytes[..]), IO).await?;
        log.is_end_known = true;
        log.len += bytes.len() as u64;
        log.sequence += 1;
        Ok(())
    }

    /// Writes the state with these units marked, too, as a new generation.
    async fn rewrite(&self, log: &mut Log, new: &Marked) -> Result<()> {
        self.supersede(log).await?;
        let mut marked = new.clone();
        for (name, extent) in self.marked() {
            marked.entry(name).or_default().insert(extent);
        }
        let generation = log.generation + 1;
        let (mut body, mut bytes) = (generation.to_le_bytes().to_vec(), Vec::new());
        encode_ranges(&mut body, &self.ranges(&marked));
        encode_ranges(&mut body, &log.stale);
        record::frame(&mut bytes, seal(self.identity, generation), 0, &body);
        let len = bytes.len() as u64;
        let object = log.turns.begin(generation, IoBuf::from(&bytes[..])).await?;
        log.last = log.object.replace(object);
        (log.generation, log.sequence, log.is_end_known) = (generation, 1, true);
        (log.state_len, log.len) = (len, len);
        self.supersede(log).await
    }

    /// Ends the change to the current generation, if that is still to be done.
    async fn supersede(&self, log: &mut Log) -> Result<()> {
        if let Some(last) = &log.last {
            turns::supersede(&**last, self.identity, log.generation, IO).await?;
            log.last = None;
        }
        Ok(())
    }
}

impl Kept {
    fn add(&mut self, name: Name, extents: impl IntoIterator<Item = u32>) {
        let needed = extents.into_iter().map(|extent| (extent, self.looks));
        self.units.entry(name).or_default().extend(needed);
    }

    /// Whether all of these units are marked; the marks that there are were needed now.
    fn need(&mut self, name: &Name, extents: &[u32]) -> bool {
        let Some(units) = self.units.get_mut(name) else { return extents.is_empty() };
        let mut all = true;
        for extent in extents {
            match units.get_mut(extent) {
                Some(needed) => *needed = self.looks,
                None => all = false,
            }
        }
        all
    }

    fn of(&self, wanted: impl Fn(u32) -> bool) -> Vec<(Name, u32)> {
        let units = self.units.iter().flat_map(|(name, of)| of.iter().map(move |of| (name, of)));
        let wanted = units.filter(|(_, (_, needed))| wanted(**needed));
        wanted.map(|(name, (&extent, _))| (name.clone(), extent)).collect()
    }
}

const fn seal(identity: u64, generation: u64) -> u64 {
    identity ^ generation.rotate_left(16)
}

/// The generation with this seal; 0 if it is that of another identity.
const fn generation(seal: u64, identity: u64) -> u64 {
    let generation = (seal ^ identity).rotate_right(16);
    if generation >> 40 == 0 { generation } else { 0 }
}
