//! Cuts objects into fragments that have copies: those that were written in pieces and are complete now, such as the full
//! files of a log store, and those of a pool that kept copies until it got a code.
//!
//! 1. read the object and write its fragments, all of them, in a class that can wait;
//! 2. compare the checksum of what was read with that of the manifest;
//! 3. record the fragments in the place of the copies, which removes these.
//!
//! After a crash before step 3 is durable the fragments are orphans; later the copies are.

use volume::{Error, ErrorKind, Io, Result};

use super::Spread;
use super::copies::{How, intent_of};
use super::encode::{Encoded, Encoding, Source};
use super::leaves::NewCopy;
use crate::leaf::{Kind, ObjectId};
use crate::manifest::{Copies, Stored, gone};

/// Objects looked at under one lock of the manifest, which takes some 0.1 ms.
const LOOK_AT_ONCE: usize = 1024;

impl Spread {
    /// Cuts all objects that are complete, longer than a strip, and have copies, one after the other; returns their number.
    /// Does nothing while fewer volumes take objects than the code has fragments, or without a code. One that
    /// cannot be cut now keeps its copies.
    pub async fn recode(&self, io: Io) -> u64 {
        self.recode_by(&How::from(io)).await
    }

    /// The same, as `how` says.
    pub(crate) async fn recode_by(&self, how: &How) -> u64 {
        let Some(code) = self.code() else { return 0 };
        let (mut done, mut after) = (0, None);
        loop {
            let draining = self.0.journal.draining();
            let takers = self.0.members.present().into_iter();
            let takers = takers.filter(|(slot, _)| !draining.contains(&slot.id)).count();
            let (next, last) = self.next_to_recode(after);
            let Some(last) = last.filter(|_| takers >= code.fragments()) else { return done };
            after = Some(last);
            let Some(id) = next else { continue };
            match self.recode_object(id, how).await {
                Ok(()) => done += 1,
                Err(e) if e.kind() == ErrorKind::Gone => {}
                Err(e) => tracing::debug!("object {id} keeps its copies for now: {e}"),
            }
        }
    }

    /// The next object after `after` that is to be cut, and the last that was looked at.
    fn next_to_recode(&self, after: Option<ObjectId>) -> (Option<ObjectId>, Option<ObjectId>) {
        let is_due = |object: &Stored| {
            object.is_sealed()
                && object.copies.code().is_none()
                && self.0.coding.code_for(object.len()).is_some()
        };
        let mut last = None;
        let next = self.0.journal.look(|state| {
            let mut objects = state.objects_after(after).take(LOOK_AT_ONCE);
            let due = objects.find(|(id, object)| {
                last = Some(*id);
                is_due(object)
            });
            due.map(|(id, object)| (id, object.kind))
        });
        // A table that a compaction is about to remove is not worth it.
        let next =
            next.filter(|(id, kind)| *kind != Kind::Table || !self.0.placing.is_table_leaving(*id));
        (next.map(|(id, _)| id), last)
    }

    async fn recode_object(&self, id: ObjectId, how: &How) -> Result<()> {
        let pool = &self.0;
        let handle = self.handle(pool.catalog.inode_by_id(id)?);
        let inode = handle.inode();
        let (kind, len) = (inode.kind, inode.len());
        let checked = pool.catalog.checked(inode).ok_or_else(|| gone(id))?;
        let Some(code) = pool.coding.code_for(len).filter(|_| inode.is_sealed()) else {
            return Err(gone(id));
        };
        let encoding = Encoding {
            name: &inode.name,
            code,
            kind,
            intent: &intent_of(inode, len),
            source: Source::Object(&handle, how),
            io: how.io,
        };
        let Encoded { fragments, is_short, checksum, .. } = self.encode(encoding).await?;
        if checksum != checked.checksum {
            self.remove_fragments(id, kind, &fragments).await;
            pool.replication.suspect(id);
            let what = format!("{}: what was read is not what was written", inode.name);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        if is_short {
            self.remove_fragments(id, kind, &fragments).await;
            let what = format!("{}: too few volumes took a fragment", inode.name);
            return Err(Error::new(ErrorKind::OutOfSpace, what));
        }
        let copies = Copies::of(fragments.iter().map(|NewCopy { placed, .. }| placed.clone()));
        let recorded = match copies {
            Some(copies) => pool.catalog.recode(inode, copies),
            None => Err(gone(id)),
        };
        if recorded.is_err() {
            self.remove_fragments(id, kind, &fragments).await;
        }
        pool.journal.durable(recorded?).await?;
        pool.coding.count_recoded();
        self.bury().await;
        Ok(())
    }
}
