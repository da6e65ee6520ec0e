//! Makes fragments: all of a new object, or one that is missing.
//!
//! A new object's bytes are in memory. They are encoded and written in pieces, all fragments at once. Which volumes get
//! fragments, placement chooses, one after the other; the number of the object rotates the fragments over them, so that
//! parity, which no healthy read needs, is not always on the volume that placement likes least.
//!
//! A missing fragment is read from another copy of it, if a draining volume has one, or else computed from as many others
//! as hold the object. Each fragment that was read is compared with its checksum at the end. If one differs, it counts as
//! damaged, and the work begins again without it.

use std::sync::Arc;

use futures_util::future::join_all;
use policy::placement::{Code, Fragment, Layout};
use volume::{Error, ErrorKind, Intent, Io, IoBuf, IoBufMut, Name, Result};
use xxhash_rust::xxh3::Xxh3;

use super::Spread;
use super::check::NOT_WRITTEN;
use super::copies::{How, UnrecordedCopy, intent_of};
use super::create::{Place, is_about_the_volume};
use super::handle::{Handle, another_may};
use super::inode::{Inode, Replica};
use super::leaves::{At, NewCopy};
use super::placing::Wanted;
use super::resync::PIECE;
use crate::leaf::{Kind, ObjectId};
use crate::manifest::{Copies, Placed};

/// Bytes of each fragment that are encoded and written at once.
const ENCODED: usize = 1 << 20;

/// The fragments of a new object, which has no name yet.
pub(super) struct Encoded {
    pub(super) id: ObjectId,
    pub(super) fragments: Vec<NewCopy>,
    /// Whether some are missing.
    pub(super) is_short: bool,
}

/// A place for a fragment of a new object.
struct Target<'a> {
    index: u8,
    number: u64,
    place: Place<'a>,
}

impl Spread {
    /// Makes the fragments of a new object of `data`, synced and sealed on their volumes; at least as many as hold the
    /// object.
    ///
    /// # Errors
    /// `OutOfSpace`, `Unavailable`, `Poisoned`, ...: too few volumes take a fragment.
    pub(super) async fn encode(
        &self,
        name: &Name,
        code: Code,
        kind: Kind,
        intent: &Intent,
        data: &IoBuf,
        io: Io,
    ) -> Result<Encoded> {
        let pool = &self.0;
        let total = data.len() as u64;
        let intent = Intent { len: Some(code.fragment_len(total, 0)), ..intent.clone() };
        let mut failed: Vec<At> = Vec::new();
        loop {
            let id = pool.journal.issue_id().await?;
            let wanted = Wanted { id, kind, intent: &intent, origin: Some(io.origin) };
            let targets = self.choose_fragments(code, wanted, &mut failed).await?;
            if targets.len() < code.data() {
                pool.placing.forget_table(id);
                return Err(self.nowhere_in_fragments(name, code, &targets, &failed));
            }
            let is_short = targets.len() < code.fragments();
            let made = self.write_fragments(code, wanted, targets, data, io).await;
            let (fragments, mut lost) = made?;
            let is_foreign = lost.iter().any(|(_, e)| e.kind() == ErrorKind::AlreadyExists);
            let hard = lost
                .iter()
                .position(|(_, e)| !is_about_the_volume(e) && e.kind() != ErrorKind::AlreadyExists);
            let is_short = is_short || !lost.is_empty();
            let copies = Copies::of(fragments.iter().map(|copy| copy.placed.clone()));
            if let Some(copies) = copies
                && hard.is_none()
                && !is_foreign
                && copies.suffice(|_| true)
            {
                for at in lost {
                    self.warn_of_failed(name, at);
                }
                pool.placing.set_places(id, &copies);
                pool.placing.complete(id, total);
                return Ok(Encoded { id, fragments, is_short });
            }
            for NewCopy { placed, .. } in &fragments {
                pool.leaves.remove_copy(id, kind, placed).await;
            }
            pool.placing.forget_table(id);
            if let Some(at) = hard {
                let (volume, e) = lost.swap_remove(at);
                let label = pool.members.label(volume);
                return Err(e.within(format_args!("{name} on volume {label}")));
            }
            lost.retain(|(_, e)| e.kind() != ErrorKind::AlreadyExists);
            for at in lost {
                failed.push(self.warn_of_failed(name, at));
            }
        }
    }

