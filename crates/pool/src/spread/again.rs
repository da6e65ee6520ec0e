//! Reads from every copy, after a store found a wrong checksum in what one copy gave.
//!
//! Without a checksum of its own, the pool cannot tell which copy of an object that is still written is right. The
//! store can: its records have checksums. So it hands the pool a check, and the pool puts it to each copy. A copy that
//! the check refuses while it accepts another is damaged. The pool writes the accepted bytes over the refused range and
//! syncs them, with writers locked out; nothing else of the copy changes. If the manifest has a checksum of the range,
//! the mover then verifies all copies by it and replaces those that are damaged elsewhere too.
//!
//! If writing or syncing the accepted bytes fails, the copy stays: it may have the only good bytes of other ranges. It
//! counts as damaged until a later read repairs it, or until it is replaced. A copy that is sealed in a pool below is
//! dropped instead, once another was verified, and made again.

use std::sync::Arc;

use volume::{Check, Error, ErrorKind, Io, IoBufMut, Result, again};

use super::copies::Others;
use super::handle::{Handle, is_suspicious};
use super::inode::Replica;

/// Why a copy is damaged.
const REFUSED: &str = "a checksum of its records does not match, and that of another copy does";

impl Handle {
    /// Reads a range from every copy, and returns bytes that `check` accepts. Repairs the copies that it refuses.
    ///
    /// # Errors
    /// `Corrupt`: it refuses all. The pool then counts no damage: a crash may have cut the bytes off before they were
    /// durable, which the caller can tell. Else the error of a copy that did not answer.
    pub(super) async fn read_checked(
        &self,
        offset: u64,
        into: IoBufMut,
        io: Io,
        check: Check,
    ) -> Result<IoBufMut> {
        let (inode, pool) = (self.inode(), self.pool());
        let len = self.within(offset, into.len());
        if let Some(code) = self.in_place_code() {
            return self.read_rows_again(code, (offset, len), io, check, &[]).await;
        }
        if let Some(code) = inode.code() {
            return self.read_fragments_again(code, offset, len, io, check).await;
        }
        let (mut good, mut refused) = (None, Vec::new());
        let (mut failed, mut suspicious, mut unreadable) = (None::<Error>, false, Vec::new());
        for replica in inode.replicas() {
            match self.read_from(&replica, offset, IoBufMut::zeroed(len), io).await {
                Ok(read) if !check(&read) => refused.push(replica),
                Ok(read) => {
                    good.get_or_insert((replica, read));
                }
                Err(e) => {
                    pool.damages.tell_if_damaged(inode, replica.number, &e);
                    suspicious |= is_suspicious(&e);
                    unreadable.extend((e.kind() == ErrorKind::Corrupt).then_some(replica.number));
                    // Prefer `Unavailable` as the final error: an absent volume may come back.
                    if failed.as_ref().is_none_or(|e| e.kind() != ErrorKind::Unavailable) {
                        failed = Some(e);
                    }
                }
            }
        }
        let Some((source, read)) = good else {
            if let Some(code) = inode.code() {
                return self.read_fragments_again(code, offset, len, io, check).await;
            }
            return Err(failed.unwrap_or_else(|| again::refused(offset, len)));
        };
        pool.damages.repaired(inode.id, &unreadable);
        let end = offset + len as u64;
        let has_checksum = pool.catalog.checked(inode).is_some_and(|checked| checked.len >= end);
        if suspicious || (has_checksum && !refused.is_empty()) {
            pool.replication.suspect(inode.id);
        }
        for replica in refused {
            pool.damages.tell(inode, &replica, REFUSED);
            match self.repair(&replica, &source, offset, len, io, &check).await {
                Ok(()) => pool.damages.repaired(inode.id, &[replica.number]),
                // It is sealed in a pool below, which refuses writes.
                Err(e) if e.kind() == ErrorKind::Invalid => self.give_up(&replica, &e).await,
                Err(e) => tracing::warn!("{} stays damaged for now: {e}", inode.name),
            }
        }
        Ok(read)
    }

    /// Drops a damaged copy that cannot be repaired in place, if another one has the bytes that a checksum covers. A
    /// [`Mover`](crate::mover::Mover) makes a new one.
    async fn give_up(&self, damaged: &Replica, why: &Error) {
        let (pool, inode) = (self.pool(), self.inode());
        tracing::debug!("{}: a damaged copy is replaced: {why}", inode.name);
        let dropped = self.spread().drop_copy_if(inode.id, damaged.number, Others::Hold).await;
        pool.replication.due();
        match dropped {
            Ok(()) => pool.damages.repaired(inode.id, &[damaged.number]),
            Err(e) => tracing::warn!("{} stays damaged for now: {e}", inode.name),
        }
    }

    /// Writes the bytes of `source` over a range of `damaged`, if `check` accepts them. Durable on return.
    ///
    /// # Errors
    /// Those of the volumes: the range may have any bytes, and `damaged` remains a copy. `Corrupt`: `source` changed.
    async fn repair(
        &self,
        damaged: &Arc<Replica>,
        source: &Arc<Replica>,
        offset: u64,
        len: usize,
        io: Io,
        check: &Check,
    ) -> Result<()> {
        let _exclusive = self.inode().write_lock.exclusive().await;
        let _redo = self.inode().resyncs.redo_at_end(offset..offset + len as u64);
        // A write may have changed the range since it was read.
        let wanted = self.read_from(source, offset, IoBufMut::zeroed(len), io).await?;
        if !check(&wanted) {
            return Err(again::refused(offset, len));
        }
        let found = self.read_from(damaged, offset, IoBufMut::zeroed(len), io).await?;
        if check(&found) {
            return Ok(());
        }
        self.write_to(damaged, offset, &wanted.freeze(), io).await?;
        self.sync_copy(damaged, 0, io).await
    }
}
