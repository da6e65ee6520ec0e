//! Names of a pool: look up, list, and change, also several atomically.

use futures_util::{StreamExt, stream};
use policy::placement::Layout;
use policy::purpose::{Io, Origin, Step};
use volume::{Listed, Name, Object, Result};

use super::Spread;
use super::catalog::{Change, Changed};
use crate::leaf::{Kind, ObjectId};
use crate::manifest::journal::Lsn;
use crate::manifest::{Placed, Stored};

const IO: Io = Io::new(Origin::UserWrite, Step::Data);

/// Objects whose length is asked for at the same time: after a crash that may compare copies.
const LISTED_AT_ONCE: usize = 16;

/// The metadata of an object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stat {
    /// Its number, which is never reused.
    pub id: ObjectId,
    /// Its kind.
    pub kind: Kind,
    /// Its length in bytes.
    pub len: u64,
    /// The number of its names.
    pub links: u32,
    /// The layout of its first copy.
    pub layout: Layout,
    /// Every copy, in order.
    pub copies: Vec<Placed>,
}

impl Spread {
    /// Whether there is an object of this name.
    #[must_use]
    pub fn contains(&self, name: &Name) -> bool {
        self.0.catalog.contains(name)
    }

    /// The metadata of an object. Needs a volume only for a log that was not opened yet.
    ///
    /// # Errors
    /// `NotFound`; for a log `Unavailable`: try again when its volume is back.
    pub async fn stat(&self, name: &Name) -> Result<Stat> {
        let inode = self.0.catalog.inode(name)?;
        self.know_len(&inode).await?;
        // An uncommitted object is not in the manifest, and has one name.
        let links = self.0.journal.look(|state| state.object(inode.id).map_or(1, Stored::links));
        let (id, kind, len, copies) = (inode.id, inode.kind, inode.len(), inode.copies());
        let layout = copies.first().layout.clone();
        Ok(Stat { id, kind, len, links, layout, copies: copies.iter().cloned().collect() })
    }

    /// Whether a log was synced since it was created, if it exists.
    pub(crate) fn was_synced(&self, name: &Name) -> bool {
        self.0.catalog.inode(name).is_ok_and(|inode| inode.is_settled())
    }

    /// # Errors
    /// No volume takes the manifest.
    pub(crate) async fn takes_changes(&self) -> Result<()> {
        self.0.journal.ready().await
    }

    /// Every object whose name begins with `prefix`, in the order of names. A log whose volume is away
    /// has the length of its first sync.
    ///
    /// # Errors
    /// None so far.
    pub async fn list_prefix(&self, prefix: &str) -> Result<Vec<Listed>> {
        let inodes = self.0.catalog.inodes(prefix).into_iter();
        let listed = inodes.map(async |(name, inode)| {
            if let Err(e) = self.know_len(&inode).await {
                tracing::debug!("length of {name} not known: {e}");
            }
            Listed { name, len: inode.len() }
        });
        Ok(stream::iter(listed).buffered(LISTED_AT_ONCE).collect().await)
    }

    /// Makes all of `changes`, in their order, or none: atomically for any reader, and across a crash.
    /// Durable on return.
    ///
    /// Syncs an object that was never synced before it renames or links it, so that the new name never
    /// refers to fewer bytes than the old one. ([`Change::RenamePrefix`] leaves such objects unsynced.)
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `Invalid`: nothing was changed. `Unavailable`, `OutOfSpace`,
    /// `Poisoned`: no volume takes the manifest; if the change is visible, a later [`Spread::flush`]
    /// makes it durable.
    pub async fn change(&self, changes: &[Change]) -> Result<()> {
        let lsn = self.record_change(changes).await?;
        self.0.journal.durable(lsn).await?;
        self.bury().await;
        Ok(())
    }

    /// Renames an object, and atomically replaces an object of that name. Durable on return, with all of
    /// the object's bytes if it was never synced.
    ///
    /// # Errors
    /// As for [`Spread::change`].
    pub async fn rename(&self, from: &Name, to: &Name) -> Result<()> {
        self.change(&[Change::Rename { from: from.clone(), to: to.clone() }]).await
    }

    /// Adds a name to an object. Durable on return, with all of the object's bytes if it was never
    /// synced.
    ///
    /// # Errors
    /// As for [`Spread::change`].
    pub async fn link(&self, from: &Name, to: &Name) -> Result<()> {
        self.change(&[Change::Link { from: from.clone(), to: to.clone() }]).await
    }

    /// Renames every `from/…` to `to/…`. Durable on return.
    ///
    /// # Errors
    /// `AlreadyExists` when an object has a name `to/…`; else as for [`Spread::change`].
    pub async fn rename_prefix(&self, from: &Name, to: &Name) -> Result<()> {
        self.change(&[Change::RenamePrefix { from: from.clone(), to: to.clone() }]).await
    }

    /// Removes an object without waiting for a device. The name is gone at once, even after a crash of the
    /// process; the bytes are freed when a later call makes the manifest durable, or
    /// finds no room for an object, or by [`Spread::free_removed`]. A crash of the machine
    /// before that may bring the object back. For callers that remove many.
    ///
    /// # Errors
    /// As for [`Spread::change`].
    pub async fn remove_soon(&self, name: &Name) -> Result<()> {
        let lsn = self.record_change(&[Change::Remove { name: name.clone() }]).await?;
        self.0.journal.written(lsn).await?;
        if self.0.catalog.must_bury() {
            self.0.journal.durable(lsn).await?;
        }
        self.bury().await;
        Ok(())
    }

    /// Makes the changes in memory; returns the edit to wait for.
    async fn record_change(&self, changes: &[Change]) -> Result<Lsn> {
        loop {
            self.0.journal.ready().await?;
            let unsynced = match self.0.catalog.change(changes)? {
                Changed::Recorded(lsn) => return Ok(lsn),
                Changed::Unsynced(name) => name,
            };
            self.open_handle(&unsynced).await?.sync(IO).await?;
        }
    }
}
