//! Objects in place that are kept as fragments: reads that verify data and parity of a range.
//!
//! ```text
//!   data 0  │■■■■│■■■■│    ■ in the range, and the caller's check has seen it
//!   data 1  │■■■■│····│
//!   parity  │ ?  │    │    compared where the whole column is ■
//! ```
//! The pool has no checksum of these fragments: the caller's check says whether the data are right, and parity is right if
//! it fits data that are. A column of which the check has not seen all data is left to a read that covers it.

use std::ops::Range;
use std::sync::Arc;

use policy::placement::{Code, Piece};
use policy::recycle::BLOCK;
use volume::{Check, Io, IoBufMut, Result};

use super::fragments::Trouble;
use super::handle::{Handle, another_may, was_refused};
use super::inode::Replica;
use super::rows::Rows;

/// Bytes of an object that a check has accepted.
struct Sure<'a> {
    /// Where they begin in the object.
    offset: u64,
    bytes: &'a [u8],
    /// Ranges of the object among them that the check has not seen.
    unseen: &'a [Range<u64>],
    /// The length of the object: the code has zeros behind it.
    len: u64,
}

impl Sure<'_> {
    /// The block at an offset of the object; `None` if it is not sure.
    fn block(&self, at: u64) -> Option<Vec<u8>> {
        let end = (at + BLOCK).min(self.len).max(at);
        let is_unseen = |range: &Range<u64>| range.start < end && at < range.end;
        if at < end && (at < self.offset || self.unseen.iter().any(is_unseen)) {
            return None;
        }
        let mut block = vec![0; BLOCK as usize];
        if at < end {
            let from = (at - self.offset) as usize;
            let len = (end - at) as usize;
            block[..len].copy_from_slice(self.bytes.get(from..from + len)?);
        }
        Some(block)
    }
}

impl Handle {
    /// [`Object::read_again`](volume::Object::read_again) of an object in place that is kept as fragments, for its log: it
    /// has newer bytes of the ranges `unseen`, so the check does not see what is in place there.
    pub(crate) async fn read_again_below(
        &self,
        code: Code,
        (offset, len): (u64, usize),
        io: Io,
        check: Check,
        unseen: &[Range<u64>],
    ) -> Result<IoBufMut> {
        let len = self.within(offset, len);
        self.read_rows_again(code, (offset, len), io, check, unseen).await
    }

