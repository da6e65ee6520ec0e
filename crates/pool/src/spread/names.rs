//! What a pool does with names: look up, list, and change, several at once if need be.

use std::sync::Arc;

use futures_util::future::join_all;
use policy::placement::{Layout, VolumeId};
use policy::purpose::{Io, Origin, Step};
use volume::{Error, ErrorKind, Listed, Name, Object, Result};

use super::body::Body;
use super::{Drafts, Inner, Spread, Table};
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::journal::Lsn;
use crate::manifest::{Dead, Placed, Record, State, Stored};

/// So many removed objects may keep their bytes for want of a sync.
const CONDEMNED_MAX: usize = 64;

const IO: Io = Io::new(Origin::UserWrite, Step::Data);

/// A change of names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// The name goes, and the object with it if it was its last.
    Remove {
        /// The name.
        name: Name,
    },
    /// The object gets another name. If there is an object of that name, it loses it.
    Rename {
        /// The name it has.
        from: Name,
        /// The name it gets.
        to: Name,
    },
    /// The object gets one more name, which nothing has yet. It lives while it has one.
    Link {
        /// A name it has.
        from: Name,
        /// The name it gets as well.
        to: Name,
    },
    /// Every `from/…` becomes `to/…`: the renaming of a directory. Nothing is called `to/…` yet.
    RenamePrefix {
        /// The directory's name.
        from: Name,
        /// The name it gets.
        to: Name,
    },
}

/// What is known of an object without touching it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stat {
    /// Its number: no other object ever has it.
    pub id: ObjectId,
    /// What it is.
    pub kind: Kind,
    /// Its length in bytes.
    pub len: u64,
    /// How many names it has.
    pub links: u32,
    /// Where it lies, or its first copy does.
    pub layout: Layout,
    /// Every copy, the first one first.
    pub copies: Vec<Placed>,
}

impl Spread {
    /// Whether there is an object of this name.
    #[must_use]
    pub fn contains(&self, name: &Name) -> bool {
        let table = self.0.table.lock();
        table.drafts.contains_key(name) || self.0.journal.look(|state| state.id(name).is_some())
    }

    /// What is known of an object. Only for a log that was not opened yet a volume is asked.
    ///
    /// # Errors
    /// `NotFound`; for a log `Unavailable`: try again when its volume is back.
    pub async fn stat(&self, name: &Name) -> Result<Stat> {
        let body = self.0.body(name)?;
        if !body.knows_len() {
            self.0.learn_len(&body).await?;
        }
        // A draft is not in the manifest yet, and has one name.
        let links = self.0.journal.look(|state| state.object(body.id).map_or(1, Stored::links));
        let (id, kind, len, copies) = (body.id, body.kind, body.len(), body.copies());
        let layout = copies.first().layout.clone();
        Ok(Stat { id, kind, len, links, layout, copies: copies.iter().cloned().collect() })
    }

    /// Every object whose name begins with `prefix`, in the order of names. A log whose volume is away
    /// is listed with the length it had at its first sync.
    ///
    /// # Errors
    /// None so far.
    pub async fn list_prefix(&self, prefix: &str) -> Result<Vec<Listed>> {
        let mut bodies = self.0.bodies(prefix);
        bodies.sort_by(|(a, _), (b, _)| a.cmp(b));
        let listed = bodies.into_iter().map(async |(name, body)| {
            if !body.knows_len()
                && let Err(e) = self.0.learn_len(&body).await
            {
                tracing::debug!("length of {name} not known: {e}");
            }
            Listed { name, len: body.len() }
        });
        Ok(join_all(listed).await)
    }

    /// Makes all of `changes`, in their order, or none; all at once for whoever looks, and after a
    /// crash. Durable on return.
    ///
    /// An object that was never synced is synced before it is renamed or linked, so that the new name
    /// never stands for less than the old one did. (A [`Change::RenamePrefix`] leaves such objects as
    /// they are.)
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `Invalid`: nothing was changed. `Unavailable`, `OutOfSpace`,
    /// `Poisoned`: no volume takes the manifest; if the change shows, a later [`Spread::flush`] makes
    /// it durable.
    pub async fn change(&self, changes: &[Change]) -> Result<()> {
        let lsn = self.record_change(changes).await?;
        self.0.journal.durable(lsn).await?;
        self.0.bury().await;
        Ok(())
    }

