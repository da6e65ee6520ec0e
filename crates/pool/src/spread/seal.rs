//! Sealing: an object gets its length and the checksum of all its bytes in the manifest, and never changes again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use policy::intent::Kind;
use policy::purpose::{Io, Origin, Step};
use volume::{Error, ErrorKind, Intent, Name, Result};
use xxhash_rust::xxh3::Xxh3;

use super::Spread;
use super::check::{NOT_WRITTEN, read_through};
use super::handle::Handle;
use crate::manifest::Checked;

/// The running checksum of a streamed object: xxh3-64 of its bytes in order.
#[derive(Default)]
pub struct Checksum(Xxh3);

impl Checksum {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

impl Handle {
    /// Syncs the object and seals it, with the running checksum of its bytes or, without one, that of its copies, which
    /// are then read. Durable on return.
    ///
    /// # Errors
    /// `Corrupt`: its copies differ. `Gone`: it was removed. Else as for a sync and a read.
    pub(super) async fn seal_all(&self, io: Io) -> Result<()> {
        let (pool, inode) = (self.pool(), self.inode());
        self.must_be_alike().await?;
        pool.journal.ready().await?;
        let _in_order = inode.resizing.lock().await;
        let exclusive = inode.write_lock.exclusive().await;
        let is_new = !inode.is_sealed();
        if is_new {
            if inode.doubt().is_some() {
                let what = format!("{}: a write failed on all copies: seal it again", inode.name);
                return Err(Error::new(ErrorKind::Unavailable, what));
            }
            let len = inode.len();
            self.sync_copies(io).await?;
            let checksum = match inode.checksum_of(len) {
                Some(checksum) => checksum,
                None => self.read_back(len, io).await?,
            };
            pool.catalog.seal(inode, Checked { len, checksum })?;
            inode.run(|_| false);
        }
        drop(exclusive);
        pool.journal.durable(inode.lsn()).await?;
        if is_new {
            self.seal_below(io).await;
        }
        Ok(())
    }

    /// Tells the volumes that no byte changes again: one of them may be a pool. Only once the manifest durably says so: a
    /// pool below refuses changes of a sealed object, also a cut to the length that an unsealed one had at its last sync.
    /// A copy that is not sealed there lacks a checksum of its own, and is as good otherwise.
    async fn seal_below(&self, io: Io) {
        let inode = self.inode();
        let replicas = inode.replicas();
        let sealed = replicas.iter().map(|replica| self.seal_copy(replica, io));
        for e in join_all(sealed).await.into_iter().filter_map(Result::err) {
            tracing::debug!("{}: a copy is not sealed on its volume: {e}", inode.name);
        }
    }

    /// The checksum that all copies have.
    async fn read_back(&self, len: u64, io: Io) -> Result<u64> {
        let inode = self.inode();
        let checked = self.pool().catalog.checked(inode);
        let lens = [checked.map_or(len, |checked| checked.len), len];
        let mut checksum = None;
        for replica in inode.replicas() {
            let has_len = self.len_of(&replica).await? == len;
            let [first, all] = read_through(self, &replica, lens, io).await?;
            let is_damaged = checked.is_some_and(|known| known.checksum != first);
            if is_damaged {
                self.pool().damages.tell(inode, &replica, NOT_WRITTEN);
            }
            if is_damaged || !has_len || *checksum.get_or_insert(all) != all {
                let (name, labels) = (&inode.name, replica.labels());
                let what = format!(
                    "{name}: its copy on volume {labels} differs from what was synced, or from another copy"
                );
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
        }
        let none = || Error::new(ErrorKind::Gone, format!("{}: it has no copy", inode.name));
        checksum.ok_or_else(none)
    }
}

impl Spread {
    /// Seals an object that was written in pieces and synced: it never changes again, like one of
    /// [`Spread::write_whole`]. `checksum` is that of all its bytes, by which scrubs find a damaged copy.
    /// Durable on return.
    ///
    /// # Errors
    /// `Invalid`: not all of it was synced. `NotFound`; `Unavailable`, `OutOfSpace`, `Poisoned`: no volume
    /// takes the manifest.
    pub async fn seal(&self, name: &Name, checksum: &Checksum) -> Result<()> {
        let pool = &self.0;
        let inode = pool.catalog.inode(name)?;
        pool.journal.ready().await?;
        let exclusive = inode.write_lock.exclusive().await;
        let checked = Checked { len: inode.len(), checksum: checksum.0.digest() };
        if pool.catalog.committed_len(&inode) != Some(checked.len) || inode.doubt().is_some() {
            let what = format!("{name}: cannot be sealed before all of it is synced");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        pool.catalog.seal(&inode, checked)?;
        drop(exclusive);
        pool.journal.durable(inode.lsn()).await?;
        let io = Io::new(Origin::UserWrite, Step::Data);
        self.handle(Arc::clone(&inode)).seal_below(io).await;
        Ok(())
    }

    /// As [`Spread::seal`], for a table that was written for `origin`, with `intent` as its final
    /// description, which placement uses from now on. If it replaces hot tables, a
    /// [`Mover`](crate::mover::Mover) makes the initial replicas that [`Spread::write_whole`] would have made.
    ///
    /// # Errors
    /// As for [`Spread::seal`].
    pub async fn seal_table(
        &self,
        name: &Name,
        checksum: &Checksum,
        intent: &Intent,
        origin: Origin,
    ) -> Result<()> {
        self.seal(name, checksum).await?;
        let pool = &self.0;
        pool.placing.streamed_tables.fetch_add(1, Ordering::Relaxed);
        if let (Kind::Table { .. }, Ok(inode)) = (&intent.kind, pool.catalog.inode(name)) {
            let count = pool.placing.describe_late(&inode, intent, origin);
            if count > inode.replicas().len() {
                pool.replication.begun_short(inode.id);
            }
        }
        Ok(())
    }

    /// The number of tables that were streamed for lack of memory, and sealed; since the pool was opened.
    #[must_use]
    pub fn streamed_tables(&self) -> u64 {
        self.0.placing.streamed_tables.load(Ordering::Relaxed)
    }
}
