//! Names of a pool: look up, list, and change, also several atomically.

use std::sync::Arc;

use futures_util::future::join_all;
use policy::placement::{Layout, VolumeId};
use policy::purpose::{Io, Origin, Step};
use volume::{Error, ErrorKind, Listed, Name, Object, Result};

use super::inode::Inode;
use super::{Inner, Spread, Table, Uncommitted};
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::journal::Lsn;
use crate::manifest::{Dead, Placed, Record, State, Stored};

/// The most removed objects whose bytes wait for a sync of the manifest.
const CONDEMNED_MAX: usize = 64;

const IO: Io = Io::new(Origin::UserWrite, Step::Data);

/// A change of names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// Removes a name, and the object if it was its last.
    Remove {
        /// The name.
        name: Name,
    },
    /// Renames an object. Another object of that name loses it.
    Rename {
        /// The name it has.
        from: Name,
        /// The name it gets.
        to: Name,
    },
    /// Adds an unused name to an object, which exists while it has a name.
    Link {
        /// A name it has.
        from: Name,
        /// The name it gets as well.
        to: Name,
    },
    /// Renames every `from/…` to `to/…`, like a directory. No object may have a name `to/…`.
    RenamePrefix {
        /// The directory's name.
        from: Name,
        /// The name it gets.
        to: Name,
    },
}

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
        let table = self.0.table.lock();
        table.uncommitted.contains_key(name)
            || self.0.journal.look(|state| state.id(name).is_some())
    }

    /// The metadata of an object. Needs a volume only for a log that was not opened yet.
    ///
    /// # Errors
    /// `NotFound`; for a log `Unavailable`: try again when its volume is back.
    pub async fn stat(&self, name: &Name) -> Result<Stat> {
        let inode = self.0.inode(name)?;
        if !inode.knows_len() {
            self.0.learn_len(&inode).await?;
        }
        // An uncommitted object is not in the manifest, and has one name.
        let links = self.0.journal.look(|state| state.object(inode.id).map_or(1, Stored::links));
        let (id, kind, len, copies) = (inode.id, inode.kind, inode.len(), inode.copies());
        let layout = copies.first().layout.clone();
        Ok(Stat { id, kind, len, links, layout, copies: copies.iter().cloned().collect() })
    }

    /// Every object whose name begins with `prefix`, in the order of names. A log whose volume is away
    /// has the length of its first sync.
    ///
    /// # Errors
    /// None so far.
    pub async fn list_prefix(&self, prefix: &str) -> Result<Vec<Listed>> {
        let mut inodes = self.0.inodes(prefix);
        inodes.sort_by(|(a, _), (b, _)| a.cmp(b));
        let listed = inodes.into_iter().map(async |(name, inode)| {
            if !inode.knows_len()
                && let Err(e) = self.0.learn_len(&inode).await
            {
                tracing::debug!("length of {name} not known: {e}");
            }
            Listed { name, len: inode.len() }
        });
        Ok(join_all(listed).await)
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
        self.0.bury().await;
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
    /// process; the bytes are freed when a later call makes the manifest durable. A crash of the machine
    /// before that may bring the object back. For callers that remove many.
    ///
    /// # Errors
    /// As for [`Spread::change`].
    pub async fn remove_soon(&self, name: &Name) -> Result<()> {
        let lsn = self.record_change(&[Change::Remove { name: name.clone() }]).await?;
        self.0.journal.written(lsn).await?;
        if self.0.table.lock().condemned.len() > CONDEMNED_MAX {
            self.0.journal.durable(lsn).await?;
        }
        self.0.bury().await;
        Ok(())
    }

    /// Makes the changes in memory; returns the edit to wait for.
    async fn record_change(&self, changes: &[Change]) -> Result<Lsn> {
        loop {
            self.0.journal.ready().await?;
            let unsynced = {
                let mut table = self.0.table.lock();
                let unsynced = changes.iter().find_map(|c| self.0.unsynced_source(&table, c));
                if unsynced.is_some() || changes.iter().any(|c| c.touches(&table.uncommitted)) {
                    self.0.must_fit(&table, changes)?;
                }
                match unsynced {
                    Some(name) => name.clone(),
                    None => return self.0.record_names(&mut table, changes),
                }
            };
            self.open_handle(&unsynced).await?.sync(IO).await?;
        }
    }
}

