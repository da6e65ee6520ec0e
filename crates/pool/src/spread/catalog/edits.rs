//! Edits of one object: its length, its checksum and its copies.

use std::sync::Arc;

use policy::placement::{Layout, VolumeId};
use volume::{Error, ErrorKind, Name, Result};

use super::super::inode::{Inode, Replica};
use super::super::replication::Replication;
use super::{Catalog, Table};
use crate::leaf::{Kind, ObjectId};
use crate::manifest::journal::Lsn;
use crate::manifest::{Checked, Committed, Copies, Dead, Placed, Record};

impl Catalog {
    /// Records that an object's bytes up to `len` are durable, if the manifest has another length.
    pub(crate) fn commit(&self, inode: &Inode, len: u64) -> Result<()> {
        let mut table = self.table.lock();
        if self.create_committed(&mut table, inode, Committed { len, checksum: None })? {
            return Ok(());
        }
        if self.committed_len(inode).is_some_and(|known| known != len) {
            self.record_commit(inode, len, None)?;
        }
        Ok(())
    }

    /// Records an object that was uncommitted; false if it was not.
    fn create_committed(
        &self,
        table: &mut Table,
        inode: &Inode,
        committed: Committed,
    ) -> Result<bool> {
        let Some(name) = table.uncommitted_name(inode.id) else { return Ok(false) };
        let create = inode.create(Some(committed), name.clone());
        inode.wait_for(self.journal.record(vec![create])?.0);
        table.uncommitted.remove(&name);
        self.placing.complete(inode.id, committed.len);
        Ok(true)
    }

    /// Records a length of `len`, if the manifest has a longer one. The caller must not cut the object before
    /// the edit that its sync waits for is durable.
    pub(crate) fn shorten(&self, inode: &Inode, len: u64) -> Result<()> {
        let _table = self.table.lock();
        if self.committed_len(inode).is_some_and(|known| known > len) {
            self.record_commit(inode, len, None)?;
        }
        Ok(())
    }

    /// Records the first sync of a log.
    pub(crate) fn settle(&self, log: &Inode) -> Result<()> {
        if log.is_settled() {
            return Ok(());
        }
        let _table = self.table.lock();
        // A log without a name needs no record.
        if self.has(log.id) {
            self.record_commit(log, log.len(), None)?;
        }
        log.set_settled();
        Ok(())
    }

    /// Seals an object with its synced length and the checksum of all its bytes; its sync then waits for the edit.
    /// The caller excludes writes.
    ///
    /// # Errors
    /// `Gone`: it was removed.
    pub(crate) fn seal(&self, inode: &Inode, Checked { len, checksum }: Checked) -> Result<()> {
        let mut table = self.table.lock();
        let committed = Committed { len, checksum: Some(checksum) };
        if !self.create_committed(&mut table, inode, committed)? {
            self.record_commit(inode, len, Some(checksum))?;
        }
        if inode.kind == Kind::Log {
            // An edit of its own: one of several records costs a copy of the manifest's state.
            inode.wait_for(self.journal.record(vec![Record::Seal { id: inode.id }])?.0);
        }
        inode.seal(len);
        Ok(())
    }

    /// Records a checksum of the first bytes of a log, as its `replicas` have them durably; returns the edit.
    /// Records none if copies came or went. The caller knows that no write changed the bytes.
    pub(crate) fn set_checked(
        &self,
        log: &Inode,
        checked: Checked,
        replicas: &[Arc<Replica>],
    ) -> Result<Option<Lsn>> {
        let _table = self.table.lock();
        let numbers = |replicas: &[Arc<Replica>]| -> Vec<u64> {
            replicas.iter().map(|replica| replica.number).collect()
        };
        let same = numbers(&log.replicas()) == numbers(replicas) && log.doubt().is_none();
        // They differ while a write waits until the checksum is gone.
        let known = self.checked(log).map_or(0, |known| known.len);
        // A log that lost its name needs no record.
        if !same || !self.has(log.id) || known != log.checked_len() || log.is_sealed() {
            return Ok(None);
        }
        // No later sync waits until it is durable: without it, a crash makes the pool compare more bytes.
        let committed = Committed { len: checked.len, checksum: Some(checked.checksum) };
        let (lsn, _) = self.journal.record(vec![Record::Commit { id: log.id, committed }])?;
        log.set_checked(checked.len);
        Ok(Some(lsn))
    }

