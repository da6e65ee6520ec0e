//! Names and objects of a pool: those of the manifest, uncommitted ones, inodes, and pending unlinks.
//!
//! An edit of the manifest and its change in memory are one step under the lock of the table. That lock comes after an
//! object's `resizing` and `write_lock`, and before those of the manifest's state, of placement and of an object's
//! copies. No task holds it across an await.

mod edits;
mod names;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use policy::placement::VolumeId;
use volume::{Error, ErrorKind, Name, Result};

pub use self::names::Change;
pub(super) use self::names::Changed;
use super::inode::Inode;
use super::leaves::Leaves;
use super::placing::Placing;
use crate::leaf::{Kind, ObjectId};
use crate::manifest::journal::{Journal, Lsn};
use crate::manifest::{Copies, Dead, gone};
use crate::members::Members;

/// The most removed objects whose bytes wait for a sync of the manifest.
const CONDEMNED_MAX: usize = 64;

/// The names and objects of a pool.
pub(super) struct Catalog {
    members: Arc<Members>,
    journal: Arc<Journal>,
    /// Told of every change of places while `table` is locked.
    placing: Arc<Placing>,
    table: Mutex<Table>,
}

/// Uncommitted objects: not in the manifest before their first sync. Each has one name.
type Uncommitted = BTreeMap<Name, ObjectId>;

/// In-memory state of objects, beside the manifest.
#[derive(Default)]
struct Table {
    uncommitted: Uncommitted,
    /// Every uncommitted object, and every other object that was opened.
    inodes: HashMap<ObjectId, Arc<Inode>>,
    /// Pending unlinks: copies whose bytes are removed once the edit that removed them is durable.
    condemned: VecDeque<(Lsn, Dead)>,
}

impl Catalog {
    pub(super) fn new(members: Arc<Members>, journal: Arc<Journal>, placing: Arc<Placing>) -> Self {
        Self { members, journal, placing, table: Mutex::default() }
    }

    /// Whether there is an object of this name.
    pub(super) fn contains(&self, name: &Name) -> bool {
        self.id(&self.table.lock(), name).is_some()
    }