    /// Places for all fragments, each on another volume; for fewer if too few volumes have room.
    async fn choose_fragments<'a>(
        &'a self,
        code: Code,
        wanted: Wanted<'_>,
        failed: &mut Vec<At>,
    ) -> Result<Vec<Target<'a>>> {
        let count = code.fragments();
        let (mut targets, mut taken) = (Vec::new(), Vec::new());
        while targets.len() < count {
            let others = (!targets.is_empty()).then_some(&taken[..]);
            let place = match self.choose(wanted, failed, others).await {
                Ok(place) => place,
                Err(away) => {
                    failed.extend(away);
                    break;
                }
            };
            let number = match targets.len() {
                0 => 0,
                _ => self.0.journal.issue_id().await?.0,
            };
            taken.extend(place.flight.layout().volumes());
            let index = (targets.len() as u64 + rotation(wanted.id)) % count as u64;
            targets.push(Target { index: index as u8, number, place });
        }
        // Fragments of data first: without the others no read is degraded.
        if targets.len() < count {
            for (index, target) in (0..).zip(&mut targets) {
                target.index = index;
            }
        }
        Ok(targets)
    }

    /// Creates, writes and seals the fragments. Returns those that are complete, and the volumes that failed.
    ///
    /// # Errors
    /// Those of the coder.
    async fn write_fragments(
        &self,
        code: Code,
        wanted: Wanted<'_>,
        targets: Vec<Target<'_>>,
        data: &IoBuf,
        io: Io,
    ) -> Result<(Vec<NewCopy>, Vec<At>)> {
        let pool = &self.0;
        let Wanted { id, kind, intent, .. } = wanted;
        let total = data.len() as u64;
        let coder = pool.coding.coder(code)?;
        let mut lost = Vec::new();
        let made = targets.into_iter().map(async |target| {
            let Target { index, number, place: Place { flight, occupied } } = target;
            let volume = flight.layout().volumes()[0];
            let placed = placed(number, Fragment { volume, index, code, checksum: 0 });
            let len = code.fragment_len(total, usize::from(index));
            let intent = Intent { len: Some(len), ..intent.clone() };
            let made = pool.leaves.make(id, kind, placed, occupied, &intent, None).await;
            (flight, made)
        });
        let (mut fragments, mut flights) = (Vec::new(), Vec::new());
        for (number, (flight, made)) in join_all(made).await.into_iter().enumerate() {
            match made {
                Ok(copy) => {
                    flights.push(flight);
                    fragments.push(Writing { copy, hash: Xxh3::new(), failed: None });
                }
                Err(at) => {
                    lost.push(at);
                    // The first one describes the table to placement, wherever its fragments lie.
                    if number == 0 {
                        flight.land();
                    }
                }
            }
        }
        let longest = code.fragment_len(total, 0);
        for from in (0..longest).step_by(ENCODED) {
            let rows = encode_rows(code, &coder, data, from, (longest - from).min(ENCODED as u64))?;
            let writes = fragments.iter_mut().map(|fragment| fragment.write(from, &rows, io));
            join_all(writes).await;
        }
        let seals = fragments.iter_mut().map(|fragment| fragment.seal(io));
        join_all(seals).await;
        let mut complete = Vec::new();
        for (flight, Writing { mut copy, hash, failed }) in flights.into_iter().zip(fragments) {
            let Layout::Fragment(fragment) = &mut copy.placed.layout else { continue };
            match failed {
                None => {
                    fragment.checksum = hash.digest();
                    flight.land();
                    complete.push(copy);
                }
                Some(e) => {
                    lost.push((fragment.volume, e));
                    if copy.placed.number == 0 {
                        flight.land();
                    }
                    pool.leaves.remove_copy(id, kind, &copy.placed).await;
                }
            }
        }
        complete.sort_by_key(|copy| copy.placed.number);
        Ok((complete, lost))
    }

    fn nowhere_in_fragments(
        &self,
        name: &Name,
        code: Code,
        targets: &[Target<'_>],
        failed: &[At],
    ) -> Error {
        let (there, needs) = (targets.len(), code.data());
        let causes = match &self.0.members.causes(failed)[..] {
            "" => String::new(),
            causes => format!(" ({causes})"),
        };
        let kind = match failed.last() {
            Some((_, e)) if failed.iter().all(|(_, f)| f.kind() == e.kind()) => e.kind(),
            _ => ErrorKind::OutOfSpace,
        };
        let what = format!(
            "{name}: only {there} volumes take a fragment of it, {code} needs {needs} at least{causes}"
        );
        Error::new(kind, what)
    }

    /// Makes a missing fragment of an object where placement chooses. Durable on return.
    ///
    /// # Errors
    /// As for [`Spread::copy`]. `Corrupt`: too few other fragments have their bytes.
    pub(super) async fn make_fragment(
        &self,
        inode: &Arc<Inode>,
        index: u8,
        how: &How,
    ) -> Result<()> {
        let pool = &self.0;
        let (id, kind) = (inode.id, inode.kind);
        let Some(code) = inode.code() else {
            let what = format!("{}: it has no fragments", inode.name);
            return Err(Error::new(ErrorKind::Invalid, what));
        };
        let handle = self.handle(Arc::clone(inode));
        let len = code.fragment_len(inode.len(), usize::from(index));
        let Place { flight, occupied } = self.choose_copy(inode, len).await?;
        let volume = flight.layout().volumes()[0];
        pool.journal.ready().await?;
        let number = pool.journal.issue_id().await?.0;
        let at = |checksum| placed(number, Fragment { volume, index, code, checksum });
        pool.catalog.must_lack(id, &at(0).layout)?;
        self.must_have_room(&at(0).layout, inode.len()).await?;
        let mut unrecorded = UnrecordedCopy { pool: self, id, kind, placed: Some(at(0)) };
        let intent = intent_of(inode, len);
        let made = pool.leaves.make(id, kind, at(0), occupied, &intent, None).await;
        let target = made.map_err(|(volume, e)| {
            let label = pool.members.label(volume);
            e.within(format_args!("a fragment of {} on volume {label}", inode.name))
        })?;
        let recorded = async {
            let checksum = handle.fill_fragment(code, index, len, &target, how).await?;
            target.seal(how.io).await?;
            let lsn = pool.catalog.add_copy(inode, &at(checksum))?;
            pool.journal.durable(lsn).await
        };
        let recorded = recorded.await;
        unrecorded.placed = None;
        // It may have been recorded before the error; if not, its leaf object goes now.
        if recorded.is_err() && !self.has_copy(id, number) {
            pool.leaves.remove_copy(id, kind, &target.placed).await;
        }
        recorded?;
        flight.land();
        Ok(())
    }
}

