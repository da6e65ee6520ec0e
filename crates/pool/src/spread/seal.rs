//! Sealing of streamed objects.

use std::sync::atomic::Ordering;

use policy::intent::Kind;
use policy::purpose::Origin;
use volume::{Intent, Name, Result};
use xxhash_rust::xxh3::Xxh3;

use super::Spread;

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
        let inode = pool.catalog.inode(name)?;
        pool.journal.ready().await?;
        let exclusive = inode.write_lock.exclusive().await;
        let lsn = pool.catalog.seal(name, &inode, checksum.0.digest())?;
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
