//! The input of placement: tables, and the load of each volume.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use policy::contract::OP_BYTES_MAX;
use policy::heat::Second;
use policy::inherit::Made;
use policy::intent::{Family, Kind};
use policy::migrate::InitialReplicas;
use policy::placement::{Candidate, Keys, Layout, New, Placement, Table, Tables, VolumeId};
use policy::purpose::Origin;
use policy::weight::{Seen, Weights};
use volume::{Intent, Name};

use super::heat::Rates;
use super::{Inner, Spread};
use crate::leaf::{self, ObjectId};
use crate::manifest::{Copies, State};

/// The policy and its input.
pub(super) struct Placing {
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

/// A place chosen for an object.
pub(super) struct Chosen {
    layout: Layout,
    len: u64,
    /// The expected reads a second.
    rate: f32,
    is_flush: bool,
    /// A further copy: the object exists without it.
    is_copy: bool,
}

impl Chosen {
    /// Each of its volumes, with its bytes and expected reads.
    fn parts(&self) -> impl Iterator<Item = (VolumeId, u64, f32)> {
        let volumes = self.layout.volumes();
        let (chunks, rate) = (self.layout.chunks(), self.rate / volumes.len() as f32);
        let parts = volumes.iter().enumerate();
        parts.map(move |(part, &volume)| (volume, chunks.part_len(self.len, part), rate))
    }
}

/// An object that was placed and is being written. [`Flight::land`] marks it as complete; dropping it before
/// undoes its placement.
pub(super) struct Flight<'a> {
    pool: &'a Inner,
    id: ObjectId,
    chosen: Chosen,
    landed: bool,
}

impl Placing {
    pub(super) fn new(policy: Box<dyn Placement>, tables: Tables) -> Self {
        Self {
            policy,
            tables,
            weights: Weights::default(),
            rates: Rates::new(),
            initial_replicas: None,
            replicated: 0,
        }
    }

    /// Chooses among volumes of which `candidates` has only the space. From now on the bytes count as in
    /// flight, and a table counts as present.
    pub(super) fn choose(
        &mut self,
        id: ObjectId,
        intent: &Intent,
        origin: Option<Origin>,
        candidates: impl IntoIterator<Item = Candidate>,
    ) -> Option<Chosen> {
        let rate = self.expected(intent, origin);
        let layout = self.ask(id, intent, rate, candidates)?;
        if let Kind::Table { family, level, range } = &intent.kind {
            self.tables.insert(Table {
                object: id.0,
                family,
                level: *level,
                keys: range.as_ref().map(Keys::from),
                len: intent.len.unwrap_or(0),
                on: layout.volumes(),
                rate,
                leaving: false,
            });
        }
        let is_flush = origin == Some(Origin::Flush);
        let len = intent.len.unwrap_or(0);
        let rate = rate / self.copies_for(rate) as f32;
        Some(self.expect(Chosen { layout, len, rate, is_flush, is_copy: false }))
    }

    /// As [`Placing::choose`], for a further copy of a known object. The caller then calls
    /// [`Placing::set_places`].
    pub(super) fn choose_copy(
        &mut self,
        id: ObjectId,
        intent: &Intent,
        origin: Option<Origin>,
        candidates: impl IntoIterator<Item = Candidate>,
    ) -> Option<Chosen> {
        let layout = self.ask(id, intent, 0.0, candidates)?;
        let is_flush = origin == Some(Origin::Flush);
        let len = intent.len.unwrap_or(0);
        let rate = self.tables.get(id.0).map_or(0.0, |table| table.rate);
        let rate = match self.copies_for(rate) {
            1 => 0.0,
            copies => rate / copies as f32,
        };
        Some(self.expect(Chosen { layout, len, rate, is_flush, is_copy: true }))
    }

    fn ask(
        &mut self,
        id: ObjectId,
        intent: &Intent,
        rate: f32,
        candidates: impl IntoIterator<Item = Candidate>,
    ) -> Option<Layout> {
        let candidates: Vec<_> = candidates.into_iter().map(|c| self.weights.on(c)).collect();
        self.policy.choose(New { object: id.0, intent, rate }, &candidates, &self.tables)
    }

    /// Counts the chosen bytes and reads as in flight.
    fn expect(&mut self, chosen: Chosen) -> Chosen {
        for (volume, bytes, rate) in chosen.parts() {
            self.weights.place(volume, bytes, f64::from(rate));
        }
        chosen
    }

