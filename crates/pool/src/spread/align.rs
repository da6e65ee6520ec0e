//! What is done about copies that may not be the same: when a pool opens after a crash, and when all of them
//! failed at once. Those of which bytes are missing go.
//!
//! Each copy of an object that was written to has all that was synced; of the rest it has any part. All of
//! them become what the longest is, before anybody reads, or writes again. Dropping all but that one would do
//! as well, but for one thing: until new copies were made, losing its volume would lose what had been
//! acknowledged. So the others stay, and are mended where they are. Pieces that differ are written with the bytes
//! of the longest: what was synced in them is written over with itself, so that this may be cut anywhere.
//!
//! A copy that cannot be made the same goes, but only when another was read to its end and synced. While there
//! is no such copy all stay as they are, in doubt: the next write tries again, and if there is none, whoever opens the
//! pool next.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use policy::purpose::{Io, Origin, Step};
use policy::units::KIB;
use volume::{Error, ErrorKind, IoBufMut, Object, Result};

use super::body::{Body, Replica};
use super::check::Report;
use super::handle::Handle;
use super::{Inner, Spread};
use crate::leaf::Kind;
use crate::manifest::recovery::Unequal;

const IO: Io = Io::new(Origin::Open, Step::Data);

/// How much is compared at once.
const PIECE: u64 = 256 * KIB;

/// How many objects at once: each has two volumes at work.
const AT_ONCE: usize = 4;

impl Spread {
    /// Makes copies the same again. Durable on return; those that cannot be made so go.
    pub(super) async fn align(&self, unequal: Vec<Unequal>) {
        stream::iter(unequal).for_each_concurrent(AT_ONCE, |object| self.align_one(object)).await;
    }

    async fn align_one(&self, Unequal { id, copies, away }: Unequal) {
        let Ok(body) = self.0.body_by_id(id) else { return };
        let handle = self.handle(body);
        let body = handle.body();
        let copies = copies.into_iter().filter_map(|number| body.replica(number)).collect();
        body.set_doubt(0);
        if let Err(e) = handle.make_alike(copies, away, 0).await {
            tracing::warn!("copies of {} may differ, and stay so for now: {e}", body.name);
        }
    }

    /// Makes the copies of an object the same that failed at once.
    ///
    /// # Errors
    /// That of a volume: no copy could be read to its end and synced.
    pub(super) async fn settle(&self, handle: &Handle) -> Result<()> {
        let body = handle.body();
        let _alone = body.turn.alone().await;
        let Some(from) = body.doubt() else { return Ok(()) };
        let (mut copies, mut away) = (Vec::new(), Vec::new());
        // What nobody was told is done need not take room.
        let end = body.written_len();
        for replica in body.replicas() {
            match handle.cut_to(&replica, end).await {
                Ok(len) => copies.push((std::cmp::Reverse(len), replica)),
                Err(e) => {
                    tracing::debug!("{}: a copy is left out: {e}", body.name);
                    away.push(replica.number);
                }
            }
        }
        copies.sort_by_key(|&(len, _)| len);
        let copies = copies.into_iter().map(|(_, replica)| replica).collect();
        handle.make_alike(copies, away, from).await?;
        // A copy that went must not be back when the process dies.
        self.0.journal.written(body.lsn()).await
    }

    /// The same for every object of which copies may differ; whether there is none any more.
    pub(super) async fn settle_all(&self) -> bool {
        let mut alike = true;
        for body in self.0.in_doubt() {
            let handle = self.handle(body);
            if let Err(e) = self.settle(&handle).await {
                tracing::warn!("copies of {} may differ for now: {e}", handle.body().name);
                alike = false;
            }
        }
        alike
    }

    /// Drops copies of which bytes were missing when the volumes were looked at, of objects with another
    /// that is whole.
    pub(super) async fn drop_broken(&self, report: &Report) {
        match self.mend(report).await {
            Ok(0) => {}
            Ok(dropped) => tracing::warn!("{dropped} copies that lost bytes are dropped"),
            Err(e) => tracing::warn!("copies that lost bytes stay for now: {e}"),
        }
    }
}

impl Inner {
    /// Objects of which copies may differ.
    pub(super) fn in_doubt(&self) -> Vec<Arc<Body>> {
        let table = self.table.lock();
        let live = |id| self.journal.look(|state| state.object(id).is_some());
        let doubted = table.bodies.values().filter(|body| body.doubt().is_some() && live(body.id));
        doubted.cloned().collect()
    }
}

