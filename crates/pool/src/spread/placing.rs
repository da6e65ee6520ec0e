//! Chooses volumes for new objects and further copies, from tables and the load of each volume.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use policy::contract::OP_BYTES_MAX;
use policy::heat::Second;
use policy::inherit::Made;
use policy::intent::{Family, Kind};
use policy::migrate::InitialReplicas;
use policy::placement::{
    Candidate, Keys, Layout, New, Overlaps, Placement, Table, Tables, VolumeId,
};
use policy::purpose::Origin;
use policy::weight::{Seen, Weights};
use volume::{Intent, Name};

use super::Spread;
use super::heat::{DeviceHeats, Rates};
use super::inode::Inode;
use crate::leaf::{self, ObjectId};
use crate::manifest::{Copies, State};

/// The placement policy and its input: tables, weights of volumes, heat.
pub(crate) struct Placing {
    /// The volumes for logs and the manifest.
    meta: Vec<VolumeId>,
    /// Locked after every other lock, for the time of a decision.
    decider: Mutex<Decider>,
    pub(super) heats: DeviceHeats,
    /// The number of tables that were streamed and sealed.
    pub(super) streamed_tables: AtomicU64,
}

/// The policy and its input.
struct Decider {
    policy: Box<dyn Placement>,
    tables: Tables,
    weights: Weights,
    /// The rates of copies at the last sweep.
    rates: Rates,
    /// The initial replicas of hot tables.
    initial_replicas: Option<InitialReplicas>,
    /// Tables that began with more copies than the replication target.
    replicated: u64,
}

/// An object to be placed.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) id: ObjectId,
    pub(super) kind: leaf::Kind,
    pub(super) intent: &'a Intent,
    /// The origin of its write, if known.
    pub(super) origin: Option<Origin>,
}

/// A place chosen for an object, which is being written. [`Flight::land`] marks it as complete; dropping it before
/// undoes its placement.
pub(super) struct Flight<'a> {
    placing: &'a Placing,
    id: ObjectId,
    layout: Layout,
    len: u64,
    /// The expected reads a second.
    rate: f32,
    is_flush: bool,
    /// A further copy: the object exists without it.
    is_copy: bool,
    landed: bool,
}

impl Placing {
    pub(super) fn new(policy: Box<dyn Placement>, meta: Vec<VolumeId>, state: &State) -> Self {
        let decider = Decider {
            policy,
            tables: tables_of(state),
            weights: Weights::default(),
            rates: Rates::new(),
            initial_replicas: None,
            replicated: 0,
        };
        let (heats, streamed_tables) = (DeviceHeats::default(), AtomicU64::new(0));
        Self { meta, decider: Mutex::new(decider), heats, streamed_tables }
    }

