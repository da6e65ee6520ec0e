//! What rebalancing needs of a pool: the calls of its mover.

use std::collections::BTreeSet;

use policy::migrate::InitialReplicas;
use policy::placement::{Layout, Overlaps, VolumeId};

use super::Spread;
use crate::leaf::{Kind, ObjectId};
use crate::manifest::{Placed, Stored};

impl Spread {
    /// Sets the initial replicas of hot tables, one by default. Copies made while the bytes are in memory need
    /// no read of a hot volume.
    pub(crate) fn set_initial_replicas(&self, initial: Option<InitialReplicas>) {
        self.0.placing.lock().set_initial_replicas(initial);
    }

    /// Tables that began with more copies than the replication target, because they replaced hot ones; since
    /// the pool was opened.
    #[must_use]
    pub fn begun_with_more(&self) -> u64 {
        self.0.placing.lock().replicated()
    }

    /// The paid rate of a volume, which stands for a weight of 1, in operations a second.
    pub(crate) fn paid(&self, volume: VolumeId) -> f64 {
        self.0.placing.lock().paid(volume)
    }

    /// The replication target.
    pub(crate) fn replication_target(&self) -> usize {
        self.0.replication.target
    }

    /// Whether a volume is draining.
    pub(crate) fn is_draining(&self, volume: VolumeId) -> bool {
        self.0.journal.look(|state| state.draining().contains(&volume))
    }

    /// Moves the manifest off volumes that do not answer.
    pub(crate) async fn keep_manifest_from(
        &self,
        silent: &BTreeSet<VolumeId>,
    ) -> volume::Result<()> {
        self.0.journal.avoid(silent).await
    }

    /// The label of a volume.
    pub(crate) fn label(&self, volume: VolumeId) -> String {
        self.0.members.label(volume)
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

    /// Whether a table is leaving, or gone.
    pub(crate) fn is_table_leaving(&self, id: ObjectId) -> bool {
        self.with_tables(|tables| tables.get(id.0).is_none_or(|table| table.leaving))
    }

    /// The number of tables on a volume that are read together with this one.
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

/// Whether the planner handles an object: a sealed table that is not striped.
pub(super) fn is_plain(object: &Stored) -> bool {
    let whole = |placed: &Placed| matches!(placed.layout, Layout::Whole { .. });
    object.kind == Kind::Table && object.is_sealed() && object.copies.iter().all(whole)
}
