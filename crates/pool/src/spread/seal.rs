//! Sealing of streamed objects.

use std::sync::atomic::Ordering;

use policy::purpose::Origin;
use volume::{Error, ErrorKind, Intent, Name, Result};
use xxhash_rust::xxh3::Xxh3;

use super::Spread;
use crate::manifest::{Committed, Record};

/// The running checksum of a streamed object: xxh3-64 of its bytes in order.
#[derive(Default)]
pub struct Checksum(Xxh3);

impl Checksum {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
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
        let inode = pool.inode(name)?;
        pool.journal.ready().await?;
        let exclusive = inode.write_lock.exclusive().await;
        let lsn = {
            let _table = pool.table.lock();
            let len = pool.journal.look(|state| Some(state.object(inode.id)?.committed?.len));
            if len != Some(inode.len()) || inode.doubt().is_some() {
                let what = format!("{name}: cannot be sealed before all of it is synced");
                return Err(Error::new(ErrorKind::Invalid, what));
            }
            let committed = Committed { len: inode.len(), checksum: Some(checksum.0.digest()) };
            let commit = Record::Commit { id: inode.id, committed };
            let (lsn, _) = pool.journal.record(vec![commit])?;
            inode.seal();
            inode.wait_for(lsn);
            lsn
        };
        drop(exclusive);
        pool.journal.durable(lsn).await
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
        self.0.streamed_tables.fetch_add(1, Ordering::Relaxed);
        self.describe_late(name, intent, origin);
        Ok(())
    }

    /// The number of tables that were streamed for lack of memory, and sealed; since the pool was opened.
    #[must_use]
    pub fn streamed_tables(&self) -> u64 {
        self.0.streamed_tables.load(Ordering::Relaxed)
    }
}