    /// Chooses among volumes of which `candidates` has only the space; logs go to the volumes for metadata if these
    /// have room. From now on the bytes count as in flight, and a table counts as present.
    ///
    /// A further copy is one of a known object. The caller then calls [`Placing::set_places`].
    pub(super) fn choose(
        &self,
        wanted: Wanted<'_>,
        candidates: &[Candidate],
        is_copy: bool,
    ) -> Option<Flight<'_>> {
        let Wanted { id, kind, intent, origin } = wanted;
        let is_log = kind == leaf::Kind::Log;
        let intent = if is_log { &Intent { kind: Kind::Log, ..intent.clone() } } else { intent };
        let for_meta = candidates.iter().filter(|c| is_log && self.meta.contains(&c.volume));
        let for_meta: Vec<_> = for_meta.copied().collect();
        let mut decider = self.decider.lock();
        let wanted = Wanted { intent, ..wanted };
        let mut choose = |candidates| decider.choose(wanted, candidates, is_copy);
        let chosen = if is_log { choose(for_meta) } else { None };
        let chosen = chosen.or_else(|| choose(candidates.to_vec()));
        // Last, use the reserve of each volume too: stores refuse users' writes long before, so only work
        // that frees space gets here.
        let to_the_last = candidates.iter().map(|&c| Candidate { total: 0, ..c });
        let chosen = chosen.or_else(|| choose(to_the_last.collect()));
        let roomiest = candidates.iter().filter(|c| c.healthy).max_by_key(|c| c.free);
        // It may stay shorter.
        let in_part = || {
            let intent = &Intent { most: None, ..intent.clone() };
            let only = vec![Candidate { total: 0, ..*roomiest? }];
            decider.choose(Wanted { intent, ..wanted }, only, is_copy)
        };
        let (layout, rate) = chosen.or_else(in_part)?;
        let (len, is_flush) = (intent.len.unwrap_or(0), origin == Some(Origin::Flush));
        for (volume, bytes, rate) in parts(&layout, len, rate) {
            decider.weights.place(volume, bytes, f64::from(rate));
        }
        Some(Flight { placing: self, id, layout, len, rate, is_flush, is_copy, landed: false })
    }

    /// Records the copies of an object.
    pub(super) fn set_places(&self, id: ObjectId, copies: &Copies) {
        let volumes: Vec<_> = copies.volumes().collect();
        self.decider.lock().tables.set_places(id.0, &volumes);
    }

    /// Sets the length of a complete table.
    pub(super) fn complete(&self, id: ObjectId, len: u64) {
        self.decider.lock().tables.set_len(id.0, len);
    }

    /// Forgets an object that was removed.
    pub(super) fn forget_table(&self, id: ObjectId) {
        self.decider.lock().tables.remove(id.0);
        self.heats.forget(id);
    }

    /// Forgets a volume that left the pool.
    pub(super) fn forget_volume(&self, volume: VolumeId) {
        let mut decider = self.decider.lock();
        decider.weights.forget(volume);
        decider.rates.retain(|(_, on), _| *on != volume);
    }

    /// Describes a table that is complete already, and gives its first copy the expected reads until they are
    /// measured; returns the number of copies that it should begin with.
    pub(super) fn describe_late(&self, inode: &Inode, intent: &Intent, origin: Origin) -> usize {
        let (rate, count) = {
            let mut decider = self.decider.lock();
            let rate = decider.expected(intent, Some(origin));
            if let Kind::Table { family, level, range } = &intent.kind {
                let keys = range.as_ref().map(Keys::from);
                decider.tables.describe(inode.id.0, family, *level, keys);
                decider.tables.set_rate(inode.id.0, rate);
            }
            (rate, decider.copies_for(decider.rate(inode.id)))
        };
        let rate = rate / count.max(1) as f32;
        if let Some(first) = inode.replicas().first().filter(|_| rate > 0.0) {
            for part in 0..first.parts() {
                let (len, rate) = (first.part_len(part, inode.len()), rate / first.parts() as f32);
                self.heats.begin(first.volume(part), inode.id, len, rate);
            }
        }
        count
    }

    /// The initial replicas for a table.
    pub(super) fn initial_copies(&self, id: ObjectId) -> usize {
        let decider = self.decider.lock();
        decider.copies_for(decider.rate(id))
    }

    /// Counts a table that began with a copy more than the replication target.
    pub(super) fn count_replicated(&self) {
        self.decider.lock().replicated += 1;
    }

    /// Sets the initial replicas of hot tables, one by default. Copies made while the bytes are in memory need
    /// no read of a hot volume.
    pub(crate) fn set_initial_replicas(&self, initial: Option<InitialReplicas>) {
        self.decider.lock().initial_replicas = initial;
    }

    /// The paid rate of a volume, which stands for a weight of 1, in operations a second.
    pub(crate) fn paid(&self, volume: VolumeId) -> f64 {
        self.decider.lock().weights.paid(volume)
    }

    /// What the device of a volume usually takes for a read; zero if unknown.
    pub(crate) fn answer(&self, volume: VolumeId) -> Duration {
        self.decider.lock().weights.answer(volume)
    }

    /// Whether a table is leaving, or gone.
    pub(crate) fn is_table_leaving(&self, id: ObjectId) -> bool {
        self.decider.lock().tables.get(id.0).is_none_or(|table| table.leaving)
    }

    /// The number of tables on a volume that are read together with this one.
    pub(crate) fn overlap(&self, id: ObjectId, volume: VolumeId) -> f64 {
        let Decider { tables, .. } = &*self.decider.lock();
        let overlap = || {
            let table = tables.get(id.0)?;
            let (level, keys) = (table.level?, table.keys?);
            let overlaps = Overlaps::of(id.0, table.family, level, keys, tables, false);
            Some(overlaps.on(volume))
        };
        overlap().unwrap_or(0.0)
    }
}