    /// Removes the checksum of a log, durably: its bytes may change after that.
    pub(crate) async fn forget_checked(&self, log: &Inode) -> Result<()> {
        self.journal.ready().await?;
        let (lsn, checksums) = {
            let _table = self.table.lock();
            if let Some(Checked { len, .. }) = self.checked(log) {
                self.record_commit(log, len, None)?;
            }
            // Another write may have recorded it a moment ago: its edit is waited for as well.
            (log.lsn(), log.checksums())
        };
        self.journal.durable(lsn).await?;
        let _table = self.table.lock();
        // A scrub may have recorded another one meanwhile.
        if log.checksums() == checksums {
            log.clear_checked();
        }
        Ok(())
    }

    /// The first bytes of an object that have a checksum in the manifest.
    pub(crate) fn checked(&self, inode: &Inode) -> Option<Checked> {
        self.journal.look(|state| state.object(inode.id)?.checked())
    }

    /// Checks that no volume of `layout` holds a part of an object.
    ///
    /// # Errors
    /// `Gone`: it was removed. `AlreadyExists`: a volume does.
    pub(crate) fn must_lack(&self, id: ObjectId, layout: &Layout) -> Result<()> {
        let copies = self.copies(id)?;
        match copies.volumes().find(|volume| layout.volumes().contains(volume)) {
            None => Ok(()),
            Some(volume) => {
                let label = self.members.label(volume);
                let what = format!("object {id} has a copy on volume {label}");
                Err(Error::new(ErrorKind::AlreadyExists, what))
            }
        }
    }

    /// Records a copy; returns the edit to wait for. The copy is recorded from now on, even if that wait fails: the
    /// next writes must reach it too.
    pub(crate) fn add_copy(&self, inode: &Inode, placed: &Placed) -> Result<Lsn> {
        let _table = self.table.lock();
        self.must_lack(inode.id, &placed.layout)?;
        let add = Record::AddCopy { id: inode.id, placed: placed.clone() };
        let (lsn, _) = self.journal.record(vec![add])?;
        inode.attach(placed, &self.members);
        self.tell_places(inode.id);
        Ok(lsn)
    }

    /// Records fragments in the place of all copies of a sealed object; returns the edit to wait for.
    ///
    /// # Errors
    /// `Gone`: it was removed. `Invalid`: it has fragments.
    pub(crate) fn recode(&self, inode: &Inode, copies: Copies) -> Result<Lsn> {
        let mut table = self.table.lock();
        self.must_live(inode.id)?;
        let recode = Record::Recode { id: inode.id, copies: copies.clone() };
        let (lsn, dead) = self.journal.record(vec![recode])?;
        inode.replace(&copies, &self.members);
        inode.wait_for(lsn);
        self.tell_places(inode.id);
        table.condemn(lsn, dead);
        Ok(lsn)
    }

    /// Drops the copy `number`; returns the edit to wait for. The caller excludes writes.
    ///
    /// # Errors
    /// `Gone`, `NotFound`: there is none. `Invalid`: it is the only one. `Unavailable`: the others are away.
    pub(crate) fn drop_copy(&self, inode: &Inode, number: u64) -> Result<Lsn> {
        let mut table = self.table.lock();
        self.must_be_droppable(inode, number)?;
        let lsn = self.record_drop(&mut table, inode, number)?;
        inode.detach(number);
        Ok(lsn)
    }

    /// Drops copies that lack bytes; those that were noted as outdated stay on their volumes. The copies `whole` were verified
    /// to hold everything. A sync of the object then waits until the drop is durable. False, with nothing dropped, if no `whole` copy is left, or too few fragments.
    pub(crate) fn lose(
        &self,
        inode: &Inode,
        numbers: &[u64],
        whole: &[u64],
        why: &str,
        replication: &Replication,
    ) -> bool {
        let mut table = self.table.lock();
        let copies = inode.copies();
        if !copies.suffice(|placed| whole.contains(&placed.number)) {
            inode.forget_what_stays();
            return false;
        }
        for replica in self.let_go_of(&mut table, inode, numbers) {
            replication.due();
            let (name, labels) = (&inode.name, replica.labels());
            tracing::warn!("{name} loses its copy on volume {labels}: {why}");
        }
        inode.forget_what_stays();
        true
    }