impl Inner {
    /// The object of this name.
    ///
    /// # Errors
    /// `NotFound`.
    pub(super) fn inode(&self, name: &Name) -> Result<Arc<Inode>> {
        let mut table = self.table.lock();
        let id = table.uncommitted.get(name).copied();
        let id = id.or_else(|| self.journal.look(|state| state.id(name)));
        let found = id.and_then(|id| self.inode_of(&mut table, name, id));
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("{name}: no such object")))
    }

    /// Every object whose name begins with `prefix`.
    fn inodes(&self, prefix: &str) -> Vec<(Name, Arc<Inode>)> {
        let mut table = self.table.lock();
        let begins = |name: &&Name| name.as_str().starts_with(prefix);
        let uncommitted = table.uncommitted.iter().map(|(name, &id)| (name.clone(), id));
        let uncommitted: Vec<_> = uncommitted.filter(|(name, _)| begins(&name)).collect();
        let stored = self.journal.look(|state| {
            state.names(prefix).map(|(name, id)| (name.clone(), id)).collect::<Vec<_>>()
        });
        let all = uncommitted.into_iter().chain(stored);
        all.filter_map(|(name, id)| {
            let inode = self.inode_of(&mut table, &name, id)?;
            Some((name, inode))
        })
        .collect()
    }

    /// The inode of object `id`, created at the first request; `name` is one of its names.
    pub(super) fn inode_of(
        &self,
        table: &mut Table,
        name: &Name,
        id: ObjectId,
    ) -> Option<Arc<Inode>> {
        if let Some(inode) = table.inodes.get(&id) {
            return Some(Arc::clone(inode));
        }
        let recorded = self.journal.recorded();
        let inode = self.journal.look(|state| {
            Some(Inode::stored(name, id, state.object(id)?, recorded, &self.members))
        })?;
        let inode = Arc::new(inode);
        table.inodes.insert(id, Arc::clone(&inode));
        Some(inode)
    }

    /// The name of the object that a change renames or links, if it was never synced.
    fn unsynced_source<'a>(&self, table: &Table, change: &'a Change) -> Option<&'a Name> {
        let (Change::Rename { from, .. } | Change::Link { from, .. }) = change else {
            return None;
        };
        let unsynced = table.uncommitted.contains_key(from)
            || self.journal.look(|state| {
                let object = state.id(from).and_then(|id| state.object(id));
                object.is_some_and(|object| object.committed.is_none())
            });
        unsynced.then_some(from)
    }

    /// Tries changes on a copy of the state that includes uncommitted objects.
    fn must_fit(&self, table: &Table, changes: &[Change]) -> Result<()> {
        let mut scratch = self.journal.look(State::clone);
        for (name, &id) in &table.uncommitted {
            let Some(inode) = table.inodes.get(&id) else { continue };
            let (kind, copies, name) = (inode.kind, inode.copies(), name.clone());
            scratch.apply(&[Record::Create { id, kind, copies, committed: None, name }])?;
        }
        let edit: Vec<_> = changes.iter().map(Change::record).collect();
        scratch.apply(&edit).map(|_| ())
    }

    /// Applies the changes to the table and to the manifest, all or none.
    fn record_names(&self, table: &mut Table, changes: &[Change]) -> Result<Lsn> {
        let mut edit = Vec::new();
        let mut uncommitted = table.uncommitted.clone();
        let mut dropped = Vec::new();
        for change in changes {
            match change {
                Change::Remove { name } => {
                    if let Some(id) = uncommitted.remove(name) {
                        dropped.push(id);
                        continue;
                    }
                }
                Change::Rename { to, .. } => dropped.extend(uncommitted.remove(to)),
                Change::Link { .. } => {}
                Change::RenamePrefix { from, to } => {
                    rename_uncommitted(&mut uncommitted, from, to)?;
                }
            }
            edit.push(change.record());
        }
        let (lsn, dead) =
            if edit.is_empty() { (0, Vec::new()) } else { self.journal.record(edit)? };
        table.uncommitted = uncommitted;
        for id in dropped.iter().copied().chain(dead.iter().map(|dead| dead.id)) {
            self.forget_table(id);
        }
        for id in dropped {
            if let Some(inode) = table.inodes.get(&id) {
                let dead = Dead { id, kind: inode.kind, copies: inode.copies(), whole: true };
                table.condemned.push_front((0, dead));
            }
        }
        table.condemned.extend(dead.into_iter().map(|dead| (lsn, dead)));
        Ok(lsn)
    }

    /// Removes the leaf objects of pending unlinks whose edit is durable.
    pub(super) async fn bury(&self) {
        loop {
            let dead = {
                let mut table = self.table.lock();
                match table.condemned.front() {
                    Some((lsn, _)) if self.journal.is_durable(*lsn) => {}
                    _ => return,
                }
                let Some((_, dead)) = table.condemned.pop_front() else { return };
                let inode = if dead.whole { table.inodes.remove(&dead.id) } else { None };
                (dead, inode)
            };
            let (dead, inode) = dead;
            // Open its leaf objects first: a holder of a handle may not have read from it yet.
            if let Some(inode) = inode.filter(|inode| inode.is_open()) {
                for replica in inode.replicas() {
                    let parts = 0..replica.parts();
                    join_all(parts.map(|part| self.leaf(&inode, &replica, part))).await;
                }
            }
            for (volume, leaf) in dead.leaves() {
                // A volume that answers may now do earlier removals too.
                if self.remove_leaf(volume, leaf).await {
                    self.remove_orphans(volume).await;
                }
            }
        }
    }

    /// Retries removals from a volume, until one fails again.
    pub(super) async fn remove_orphans(&self, volume: VolumeId) {
        let next = || self.table.lock().orphans.get_mut(&volume).and_then(Vec::pop);
        while let Some(leaf) = next() {
            if !self.remove_leaf(volume, leaf).await {
                return;
            }
        }
    }

    /// Removes a leaf object. If that fails, returns false; a present volume tries again later.
    pub(super) async fn remove_leaf(&self, volume: VolumeId, leaf: Leaf) -> bool {
        // The next opening with this volume finds the orphan.
        let Ok(device) = self.members.volume(volume) else { return false };
        match device.remove(&leaf.name()).await {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                let label = self.members.label(volume);
                tracing::debug!("{} stays on volume {label} for now: {e}", leaf.name());
                self.table.lock().orphans.entry(volume).or_default().push(leaf);
                false
            }
            _ => true,
        }
    }
}

