//! What a mover asks of a pool.

use std::collections::BTreeSet;

use policy::migrate::Births;
use policy::placement::{Layout, Overlaps, VolumeId};

use super::Spread;
use crate::leaf::{Kind, ObjectId};
use crate::manifest::{Placed, Stored};

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
        self.0.promise.copies
    }

    /// Whether a volume is being emptied.
    pub(crate) fn is_draining(&self, volume: VolumeId) -> bool {
        self.0.journal.look(|state| state.draining().contains(&volume))
    }

    /// Sees to it that the manifest does not depend on volumes that do not answer.
    pub(crate) async fn keep_manifest_from(
        &self,
        silent: &BTreeSet<VolumeId>,
    ) -> volume::Result<()> {
        self.0.journal.avoid(silent).await
    }

    /// What people call a volume.
    pub(crate) fn label(&self, volume: VolumeId) -> String {
        self.0.seats.label(volume)
    }

    /// Tables that can be copied and dropped whole: their lengths, and the volumes with copies.
    pub(crate) fn tables(&self) -> Vec<(ObjectId, u64, Vec<VolumeId>)> {
        self.0.journal.look(|state| {
            let plain = state.objects().filter(|(_, stored)| is_plain(stored));
            let plain = plain.filter_map(|(id, stored)| {
                Some((id, stored.committed?.len, stored.copies.volumes().collect()))
            });
            plain.collect()
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

/// Whether an object is one a mover plans for: a table that never changes, on whole volumes.
pub(super) fn is_plain(object: &Stored) -> bool {
    let whole = |placed: &Placed| matches!(placed.layout, Layout::Whole { .. });
    object.kind == Kind::Table && object.is_sealed() && object.copies.iter().all(whole)
}
