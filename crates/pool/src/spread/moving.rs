//! What a mover asks of a pool.

use policy::migrate::Births;
use policy::placement::{Layout, Overlaps, VolumeId};

use super::Spread;
use crate::leaf::{Kind, ObjectId};

impl Spread {
    /// How many copies hot tables are made with from now on, one by default. Those that are made while their
    /// bytes are in memory cost no read of a volume that is hot.
    pub(crate) fn set_births(&self, births: Option<Births>) {
        self.0.placing.lock().set_births(births);
    }

    /// Tables that began with a copy more than the pool promises, because they took the place of hot ones;
    /// since the pool was opened.
    #[must_use]
    pub fn born_with_more(&self) -> u64 {
        self.0.placing.lock().replicated()
    }

    /// Operations a second that weights of a volume are told of.
    pub(crate) fn paid(&self, volume: VolumeId) -> f64 {
        self.0.placing.lock().paid(volume)
    }

    /// How many copies the pool promises of everything.
    pub(crate) fn promised(&self) -> usize {
        self.0.copies
    }

    /// What people call a volume.
    pub(crate) fn label(&self, volume: VolumeId) -> String {
        self.0.seats.label(volume)
    }

    /// Tables that can be copied and dropped whole: their lengths, and the volumes with copies.
    pub(crate) fn tables(&self) -> Vec<(ObjectId, u64, Vec<VolumeId>)> {
        self.0.journal.look(|state| {
            let tables = state.objects().filter(|(_, stored)| stored.kind == Kind::Table);
            let whole = tables.filter_map(|(id, stored)| {
                let is_whole = |placed: &crate::manifest::Placed| {
                    matches!(placed.layout, Layout::Whole { .. })
                };
                let len = stored.committed.as_ref()?.len;
                let sealed = stored.is_sealed() && stored.copies.iter().all(is_whole);
                sealed.then(|| (id, len, stored.copies.volumes().collect()))
            });
            whole.collect()
        })
    }

    /// Whether a table is gone, or will soon be.
    pub(crate) fn is_table_leaving(&self, id: ObjectId) -> bool {
        self.with_tables(|tables| tables.get(id.0).is_none_or(|table| table.leaving))
    }

    /// How many tables on a volume are read together with this one.
    pub(crate) fn overlap(&self, id: ObjectId, volume: VolumeId) -> f64 {
        let overlap = |tables: &policy::placement::Tables| {
            let table = tables.get(id.0)?;
            let (level, keys) = (table.level?, table.keys?);
            let overlaps = Overlaps::of(id.0, table.family, level, keys, tables, false);
            Some(overlaps.on(volume))
        };
        self.with_tables(overlap).unwrap_or(0.0)
    }
}