impl Handle {
    /// Writes the bytes of a fragment to `target`; returns their checksum.
    async fn fill_fragment(
        &self,
        code: Code,
        index: u8,
        len: u64,
        target: &NewCopy,
        how: &How,
    ) -> Result<u64> {
        let index = usize::from(index);
        let mut bad: Vec<u64> = Vec::new();
        let mut trouble = None;
        loop {
            let replicas = self.inode().replicas();
            let usable = |replica: &&Arc<Replica>| !bad.contains(&replica.number);
            let mine =
                replicas.iter().filter(usable).find(|replica| replica.index() == Some(index));
            let sources = match mine {
                Some(mine) => vec![Arc::clone(mine)],
                None => {
                    let mut sources = self.sources(index, &replicas);
                    sources.retain(|source| usable(&source));
                    let mut sources: Vec<_> = sources.into_iter().rev().collect();
                    let mut seen = Vec::new();
                    sources.retain(|source| {
                        let is_new = !seen.contains(&source.index());
                        seen.push(source.index());
                        is_new
                    });
                    sources.truncate(code.data());
                    if sources.len() < code.data() {
                        let too_few = self.too_few(code, sources.len());
                        return Err(trouble.unwrap_or(too_few));
                    }
                    sources
                }
            };
            match self.fill_from(code, (index, len), &sources, target, how).await? {
                Ok(checksum) => return Ok(checksum),
                Err((source, e)) => {
                    self.fragment_failed(source.number, &e);
                    if !another_may(&e) {
                        return Err(e);
                    }
                    bad.push(source.number);
                    trouble = Some(e);
                }
            }
        }
    }

