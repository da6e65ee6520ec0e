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
use crate::journal::quorum::{self, Quorum};
use crate::journal::{Anchor, Failed, Step, no_copy_left, well};
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
    /// The number of copies.
    copies: usize,
    /// The volume that may open the pool alone: a move raises its epoch first. See [`enough_alone`].
    alone: Option<VolumeId>,
    /// The volumes of the current home, and of every home that a failed move may have made current since. The
    /// next home must meet them all.
    may_count: Vec<Quorum>,
}

impl Headers {
    /// The headers as they were found: `alone` is the volume that may open the pool alone, `home` the volumes that
    /// hold the manifest, none to move without a quorum. The manifest gets `copies`, and prefers the volumes `meta`.
    pub(crate) fn new(
        pool: PoolId,
        members: Arc<Members>,
        meta: Vec<VolumeId>,
        copies: usize,
        alone: Option<VolumeId>,
        home: Option<Quorum>,
    ) -> Self {
        let may_count = Vec::from_iter(home);
        Self { pool, members, meta, copies, alone, may_count }
    }

    /// The volumes of the homes that may be current.
    fn volumes_that_count(&self) -> impl Iterator<Item = VolumeId> {
        self.may_count.iter().flat_map(|home| &home.volumes).copied()
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

    fn begin(&self, generation: u64, snapshot_frames: u64, home: &Quorum) -> Vec<u8> {
        let all = self.members.all();
        let volumes = all.iter().map(|slot| (slot.id, slot.label.clone())).collect();
        let home = home.clone();
        Begin { pool: self.pool, generation, snapshot_frames, volumes, home }.encode()
    }

    fn copies(&self) -> usize {
        self.copies
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
        if let Some(alone) = self.alone {
            let home = Quorum::majority(wanted.to_vec());
            return Ok(Step { home, first: vec![alone] });
        }
        if let Some(home) =
            quorum::step(&self.may_count, wanted, &well(&self.members, failed), self.copies)
        {
            return Ok(Step { home, first: Vec::new() });
        }
        // Full volumes answer: their headers can be raised before those of the new home.
        let answers = |id: &VolumeId| {
            let mut failed = failed.iter().filter(|(other, _)| other == id);
            failed.all(|(_, e)| e.kind() == ErrorKind::OutOfSpace)
        };
        if !self.volumes_that_count().all(|id| answers(&id)) {
            return Err(self.too_few_left(failed));
        }
        // The new home may open without the others: its own volumes come last.
        let mut first: Vec<_> = self.volumes_that_count().collect();
        first.sort_by_key(|id| (wanted.contains(id), *id));
        first.dedup();
        Ok(Step { home: Quorum::majority(wanted.to_vec()), first })
    }

    async fn publish(
        &mut self,
        step: &Step,
        generation: u64,
        seal: u64,
        failed: &mut Failed,
    ) -> Result<bool> {
        let Step { home, first } = step;
        let copies = &home.volumes;
        if !self.may_count.contains(home) {
            self.may_count.push(home.clone());
        }
        for &id in first {
            if let Err(e) = self.raise_epoch(id, generation, seal).await {
                failed.push((id, e));
                return Err(no_copy_left::<State>(&self.members, failed));
            }
        }
        if !first.is_empty() {
            self.alone = None;
            self.may_count = vec![home.clone()];
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
        self.may_count = vec![home.clone()];
        Ok(true)
    }

    fn closing(&mut self, copies: &[VolumeId]) {
        self.alone = enough_alone(copies, true);
    }
}
