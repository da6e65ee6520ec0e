//! Reads of objects that an erasure code cuts into fragments.
//!
//! A read goes to the data fragments that have its bytes. If one fails, its bytes are computed from the same range of as
//! many others as the code has data fragments: a *degraded read*. Which volumes those are, their expected times decide.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
use parking_lot::Mutex;
use policy::placement::{Code, Piece};
use volume::{Check, Error, ErrorKind, Io, IoBufMut, Result, again};

use super::Spread;
use super::check::{Compared, suffice};
use super::handle::{Handle, another_may, is_suspicious, was_refused};
use super::inode::Replica;
use crate::code::Coder;

/// The erasure code of a pool, and coders for the objects that it has.
pub(super) struct Coding {
    /// How objects are cut that never change again and are longer than a strip. Others have copies.
    pub(super) code: Option<Code>,
    coders: Mutex<HashMap<(usize, usize), Arc<Coder>>>,
    /// The number of ranges that were computed from other fragments.
    decoded: AtomicU64,
    /// The number of objects that were cut though they had copies.
    recoded: AtomicU64,
    /// Changes of rows that a crash cut off were repeated.
    pub(super) rows_are_whole: AtomicBool,
}

impl Coding {
    pub(super) fn new(code: Option<Code>) -> Self {
        Self {
            code,
            coders: Mutex::default(),
            decoded: AtomicU64::new(0),
            recoded: AtomicU64::new(0),
            rows_are_whole: AtomicBool::new(false),
        }
    }

    /// The code for an object of `len` bytes. A shorter one would be stored as often as its copies are, in more files.
    pub(super) fn code_for(&self, len: u64) -> Option<Code> {
        self.code.filter(|code| len > code.strip())
    }

    /// Counts an object that was cut though it had copies.
    pub(super) fn count_recoded(&self) {
        self.recoded.fetch_add(1, Ordering::Relaxed);
    }

    /// The coder for objects of this code.
    ///
    /// # Errors
    /// None for a code that exists.
    pub(super) fn coder(&self, code: Code) -> Result<Arc<Coder>> {
        let mut coders = self.coders.lock();
        if let Some(coder) = coders.get(&(code.data(), code.parity())) {
            return Ok(Arc::clone(coder));
        }
        let coder = Arc::new(Coder::new(code.data(), code.parity())?);
        coders.insert((code.data(), code.parity()), Arc::clone(&coder));
        Ok(coder)
    }
}

impl Spread {
    /// How objects are cut that never change again, if the pool keeps any in fragments.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.0.coding.code
    }

    /// The number of objects that were cut though they had copies, since the pool was opened.
    #[must_use]
    pub fn recoded(&self) -> u64 {
        self.0.coding.recoded.load(Ordering::Relaxed)
    }

    /// The number of ranges that reads computed from other fragments, since the pool was opened.
    #[must_use]
    pub fn decoded(&self) -> u64 {
        self.0.coding.decoded.load(Ordering::Relaxed)
    }
}

/// What failed while a range was read.
#[derive(Default)]
pub(super) struct Trouble {
    /// The error to give if nothing helps.
    pub(super) failed: Option<Error>,
    /// Fragments with damaged bytes.
    damaged: Vec<u64>,
    is_suspicious: bool,
}

impl Handle {
    /// Reads an existing range.
    pub(super) async fn read_fragments(
        &self,
        code: Code,
        offset: u64,
        into: IoBufMut,
        io: Io,
    ) -> Result<IoBufMut> {
        if let Some(piece) = code.chunks().pieces(offset, into.len() as u64).next()
            && piece.len == into.len() as u64
        {
            return self.read_fragment(code, &self.inode().replicas(), piece, into, io).await;
        }
        self.read_of(code, &self.inode().replicas(), offset, into, io).await
    }

    /// The same from these fragments.
    async fn read_of(
        &self,
        code: Code,
        replicas: &[Arc<Replica>],
        offset: u64,
        mut into: IoBufMut,
        io: Io,
    ) -> Result<IoBufMut> {
        let pieces = code.chunks().pieces(offset, into.len() as u64);
        let reads = pieces.map(async |piece| {
            let part = IoBufMut::zeroed(piece.len as usize);
            (piece.at as usize, self.read_fragment(code, replicas, piece, part, io).await)
        });
        for (at, read) in join_all(reads).await {
            let read = read?;
            into[at..at + read.len()].copy_from_slice(&read);
        }
        Ok(into)
    }

