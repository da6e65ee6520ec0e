//! Aligns copies that may differ: those of an object that was open when the pool crashed, before it is used again,
//! and those that all failed at once, also when there was one, of which others were made later. Drops copies with
//! missing bytes.
//!
//! Each copy of a written object has all synced bytes, and any part of the others. Before the next read of those
//! others after a crash, or the next write, all copies get the bytes of the longest. Dropping the others instead would
//! lose acknowledged bytes if the volume of the longest failed before new copies were made. So the others are
//! corrected in place: pieces that differ are overwritten with the bytes of the longest.
//!
//! But a difference may also be damage of one copy, in bytes that were acknowledged. Only the store can tell, by the
//! checksums of its records. So where copies differ in bytes that both have, a read overwrites none: all reads go to the
//! longest, and what its store finds wrong there [another copy](super::again) gives, which repairs it. The next write, sync or
//! sealing overwrites what still differs. So after a crash a store reads what it had not sealed, and syncs it, before it
//! serves what it read.
//!
//! Bytes with a checksum were durable in all copies. If they differ now, one copy is damaged, so they are neither read nor
//! overwritten here: sealed objects are never aligned, and logs only behind their checksum. Other synced bytes, at most
//! some MiB of a log or the whole of an object that is not sealed, are overwritten with themselves, so a crash at
//! any point loses nothing.
//!
//! The opening of a pool reads none of it. An object is aligned when it is opened (a log: its length depends on it),
//! read or written, when a [`Mover`](crate::mover::Mover) gets there, or when the pool is closed. Until all are alike, the pool
//! is not marked as closed, so the next opening finds the rest again.
//!
//! A copy that cannot be aligned is dropped, but only once another was read to its end and synced. Without
//! such a copy all stay in doubt: reads are served from any of them, the next write tries again, or else the next opening
//! of the pool.
//!
//! An object whose store knows what a crash left in doubt ([`Kind::InPlace`]) is not among them: its store calls
//! [`Object::align`] for these ranges. Any copy may give the bytes of a piece, also where another is damaged, since all have the same
//! length, and every synced byte of it.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::{join, join_all};
use futures_util::{StreamExt, TryFutureExt, TryStreamExt, stream};
use policy::placement::Piece;
use policy::purpose::{Io, Origin, Step};
use policy::units::KIB;
use volume::{Error, ErrorKind, IoBuf, IoBufMut, Object, Result, extent};

use super::Spread;
use super::check::Report;
use super::handle::{Handle, was_refused};
use super::inode::{Inode, Replica, name_part};
use super::leaves::all;
use crate::leaf::Kind;
use crate::manifest::recovery::Unequal;

/// Users may wait for it at any time, and it is little.
const IO: Io = Io::new(Origin::Open, Step::Data);

/// The bytes compared at once.
const PIECE: u64 = 256 * KIB;
/// Pieces of each copy that are read while one is compared: a start after a crash waits for them.
const AHEAD: usize = 8;

impl Spread {
    /// Marks objects whose copies may differ since a crash. They are aligned before they are used.
    pub(super) fn suspect_unequal(&self, unequal: Vec<Unequal>) {
        for unequal in unequal {
            if let Ok(inode) = self.0.catalog.inode_by_id(unequal.id) {
                inode.set_unequal(unequal);
            }
        }
    }

    /// Aligns the copies of an object after a crash, or after they all failed at once.
    ///
    /// # Errors
    /// That of a volume: no copy could be read to its end and synced.
    pub(super) async fn settle(&self, handle: &Handle) -> Result<()> {
        self.settle_or_keep(handle, Differing::Overwritten).await
    }

    /// The same before reads: what differs in bytes that copies have in common stays.
    ///
    /// # Errors
    /// As for [`Spread::settle`].
    pub(super) async fn settle_for_reads(&self, handle: &Handle) -> Result<()> {
        self.settle_or_keep(handle, Differing::Kept).await
    }

