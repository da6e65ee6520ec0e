//! Leaf objects on the volumes, which hold the bytes of copies: created all or none, removed now or later.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use policy::placement::VolumeId;
use volume::{Error, ErrorKind, Intent, Io, IoBuf, Listed, Object, Result, Zeros};

use super::Foreign;
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::Placed;
use crate::members::{Members, Occupied};

/// Creates and removes leaf objects. Owns the orphans: removals that failed and are tried again.
pub(super) struct Leaves {
    members: Arc<Members>,
    /// Locked last, and briefly.
    orphans: Mutex<BTreeMap<VolumeId, Vec<Leaf>>>,
    /// Objects that were on the volumes when the pool was opened, and stay untouched.
    pub(super) foreign: Vec<Foreign>,
}

/// A copy that is being made, with leaf objects for its parts.
pub(super) struct NewCopy {
    pub(super) placed: Placed,
    pub(super) leaves: Vec<Arc<dyn Object>>,
    /// Keeps its volumes in the pool until it is recorded.
    _occupied: Vec<Occupied>,
}

/// An error, and its volume.
pub(super) type At = (VolumeId, Error);

impl Leaves {
    /// The leaf objects that a survey found beside those of the manifest.
    pub(super) fn new(
        members: Arc<Members>,
        orphans: Vec<(VolumeId, Leaf)>,
        foreign: Vec<(VolumeId, Listed)>,
    ) -> Self {
        let foreign = foreign.into_iter().map(|(id, Listed { name, len })| {
            let volume = members.label(id);
            tracing::warn!("volume {volume} holds {name}, which is not the pool's: left alone");
            Foreign { volume, name, len }
        });
        let foreign = foreign.collect();
        let leaves = Self { members, orphans: Mutex::default(), foreign };
        orphans.into_iter().for_each(|(volume, leaf)| leaves.remove_later(volume, leaf));
        leaves
    }

    /// Creates the leaf objects of one copy, with `data` written and sealed if there is any; all or none.
    pub(super) async fn make(
        &self,
        id: ObjectId,
        kind: Kind,
        placed: Placed,
        occupied: Vec<Occupied>,
        intent: &Intent,
        data: Option<(&IoBuf, Io)>,
    ) -> std::result::Result<NewCopy, At> {
        let leaf = Leaf::Object { id, kind, copy: placed.number };
        let chunks = placed.layout.chunks();
        let made = (0..).zip(placed.layout.volumes()).map(async |(part, &volume)| {
            let part = match placed.layout.volumes() {
                [_] => Cow::Borrowed(intent),
                _ => Cow::Owned(intent.of_part(intent.len.map(|len| chunks.part_len(len, part)))),
            };
            let made = match self.members.volume(volume) {
                Ok(volume) => volume.create(&leaf.name(), &part).await,
                Err(e) => Err(e),
            };
            made.map(|object| (volume, object)).map_err(|e| (volume, e))
        });
        let (mut leaves, mut failed) = (Vec::new(), None);
        for made in join_all(made).await {
            match made {
                Ok(made) => leaves.push(made),
                Err(at) => failed = Some(at),
            }
        }
        if failed.is_none()
            && let Some((data, io)) = data
        {
            failed = fill(&placed, &leaves, data, io).await.err();
        }
        let Some(at) = failed else {
            let leaves = leaves.into_iter().map(|(_, object)| object).collect();
            return Ok(NewCopy { placed, leaves, _occupied: occupied });
        };
        for (volume, _) in leaves {
            self.remove(volume, leaf).await;
        }
        Err(at)
    }

