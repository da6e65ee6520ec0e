//! What placement goes by: the tables there are, and what each volume carries.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use policy::inherit::Made;
use policy::intent::{Family, Kind};
use policy::placement::{Candidate, Keys, Layout, New, Placement, Table, Tables, VolumeId};
use policy::purpose::Origin;
use volume::{Intent, Name};

use super::{Inner, Spread};
use crate::leaf::{self, ObjectId};
use crate::manifest::State;

/// The policy, and what it is asked with.
pub(super) struct Placing {
    policy: Box<dyn Placement>,
    tables: Tables,
    loads: BTreeMap<VolumeId, Load>,
}

/// What a volume carries.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Reads a second that are expected of tables placed there since the last time it was measured.
    expected: f64,
    /// Bytes on their way to it.
    in_flight: u64,
}

/// A place, chosen for an object.
pub(super) struct Chosen {
    layout: Layout,
    /// Bytes on their way to each of its volumes.
    bytes: Vec<(VolumeId, u64)>,
    rate: f32,
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
        Self { policy, tables, loads: BTreeMap::new() }
    }

    /// Chooses among volumes of which only the room is known. The bytes count as on their way, and a
    /// table as being there, from now on.
    pub(super) fn choose(
        &mut self,
        id: ObjectId,
        intent: &Intent,
        origin: Option<Origin>,
        mut candidates: Vec<Candidate>,
    ) -> Option<Chosen> {
        for candidate in &mut candidates {
            let load = self.loads.get(&candidate.volume).copied().unwrap_or_default();
            candidate.in_flight = load.in_flight;
        }
        let rate = self.expected(intent, origin);
        let new = New { object: id.0, intent, rate };
        let layout = self.policy.choose(new, &candidates, &self.tables)?;
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
        let (len, chunks) = (intent.len.unwrap_or(0), layout.chunks());
        let parts = layout.volumes().iter().enumerate();
        let bytes: Vec<_> =
            parts.map(|(part, &volume)| (volume, chunks.part_len(len, part))).collect();
        for &(volume, bytes) in &bytes {
            let load = self.loads.entry(volume).or_default();
            load.in_flight += bytes;
            load.expected += f64::from(rate) / layout.volumes().len() as f64;
        }
        Some(Chosen { layout, bytes, rate })
    }

    /// How hot a new table will be: as the tables it takes the place of are.
    fn expected(&self, intent: &Intent, origin: Option<Origin>) -> f32 {
        let Kind::Table { family, level: Some(level), range: Some(range) } = &intent.kind else {
            return 0.0;
        };
        origin
            .and_then(|origin| made_of(origin, *level))
            .map_or(0.0, |(levels, made)| self.tables.inherited(family, range.into(), levels, made))
    }

    /// All bytes of a table are there.
    pub(super) fn complete(&mut self, id: ObjectId, len: u64) {
        self.tables.set_len(id.0, len);
    }

    /// An object is gone.
    pub(super) fn forget(&mut self, id: ObjectId) {
        self.tables.remove(id.0);
    }

    fn settle(&mut self, chosen: &Chosen) {
        for &(volume, bytes) in &chosen.bytes {
            if let Some(load) = self.loads.get_mut(&volume) {
                load.in_flight -= bytes;
            }
        }
    }

    fn give_up(&mut self, id: ObjectId, chosen: &Chosen) {
        self.settle(chosen);
        self.forget(id);
        let parts = chosen.bytes.len() as f64;
        for (volume, _) in &chosen.bytes {
            if let Some(load) = self.loads.get_mut(volume) {
                load.expected = (load.expected - f64::from(chosen.rate) / parts).max(0.0);
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

/// The tables of a pool that was just opened. Nothing but their places is known of them.
pub(super) fn tables_of(state: &State) -> Tables {
    let mut tables = Tables::default();
    let unknown = Family("".into());
    for (id, stored) in state.objects().filter(|(_, stored)| stored.kind == leaf::Kind::Table) {
        tables.insert(Table {
            object: id.0,
            family: &unknown,
            level: None,
            keys: None,
            len: stored.committed.map_or(0, |committed| committed.len),
            on: stored.layout.volumes(),
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
    pub(super) fn land(mut self) -> Layout {
        self.landed = true;
        self.chosen.layout.clone()
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut placing = self.pool.placing.lock();
        match self.landed {
            true => placing.settle(&self.chosen),
            false => placing.give_up(self.id, &self.chosen),
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

    /// A table becomes the input of a compaction, after which it will be gone; or it stays after all.
    pub fn set_table_leaving(&self, name: &Name, leaving: bool) {
        if let Some(id) = self.0.table_id(name) {
            self.0.placing.lock().tables.set_leaving(id.0, leaving);
        }
    }
}

impl Inner {
    fn table_id(&self, name: &Name) -> Option<ObjectId> {
        self.journal.look(|state| state.id(name))
    }
}