    async fn settle_or_keep(&self, handle: &Handle, differing: Differing) -> Result<()> {
        let inode = handle.inode();
        let _exclusive = inode.write_lock.exclusive().await;
        let Some(from) = inode.doubt() else { return Ok(()) };
        if differing == Differing::Kept && inode.lead().is_some() {
            return Ok(());
        }
        let _redo = inode.resyncs.redo_at_end(from..u64::MAX);
        let Some(unequal) = inode.unequal() else {
            return self.settle_failed(handle, from).await;
        };
        match self.settle_crashed(handle, unequal, from, differing).await {
            Ok(Some(lead)) => inode.set_lead(lead),
            Ok(None) => {
                inode.clear_unequal();
                inode.clear_doubt(from);
            }
            Err(e) => {
                // Reads do not try again: each would read all of the bytes in doubt.
                inode.clear_unequal();
                return Err(e);
            }
        }
        Ok(())
    }

    /// The number of the copy to read from, if it differs from others.
    async fn settle_crashed(
        &self,
        handle: &Handle,
        unequal: Unequal,
        from: u64,
        differing: Differing,
    ) -> Result<Option<u64>> {
        let inode = handle.inode();
        let mut numbers = unequal.copies;
        let lead = inode.lead();
        numbers.sort_by_key(|number| Some(*number) != lead);
        let copies = numbers.into_iter().filter_map(|number| inode.replica(number));
        let lead = handle.make_alike(copies.collect(), unequal.away, from, differing).await?;
        // What is read from now on must not change in another crash, which could bring a dropped copy back.
        self.0.journal.durable(inode.lsn()).await?;
        Ok(lead)
    }

    /// Aligns copies that may differ since a crash, before the bytes before `end` are read. Where that fails, reads are
    /// served from any copy, since the volumes may still give synced bytes; writes are refused until it succeeds.
    pub(super) async fn settle_to_read(&self, handle: &Handle, end: u64) {
        let inode = handle.inode();
        if !inode.is_unequal_before(end) && !inode.is_doubtful_before(end) {
            return;
        }
        if let Err(e) = self.settle_for_reads(handle).await {
            inode.set_unsettled();
            tracing::warn!("copies of {} may differ, and cannot be aligned now: {e}", inode.name);
        }
    }

    async fn settle_failed(&self, handle: &Handle, from: u64) -> Result<()> {
        let inode = handle.inode();
        let (mut copies, mut away, mut why) = (Vec::new(), Vec::new(), None);
        for replica in inode.replicas() {
            match handle.cut_unacknowledged(&replica).await {
                Ok(len) => copies.push((std::cmp::Reverse(len), replica)),
                Err(e) if was_refused(&e) => return Err(e),
                Err(e) => {
                    tracing::debug!("{}: a copy is left out: {e}", inode.name);
                    away.push(replica.number);
                    why = Some(e);
                }
            }
        }
        if let Some(why) = why.filter(|_| copies.is_empty()) {
            return Err(why);
        }
        copies.sort_by_key(|&(len, _)| len);
        let copies = copies.into_iter().map(|(_, replica)| replica).collect();
        handle.make_alike(copies, away, from, Differing::Overwritten).await?;
        inode.clear_doubt(from);
        // A dropped copy must not come back after a crash of the process.
        self.0.journal.written(inode.lsn()).await
    }

    /// Makes the length of an object exact: copies of a log that may differ since a crash are aligned first, if they
    /// can be.
    ///
    /// # Errors
    /// That of a volume: no copy answers.
    pub(super) async fn know_len(&self, inode: &Arc<Inode>) -> Result<()> {
        if inode.kind == Kind::Log && inode.is_unequal_before(u64::MAX) {
            self.settle_to_read(&self.handle(Arc::clone(inode)), u64::MAX).await;
        }
        inode.know_len(&self.0.journal).await
    }

    /// Aligns every object whose copies may differ since a crash, one after the other, for reads.
    pub(crate) async fn settle_unequal(&self) {
        let mut inodes = self.0.catalog.in_doubt();
        inodes.retain(|inode| inode.unequal().is_some());
        for inode in inodes {
            self.settle_to_read(&self.handle(inode), u64::MAX).await;
        }
    }

    /// Aligns every object whose copies may differ, but for what only its store can decide; true if all are alike.
    pub(super) async fn settle_all(&self) -> bool {
        let mut alike = true;
        for inode in self.0.catalog.in_doubt() {
            let handle = self.handle(inode);
            let settled = self.settle_for_reads(&handle).await;
            if let Err(e) = &settled {
                tracing::warn!("copies of {} may differ for now: {e}", handle.inode().name);
            }
            alike &= settled.is_ok() && handle.inode().doubt().is_none();
        }
        alike
    }