    /// Reads a range of one data fragment, or computes it.
    pub(super) async fn read_fragment(
        &self,
        code: Code,
        replicas: &[Arc<Replica>],
        piece: Piece,
        into: IoBufMut,
        io: Io,
    ) -> Result<IoBufMut> {
        let (mut trouble, len) = (Trouble::default(), into.len());
        let mut into = Some(into);
        let mine = replicas.iter().filter(|replica| replica.index() == Some(piece.part));
        let (unwell, well): (Vec<_>, Vec<_>) = mine.partition(|replica| replica.take_avoidance());
        for replica in well {
            let into = into.take().unwrap_or_else(|| IoBufMut::zeroed(len));
            match self.read_from(replica, piece.inner, into, io).await {
                Ok(read) => return Ok(read),
                Err(e) if another_may(&e) => self.take_note(&mut trouble, replica, e),
                Err(e) => return Err(e),
            }
        }
        let found = match self.compute(code, piece, io, replicas, &mut trouble).await? {
            Ok(computed) => return Ok(computed),
            Err(found) => found,
        };
        // Volumes that failed a moment ago are asked last.
        for replica in unwell {
            let into = IoBufMut::zeroed(len);
            match self.read_from(replica, piece.inner, into, io).await {
                Ok(read) => return Ok(read),
                Err(e) => self.take_note(&mut trouble, replica, e),
            }
        }
        // Without an error of a volume, the others were lost.
        Err(trouble.failed.unwrap_or_else(|| self.too_few(code, found)))
    }

    /// Computes a range of one fragment from the same range of others. The inner error is their number if they are too few.
    ///
    /// # Errors
    /// Those of the coder.
    pub(super) async fn compute(
        &self,
        code: Code,
        Piece { part: index, inner, len, .. }: Piece,
        io: Io,
        replicas: &[Arc<Replica>],
        trouble: &mut Trouble,
    ) -> Result<std::result::Result<IoBufMut, usize>> {
        let mut have: Vec<(usize, IoBufMut)> = Vec::new();
        let mut left = self.sources(index, replicas);
        while have.len() < code.data() {
            let mut asked = Vec::new();
            while have.len() + asked.len() < code.data() {
                let Some(source) = left.pop() else { break };
                let is_new = |(other, _): &(usize, IoBufMut)| Some(*other) != source.index();
                let is_asked = |other: &Arc<Replica>| other.index() == source.index();
                if have.iter().all(is_new) && !asked.iter().any(is_asked) {
                    asked.push(source);
                }
            }
            if asked.is_empty() {
                return Ok(Err(have.len()));
            }
            let reads = asked.iter().map(|source| self.read_padded(source, inner, len, io));
            for (source, read) in asked.iter().zip(join_all(reads).await) {
                match read {
                    Ok(read) => have.extend(source.index().map(|index| (index, read))),
                    Err(e) => self.take_note(trouble, source, e),
                }
            }
        }
        let mut out = IoBufMut::zeroed(len as usize);
        let have: Vec<_> = have.iter().map(|(index, bytes)| (*index, &bytes[..])).collect();
        let pool = self.pool();
        pool.coding.coder(code)?.recover(&have, &mut [(index, &mut out[..])])?;
        pool.coding.decoded.fetch_add(1, Ordering::Relaxed);
        pool.damages.repaired(self.inode().id, &trouble.damaged);
        if trouble.is_suspicious {
            pool.replication.suspect(self.inode().id);
        }
        Ok(Ok(out))
    }

