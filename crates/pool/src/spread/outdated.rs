//! Outdated copies: those that missed a change, and are made new again by copying what changed since.
//!
//! A write or a sync that fails on one copy of several drops that copy, durably: it lacks bytes that the others have. Of an
//! object that is written in place, as an extent of 64 MiB, the leaf object stays on its volume, and
//! [`resync`](super::resync) notes the pieces of 256 KiB that it may lack: those that were not synced then, and those that
//! change later. Once its volume answers, the repair copies these pieces, and not the object. If its volume does not take
//! them, or another copy takes its place first, its bytes are removed. So they are after the process ends: the notes are in
//! memory only, and the next opening finds a leaf object that the manifest does not list.
//!
//! It keeps its number. Its volume may still have a late write under way, which fails every other write to the object of that
//! name until it ends; under a new name it could land on newer bytes.

use std::sync::Arc;

use volume::{Error, ErrorKind, Object, Result};

use super::Spread;
use super::copies::{How, UnrecordedCopy};
use super::inode::Inode;
use super::leaves::NewCopy;
use crate::leaf::Leaf;
use crate::manifest::Placed;
use crate::members::Occupied;

impl Spread {
    /// Makes an outdated copy of an object new again. False if it has none whose volumes answer and take what it lacks.
    ///
    /// # Errors
    /// `Gone`: the object was removed. Those of the manifest.
    pub(super) async fn renew(&self, inode: &Arc<Inode>, how: &How) -> Result<bool> {
        for placed in inode.resyncs.outdated() {
            match self.renew_copy(inode, &placed, how).await {
                Ok(true) => {
                    let labels = placed.layout.volumes().iter().map(|&v| self.0.members.label(v));
                    let labels = labels.collect::<Vec<_>>().join(", ");
                    tracing::info!("{}: its copy on volume {labels} is new again", inode.name);
                    return Ok(true);
                }
                Ok(false) => {}
                Err(e) if e.kind() == ErrorKind::Gone => return Err(e),
                Err(e) => tracing::debug!("{}: an outdated copy goes: {e}", inode.name),
            }
        }
        Ok(false)
    }

    /// Gives up the outdated copies of an object: others took their place.
    pub(super) async fn give_up_outdated(&self, inode: &Inode) {
        let outdated = inode.resyncs.outdated();
        outdated.iter().for_each(|placed| self.0.catalog.give_up_outdated(inode, placed));
        if !outdated.is_empty() {
            self.bury().await;
        }
    }

    /// False if the copy stays outdated.
    async fn renew_copy(&self, inode: &Arc<Inode>, placed: &Placed, how: &How) -> Result<bool> {
        let pool = &self.0;
        let Some(occupied) = self.occupy_again(placed) else {
            pool.catalog.give_up_outdated(inode, placed);
            return Ok(false);
        };
        let leaf = Leaf::Object { id: inode.id, kind: inode.kind, copy: placed.number };
        let mut leaves: Vec<Arc<dyn Object>> = Vec::new();
        for &volume in placed.layout.volumes() {
            match pool.members.volume(volume)?.open(&leaf.name()).await {
                Ok(opened) => leaves.push(opened),
                Err(e) if stays_away(&e) => return Ok(false),
                Err(e) => {
                    pool.catalog.give_up_outdated(inode, placed);
                    return Err(e);
                }
            }
        }
        // After a crash it must not be a copy before it is new.
        pool.journal.ready().await?;
        pool.journal.durable(inode.lsn()).await?;
        let target = Arc::new(NewCopy::of(placed.clone(), leaves, occupied));
        let handle = self.handle(Arc::clone(inode));
        let again = {
            let _exclusive = inode.write_lock.exclusive().await;
            inode.resyncs.begin_again(&target)
        };
        let Some(resync) = again else { return Ok(false) };
        let (id, kind) = (inode.id, inode.kind);
        let mut unrecorded = UnrecordedCopy { pool: self, id, kind, placed: Some(placed.clone()) };
        let copied = self.copy_missing(&handle, resync, how).await;
        unrecorded.placed = None;
        if copied.is_err() && !self.has_copy(id, placed.number) {
            pool.leaves.remove_copy(id, kind, placed).await;
        }
        copied.map(|_| true)
    }

    /// Guards for the volumes of a copy, if all take objects.
    fn occupy_again(&self, placed: &Placed) -> Option<Vec<Occupied>> {
        let draining = self.0.journal.draining();
        let volumes = placed.layout.volumes().iter();
        let occupied = volumes.map(|volume| match draining.contains(volume) {
            true => None,
            false => self.0.members.get(*volume)?.occupy(),
        });
        occupied.collect()
    }
}

/// Whether a volume may answer later.
fn stays_away(e: &Error) -> bool {
    e.kind().is_away() || e.kind() == ErrorKind::Busy
}