    /// Drops the copies on a volume without a check of the others; never drops the last.
    pub(crate) fn let_go(&self, inode: &Inode, volume: VolumeId) {
        let mut table = self.table.lock();
        let there = inode.replicas().into_iter().filter(|replica| replica.is_on(volume));
        let numbers: Vec<_> = there.map(|replica| replica.number).collect();
        self.let_go_of(&mut table, inode, &numbers);
    }

    fn let_go_of(&self, table: &mut Table, inode: &Inode, numbers: &[u64]) -> Vec<Arc<Replica>> {
        let went: Vec<_> = numbers.iter().filter_map(|&number| inode.detach(number)).collect();
        for replica in &went {
            if self.record_drop(table, inode, replica.number).is_ok() {
                continue;
            }
            // The object is not in the manifest: uncommitted, or removed.
            inode.resyncs.forget_outdated(replica.number);
            table.condemned.push_front((0, Dead::copy(inode.id, inode.kind, replica.placed())));
        }
        went
    }

    fn record_drop(&self, table: &mut Table, inode: &Inode, number: u64) -> Result<Lsn> {
        let (lsn, dead) = self.journal.record(vec![Record::DropCopy { id: inode.id, number }])?;
        inode.wait_for(lsn);
        self.tell_places(inode.id);
        if !inode.resyncs.has_outdated(number) {
            table.condemn(lsn, dead);
        }
        Ok(lsn)
    }

    /// Gives up an outdated copy: its bytes are removed once they are no copy after a crash either.
    pub(crate) fn give_up_outdated(&self, inode: &Inode, placed: &Placed) {
        let mut table = self.table.lock();
        if inode.resyncs.forget_outdated(placed.number) {
            let dead = Dead::copy(inode.id, inode.kind, placed.clone());
            table.condemn(inode.lsn(), vec![dead]);
        }
    }

    /// Gives up the outdated copies on a volume.
    pub(crate) fn give_up_outdated_on(&self, volume: VolumeId) {
        let inodes: Vec<_> = self.table.lock().inodes.values().cloned().collect();
        for inode in inodes {
            for placed in inode.resyncs.outdated().iter().filter(|placed| placed.is_on(volume)) {
                self.give_up_outdated(&inode, placed);
            }
        }
    }

    /// Records a length, which the next sync of the object waits for. Under the lock of the table.
    fn record_commit(&self, inode: &Inode, len: u64, checksum: Option<u64>) -> Result<Lsn> {
        let committed = Committed { len, checksum };
        let (lsn, _) = self.journal.record(vec![Record::Commit { id: inode.id, committed }])?;
        inode.wait_for(lsn);
        Ok(lsn)
    }

    /// Reports the places of an object's copies to placement. Under the lock of the table.
    fn tell_places(&self, id: ObjectId) {
        if let Ok(copies) = self.copies(id) {
            self.placing.set_places(id, &copies);
        }
    }

    /// The length in the manifest, if it has one.
    pub(crate) fn committed_len(&self, inode: &Inode) -> Option<u64> {
        self.journal.look(|state| Some(state.object(inode.id)?.committed?.len))
    }

    /// Checks that there is a copy `number`, and that it may be dropped.
    fn must_be_droppable(&self, inode: &Inode, number: u64) -> Result<()> {
        let copies = self.copies(inode.id)?;
        let found = copies.get(number).ok_or_else(|| {
            let what = format!("{}: its copy {number} is dropped already", inode.name);
            Error::new(ErrorKind::NotFound, what)
        })?;
        let others = |placed: &Placed| placed.number != number;
        if !copies.suffice(others) {
            let labels = found.layout.volumes().iter().map(|&volume| self.members.label(volume));
            let labels = labels.collect::<Vec<_>>().join(", ");
            let what = match copies.code() {
                None => format!("{}: its only copy is on volume {labels}", inode.name),
                Some(code) => format!(
                    "{}: without its fragment on volume {labels} it has fewer than {} of {code}",
                    inode.name,
                    code.data()
                ),
            };
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let is_there = |number| inode.replica(number).is_some_and(|replica| replica.is_here());
        let stays = |placed: &Placed| others(placed) && is_there(placed.number);
        if is_there(found.number) && !copies.suffice(stays) {
            let what = format!("{}: its other copies are away", inode.name);
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        Ok(())
    }
}

impl Table {
    /// The name of an uncommitted object; `None` for others.
    pub(super) fn uncommitted_name(&self, id: ObjectId) -> Option<Name> {
        self.uncommitted.iter().find_map(|(name, &other)| (other == id).then(|| name.clone()))
    }
}