    /// Records the copies of an object.
    pub(super) fn set_places(&mut self, id: ObjectId, copies: &Copies) {
        let volumes: Vec<_> = copies.volumes().collect();
        self.tables.set_places(id.0, &volumes);
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

    pub(super) fn set_initial_replicas(&mut self, initial: Option<InitialReplicas>) {
        self.initial_replicas = initial;
    }

    fn copies_for(&self, rate: f32) -> usize {
        self.initial_replicas.map_or(1, |initial| initial.copies(f64::from(rate)))
    }

    /// The initial replicas for a table.
    pub(super) fn initial_copies(&self, id: ObjectId) -> usize {
        self.copies_for(self.tables.get(id.0).map_or(0.0, |table| table.rate))
    }

    /// Describes a table that exists already; returns its expected heat.
    pub(super) fn describe_late(&mut self, id: ObjectId, intent: &Intent, origin: Origin) -> f32 {
        let rate = self.expected(intent, Some(origin));
        if let Kind::Table { family, level, range } = &intent.kind {
            self.tables.describe(id.0, family, *level, range.as_ref().map(Keys::from));
            self.tables.set_rate(id.0, rate);
        }
        rate
    }

    /// Counts a table that began with a copy more than the replication target.
    pub(super) fn count_replicated(&mut self) {
        self.replicated += 1;
    }

    pub(super) const fn replicated(&self) -> u64 {
        self.replicated
    }

    pub(super) fn paid(&self, volume: VolumeId) -> f64 {
        self.weights.paid(volume)
    }

    /// Forgets a volume that left the pool.
    pub(super) fn forget(&mut self, volume: VolumeId) {
        self.weights.forget(volume);
        self.rates.retain(|(_, on), _| *on != volume);
    }

    /// Sets the length of a complete table.
    pub(super) fn complete(&mut self, id: ObjectId, len: u64) {
        self.tables.set_len(id.0, len);
    }

    fn settle(&mut self, chosen: &Chosen, arrived: bool) {
        for (volume, bytes, rate) in chosen.parts() {
            self.weights.settle(volume, bytes, f64::from(rate), arrived);
            if chosen.is_flush {
                self.weights.count_flush(volume, bytes.div_ceil(OP_BYTES_MAX));
            }
        }
    }
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
pub(super) fn tables_of(state: &State) -> Tables {
    let mut tables = Tables::default();
    let unknown = nobody();
    for (id, stored) in state.objects().filter(|(_, stored)| stored.kind == leaf::Kind::Table) {
        tables.insert(Table {
            object: id.0,
            family: &unknown,
            level: None,
            keys: None,
            len: stored.committed.map_or(0, |committed| committed.len),
            on: &stored.copies.volumes().collect::<Vec<_>>(),
            rate: 0.0,
            leaving: false,
        });
    }
    tables
}

impl<'a> Flight<'a> {
    pub(super) const fn of(pool: &'a Inner, id: ObjectId, chosen: Chosen) -> Self {
        Self { pool, id, chosen, landed: false }
    }

    pub(super) const fn layout(&self) -> &Layout {
        &self.chosen.layout
    }

    /// Marks the object as complete.
    pub(super) fn land(mut self) {
        self.landed = true;
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let (id, chosen) = (self.id, &self.chosen);
        self.pool.placing.lock().settle(chosen, self.landed);
        if !self.landed {
            if !chosen.is_copy {
                self.pool.forget_table(id);
            }
        } else if chosen.rate > 0.0 {
            for (volume, bytes, rate) in chosen.parts() {
                self.pool.heats.begin(volume, id, bytes, rate);
            }
        }
    }
}

impl Spread {
    /// Passes placement's tables to `look`. No table is placed meanwhile.
    pub fn with_tables<T>(&self, look: impl FnOnce(&Tables) -> T) -> T {
        look(&self.0.placing.lock().tables)
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
        if let Some(id) = self.0.table_id(name) {
            self.0.placing.lock().tables.describe(id.0, family, level, keys);
        }
    }

    /// Sets the level of a table that changed level without a rewrite.
    pub fn set_table_level(&self, name: &Name, level: u8) {
        if let Some(id) = self.0.table_id(name) {
            self.0.placing.lock().tables.set_level(id.0, level);
        }
    }

    /// Records whether a table is the input of a compaction, which will remove it.
    pub fn set_table_leaving(&self, name: &Name, leaving: bool) {
        if let Some(id) = self.0.table_id(name) {
            self.0.placing.lock().tables.set_leaving(id.0, leaving);
        }
    }
}

impl Spread {
    /// Clears the description of a table that its database removed. The object may still have a
    /// checkpoint's name, but it is no longer read together with other tables.
    pub fn disown_table(&self, name: &Name) {
        self.describe_table(name, &nobody(), None, None);
    }

    /// Updates the weight of each volume, once a second, from the heat of its objects and from `seen`.
    /// `now` counts seconds from any start. A skipped second loses nothing; without any call, placement
    /// uses only overlaps and bytes in flight.
    pub fn on_second(&self, now: Second, seen: &[Seen]) {
        let rates = self.0.heats.sweep(now);
        let mut placing = self.0.placing.lock();
        let Placing { tables, weights, rates: before, .. } = &mut *placing;
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
        let placing = self.0.placing.lock();
        let all = self.0.members.all();
        all.iter().map(|slot| (slot.id, placing.weights.weight(slot.id))).collect()
    }

    /// Reads a second of each copy that is not cold, as of the last [`Spread::on_second`].
    #[must_use]
    pub fn rates(&self) -> BTreeMap<(ObjectId, VolumeId), f32> {
        self.0.placing.lock().rates.clone()
    }
}

impl Inner {
    /// Forgets an object that was removed.
    pub(super) fn forget_table(&self, id: ObjectId) {
        self.placing.lock().tables.remove(id.0);
        self.heats.forget(id);
    }

    fn table_id(&self, name: &Name) -> Option<ObjectId> {
        self.journal.look(|state| state.id(name))
    }
}
