//! The calls of a pool's mover, among them for missing initial replicas of streamed tables.
//!
//! A table that is written whole gets the initial replicas for its heat while its bytes are in memory. A
//! streamed one has neither known keys nor all bytes when it is placed. So its heat is estimated when it is
//! sealed, and the mover makes its second copy later, by reading the first.

use std::collections::BTreeSet;

use policy::migrate::{Copying, Why};
use policy::placement::VolumeId;
use volume::Result;

use super::Spread;
use super::choose::Place;
use super::placing::Placing;
use super::replication::Replication;
use crate::leaf::ObjectId;

impl Spread {
    /// Its placement.
    pub(crate) fn placing(&self) -> &Placing {
        &self.0.placing
    }

    /// Its replication target, and shortfalls.
    pub(crate) fn replication(&self) -> &Replication {
        &self.0.replication
    }

    /// Whether a volume is draining.
    pub(crate) fn is_draining(&self, volume: VolumeId) -> bool {
        self.0.journal.draining().contains(&volume)
    }

    /// Moves the manifest off volumes that do not answer.
    pub(crate) async fn keep_manifest_from(&self, silent: &BTreeSet<VolumeId>) -> Result<()> {
        self.0.journal.avoid(silent).await
    }

    /// The label of a volume.
    pub(crate) fn label(&self, volume: VolumeId) -> String {
        self.0.members.label(volume)
    }

    /// Tables that can be copied and dropped whole: their lengths, and the volumes with copies.
    pub(crate) fn tables(&self) -> Vec<(ObjectId, u64, Vec<VolumeId>)> {
        self.0.journal.look(|state| {
            let plain = state.objects().filter(|(_, stored)| stored.is_plain());
            let plain = plain.filter_map(|(id, stored)| {
                Some((id, stored.committed?.len, stored.copies.volumes().collect()))
            });
            plain.collect()
        })
    }

    /// A place for the second copy of a table that should have begun with one, if a volume has room to spare.
    /// None if the table has enough copies, is leaving or is gone. The planner adds copies beyond the second.
    pub(crate) async fn place_initial_replica(&self, id: ObjectId) -> Option<Copying> {
        let pool = &self.0;
        let inode = pool.catalog.inode_by_id(id).ok()?;
        let replicas = inode.replicas();
        let is_enough = replicas.len() >= pool.placing.initial_copies(id);
        if is_enough || inode.code().is_some() || pool.placing.is_table_leaving(id) {
            return None;
        }
        let from = replicas.first()?.volume(0);
        let Place { flight, .. } = self.choose_copy(&inode, inode.len()).await.ok()?;
        let to = *flight.layout().volumes().first()?;
        if !self.has_room_to_spare(flight.layout(), inode.len()).await {
            return None;
        }
        pool.placing.count_replicated();
        Some(Copying { object: id.0, len: inode.len(), from, to, why: Why::Heat, is_last: false })
    }
}
