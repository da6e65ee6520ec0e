//! The headers of the volumes, which record the current home of the manifest.
//!
//! Each header has the epoch of the manifest: the number of its current generation. [`Headers::publish`] raises
//! the epochs one after the other: first that of the copy that opens the pool alone, if there is one, or those of
//! full volumes that the manifest leaves; then those of the volumes with copies, then all others that answer. The
//! first raised header makes the new generation the current one.
//!
//! A new home must *meet* the old one, as defined in [`quorum`], and every home that may have become current
//! since. If no home does, the manifest stays where it is, and the pool is read-only.

use std::sync::Arc;

use futures_util::future::join_all;
use policy::placement::VolumeId;
use volume::{Error, ErrorKind, Name, Result};

use crate::header::{self, Header, PoolId};
use crate::journal::{Anchor, Failed, Step, no_copy_left, quorum, well};
use crate::leaf::Leaf;
use crate::manifest::recovery::enough_alone;
use crate::manifest::{Begin, State};
use crate::members::Members;

/// The headers of a pool's volumes.
pub(crate) struct Headers {
    pool: PoolId,
    members: Arc<Members>,
    /// The volumes that are preferred for copies.
    meta: Vec<VolumeId>,
    /// The volume that may open the pool alone: a move raises its epoch first. See [`enough_alone`].
    alone: Option<VolumeId>,
    /// The volumes of the current home, and of every home that a failed move may have made current since. The
    /// next home must meet them all.
    may_count: Vec<Vec<VolumeId>>,
}

impl Headers {
    /// The headers as they were found: `alone` is the volume that may open the pool alone, `home` the volumes that
    /// hold the manifest, empty to move without a quorum. The manifest prefers the volumes `meta`.
    pub(crate) fn new(
        pool: PoolId,
        members: Arc<Members>,
        meta: Vec<VolumeId>,
        alone: Option<VolumeId>,
        home: Vec<VolumeId>,
    ) -> Self {
        let may_count = if home.is_empty() { Vec::new() } else { vec![home] };
        Self { pool, members, meta, alone, may_count }
    }

    async fn raise_epoch(&self, id: VolumeId, epoch: u64, seal: u64) -> Result<()> {
        let label = self.members.label(id);
        let header = Header { pool: self.pool, volume: id, label, epoch, seal };
        header::write(&*self.members.volume(id)?, &header).await
    }

    /// The error when half or more of the volumes with the manifest fail: if later only those came back, they
    /// would not know the changes made without them.
    fn too_few_left(&self, failed: &Failed) -> Error {
        let e = no_copy_left::<State>(&self.members, failed);
        Error::new(
            ErrorKind::Unavailable,
            format!("more than half of the volumes that keep the manifest have to answer: {e}"),
        )
    }
}

impl Anchor<State> for Headers {
    fn name(&self, generation: u64) -> Name {
        Leaf::Manifest { generation }.name()
    }

    fn begin(&self, generation: u64, snapshot_frames: u64, copies: &[VolumeId]) -> Vec<u8> {
        let all = self.members.all();
        let volumes = all.iter().map(|slot| (slot.id, slot.label.clone())).collect();
        let copies = copies.to_vec();
        Begin { pool: self.pool, generation, snapshot_frames, volumes, copies }.encode()
    }

    /// First those for metadata, then by number. Draining volumes only if there is no other.
    fn prefer(&self, state: &State, volumes: &mut Vec<VolumeId>) {
        let draining = state.draining();
        if volumes.iter().any(|id| !draining.contains(id)) {
            volumes.retain(|id| !draining.contains(id));
        }
        // A stable sort keeps the order of numbers.
        volumes.sort_by_key(|id| !self.meta.contains(id));
    }

    fn step(&self, wanted: &[VolumeId], failed: &Failed) -> Result<Step> {
        let wanted = wanted.to_vec();
        if let Some(alone) = self.alone {
            return Ok(Step { copies: wanted, first: vec![alone] });
        }
        if let Some(copies) = quorum::step(&self.may_count, &wanted, &well(&self.members, failed)) {
            return Ok(Step { copies, first: Vec::new() });
        }
        // Full volumes answer: their headers can be raised before those of the new home.
        let answers = |id: &VolumeId| {
            let mut failed = failed.iter().filter(|(other, _)| other == id);
            failed.all(|(_, e)| e.kind() == ErrorKind::OutOfSpace)
        };
        if !self.may_count.iter().flatten().all(answers) {
            return Err(self.too_few_left(failed));
        }
        // The new home may open without the others: its own volumes come last.
        let mut first = self.may_count.concat();
        first.sort_by_key(|id| (wanted.contains(id), *id));
        first.dedup();
        Ok(Step { copies: wanted, first })
    }

    async fn publish(
        &mut self,
        step: &Step,
        generation: u64,
        seal: u64,
        failed: &mut Failed,
    ) -> Result<bool> {
        let Step { copies, first } = step;
        if !self.may_count.contains(copies) {
            self.may_count.push(copies.clone());
        }
        for &id in first {
            if let Err(e) = self.raise_epoch(id, generation, seal).await {
                failed.push((id, e));
                return Err(no_copy_left::<State>(&self.members, failed));
            }
        }
        if !first.is_empty() {
            self.alone = None;
            self.may_count = vec![copies.clone()];
        }
        let headers = &*self;
        let raise = |id| async move { (id, headers.raise_epoch(id, generation, seal).await) };
        let rest: Vec<_> = copies.iter().copied().filter(|id| !first.contains(id)).collect();
        let raised = join_all(rest.into_iter().map(raise)).await;
        let before = failed.len();
        failed.extend(raised.into_iter().filter_map(|(id, raised)| Some((id, raised.err()?))));
        if failed.len() > before {
            return Ok(false);
        }
        let others = self.members.present().into_iter().map(|(slot, _)| slot.id);
        let others: Vec<_> = others.filter(|id| !copies.contains(id)).collect();
        for (_, raised) in join_all(others.into_iter().map(raise)).await {
            if let Err(e) = raised {
                tracing::warn!("an epoch was not raised: {e}");
            }
        }
        self.alone = enough_alone(copies, false);
        self.may_count = vec![copies.clone()];
        Ok(true)
    }

    fn closing(&mut self, copies: &[VolumeId]) {
        self.alone = enough_alone(copies, true);
    }
}