impl Decider {
    /// The place of an object, and its expected reads a second.
    fn choose(
        &mut self,
        Wanted { id, intent, origin, .. }: Wanted<'_>,
        candidates: Vec<Candidate>,
        is_copy: bool,
    ) -> Option<(Layout, f32)> {
        let expected = if is_copy { 0.0 } else { self.expected(intent, origin) };
        let candidates: Vec<_> = candidates.into_iter().map(|c| self.weights.on(c)).collect();
        let new = New { object: id.0, intent, rate: expected };
        let layout = self.policy.choose(new, &candidates, &self.tables)?;
        if let Kind::Table { family, level, range } = &intent.kind
            && !is_copy
        {
            self.tables.insert(Table {
                object: id.0,
                family,
                level: *level,
                keys: range.as_ref().map(Keys::from),
                len: intent.len.unwrap_or(0),
                on: layout.volumes(),
                rate: expected,
                leaving: false,
            });
        }
        let rate = if is_copy { self.rate(id) } else { expected };
        let rate = match self.copies_for(rate) {
            1 if is_copy => 0.0,
            copies => rate / copies as f32,
        };
        Some((layout, rate))
    }

    /// The expected heat of a new table: that of the tables it replaces.
    fn expected(&self, intent: &Intent, origin: Option<Origin>) -> f32 {
        let Kind::Table { family, level: Some(level), range: Some(range) } = &intent.kind else {
            return 0.0;
        };
        let inherited =
            origin.and_then(|origin| made_of(origin, *level)).map_or(0.0, |(levels, made)| {
                self.tables.inherited(family, range.into(), levels, made)
            });
        match origin {
            Some(Origin::Flush) => inherited.max(self.tables.flushed(family)),
            _ => inherited,
        }
    }

    /// The heat of a table.
    fn rate(&self, id: ObjectId) -> f32 {
        self.tables.get(id.0).map_or(0.0, |table| table.rate)
    }

    fn copies_for(&self, rate: f32) -> usize {
        self.initial_replicas.map_or(1, |initial| initial.copies(f64::from(rate)))
    }
}

/// Each volume of a layout, with its bytes and expected reads.
fn parts(layout: &Layout, len: u64, rate: f32) -> impl Iterator<Item = (VolumeId, u64, f32)> {
    let (chunks, volumes) = (layout.chunks(), layout.volumes());
    let rate = rate / volumes.len() as f32;
    let parts = volumes.iter().enumerate();
    parts.map(move |(part, &volume)| (volume, chunks.part_len(len, part), rate))
}

/// The levels of the tables that a new one for `level` replaces, and how.
fn made_of(origin: Origin, level: u8) -> Option<(RangeInclusive<u8>, Made)> {
    match origin {
        // A flushed table is as hot as those flushed shortly before.
        Origin::Flush => Some((0..=0, Made::Flushed)),
        Origin::Compaction { level: from } => Some((from..=level, Made::Merged)),
        _ => None,
    }
}

/// The family of tables without a description.
fn nobody() -> Family {
    Family("".into())
}

/// The tables of a pool that was just opened. Only their places and lengths are known.
fn tables_of(state: &State) -> Tables {
    let mut tables = Tables::default();
    let unknown = nobody();
    for (id, stored) in state.objects().filter(|(_, stored)| stored.kind == leaf::Kind::Table) {
        tables.insert(Table {
            object: id.0,
            family: &unknown,
            level: None,
            keys: None,
            len: stored.len(),
            on: &stored.copies.volumes().collect::<Vec<_>>(),
            rate: 0.0,
            leaving: false,
        });
    }
    tables
}

