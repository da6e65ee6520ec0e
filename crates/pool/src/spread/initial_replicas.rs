//! Missing initial replicas of streamed tables.
//!
//! A table that is written whole gets the initial replicas for its heat while its bytes are in memory. A
//! streamed one has neither known keys nor all bytes when it is placed. So its heat is estimated when it is
//! sealed, and the mover makes its second copy later, by reading the first.

use policy::intent::Kind;
use policy::migrate::{Copying, Why};
use policy::purpose::Origin;
use volume::{Intent, Name};

use super::inode::Inode;
use super::{Inner, Spread};
use crate::leaf::ObjectId;

impl Spread {
    /// Describes a complete table to placement, and records it if it should have more copies.
    pub(super) fn describe_late(&self, name: &Name, intent: &Intent, origin: Origin) {
        let pool = &self.0;
        let Kind::Table { .. } = intent.kind else { return };
        let Ok(inode) = pool.inode(name) else { return };
        let (rate, count) = {
            let mut placing = pool.placing.lock();
            let rate = placing.describe_late(inode.id, intent, origin);
            (rate, placing.initial_copies(inode.id))
        };
        pool.begin_as_hot(&inode, rate / count.max(1) as f32);
        if count > inode.replicas().len() {
            pool.replication.begun_short(inode.id);
        }
    }

    /// A place for the second copy of a table that should have begun with one, if a volume has room to spare.
    /// None if the table has enough copies, is leaving or is gone. The planner adds copies beyond the second.
    pub(crate) async fn place_initial_replica(&self, id: ObjectId) -> Option<Copying> {
        let pool = &self.0;
        let inode = pool.inode_by_id(id).ok()?;
        let count = pool.placing.lock().initial_copies(id);
        let replicas = inode.replicas();
        if replicas.len() >= count || self.is_table_leaving(id) {
            return None;
        }
        let from = replicas.first()?.volume(0);
        let (flight, _) = pool.choose_copy(&inode).await.ok()?;
        let to = *flight.layout().volumes().first()?;
        if !pool.has_room_to_spare(flight.layout(), inode.len()).await {
            return None;
        }
        pool.placing.lock().count_replicated();
        Some(Copying { object: id.0, len: inode.len(), from, to, why: Why::Heat })
    }
}

impl Inner {
    /// Gives the first copy the expected reads of its table, until they are measured.
    fn begin_as_hot(&self, inode: &Inode, rate: f32) {
        let replicas = inode.replicas();
        let Some(first) = replicas.first().filter(|_| rate > 0.0) else { return };
        for part in 0..first.parts() {
            let (len, rate) = (first.part_len(part, inode.len()), rate / first.parts() as f32);
            self.heats.begin(first.volume(part), inode.id, len, rate);
        }
    }
}