    /// The same from these sources: another copy of it, or others that hold the object. The inner error is that of a
    /// source.
    async fn fill_from(
        &self,
        code: Code,
        (index, len): (usize, u64),
        sources: &[Arc<Replica>],
        target: &NewCopy,
        how: &How,
    ) -> Result<std::result::Result<u64, (Arc<Replica>, Error)>> {
        let (pool, inode) = (self.pool(), self.inode());
        let coder = pool.coding.coder(code)?;
        let is_copied = matches!(sources, [only] if only.index() == Some(index));
        // The sources are read to their ends, so that their checksums can be compared.
        let longest = code.fragment_len(inode.len(), 0);
        let (mut hash, mut hashes) = (Xxh3::new(), vec![Xxh3::new(); sources.len()]);
        for at in (0..longest).step_by(PIECE as usize) {
            how.ready().await?;
            pool.catalog.must_live(inode.id)?;
            let count = PIECE.min(longest - at);
            let reads = sources.iter().map(|source| self.read_padded(source, at, count, how.io));
            let mut have = Vec::new();
            for ((source, hash), read) in sources.iter().zip(&mut hashes).zip(join_all(reads).await)
            {
                let read = match read {
                    Ok(read) => read,
                    Err(e) => return Ok(Err((Arc::clone(source), e))),
                };
                let own = source.layout.len(inode.len()).saturating_sub(at).min(count);
                hash.update(&read[..own as usize]);
                have.extend(source.index().map(|index| (index, read)));
            }
            let own = len.saturating_sub(at).min(count) as usize;
            let mut bytes = match (is_copied, have.pop()) {
                (true, Some((_, bytes))) => bytes,
                (_, last) => {
                    have.extend(last);
                    let mut out = IoBufMut::zeroed(count as usize);
                    let have: Vec<_> = have.iter().map(|(index, b)| (*index, &b[..])).collect();
                    coder.recover(&have, &mut [(index, &mut out[..])])?;
                    out
                }
            };
            bytes.resize(own);
            hash.update(&bytes);
            if own > 0 {
                target.write(at, bytes.freeze(), how.io).await?;
            }
        }
        for (source, hash) in sources.iter().zip(hashes) {
            let Some(fragment) = source.fragment() else { continue };
            if hash.digest() != fragment.checksum {
                pool.damages.tell(inode, source, NOT_WRITTEN);
                pool.replication.suspect(inode.id);
                let what = format!("{}: a fragment is not what was written", inode.name);
                return Ok(Err((Arc::clone(source), Error::new(ErrorKind::Corrupt, what))));
            }
        }
        Ok(Ok(hash.digest()))
    }
}

/// A fragment while it is written.
struct Writing {
    copy: NewCopy,
    hash: Xxh3,
    failed: Option<Error>,
}

impl Writing {
    /// Writes its part of these rows, which begin at `from`.
    async fn write(&mut self, from: u64, rows: &[IoBuf], io: Io) {
        let Layout::Fragment(fragment) = &self.copy.placed.layout else { return };
        let bytes = &rows[usize::from(fragment.index)];
        self.hash.update(bytes);
        if self.failed.is_none() && !bytes.is_empty() {
            self.failed = self.copy.write(from, bytes.clone(), io).await.err();
        }
    }

    async fn seal(&mut self, io: Io) {
        if self.failed.is_none() {
            self.failed = self.copy.seal(io).await.err();
        }
    }
}

/// `count` bytes at `from` of every fragment of `data`; of those of data, what lies before their ends.
fn encode_rows(
    code: Code,
    coder: &crate::code::Coder,
    data: &[u8],
    from: u64,
    count: u64,
) -> Result<Vec<IoBuf>> {
    let (chunks, total) = (code.chunks(), data.len() as u64);
    let mut rows: Vec<IoBufMut> =
        (0..code.fragments()).map(|_| IoBufMut::zeroed(count as usize)).collect();
    let (fragments, parity) = rows.split_at_mut(code.data());
    for (index, fragment) in fragments.iter_mut().enumerate() {
        let end = code.fragment_len(total, index).min(from + count);
        let mut at = from;
        while at < end {
            // To the end of the strip.
            let run = (code.strip() - at % code.strip()).min(end - at) as usize;
            let (here, there) = ((at - from) as usize, chunks.offset(index, at) as usize);
            fragment[here..here + run].copy_from_slice(&data[there..there + run]);
            at += run as u64;
        }
    }
    let sources: Vec<&[u8]> = fragments.iter().map(|fragment| &fragment[..]).collect();
    let mut wanted: Vec<&mut [u8]> = parity.iter_mut().map(|row| &mut row[..]).collect();
    coder.encode(&sources, &mut wanted)?;
    let rows = rows.into_iter().enumerate().map(|(index, mut row)| {
        let own = code.fragment_len(total, index).saturating_sub(from).min(count);
        row.resize(own as usize);
        row.freeze()
    });
    Ok(rows.collect())
}

/// How far the fragments of an object are rotated: numbers of objects come in steps, which must not meet those of
/// placement.
const fn rotation(ObjectId(id): ObjectId) -> u64 {
    // Fibonacci hashing (Knuth, 1973).
    id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

const fn placed(number: u64, fragment: Fragment) -> Placed {
    Placed { number, layout: Layout::Fragment(fragment) }
}