    /// Drops copies that had missing bytes when the pool was opened, of objects with another, whole copy.
    pub(super) async fn drop_broken(&self, report: &Report) {
        match self.mend(report).await {
            Ok(0) => {}
            Ok(dropped) => tracing::warn!("{dropped} copies that lost bytes are dropped"),
            Err(e) => tracing::warn!("copies that lost bytes could not be dropped: {e}"),
        }
    }
}

/// The copies of a range while they are made equal.
struct Alignment {
    whole: Vec<Arc<Replica>>,
    failed: Vec<u64>,
    why: Option<Error>,
}

impl Alignment {
    /// Leaves out the copies whose call failed, and returns the results of the others.
    ///
    /// # Errors
    /// `Busy`: a copy refused the call, and is not to blame. That of a copy: all have failed.
    fn keep<T>(&mut self, done: Vec<Result<T>>) -> Result<Vec<T>> {
        let mut kept = Vec::new();
        for (replica, done) in std::mem::take(&mut self.whole).into_iter().zip(done) {
            match done {
                Ok(done) => {
                    self.whole.push(replica);
                    kept.push(done);
                }
                Err(e) if was_refused(&e) => return Err(e),
                Err(e) => {
                    tracing::debug!("a copy cannot be made like another: {e}");
                    self.failed.push(replica.number);
                    self.why = Some(e);
                }
            }
        }
        match self.why.take_if(|_| self.whole.is_empty()) {
            Some(e) => Err(e),
            None => Ok(kept),
        }
    }
}

/// The pieces of a range: where each begins, and its length.
fn pieces(from: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    (from..end).step_by(PIECE as usize).map(move |at| (at, PIECE.min(end - at)))
}

/// What becomes of bytes that two copies have, and that differ.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Differing {
    /// They stay: one copy may be damaged.
    Kept,
    Overwritten,
}

/// Why two copies could not be aligned, and which of them failed.
enum Unlike {
    Lead(Error),
    Other(Error),
}

impl Handle {
    /// Aligns `copies`, the longest first, from `from` on. Once one was read to its end and synced, drops
    /// those that cannot be aligned, and those that are `away`. The caller excludes writes. Returns the number of the copy
    /// that others were compared with, if one still differs.
    ///
    /// # Errors
    /// That of a volume: there is no such copy, and all stay. `Busy`: this process could not read or write a copy, and
    /// all stay.
    async fn make_alike(
        &self,
        copies: Vec<Arc<Replica>>,
        away: Vec<u64>,
        from: u64,
        differing: Differing,
    ) -> Result<Option<u64>> {
        let inode = self.inode();
        // Bytes with a checksum were the same in all copies, and synced: one that has changed must not spread.
        let differ_from = from.max(inode.checked_len());
        let what = format!("{}: no volume with a copy answers", inode.name);
        let mut why = Error::new(ErrorKind::Unavailable, what);
        let mut failed = away;
        for (at, lead) in copies.iter().enumerate() {
            let mut whole = Vec::new();
            let mut fails = Vec::new();
            let mut sound = Ok(());
            let mut differs = false;
            for other in &copies[at + 1..] {
                match self.align(lead, other, differ_from, differing).await {
                    Ok(one) => {
                        differs |= one;
                        whole.push(other.number);
                    }
                    Err(Unlike::Lead(e) | Unlike::Other(e)) if was_refused(&e) => return Err(e),
                    Err(Unlike::Lead(e)) => {
                        sound = Err(e);
                        break;
                    }
                    Err(Unlike::Other(e)) => {
                        tracing::debug!("{}: a copy cannot be made like another: {e}", inode.name);
                        fails.push(other.number);
                    }
                }
            }
            if sound.is_ok() && whole.is_empty() {
                sound = self.verify(lead, from).await;
            }
            if let Err(e) = sound {
                if was_refused(&e) {
                    return Err(e);
                }
                failed.push(lead.number);
                why = e;
                continue;
            }
            failed.extend(fails);
            // Opening the other copies set the length to theirs.
            inode.set_len(self.len_of(lead).await?);
            whole.push(lead.number);
            if self.drop_unlike(&failed, &whole) {
                return Ok(differs.then_some(lead.number));
            }
            break;
        }
        Err(why)
    }