/// Why copies are not the same, and which of them it lies with.
enum Unlike {
    Lead(Error),
    Other(Error),
}

impl Handle {
    /// Makes `copies`, the longest first, the same from `from` on, and drops those that cannot be made so, and
    /// those that are `away`, when one was read to its end and synced. Nobody writes meanwhile.
    ///
    /// # Errors
    /// That of a volume: there is no such copy, and all stay.
    async fn make_alike(&self, copies: Vec<Arc<Replica>>, away: Vec<u64>, from: u64) -> Result<()> {
        let body = self.body();
        // Bytes with a checksum were the same in all copies, and synced: one that has changed must not spread.
        let differ_from = from.max(body.checked_len());
        let what = format!("{}: no volume with a copy answers", body.name);
        let mut why = Error::new(ErrorKind::Unavailable, what);
        let mut failed = away;
        for (at, lead) in copies.iter().enumerate() {
            let mut whole = Vec::new();
            let mut fails = Vec::new();
            let mut sound = Ok(());
            for other in &copies[at + 1..] {
                match self.align(lead, other, differ_from).await {
                    Ok(()) => whole.push(other.number),
                    Err(Unlike::Lead(e)) => {
                        sound = Err(e);
                        break;
                    }
                    Err(Unlike::Other(e)) => {
                        tracing::debug!("{}: a copy cannot be made as another is: {e}", body.name);
                        fails.push(other.number);
                    }
                }
            }
            if sound.is_ok() && whole.is_empty() {
                sound = self.verify(lead, from).await;
            }
            if let Err(e) = sound {
                failed.push(lead.number);
                why = e;
                continue;
            }
            failed.extend(fails);
            // Opening the others said how long those were.
            body.set_len(self.len_of(lead).await?);
            whole.push(lead.number);
            let told = "it cannot be made what another is";
            if failed.is_empty() || self.pool().0.lose(body, &failed, &whole, told) {
                body.clear_doubt(from);
            }
            return Ok(());
        }
        Err(why)
    }

    /// Reads a copy to its end, and makes it durable.
    async fn verify(&self, replica: &Replica, from: u64) -> Result<()> {
        let len = self.len_of(replica).await?;
        let mut at = from;
        while at < len {
            let step = PIECE.min(len - at);
            self.read_from(replica, at, IoBufMut::zeroed(step as usize), IO).await?;
            at += step;
        }
        self.sync_copy(replica, len, IO).await
    }

    /// Makes `other` what `lead` is from `from` on, and both durable.
    async fn align(
        &self,
        lead: &Replica,
        other: &Replica,
        from: u64,
    ) -> std::result::Result<(), Unlike> {
        let len = self.len_of(lead).await.map_err(Unlike::Lead)?;
        let found_len = self.len_of(other).await.map_err(Unlike::Other)?;
        let mut at = from.min(len).min(found_len);
        while at < len {
            let step = PIECE.min(len - at);
            let into = || IoBufMut::zeroed(step as usize);
            let wanted = self.read_from(lead, at, into(), IO).await.map_err(Unlike::Lead)?;
            let found = self.read_from(other, at, into(), IO).await.map_err(Unlike::Other)?;
            if wanted[..] != found[..] {
                let written = self.write_to(other, at, &wanted.freeze(), IO).await;
                written.map_err(Unlike::Other)?;
            }
            at += step;
        }
        if found_len > len {
            self.resize_copy(other, len).await.map_err(Unlike::Other)?;
        }
        self.sync_copy(lead, len, IO).await.map_err(Unlike::Lead)?;
        self.sync_copy(other, len, IO).await.map_err(Unlike::Other)
    }

    /// Cuts what one copy has behind `end`; gives how long it is.
    async fn cut_to(&self, replica: &Replica, end: u64) -> Result<u64> {
        let len = self.len_of(replica).await?;
        if self.body().kind == Kind::Log && len > end {
            self.resize_copy(replica, end).await?;
            return Ok(end);
        }
        Ok(len)
    }

    /// How long one copy is.
    pub(super) async fn len_of(&self, replica: &Replica) -> Result<u64> {
        let mut len = 0;
        for part in 0..replica.parts() {
            len = self.leaf_of(replica, part).await?.len();
        }
        // Of anything but a log the manifest says it, and its parts were cut to that as they were opened.
        Ok(if self.body().kind == Kind::Log { len } else { self.len() })
    }
}