    /// The fragments from which another can be computed, the best one last: those whose volumes did not fail a moment ago,
    /// and of them those that would answer first.
    pub(super) fn sources(&self, index: usize, replicas: &[Arc<Replica>]) -> Vec<Arc<Replica>> {
        let others = replicas.iter().filter(|replica| replica.index() != Some(index));
        let rated = others.map(|replica| {
            let expected = replica.expected_read().rough();
            let rate = (replica.take_avoidance(), expected, replica.index());
            (rate, Arc::clone(replica))
        });
        let mut rated: Vec<_> = rated.collect();
        rated.sort_by(|(one, _), (other, _)| other.cmp(one));
        rated.into_iter().map(|(_, replica)| replica).collect()
    }

    /// Reads a range of a fragment as the code sees it: with zeros behind its end, and with changes of its rows that were
    /// decided.
    pub(super) async fn read_padded(
        &self,
        replica: &Replica,
        inner: u64,
        len: u64,
        io: Io,
    ) -> Result<IoBufMut> {
        let has = replica.layout.len(self.inode().len()).saturating_sub(inner).min(len);
        let into = IoBufMut::zeroed(has as usize);
        let mut read = if has > 0 { self.read_from(replica, inner, into, io).await? } else { into };
        read.resize(len as usize);
        read[has as usize..].fill(0);
        if let Some(index) = replica.index() {
            self.inode().unapplied.put_over(index, inner, &mut read[..has as usize]);
        }
        Ok(read)
    }

    /// Reads a range after `check` refused what a read gave. The checksum of each fragment says which of them is damaged:
    /// those are left out, and dropped if the others hold the object, to be made again.
    ///
    /// # Errors
    /// `Corrupt`: `check` refuses what the other fragments give, too. Else as for a read.
    pub(super) async fn read_fragments_again(
        &self,
        code: Code,
        offset: u64,
        len: usize,
        io: Io,
        check: Check,
    ) -> Result<IoBufMut> {
        // Another one may rot, or another reader drop one, between the comparison and the read.
        for _ in 0..=code.parity() {
            let replicas = self.inode().replicas();
            let compared = self.spread().compare_copies(self, &replicas, io).await;
            let Compared { good, bad, unread } = compared;
            for (replica, why) in &bad {
                self.pool().damages.tell(self.inode(), replica, why);
                if suffice(good.iter())
                    && let Err(e) = self.spread().drop_bad(self.inode().id, replica.number).await
                {
                    tracing::warn!("{}: a damaged fragment stays for now: {e}", self.inode().name);
                }
            }
            if let Some(e) = unread.filter(|_| !suffice(good.iter())) {
                return Err(e);
            }
            let read = self.read_of(code, &good, offset, IoBufMut::zeroed(len), io).await?;
            if check(&read) {
                return Ok(read);
            }
        }
        Err(again::refused(offset, len))
    }

    /// Takes note that a fragment failed a read that others may answer.
    pub(super) fn fragment_failed(&self, number: u64, e: &Error) {
        let (inode, pool) = (self.inode(), self.pool());
        pool.damages.tell_if_damaged(inode, number, e);
        if is_suspicious(e) {
            pool.replication.suspect(inode.id);
        }
        if !was_refused(e)
            && let Some(replica) = inode.replica(number)
        {
            replica.avoid();
        }
    }

    pub(super) fn take_note(&self, trouble: &mut Trouble, replica: &Replica, e: Error) {
        tracing::debug!("other fragments are asked: {e}");
        self.fragment_failed(replica.number, &e);
        trouble.is_suspicious |= is_suspicious(&e);
        trouble.damaged.extend(e.kind().is_damage().then_some(replica.number));
        trouble.failed = Some(prefer(trouble.failed.take(), e));
    }

    /// The error when fewer fragments can be read than hold the object.
    pub(super) fn too_few(&self, code: Code, found: usize) -> Error {
        let (name, id, needs) = (&self.inode().name, self.inode().id, code.data());
        let what = format!(
            "{name} (object {id}): {found} of its fragments can be read, it takes {needs}: bring back volumes \
             that are away, or restore it"
        );
        Error::new(ErrorKind::Corrupt, what)
    }
}

/// The error that helps more: of a volume that may answer later, or else the first.
fn prefer(first: Option<Error>, other: Error) -> Error {
    match first {
        Some(first) if first.kind().is_away() || !other.kind().is_away() => first,
        _ => other,
    }
}