    /// Reads an existing range, verifies it by `check`, and its parity by the data. While `check` refuses the data, each of its fragments in
    /// turn is computed from others, until `check` accepts the result. Then the fragment gets these bytes.
    ///
    /// # Errors
    /// `Corrupt`: `check` refuses all of them. Those of the volumes of parity that may answer later.
    pub(super) async fn read_rows_again(
        &self,
        code: Code,
        (offset, len): (u64, usize),
        io: Io,
        check: Check,
        unseen: &[Range<u64>],
    ) -> Result<IoBufMut> {
        let pieces: Vec<_> = code.chunks().pieces(offset, len as u64).collect();
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
            return Ok(IoBufMut::zeroed(0));
        };
        let row = |piece: &Piece| piece.inner / code.strip();
        let rows = self.rows(code, row(first)..row(last) + 1, io).await?;
        let read = self.read_accepted(code, &rows, (offset, len), &pieces, io, &check).await?;
        let object = self.inode().len();
        let sure = Sure { offset, bytes: &read, unseen, len: object };
        self.verify_parity(code, &rows, &sure, io).await?;
        Ok(read)
    }

    /// The data of a range that `check` accepts. Repairs the fragments that it refuses.
    async fn read_accepted(
        &self,
        code: Code,
        rows: &Rows<'_>,
        (offset, len): (u64, usize),
        pieces: &[Piece],
        io: Io,
        check: &Check,
    ) -> Result<IoBufMut> {
        let mut read = IoBufMut::zeroed(len);
        for piece in pieces {
            let part = IoBufMut::zeroed(piece.len as usize);
            let part = self.read_fragment(code, &self.inode().replicas(), *piece, part, io).await?;
            read[piece.at as usize..][..part.len()].copy_from_slice(&part);
        }
        if check(&read) {
            return Ok(read);
        }
        for piece in pieces {
            let accepts = |computed: &[u8]| {
                let range = piece.at as usize..piece.at as usize + computed.len();
                let before = read[range.clone()].to_vec();
                read[range.clone()].copy_from_slice(computed);
                let is_accepted = check(&read);
                if !is_accepted {
                    read[range].copy_from_slice(&before);
                }
                is_accepted
            };
            if let Some(computed) = self.compute_until(code, *piece, io, accepts).await? {
                rows.replace(piece, computed.freeze(), io).await;
                return Ok(read);
            }
        }
        Err(volume::again::refused(offset, len))
    }

    /// Computes a range of a fragment from others, and again without one of them after the other, until the result is accepted.
    /// The caller has the claim of its rows.
    ///
    /// # Errors
    /// Those of the coder.
    pub(super) async fn compute_until(
        &self,
        code: Code,
        piece: Piece,
        io: Io,
        mut accepts: impl FnMut(&[u8]) -> bool + Send,
    ) -> Result<Option<IoBufMut>> {
        for left_out in 0..code.fragments() {
            let replicas = self.inode().replicas().into_iter();
            let others = |replica: &Arc<Replica>| {
                replica.index() != Some(piece.part)
                    && (left_out == piece.part || replica.index() != Some(left_out))
            };
            let replicas: Vec<_> = replicas.filter(others).collect();
            let mut trouble = Trouble::default();
            let computed = self.compute(code, piece, io, &replicas, &mut trouble).await?;
            if let Ok(computed) = computed
                && accepts(&computed)
            {
                return Ok(Some(computed));
            }
        }
        Ok(None)
    }

    /// Compares parity with data that are sure, and writes it anew where it does not fit.
    async fn verify_parity(
        &self,
        code: Code,
        rows: &Rows<'_>,
        sure: &Sure<'_>,
        io: Io,
    ) -> Result<()> {
        for row in rows.numbers().clone() {
            // A change of it waits for room: its parity fits later.
            if self.inode().unapplied.first(&(row..row + 1), true).is_some() {
                continue;
            }
            let mut column = 0;
            while column < code.strip() {
                let mut data = vec![Vec::new(); code.data()];
                let from = column;
                while column < code.strip()
                    && let Some(blocks) = sure_column(code, row, column, sure)
                {
                    data.iter_mut().zip(blocks).for_each(|(strip, block)| strip.extend(block));
                    column += BLOCK;
                }
                match column == from {
                    true => column += BLOCK,
                    false => {
                        self.compare_parity(code, rows, row * code.strip() + from, &data, io)
                            .await?
                    }
                }
            }
        }
        Ok(())
    }

    /// Compares the parity fragments from an offset on with these data.
    async fn compare_parity(
        &self,
        code: Code,
        rows: &Rows<'_>,
        at: u64,
        data: &[Vec<u8>],
        io: Io,
    ) -> Result<()> {
        let len = data[0].len();
        let mut expected: Vec<_> = (0..code.parity()).map(|_| IoBufMut::zeroed(len)).collect();
        let strips: Vec<_> = data.iter().map(|strip| &strip[..]).collect();
        let mut out: Vec<_> = expected.iter_mut().map(|parity| &mut parity[..]).collect();
        self.pool().coding.coder(code)?.encode(&strips, &mut out)?;
        for (index, expected) in (code.data()..).zip(expected) {
            let mut fits = true;
            for replica in self.inode().replicas() {
                if replica.index() != Some(index) {
                    continue;
                }
                match self.read_padded(&replica, at, len as u64, io).await {
                    Ok(read) => fits &= read[..] == expected[..],
                    Err(e) if e.kind().is_damage() => fits = false,
                    Err(e) if was_refused(&e) || !another_may(&e) => return Err(e),
                    // The data are there without it.
                    Err(e) => self.fragment_failed(replica.number, &e),
                }
            }
            if !fits {
                let piece = Piece { part: index, inner: at, at: 0, len: len as u64 };
                rows.replace(&piece, expected.freeze(), io).await;
            }
        }
        Ok(())
    }
}

/// The blocks of a column, one of each data fragment, if all of them are sure.
fn sure_column(code: Code, row: u64, column: u64, sure: &Sure<'_>) -> Option<Vec<Vec<u8>>> {
    let inner = row * code.strip() + column;
    (0..code.data()).map(|index| sure.block(code.chunks().offset(index, inner))).collect()
}