    /// Removes a leaf object. If that fails, returns false; a present volume tries again later.
    pub(super) async fn remove(&self, volume: VolumeId, leaf: Leaf) -> bool {
        // The next opening with this volume finds the orphan.
        let Ok(device) = self.members.volume(volume) else { return false };
        match device.remove(&leaf.name()).await {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                let label = self.members.label(volume);
                tracing::debug!("{} stays on volume {label} for now: {e}", leaf.name());
                self.remove_later(volume, leaf);
                false
            }
            _ => true,
        }
    }

    /// Removes the leaf objects of a copy.
    pub(super) async fn remove_copy(&self, id: ObjectId, kind: Kind, placed: &Placed) {
        for &volume in placed.layout.volumes() {
            self.remove(volume, Leaf::Object { id, kind, copy: placed.number }).await;
        }
    }

    /// Queues a leaf object for removal.
    pub(super) fn remove_later(&self, volume: VolumeId, leaf: Leaf) {
        self.orphans.lock().entry(volume).or_default().push(leaf);
    }

    /// Removes the orphans of a volume, until a removal fails again.
    pub(super) async fn remove_orphans(&self, volume: VolumeId) {
        let next = || self.orphans.lock().get_mut(&volume).and_then(Vec::pop);
        while let Some(leaf) = next() {
            if !self.remove(volume, leaf).await {
                return;
            }
        }
    }

    /// Forgets the orphans of a volume that left the pool.
    pub(super) fn forget(&self, volume: VolumeId) {
        self.orphans.lock().remove(&volume);
    }
}

impl NewCopy {
    /// A copy with leaf objects that are there already.
    pub(super) const fn of(
        placed: Placed,
        leaves: Vec<Arc<dyn Object>>,
        occupied: Vec<Occupied>,
    ) -> Self {
        Self { placed, leaves, _occupied: occupied }
    }

    pub(super) async fn write(&self, at: u64, data: IoBuf, io: Io) -> Result<()> {
        for piece in self.placed.layout.chunks().pieces(at, data.len() as u64) {
            let from = piece.at as usize;
            let data = data.slice(from..from + piece.len as usize);
            self.leaves[piece.part].write_at(piece.inner, data, io).await?;
        }
        Ok(())
    }

    /// Makes `len` bytes at `at` zeros.
    pub(super) async fn zero(&self, at: u64, len: u64, room: Zeros, io: Io) -> Result<()> {
        for piece in self.placed.layout.chunks().pieces(at, len) {
            self.leaves[piece.part].zero(piece.inner, piece.len, room, io).await?;
        }
        Ok(())
    }

    /// Sets the length to `len`.
    pub(super) async fn cut(&self, len: u64) -> Result<()> {
        let chunks = self.placed.layout.chunks();
        for (part, leaf) in self.leaves.iter().enumerate() {
            let len = chunks.part_len(len, part);
            if leaf.len() != len {
                leaf.set_len(len).await?;
            }
        }
        Ok(())
    }

    /// Its bytes are complete: syncs them, and says so to the volumes.
    pub(super) async fn seal(&self, io: Io) -> Result<()> {
        for leaf in &self.leaves {
            leaf.seal(io).await?;
        }
        Ok(())
    }

    pub(super) async fn sync(&self, io: Io) -> Result<()> {
        for leaf in &self.leaves {
            leaf.sync(io).await?;
        }
        Ok(())
    }
}

/// Writes `data` to new leaf objects and seals them, so that a pool below has their checksums, too.
async fn fill(
    placed: &Placed,
    leaves: &[(VolumeId, Arc<dyn Object>)],
    data: &IoBuf,
    io: Io,
) -> std::result::Result<(), At> {
    let chunks = placed.layout.chunks();
    let writes = chunks.pieces(0, data.len() as u64).map(async |piece| {
        let at = piece.at as usize;
        let data = data.slice(at..at + piece.len as usize);
        let (volume, leaf) = &leaves[piece.part];
        leaf.write_at(piece.inner, data, io).await.map_err(|e| (*volume, e))
    });
    all(join_all(writes).await)?;
    let seals =
        leaves.iter().map(async |(volume, leaf)| leaf.seal(io).await.map_err(|e| (*volume, e)));
    all(join_all(seals).await)
}

/// The first error, if there is one.
pub(super) fn all<E>(done: Vec<std::result::Result<(), E>>) -> std::result::Result<(), E> {
    done.into_iter().collect()
}