impl Table {
    /// The name of an uncommitted object; `None` for others.
    pub(super) fn uncommitted_name(&self, id: ObjectId) -> Option<Name> {
        self.uncommitted.iter().find_map(|(name, &other)| (other == id).then(|| name.clone()))
    }
}

impl Change {
    fn record(&self) -> Record {
        match self.clone() {
            Self::Remove { name } => Record::Unlink { name },
            Self::Rename { from, to } => Record::Rename { from, to },
            Self::Link { from, to } => Record::Link { from, to },
            Self::RenamePrefix { from, to } => Record::RenamePrefix { from, to },
        }
    }

    /// Whether the change concerns any of these uncommitted objects.
    fn touches(&self, uncommitted: &Uncommitted) -> bool {
        match self {
            Self::Remove { name } => uncommitted.contains_key(name),
            Self::Rename { from, to } | Self::Link { from, to } => {
                uncommitted.contains_key(from) || uncommitted.contains_key(to)
            }
            Self::RenamePrefix { .. } => !uncommitted.is_empty(),
        }
    }
}

/// Renames uncommitted objects in a renamed directory.
fn rename_uncommitted(objects: &mut Uncommitted, from: &Name, to: &Name) -> Result<()> {
    let (old, new) = (format!("{from}/"), format!("{to}/"));
    let mut renamed = Uncommitted::new();
    for (name, &id) in &*objects {
        let name = match name.as_str().strip_prefix(&old) {
            Some(rest) => Name::new(&format!("{new}{rest}"))?,
            None => name.clone(),
        };
        renamed.insert(name, id);
    }
    *objects = renamed;
    Ok(())
}