    /// The object of this name.
    ///
    /// # Errors
    /// `NotFound`.
    pub(super) fn inode(&self, name: &Name) -> Result<Arc<Inode>> {
        let mut table = self.table.lock();
        let id = self.id(&table, name);
        let found = id.and_then(|id| self.inode_of(&mut table, Some(name), id));
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("{name}: no such object")))
    }

    /// The object of this number, if the manifest has it.
    ///
    /// # Errors
    /// `Gone`: it was removed.
    pub(super) fn inode_by_id(&self, id: ObjectId) -> Result<Arc<Inode>> {
        let mut table = self.table.lock();
        self.must_live(id)?;
        self.inode_of(&mut table, None, id).ok_or_else(|| gone(id))
    }

    /// The object of this number, if it has a name, also one that is uncommitted.
    ///
    /// # Errors
    /// `Gone`: it was removed.
    pub(super) fn named_inode_by_id(&self, id: ObjectId) -> Result<Arc<Inode>> {
        let mut table = self.table.lock();
        if table.uncommitted_name(id).is_none() {
            self.must_live(id)?;
        }
        self.inode_of(&mut table, None, id).ok_or_else(|| gone(id))
    }

    /// Whether a sync has nothing to record of an object's first `end` bytes: the manifest has them, or the object has no
    /// name any more.
    pub(super) fn is_committed(&self, inode: &Inode, end: u64) -> bool {
        let table = self.table.lock();
        match self.committed_len(inode) {
            Some(known) => end <= known,
            None => table.uncommitted_name(inode.id).is_none() && !self.has(inode.id),
        }
    }

    /// Every object whose name begins with `prefix`, in the order of names.
    pub(super) fn inodes(&self, prefix: &str) -> Vec<(Name, Arc<Inode>)> {
        let mut table = self.table.lock();
        let uncommitted = table.uncommitted.iter().map(|(name, &id)| (name.clone(), id));
        let begins = |(name, _): &(Name, ObjectId)| name.as_str().starts_with(prefix);
        let mut all: Vec<_> = uncommitted.filter(begins).collect();
        self.journal.look(|state| {
            all.extend(state.names(prefix).map(|(name, id)| (name.clone(), id)));
        });
        all.sort();
        let inodes = all.into_iter().filter_map(|(name, id)| {
            let inode = self.inode_of(&mut table, Some(&name), id)?;
            Some((name, inode))
        });
        inodes.collect()
    }

    /// Every object with a part on a volume, including uncommitted ones.
    pub(super) fn inodes_on(&self, volume: VolumeId) -> Vec<Arc<Inode>> {
        let ids: Vec<_> = self.journal.look(|state| state.objects_on(volume, None).collect());
        let stored = ids.into_iter().filter_map(|id| self.inode_by_id(id).ok());
        let stored: Vec<_> = stored.collect();
        let uncommitted = self.uncommitted_on(volume).into_iter();
        stored.into_iter().chain(uncommitted.map(|(_, inode)| inode)).collect()
    }

    /// Every uncommitted object with a part on a volume.
    pub(super) fn uncommitted_on(&self, volume: VolumeId) -> Vec<(Name, Arc<Inode>)> {
        let mut uncommitted = self.uncommitted();
        uncommitted.retain(|(_, inode)| inode.copies().volumes().any(|other| other == volume));
        uncommitted
    }

    /// Every uncommitted object.
    pub(super) fn uncommitted(&self) -> Vec<(Name, Arc<Inode>)> {
        self.table.lock().uncommitted()
    }

    /// Every object whose copies may differ.
    pub(super) fn in_doubt(&self) -> Vec<Arc<Inode>> {
        let table = self.table.lock();
        let inodes = table.inodes.values();
        let doubted = inodes.filter(|inode| inode.doubt().is_some() && self.has(inode.id));
        doubted.cloned().collect()
    }

    /// Every object that was written since its last sync, but for tables, which are nothing before it.
    pub(super) fn unsynced(&self) -> Vec<Arc<Inode>> {
        let table = self.table.lock();
        let inodes = table.inodes.values().filter(|inode| {
            let is_written = inode.kind != Kind::Table && inode.unsynced.is_changed();
            is_written && !inode.is_sealed() && self.has(inode.id)
        });
        inodes.cloned().collect()
    }

    /// Whether an object that was opened has a copy of this number.
    pub(super) fn has_replica(&self, id: ObjectId, number: u64) -> bool {
        let table = self.table.lock();
        table.inodes.get(&id).is_some_and(|inode| inode.replica(number).is_some())
    }

    /// Whether the manifest has an object.
    pub(super) fn has(&self, id: ObjectId) -> bool {
        self.journal.look(|state| state.object(id).is_some())
    }

    /// # Errors
    /// `Gone`: the object was removed.
    pub(super) fn must_live(&self, id: ObjectId) -> Result<()> {
        if self.has(id) { Ok(()) } else { Err(gone(id)) }
    }

    /// The places of an object's copies in the manifest.
    ///
    /// # Errors
    /// `Gone`: the object was removed.
    pub(super) fn copies(&self, id: ObjectId) -> Result<Copies> {
        let copies = self.journal.look(|state| Some(state.object(id)?.copies.clone()));
        copies.ok_or_else(|| gone(id))
    }

    /// Whether bytes of removed objects wait for a sync of the manifest.
    pub(super) fn has_condemned(&self) -> bool {
        !self.table.lock().condemned.is_empty()
    }

    /// Whether more bytes of removed objects wait for a sync of the manifest than should.
    pub(super) fn must_bury(&self) -> bool {
        self.table.lock().condemned.len() > CONDEMNED_MAX
    }

    /// Removes the leaf objects of pending unlinks whose edit is durable.
    pub(super) async fn bury(&self, leaves: &Leaves) {
        while let Some((dead, inode)) = self.next_dead() {
            let mut dead = vec![dead];
            if let Some(inode) = &inode {
                let outdated = inode.resyncs.outdated().into_iter();
                dead.extend(outdated.map(|placed| Dead::copy(inode.id, inode.kind, placed)));
            }
            // Open its leaf objects first: a holder of a handle may not have read from it yet.
            if let Some(inode) = inode.filter(|inode| inode.is_open()) {
                for replica in inode.replicas() {
                    let parts = 0..replica.parts();
                    join_all(parts.map(|part| inode.leaf(&self.journal, &replica, part))).await;
                }
            }
            for (volume, leaf) in dead.iter().flat_map(Dead::leaves) {
                // A volume that answers may now do earlier removals too.
                if leaves.remove(volume, leaf).await {
                    leaves.remove_orphans(volume).await;
                }
            }
        }
    }

    fn next_dead(&self) -> Option<(Dead, Option<Arc<Inode>>)> {
        let mut table = self.table.lock();
        let is_durable = |(lsn, _): &mut (Lsn, Dead)| self.journal.is_durable(*lsn);
        let (_, dead) = table.condemned.pop_front_if(is_durable)?;
        let inode = if dead.whole { table.inodes.remove(&dead.id) } else { None };
        Some((dead, inode))
    }

    fn id(&self, table: &Table, name: &Name) -> Option<ObjectId> {
        let uncommitted = table.uncommitted.get(name).copied();
        uncommitted.or_else(|| self.journal.look(|state| state.id(name)))
    }

    /// The inode of object `id`, created at the first request; `name` is one of its names.
    fn inode_of(&self, table: &mut Table, name: Option<&Name>, id: ObjectId) -> Option<Arc<Inode>> {
        if let Some(inode) = table.inodes.get(&id) {
            return Some(Arc::clone(inode));
        }
        let recorded = self.journal.recorded();
        let inode = self.journal.look(|state| {
            let object = state.object(id)?;
            let name = name.or_else(|| object.name())?;
            Some(Inode::stored(name, id, object, recorded, &self.members))
        })?;
        let inode = Arc::new(inode);
        table.inodes.insert(id, Arc::clone(&inode));
        Some(inode)
    }
}

impl Table {
    fn uncommitted(&self) -> Vec<(Name, Arc<Inode>)> {
        let all = self.uncommitted.iter();
        let all = all.filter_map(|(name, id)| Some((name.clone(), self.inodes.get(id)?.clone())));
        all.collect()
    }

    /// Queues the bytes of copies for removal, once edit `lsn` is durable.
    fn condemn(&mut self, lsn: Lsn, dead: Vec<Dead>) {
        self.condemned.extend(dead.into_iter().map(|dead| (lsn, dead)));
    }
}
