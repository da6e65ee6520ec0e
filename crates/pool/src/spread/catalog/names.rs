//! Names of objects: the first one of an object, and atomic changes of several.

use std::sync::Arc;

use volume::{Error, ErrorKind, Name, Result};

use super::super::inode::Inode;
use super::{Catalog, Table, Uncommitted};
use crate::leaf::{Kind, ObjectId};
use crate::manifest::journal::Lsn;
use crate::manifest::{Dead, Record, State};

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

/// The outcome of a change of names.
pub(crate) enum Changed {
    /// The change is made: the edit to wait for.
    Recorded(Lsn),
    /// Nothing is changed yet: this object must be synced before.
    Unsynced(Name),
}

impl Catalog {
    /// # Errors
    /// `AlreadyExists`: an object has this name.
    pub(crate) fn must_be_free(&self, name: &Name) -> Result<()> {
        self.must_be_free_in(&self.table.lock(), name)
    }

    /// Names an empty object; returns the edit to wait for. A log is recorded at once; any other object is
    /// uncommitted until its first sync.
    pub(crate) fn create_empty(&self, inode: Inode) -> Result<(Lsn, Arc<Inode>)> {
        let mut table = self.table.lock();
        let name = inode.name.clone();
        self.must_be_free_in(&table, &name)?;
        if inode.kind == Kind::Log {
            inode.wait_for(self.journal.record(vec![inode.create(None, name)])?.0);
        } else {
            table.uncommitted.insert(name, inode.id);
        }
        let inode = Arc::new(inode);
        table.inodes.insert(inode.id, Arc::clone(&inode));
        Ok((inode.lsn(), inode))
    }

    /// Records an object whose bytes are synced; returns the edit to wait for.
    pub(crate) fn create_whole(&self, name: &Name, create: Record) -> Result<Lsn> {
        let table = self.table.lock();
        self.must_be_free_in(&table, name)?;
        Ok(self.journal.record(vec![create])?.0)
    }

    /// Makes all of `changes` in memory, or none.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `Invalid`: nothing is changed.
    pub(crate) fn change(&self, changes: &[Change]) -> Result<Changed> {
        let mut table = self.table.lock();
        let unsynced = changes.iter().find_map(|change| self.unsynced_source(&table, change));
        if unsynced.is_some() || changes.iter().any(|change| change.touches(&table.uncommitted)) {
            self.must_fit(&table, changes)?;
        }
        match unsynced {
            Some(name) => Ok(Changed::Unsynced(name.clone())),
            None => self.record_names(&mut table, changes).map(Changed::Recorded),
        }
    }

    fn must_be_free_in(&self, table: &Table, name: &Name) -> Result<()> {
        if self.id(table, name).is_some() {
            let what = format!("{name}: an object of this name exists already");
            return Err(Error::new(ErrorKind::AlreadyExists, what));
        }
        Ok(())
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
        for (name, inode) in table.uncommitted() {
            scratch.apply(&[inode.create(None, name)])?;
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
                Change::RenamePrefix { from, to } => uncommitted = renamed(uncommitted, from, to)?,
            }
            edit.push(change.record());
        }
        let (lsn, dead) =
            if edit.is_empty() { (0, Vec::new()) } else { self.journal.record(edit)? };
        table.uncommitted = uncommitted;
        for id in dropped.iter().copied().chain(dead.iter().map(|dead| dead.id)) {
            self.placing.forget_table(id);
        }
        for id in dropped {
            if let Some(inode) = table.inodes.get(&id) {
                let dead = Dead { id, kind: inode.kind, copies: inode.copies(), whole: true };
                table.condemned.push_front((0, dead));
            }
        }
        table.condemn(lsn, dead);
        Ok(lsn)
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

/// Uncommitted objects after a directory was renamed.
fn renamed(objects: Uncommitted, from: &Name, to: &Name) -> Result<Uncommitted> {
    let (old, new) = (format!("{from}/"), format!("{to}/"));
    let rename = |(name, id): (Name, ObjectId)| match name.as_str().strip_prefix(&old) {
        Some(rest) => Ok((Name::new(&format!("{new}{rest}"))?, id)),
        None => Ok((name, id)),
    };
    objects.into_iter().map(rename).collect()
}