impl Flight<'_> {
    pub(super) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Marks the object as complete.
    pub(super) fn land(mut self) {
        self.landed = true;
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        {
            let weights = &mut self.placing.decider.lock().weights;
            for (volume, bytes, rate) in parts(&self.layout, self.len, self.rate) {
                weights.settle(volume, bytes, f64::from(rate), self.landed);
                if self.is_flush {
                    weights.count_flush(volume, bytes.div_ceil(OP_BYTES_MAX));
                }
            }
        }
        if !self.landed {
            if !self.is_copy {
                self.placing.forget_table(self.id);
            }
        } else if self.rate > 0.0 {
            for (volume, bytes, rate) in parts(&self.layout, self.len, self.rate) {
                self.placing.heats.begin(volume, self.id, bytes, rate);
            }
        }
    }
}

impl Spread {
    /// Passes placement's tables to `look`. No table is placed meanwhile.
    pub fn with_tables<T>(&self, look: impl FnOnce(&Tables) -> T) -> T {
        look(&self.0.placing.decider.lock().tables)
    }

    /// Describes a table to placement: its `family`, `level` and `keys`; for tables that existed when the
    /// pool was opened. Ignores objects that are not tables.
    pub fn describe_table(
        &self,
        name: &Name,
        family: &Family,
        level: Option<u8>,
        keys: Option<Keys<'_>>,
    ) {
        self.change_table(name, |tables, id| tables.describe(id, family, level, keys));
    }

    /// Sets the level of a table that changed level without a rewrite.
    pub fn set_table_level(&self, name: &Name, level: u8) {
        self.change_table(name, |tables, id| tables.set_level(id, level));
    }

    /// Records whether a table is the input of a compaction, which will remove it.
    pub fn set_table_leaving(&self, name: &Name, leaving: bool) {
        self.change_table(name, |tables, id| tables.set_leaving(id, leaving));
    }

    /// Clears the description of a table that its database removed. The object may still have a
    /// checkpoint's name, but it is no longer read together with other tables.
    pub fn disown_table(&self, name: &Name) {
        self.describe_table(name, &nobody(), None, None);
    }

    /// Updates the weight of each volume, once a second, from the heat of its objects and from `seen`.
    /// `now` counts seconds from any start. A skipped second loses nothing; without any call, placement
    /// uses only overlaps and bytes in flight.
    pub fn on_second(&self, now: Second, seen: &[Seen]) {
        let rates = self.0.placing.heats.sweep(now);
        let mut decider = self.0.placing.decider.lock();
        let Decider { tables, weights, rates: before, .. } = &mut *decider;
        let (mut on, mut of) = (BTreeMap::new(), BTreeMap::<_, f32>::new());
        for (&(object, volume), &rate) in &rates {
            // A dropped copy still has heat for some seconds.
            if tables.get(object.0).is_some_and(|table| !table.on.contains(&volume)) {
                continue;
            }
            *of.entry(object).or_default() += rate;
            *on.entry(volume).or_default() += f64::from(rate);
        }
        for (cold, _) in before.keys().filter(|(object, _)| !of.contains_key(object)) {
            tables.set_rate(cold.0, 0.0);
        }
        for (&object, &rate) in &of {
            tables.set_rate(object.0, rate);
        }
        weights.on_second(now, seen, &on);
        *before = rates;
    }

    /// The weight of each volume, where 1 is the paid rate.
    #[must_use]
    pub fn weights(&self) -> BTreeMap<VolumeId, f64> {
        let decider = self.0.placing.decider.lock();
        let all = self.0.members.all();
        all.iter().map(|slot| (slot.id, decider.weights.weight(slot.id))).collect()
    }

    /// Reads a second of each copy that is not cold, as of the last [`Spread::on_second`].
    #[must_use]
    pub fn rates(&self) -> BTreeMap<(ObjectId, VolumeId), f32> {
        self.0.placing.decider.lock().rates.clone()
    }

    /// Tables that began with more copies than the replication target, because they replaced hot ones; since
    /// the pool was opened.
    #[must_use]
    pub fn begun_with_more(&self) -> u64 {
        self.0.placing.decider.lock().replicated
    }

    fn change_table(&self, name: &Name, change: impl FnOnce(&mut Tables, u64)) {
        if let Some(id) = self.0.journal.look(|state| state.id(name)) {
            change(&mut self.0.placing.decider.lock().tables, id.0);
        }
    }
}
