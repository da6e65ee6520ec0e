//! What placement goes by: the tables there are, and what each volume carries.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use policy::contract::OP_BYTES_MAX;
use policy::heat::Second;
use policy::inherit::Made;
use policy::intent::{Family, Kind};
use policy::migrate::Births;
use policy::placement::{Candidate, Keys, Layout, New, Placement, Table, Tables, VolumeId};
use policy::purpose::Origin;
use policy::weight::{Seen, Weights};
use volume::{Intent, Name};

use super::heat::Rates;
use super::{Inner, Spread};
use crate::leaf::{self, ObjectId};
use crate::manifest::{Copies, State};

/// The policy, and what it is asked with.
pub(super) struct Placing {
    policy: Box<dyn Placement>,
    tables: Tables,
    weights: Weights,
    /// How hot copies were found to be the last time.
    rates: Rates,
    /// How many copies hot tables are made with.
    births: Option<Births>,
    /// Tables that got one more than the pool promises, so far.
    replicated: u64,
}

/// A place, chosen for an object.
pub(super) struct Chosen {
    layout: Layout,
    len: u64,
    /// Reads a second that are expected.
    rate: f32,
    is_flush: bool,
    /// The object is there whether this one gets there or not.
    is_copy: bool,
}

impl Chosen {
    /// Each of its volumes, the bytes that go there, and the reads expected of them.
    fn parts(&self) -> impl Iterator<Item = (VolumeId, u64, f32)> {
        let volumes = self.layout.volumes();
        let (chunks, rate) = (self.layout.chunks(), self.rate / volumes.len() as f32);
        let parts = volumes.iter().enumerate();
        parts.map(move |(part, &volume)| (volume, chunks.part_len(self.len, part), rate))
    }
}

/// An object on its way to where it was placed. If it gets there it lands; if it is dropped before, it
/// was never there.
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
            births: None,
            replicated: 0,
        }
    }

    /// Chooses among volumes of which only the room is known. The bytes count as on their way, and a
    /// table as being there, from now on.
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

    /// As [`Placing::choose`] for one more copy of an object that is known already. Where it is then has
    /// to be said by [`Placing::set_places`].
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

    /// Counts what was chosen as on its way.
    fn expect(&mut self, chosen: Chosen) -> Chosen {
        for (volume, bytes, rate) in chosen.parts() {
            self.weights.place(volume, bytes, f64::from(rate));
        }
        chosen
    }

    /// An object has these copies now.
    pub(super) fn set_places(&mut self, id: ObjectId, copies: &Copies) {
        let volumes: Vec<_> = copies.volumes().collect();
        self.tables.set_places(id.0, &volumes);
    }

    /// How hot a new table will be: as the tables it takes the place of are.
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

    pub(super) fn set_births(&mut self, births: Option<Births>) {
        self.births = births;
    }

    fn copies_for(&self, rate: f32) -> usize {
        self.births.map_or(1, |births| births.copies(f64::from(rate)))
    }

    /// How many copies a table that is being made should begin with.
    pub(super) fn copies_at_birth(&self, id: ObjectId) -> usize {
        self.copies_for(self.tables.get(id.0).map_or(0.0, |table| table.rate))
    }

    /// A table that is there turned out to be this: gives how hot it will be.
    pub(super) fn describe_late(&mut self, id: ObjectId, intent: &Intent, origin: Origin) -> f32 {
        let rate = self.expected(intent, Some(origin));
        if let Kind::Table { family, level, range } = &intent.kind {
            self.tables.describe(id.0, family, *level, range.as_ref().map(Keys::from));
            self.tables.set_rate(id.0, rate);
        }
        rate
    }

    /// A table was made with one copy more than the pool promises.
    pub(super) fn count_replicated(&mut self) {
        self.replicated += 1;
    }

    pub(super) const fn replicated(&self) -> u64 {
        self.replicated
    }

    pub(super) fn paid(&self, volume: VolumeId) -> f64 {
        self.weights.paid(volume)
    }

    /// A volume left the pool.
    pub(super) fn forget(&mut self, volume: VolumeId) {
        self.weights.forget(volume);
        self.rates.retain(|(_, on), _| *on != volume);
    }

    /// All bytes of a table are there.
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

/// From which levels a table for `level` is made, and how.
fn made_of(origin: Origin, level: u8) -> Option<(RangeInclusive<u8>, Made)> {
    match origin {
        // What was written lately is as hot as what was written shortly before.
        Origin::Flush => Some((0..=0, Made::Flushed)),
        Origin::Compaction { level: from } => Some((from..=level, Made::Merged)),
        _ => None,
    }
}

/// The family of tables nobody described.
fn nobody() -> Family {
    Family("".into())
}

/// The tables of a pool that was just opened. Nothing but their places is known of them.
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

    /// The bytes are where they should be.
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
    /// Shows what placement knows of the pool's tables. No table is placed meanwhile.
    pub fn with_tables<T>(&self, look: impl FnOnce(&Tables) -> T) -> T {
        look(&self.0.placing.lock().tables)
    }

    /// A table turned out to be of `family`, at `level`, with `keys`: so it is told to placement, for
    /// tables that were there when the pool was opened. An object that is none is left as it is.
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

    /// A table is at another level now, with the same bytes.
    pub fn set_table_level(&self, name: &Name, level: u8) {
        if let Some(id) = self.0.table_id(name) {
            self.0.placing.lock().tables.set_level(id.0, level);
        }
    }

    /// A table becomes the input of a compaction, after which it will be gone, or it stays after all.
    pub fn set_table_leaving(&self, name: &Name, leaving: bool) {
        if let Some(id) = self.0.table_id(name) {
            self.0.placing.lock().tables.set_leaving(id.0, leaving);
        }
    }
}

impl Spread {
    /// The database that had a table under this name is done with it. The object may live on, under a
    /// checkpoint's name, but it is read with no other table any more.
    pub fn disown_table(&self, name: &Name) {
        self.describe_table(name, &nobody(), None, None);
    }

    /// Measures what each volume carries, once a second, from how hot what lies there is and what was
    /// `seen` of it. `now` counts seconds from any time on; those in which nobody calls this are not
    /// lost, and if nobody ever does, placement goes by overlaps and bytes on their way alone.
    pub fn on_second(&self, now: Second, seen: &[Seen]) {
        let rates = self.0.heats.sweep(now);
        let mut placing = self.0.placing.lock();
        let Placing { tables, weights, rates: before, .. } = &mut *placing;
        let (mut on, mut of) = (BTreeMap::new(), BTreeMap::<_, f32>::new());
        for (&(object, volume), &rate) in &rates {
            // The heat of a copy that was dropped outlives it by some seconds.
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

    /// What each volume carries, where 1 is as much as is paid for.
    #[must_use]
    pub fn weights(&self) -> BTreeMap<VolumeId, f64> {
        let placing = self.0.placing.lock();
        let all = self.0.seats.all();
        all.iter().map(|seat| (seat.id, placing.weights.weight(seat.id))).collect()
    }

    /// Reads a second that went to each copy of each object that is not cold, when they were last
    /// measured.
    #[must_use]
    pub fn rates(&self) -> BTreeMap<(ObjectId, VolumeId), f32> {
        self.0.placing.lock().rates.clone()
    }
}

impl Inner {
    /// An object is gone.
    pub(super) fn forget_table(&self, id: ObjectId) {
        self.placing.lock().tables.remove(id.0);
        self.heats.forget(id);
    }

    fn table_id(&self, name: &Name) -> Option<ObjectId> {
        self.journal.look(|state| state.id(name))
    }
}