    /// Drops the copies `failed`; false, with nothing dropped, if none of those that are `whole` is left.
    fn drop_unlike(&self, failed: &[u64], whole: &[u64]) -> bool {
        failed.is_empty() || self.lose(failed, whole, "it cannot be made like another copy")
    }

    /// [`Object::align`]. The pool itself aligns objects that are not in place.
    pub(super) async fn align_range(&self, offset: u64, len: u64, io: Io) -> Result<()> {
        let inode = self.inode();
        if inode.kind != Kind::InPlace || inode.is_sealed() {
            return self.must_be_alike().await;
        }
        let range = extent::within(offset, len, inode.len());
        if range.is_empty() {
            return Ok(());
        }
        // A copier must read again what changes here.
        let (_shared, _hashing) = self.begin_write(range.start).await?;
        let _in_order = self.in_order(range.clone()).await;
        let _redo = inode.resyncs.redo_at_end(range.clone());
        let whole = inode.replicas();
        if let [replica] = &whole[..] {
            return self.align_below(replica, &range, io).await;
        }
        let mut alignment = Alignment { whole, failed: Vec::new(), why: None };
        let mut repaired = Vec::new();
        for at in range.clone().step_by(PIECE as usize) {
            let piece = at..range.end.min(at + PIECE);
            repaired.extend(self.align_piece(&mut alignment, piece, io).await?);
        }
        // The bytes that were found equal may be in the memory of the devices only.
        let syncs = alignment.whole.iter().map(|replica| self.sync_copy(replica, 0, io));
        let synced = join_all(syncs).await;
        alignment.keep(synced)?;
        let whole: Vec<_> = alignment.whole.iter().map(|replica| replica.number).collect();
        if !self.drop_unlike(&alignment.failed, &whole) {
            let what = format!("{}: no copy of the range is left", inode.name);
            let lost = Error::new(ErrorKind::Unavailable, what);
            return Err(alignment.why.unwrap_or(lost));
        }
        // A copy that failed is dropped by now; one that stays was repaired.
        self.pool().damages.repaired(inode.id, &repaired);
        // What is read from now on must not change in another crash, which could bring a dropped copy back.
        self.pool().journal.durable(inode.lsn()).await
    }

    /// Writes the bytes of the first copy that can be read over those of the others, where they differ. Returns the numbers
    /// of copies that were damaged.
    async fn align_piece(
        &self,
        alignment: &mut Alignment,
        range: Range<u64>,
        io: Io,
    ) -> Result<Vec<u64>> {
        let (inode, damages) = (self.inode(), &self.pool().damages);
        let reads = alignment.whole.iter().map(async |replica| {
            let read = async {
                self.align_below(replica, &range, io).await?;
                let into = IoBufMut::zeroed((range.end - range.start) as usize);
                self.read_from(replica, range.start, into, io).await
            };
            match read.await {
                Err(e) if e.kind().is_damage() => {
                    damages.tell_if_damaged(inode, replica.number, &e);
                    Ok(Err(e))
                }
                read => read.map(|read| Ok(read.freeze())),
            }
        });
        let reads = join_all(reads).await;
        let reads = alignment.keep(reads)?;
        let Some(wanted) = reads.iter().find_map(|read| read.as_ref().ok()).cloned() else {
            // A volume that is away may come back with good bytes.
            let damage = reads.into_iter().find_map(Result::err);
            return alignment.why.take().or(damage).map_or(Ok(Vec::new()), Err);
        };
        let damaged = alignment.whole.iter().zip(&reads).filter(|(_, read)| read.is_err());
        let damaged = damaged.map(|(replica, _)| replica.number).collect();
        let is_alike =
            |read: &Result<IoBuf>| read.as_ref().is_ok_and(|read| read[..] == wanted[..]);
        let writes = alignment.whole.iter().zip(&reads).map(async |(replica, read)| {
            if is_alike(read) {
                return Ok(());
            }
            self.write_to(replica, range.start, &wanted, io).await
        });
        let written = join_all(writes).await;
        alignment.keep(written)?;
        Ok(damaged)
    }