    /// Gives an object another name; what had that name loses it at the same moment. Durable on
    /// return, with all of the object's bytes if it was never synced.
    ///
    /// # Errors
    /// As for [`Spread::change`].
    pub async fn rename(&self, from: &Name, to: &Name) -> Result<()> {
        self.change(&[Change::Rename { from: from.clone(), to: to.clone() }]).await
    }

    /// Gives an object one more name. Durable on return, with all of the object's bytes if it was
    /// never synced.
    ///
    /// # Errors
    /// As for [`Spread::change`].
    pub async fn link(&self, from: &Name, to: &Name) -> Result<()> {
        self.change(&[Change::Link { from: from.clone(), to: to.clone() }]).await
    }

    /// Renames every `from/…` to `to/…`. Durable on return.
    ///
    /// # Errors
    /// `AlreadyExists` when something is called `to/…`; else as for [`Spread::change`].
    pub async fn rename_prefix(&self, from: &Name, to: &Name) -> Result<()> {
        self.change(&[Change::RenamePrefix { from: from.clone(), to: to.clone() }]).await
    }

    /// Removes an object without waiting for a device: the name is gone at once, even if the process
    /// dies, and the bytes go when something else makes the manifest durable. After a crash of the
    /// machine before that the object may be back. For those who remove many.
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

    /// Makes the changes in memory, and gives the edit to wait for.
    async fn record_change(&self, changes: &[Change]) -> Result<Lsn> {
        loop {
            self.0.journal.ready().await?;
            let unsynced = {
                let mut table = self.0.table.lock();
                let unsynced = changes.iter().find_map(|c| self.0.unsynced_source(&table, c));
                if unsynced.is_some() || changes.iter().any(|c| c.touches(&table.drafts)) {
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
    pub(super) fn body(&self, name: &Name) -> Result<Arc<Body>> {
        let mut table = self.table.lock();
        let draft = table.drafts.get(name).copied();
        let id = draft.or_else(|| self.journal.look(|state| state.id(name)));
        let found = id.and_then(|id| self.body_of(&mut table, name, id));
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("{name}: no such object")))
    }

    /// Every object whose name begins with `prefix`.
    fn bodies(&self, prefix: &str) -> Vec<(Name, Arc<Body>)> {
        let mut table = self.table.lock();
        let begins = |name: &&Name| name.as_str().starts_with(prefix);
        let drafts = table.drafts.iter().map(|(name, &id)| (name.clone(), id));
        let drafts: Vec<_> = drafts.filter(|(name, _)| begins(&name)).collect();
        let stored = self.journal.look(|state| {
            state.names(prefix).map(|(name, id)| (name.clone(), id)).collect::<Vec<_>>()
        });
        let all = drafts.into_iter().chain(stored);
        all.filter_map(|(name, id)| {
            let body = self.body_of(&mut table, &name, id)?;
            Some((name, body))
        })
        .collect()
    }

    /// The body of object `id`, made if nobody asked for it yet; `name` is one it has.
    pub(super) fn body_of(
        &self,
        table: &mut Table,
        name: &Name,
        id: ObjectId,
    ) -> Option<Arc<Body>> {
        if let Some(body) = table.bodies.get(&id) {
            return Some(Arc::clone(body));
        }
        let recorded = self.journal.recorded();
        let body = self
            .journal
            .look(|state| Some(Body::stored(name, id, state.object(id)?, recorded, &self.seats)))?;
        let body = Arc::new(body);
        table.bodies.insert(id, Arc::clone(&body));
        Some(body)
    }

    /// The name a change takes its object from, if that was never synced.
    fn unsynced_source<'a>(&self, table: &Table, change: &'a Change) -> Option<&'a Name> {
        let (Change::Rename { from, .. } | Change::Link { from, .. }) = change else {
            return None;
        };
        let unsynced = table.drafts.contains_key(from)
            || self.journal.look(|state| {
                let object = state.id(from).and_then(|id| state.object(id));
                object.is_some_and(|object| object.committed.is_none())
            });
        unsynced.then_some(from)
    }

    /// Tries changes on a copy that has the drafts as well, which the manifest does not know.
    fn must_fit(&self, table: &Table, changes: &[Change]) -> Result<()> {
        let mut scratch = self.journal.look(State::clone);
        for (name, &id) in &table.drafts {
            let Some(body) = table.bodies.get(&id) else { continue };
            let (kind, copies, name) = (body.kind, body.copies(), name.clone());
            scratch.apply(&[Record::Create { id, kind, copies, committed: None, name }])?;
        }
        let edit: Vec<_> = changes.iter().map(Change::record).collect();
        scratch.apply(&edit).map(|_| ())
    }

