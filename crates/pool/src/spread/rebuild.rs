//! Makes a missing fragment again.
//!
//! It is read from another copy of it, if a draining volume has one, or else computed from as many others as hold the
//! object. Each fragment that was read is compared with its checksum at the end. If one differs, it counts as damaged, and
//! the work begins again without it. So nothing that was computed from damaged bytes is ever recorded.

use std::sync::Arc;

use futures_util::future::join_all;
use policy::placement::{Code, Fragment};
use volume::{Error, ErrorKind, IoBufMut, Result};
use xxhash_rust::xxh3::Xxh3;

use super::Spread;
use super::check::NOT_WRITTEN;
use super::choose::Place;
use super::copies::{How, UnrecordedCopy, intent_of};
use super::encode::placed;
use super::handle::{Handle, another_may};
use super::inode::{Inode, Replica};
use super::leaves::NewCopy;
use super::resync::PIECE;

impl Spread {
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
        if !inode.is_sealed() {
            self.rows_must_be_whole()?;
        }
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
        let target = Arc::new(target);
        let recorded = async {
            if !inode.is_sealed() {
                let which = (code, usize::from(index));
                return self.follow_fragment(&handle, which, &target, how).await;
            }
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
            if let Some(checked) = source.checked(None, inode.len()) {
                pool.damages.set_verified(inode.id, source.number, checked);
            }
        }
        Ok(Ok(hash.digest()))
    }
}