    /// Aligns a range of the leaf objects of a copy, which may have copies in a pool below.
    async fn align_below(&self, replica: &Replica, range: &Range<u64>, io: Io) -> Result<()> {
        let pieces = replica.chunks.pieces(range.start, range.end - range.start);
        let aligned = pieces.map(async |piece: Piece| {
            let leaf = self.leaf_of(replica, piece.part).await?;
            let aligned = leaf.align(piece.inner, piece.len, io).await;
            aligned.map_err(|e| name_part(self.inode(), replica, piece.part, e))
        });
        all(join_all(aligned).await)
    }

    /// Reads a copy to its end, and makes it durable.
    async fn verify(&self, replica: &Replica, from: u64) -> Result<()> {
        let len = self.len_of(replica).await?;
        let reads = pieces(from, len).map(|(at, step)| {
            self.read_from(replica, at, IoBufMut::zeroed(step as usize), IO).map_ok(drop)
        });
        stream::iter(reads).buffered(AHEAD).try_collect::<()>().await?;
        self.sync_copy(replica, len, IO).await
    }

    /// Gives `other` the bytes of `lead` from `from` on, and makes both durable. Returns whether they still differ.
    async fn align(
        &self,
        lead: &Replica,
        other: &Replica,
        from: u64,
        differing: Differing,
    ) -> std::result::Result<bool, Unlike> {
        let len = self.len_of(lead).await.map_err(Unlike::Lead)?;
        let found_len = self.len_of(other).await.map_err(Unlike::Other)?;
        let reads = pieces(from.min(found_len), len).map(async |(at, step)| {
            let into = || IoBufMut::zeroed(step as usize);
            let wanted = self.read_from(lead, at, into(), IO);
            let (wanted, found) = join(wanted, self.read_from(other, at, into(), IO)).await;
            Ok((at, step, wanted.map_err(Unlike::Lead)?, found.map_err(Unlike::Other)?))
        });
        let mut reads = stream::iter(reads).buffered(AHEAD);
        let mut differs = false;
        while let Some((at, step, wanted, found)) = reads.try_next().await? {
            let mut keep = 0;
            if differing == Differing::Kept {
                keep = found_len.saturating_sub(at).min(step) as usize;
                differs |= wanted[..keep] != found[..keep];
            }
            if wanted[keep..] != found[keep..] {
                let missing = wanted.freeze().slice(keep..step as usize);
                let written = self.write_to(other, at + keep as u64, &missing, IO).await;
                written.map_err(Unlike::Other)?;
            }
        }
        drop(reads);
        if found_len > len {
            self.resize_copy(other, len).await.map_err(Unlike::Other)?;
        }
        self.sync_copy(lead, len, IO).await.map_err(Unlike::Lead)?;
        self.sync_copy(other, len, IO).await.map_err(Unlike::Other)?;
        Ok(differs)
    }

    /// Cuts bytes off a copy that failed writes left behind the acknowledged ones: they need not take space, and a write
    /// behind a gap must not make them a part of the object. Bytes of a log with a checksum stay: a scrub of a single
    /// copy may have recorded one of more than was acknowledged. Returns the length of the copy.
    async fn cut_unacknowledged(&self, replica: &Replica) -> Result<u64> {
        let inode = self.inode();
        // The failed write may have ended since. If it has not, this is refused; a pool below learns its length by it.
        self.sync_copy(replica, 0, IO).await?;
        // Opening a copy of a log for the first time after a crash extends it by bytes that may be acknowledged.
        self.len_of(replica).await?;
        let end = inode.written_len().max(inode.checked_len());
        for part in 0..replica.parts() {
            let leaf = self.leaf_of(replica, part).await?;
            let end = replica.part_len(part, end);
            if leaf.len() > end {
                let cut = leaf.set_len(end).await;
                cut.map_err(|e| name_part(inode, replica, part, e))?;
            }
        }
        self.len_of(replica).await
    }

    /// The length of one copy.
    pub(super) async fn len_of(&self, replica: &Replica) -> Result<u64> {
        let mut len = 0;
        for part in 0..replica.parts() {
            len = self.leaf_of(replica, part).await?.len();
        }
        // For other objects than logs it is that of the manifest: parts are cut to it when they are opened.
        Ok(if self.inode().kind == Kind::Log { len } else { self.len() })
    }
}