    /// Makes the changes in the table and in the manifest, all or none.
    fn record_names(&self, table: &mut Table, changes: &[Change]) -> Result<Lsn> {
        let mut edit = Vec::new();
        let mut drafts = table.drafts.clone();
        let mut dropped = Vec::new();
        for change in changes {
            match change {
                Change::Remove { name } => {
                    if let Some(draft) = drafts.remove(name) {
                        dropped.push(draft);
                        continue;
                    }
                }
                Change::Rename { to, .. } => dropped.extend(drafts.remove(to)),
                Change::Link { .. } => {}
                Change::RenamePrefix { from, to } => rename_drafts(&mut drafts, from, to)?,
            }
            edit.push(change.record());
        }
        let (lsn, dead) =
            if edit.is_empty() { (0, Vec::new()) } else { self.journal.record(edit)? };
        table.drafts = drafts;
        for id in dropped.iter().copied().chain(dead.iter().map(|dead| dead.id)) {
            self.forget_table(id);
        }
        for id in dropped {
            if let Some(body) = table.bodies.get(&id) {
                let dead = Dead { id, kind: body.kind, copies: body.copies(), whole: true };
                table.condemned.push_front((0, dead));
            }
        }
        table.condemned.extend(dead.into_iter().map(|dead| (lsn, dead)));
        Ok(lsn)
    }

    /// Removes the leaves of objects whose end is durable.
    pub(super) async fn bury(&self) {
        loop {
            let dead = {
                let mut table = self.table.lock();
                match table.condemned.front() {
                    Some((lsn, _)) if self.journal.is_durable(*lsn) => {}
                    _ => return,
                }
                let Some((_, dead)) = table.condemned.pop_front() else { return };
                let body = if dead.whole { table.bodies.remove(&dead.id) } else { None };
                (dead, body)
            };
            let (dead, body) = dead;
            // Whoever has it open may not have read from it yet.
            if let Some(body) = body.filter(|body| body.is_open()) {
                for replica in body.replicas() {
                    let parts = 0..replica.parts();
                    join_all(parts.map(|part| self.leaf(&body, &replica, part))).await;
                }
            }
            for (volume, leaf) in dead.leaves() {
                // A volume that answers may do what it would not do before.
                if self.remove_leaf(volume, leaf).await {
                    self.remove_leftovers(volume).await;
                }
            }
        }
    }

    /// Tries again to remove from a volume what could not be removed, until it fails again.
    pub(super) async fn remove_leftovers(&self, volume: VolumeId) {
        let next = || self.table.lock().leftovers.get_mut(&volume).and_then(Vec::pop);
        while let Some(leaf) = next() {
            if !self.remove_leaf(volume, leaf).await {
                return;
            }
        }
    }

    /// Removes a leaf. If the volume does not do it now, it is kept for later, and false given.
    pub(super) async fn remove_leaf(&self, volume: VolumeId, leaf: Leaf) -> bool {
        // What lies on a volume that is away is looked for when it is back.
        let Ok(device) = self.seats.volume(volume) else { return false };
        match device.remove(&leaf.name()).await {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                let label = self.seats.label(volume);
                tracing::debug!("{} stays on volume {label} for now: {e}", leaf.name());
                self.table.lock().leftovers.entry(volume).or_default().push(leaf);
                false
            }
            _ => true,
        }
    }
}

impl Table {
    /// The name of a draft, if the object is one.
    pub(super) fn draft_of(&self, id: ObjectId) -> Option<Name> {
        self.drafts.iter().find_map(|(name, &other)| (other == id).then(|| name.clone()))
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

    /// Whether it makes a difference to the change that there are these drafts.
    fn touches(&self, drafts: &Drafts) -> bool {
        match self {
            Self::Remove { name } => drafts.contains_key(name),
            Self::Rename { from, to } | Self::Link { from, to } => {
                drafts.contains_key(from) || drafts.contains_key(to)
            }
            Self::RenamePrefix { .. } => !drafts.is_empty(),
        }
    }
}

/// What a renaming of a directory does to drafts in it.
fn rename_drafts(drafts: &mut Drafts, from: &Name, to: &Name) -> Result<()> {
    let (old, new) = (format!("{from}/"), format!("{to}/"));
    let mut renamed = Drafts::new();
    for (name, &id) in &*drafts {
        let name = match name.as_str().strip_prefix(&old) {
            Some(rest) => Name::new(&format!("{new}{rest}"))?,
            None => name.clone(),
        };
        renamed.insert(name, id);
    }
    *drafts = renamed;
    Ok(())
}
