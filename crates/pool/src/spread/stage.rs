//! A change of a row, computed: what is read for it, and what of that was not as it was written.
//!
//! The new parity is computed from old bytes. Wrong ones among them would go into it, and then nothing gives the right
//! ones any more. So blocks that have checksums are compared first, and computed from other fragments if they rot.

use std::borrow::Cow;
use std::ops::Range;

use futures_util::future::join_all;
use policy::placement::{Code, Piece};
use policy::price::Price;
use policy::recycle::{self, BLOCK, Cost, How, Plan, Span};
use volume::{BlockSum, Error, ErrorKind, Expected, Io, IoBuf, IoBufMut, Result};

use super::fragments::Trouble;
use super::handle::another_may;
use super::patches::Patch;
use super::rows::Rows;

/// A block of a row with its new bytes.
pub(crate) struct Dirty {
    /// The data fragment.
    pub(crate) fragment: usize,
    /// The block of its strip.
    pub(crate) block: u32,
    /// Its bytes.
    pub(crate) bytes: IoBuf,
}

/// What the data of a row should be in place.
pub(crate) struct InPlace {
    code: Code,
    expected: Vec<Expected>,
}

/// A change of a row, computed.
pub(crate) struct Staged {
    /// The new parity of the columns that changed: with the new blocks all that it takes to repeat the change.
    pub(crate) parity: Vec<Patch>,
    /// What is to be written in place.
    pub(crate) writes: Vec<Patch>,
    /// What reads and writes cost.
    pub(crate) cost: Cost,
}

impl InPlace {
    /// `expected` has an answer for each block of the row, in the order of the object.
    pub(crate) const fn new(code: Code, expected: Vec<Expected>) -> Self {
        Self { code, expected }
    }

    fn of(&self, dirty: &Dirty) -> Expected {
        self.at(dirty.fragment, u64::from(dirty.block) * BLOCK)
    }

    /// The answer for the block of a data fragment at `column`.
    fn at(&self, fragment: usize, column: u64) -> Expected {
        let block = self.code.chunks().offset(fragment, column) / BLOCK;
        self.expected.get(block as usize).copied().unwrap_or(Expected::Unchecked)
    }

    /// The checksum of the block of a fragment at `column`, if it is known.
    fn sum_at(&self, fragment: usize, column: u64) -> Option<BlockSum> {
        match fragment < self.code.data() {
            true => match self.at(fragment, column) {
                Expected::Sum(sum) => Some(sum),
                Expected::Unchecked | Expected::Unknown => None,
            },
            false => None,
        }
    }
}

/// Blocks that were read, by fragment and offset in the strip.
struct Read(Vec<(Span, IoBufMut)>);

impl Read {
    /// The block of a fragment at `column`, if it was read.
    fn block(&self, fragment: usize, column: u64) -> Option<&[u8]> {
        let holds = |span: &Span| span.fragment == fragment && span.range.contains(&column);
        let (span, bytes) = self.0.iter().find(|(span, _)| holds(span))?;
        let from = (column - span.range.start) as usize;
        bytes.get(from..from + BLOCK as usize)
    }
}

impl Rows<'_> {
    /// Computes a change of the only row. Blocks of it that are not as expected are computed from others first, so that
    /// the new parity fits none with wrong bytes.
    ///
    /// # Errors
    /// `Corrupt`, `Unavailable`, ...: too few fragments can be read. Those of the coder.
    pub(crate) async fn stage(
        &self,
        dirty: &[Dirty],
        in_place: &InPlace,
        price: Price,
        io: Io,
    ) -> Result<Staged> {
        let handle = self.handle;
        let numbers: Vec<_> = dirty.iter().map(|dirty| (dirty.fragment, dirty.block)).collect();
        let mut trouble = Trouble::default();
        let mut failed: Vec<u64> = Vec::new();
        let mut old_is_known = dirty.iter().all(|dirty| in_place.of(dirty) != Expected::Unknown);
        loop {
            let replicas = handle.inode().replicas();
            let usable: Vec<_> = (0..self.code.fragments())
                .map(|index| {
                    let mut mine = replicas.iter().filter(|r| r.index() == Some(index));
                    mine.find(|r| r.is_here() && !failed.contains(&r.number))
                })
                .collect();
            let missing = (0..).zip(&usable).filter(|(_, usable)| usable.is_none());
            let missing: Vec<_> = missing.map(|(index, _)| index).collect();
            let plan = match old_is_known {
                true => recycle::plan(self.code, &numbers, &missing, price),
                false => recycle::plan_of_new(self.code, &numbers, &missing, price),
            };
            let plan = match plan {
                Ok(plan) => plan,
                Err(few) => {
                    let few = handle.too_few(self.code, few.present);
                    return Err(trouble.failed.unwrap_or(few));
                }
            };
            let reads = plan.reads.iter().map(async |span| {
                let Some(replica) = usable[span.fragment] else { return (span, None) };
                let at = self.numbers().start * self.code.strip() + span.range.start;
                let len = span.range.end - span.range.start;
                (span, Some((replica, handle.read_padded(replica, at, len, io).await)))
            });
            let (mut read, mut lost) = (Vec::new(), false);
            for (span, outcome) in join_all(reads).await {
                match outcome {
                    Some((_, Ok(bytes))) => read.push((span.clone(), bytes)),
                    Some((replica, Err(e))) if another_may(&e) => {
                        failed.push(replica.number);
                        handle.take_note(&mut trouble, replica, e);
                        lost = true;
                    }
                    Some((_, Err(e))) => return Err(e),
                    None => lost = true,
                }
            }
            if lost {
                continue;
            }
            let mut read = Read(read);
            if !self.repair(&mut read, &plan, dirty, in_place, io).await? {
                old_is_known = false;
                continue;
            }
            let (mut staged, wrong) =
                self.compute((&plan, price), dirty, &missing, &read, in_place)?;
            if self.compute_wrong(&mut read, wrong, in_place, io).await? {
                (staged, _) = self.compute((&plan, price), dirty, &missing, &read, in_place)?;
            }
            return Ok(staged);
        }
    }

    /// Computes data blocks anew that were read and are not as expected, and writes them in place. One that cannot be computed
    /// stays as it was read. False if the plan takes differences to the old bytes of such a one.
    async fn repair(
        &self,
        read: &mut Read,
        plan: &Plan,
        dirty: &[Dirty],
        in_place: &InPlace,
        io: Io,
    ) -> Result<bool> {
        let is_dirty = |fragment, column: u64| {
            let key = (fragment, (column / BLOCK) as u32);
            dirty.binary_search_by_key(&key, |d| (d.fragment, d.block)).is_ok()
        };
        for (Span { fragment, range }, bytes) in &mut read.0 {
            for column in range.clone().step_by(BLOCK as usize) {
                let from = (column - range.start) as usize;
                let block = &mut bytes[from..from + BLOCK as usize];
                let Some(wanted) = in_place.sum_at(*fragment, column) else { continue };
                if BlockSum::of(block) == wanted {
                    continue;
                }
                let is_dirty = is_dirty(*fragment, column);
                if is_dirty && plan.how == How::Encode {
                    continue;
                }
                match self.compute_as(*fragment, column, wanted, io).await? {
                    Some(computed) => {
                        block.copy_from_slice(&computed);
                        let piece = self.piece(*fragment, column);
                        self.replace(&piece, computed.freeze(), io).await;
                    }
                    None if is_dirty && plan.how == How::Delta => return Ok(false),
                    None => {}
                }
            }
        }
        Ok(true)
    }

    /// Computes blocks of missing fragments from other fragments than before, as far as that gives what is expected. False if
    /// it does for none.
    async fn compute_wrong(
        &self,
        read: &mut Read,
        wrong: Vec<(usize, u64)>,
        in_place: &InPlace,
        io: Io,
    ) -> Result<bool> {
        let mut found = false;
        for (fragment, column) in wrong {
            let Some(wanted) = in_place.sum_at(fragment, column) else { continue };
            if let Some(computed) = self.compute_as(fragment, column, wanted, io).await? {
                read.0.push((Span { fragment, range: column..column + BLOCK }, computed));
                found = true;
            }
        }
        Ok(found)
    }

    /// The block of a fragment at `column` of the only row with this checksum, if others give it.
    async fn compute_as(
        &self,
        fragment: usize,
        column: u64,
        wanted: BlockSum,
        io: Io,
    ) -> Result<Option<IoBufMut>> {
        let accepts = |computed: &[u8]| BlockSum::of(computed) == wanted;
        self.handle.compute_until(self.code, self.piece(fragment, column), io, accepts).await
    }

    fn piece(&self, fragment: usize, column: u64) -> Piece {
        let inner = self.numbers().start * self.code.strip() + column;
        Piece { part: fragment, inner, at: 0, len: BLOCK }
    }

    /// The change by a plan, and the blocks of missing fragments that were computed and are not as expected.
    fn compute(
        &self,
        (plan, price): (&Plan, Price),
        dirty: &[Dirty],
        missing: &[usize],
        read: &Read,
        in_place: &InPlace,
    ) -> Result<(Staged, Vec<(usize, u64)>)> {
        let (code, base) = (self.code, self.numbers().start * self.code.strip());
        let coder = self.handle.pool().coding.coder(code)?;
        let new = |fragment: usize, column: u64| {
            let key = (fragment, (column / BLOCK) as u32);
            let at = dirty.binary_search_by_key(&key, |d| (d.fragment, d.block)).ok()?;
            Some(&dirty[at].bytes[..])
        };
        let lacking = || Error::new(ErrorKind::Invalid, "a plan of a row reads too little");
        let block = BLOCK as usize;
        let (mut parity, mut wrong) = (Vec::new(), Vec::new());
        for columns in &plan.columns {
            let count = (columns.end - columns.start) as usize;
            let mut strips: Vec<_> = (0..code.parity()).map(|_| IoBufMut::zeroed(count)).collect();
            for column in columns.clone().step_by(block) {
                let at = (column - columns.start) as usize;
                let mut out: Vec<_> =
                    strips.iter_mut().map(|strip| &mut strip[at..at + block]).collect();
                match plan.how {
                    How::Delta => {
                        for (index, out) in out.iter_mut().enumerate() {
                            if let Some(old) = read.block(code.data() + index, column) {
                                out.copy_from_slice(old);
                            }
                        }
                        for fragment in 0..code.data() {
                            let Some(new) = new(fragment, column) else { continue };
                            let old = read.block(fragment, column).ok_or_else(lacking)?;
                            let delta: Vec<u8> = old.iter().zip(new).map(|(a, b)| a ^ b).collect();
                            coder.update(fragment, &delta, &mut out)?;
                        }
                    }
                    How::Encode | How::Decode => {
                        let data =
                            self.column(&coder, column, &new, read).ok_or_else(lacking)??;
                        for (fragment, bytes) in data.iter().enumerate() {
                            if let Cow::Owned(computed) = bytes
                                && let Some(wanted) = in_place.sum_at(fragment, column)
                                && BlockSum::of(computed) != wanted
                            {
                                wrong.push((fragment, column));
                            }
                        }
                        let data: Vec<_> = data.iter().map(|bytes| &bytes[..]).collect();
                        coder.encode(&data, &mut out)?;
                    }
                }
            }
            parity.push((
                columns.clone(),
                strips.into_iter().map(IoBufMut::freeze).collect::<Vec<_>>(),
            ));
        }
        let of_parity = |index: usize, range: &Range<u64>| {
            let (columns, strips) = parity
                .iter()
                .find(|(columns, _)| columns.start <= range.start && range.end <= columns.end)?;
            let from = (range.start - columns.start) as usize;
            Some(strips[index].slice(from..from + (range.end - range.start) as usize))
        };
        let (mut redo, mut writes) = (Vec::new(), Vec::new());
        let mut columns: Vec<_> =
            dirty.iter().map(|dirty| u64::from(dirty.block) * BLOCK).collect();
        columns.sort_unstable();
        columns.dedup();
        for fragment in code.data()..code.fragments() {
            let is_missing = missing.contains(&fragment);
            for &column in &columns {
                let bytes = of_parity(fragment - code.data(), &(column..column + BLOCK));
                let Some(bytes) = bytes else { continue };
                let patch = Patch { fragment, at: base + column, bytes };
                if is_missing {
                    writes.push(patch.clone());
                }
                redo.push(patch);
            }
        }
        // The plan leaves missing fragments out. They get the change, too, or are dropped.
        for dirty in dirty.iter().filter(|dirty| missing.contains(&dirty.fragment)) {
            let at = base + u64::from(dirty.block) * BLOCK;
            writes.push(Patch { fragment: dirty.fragment, at, bytes: dirty.bytes.clone() });
        }
        for Span { fragment, range } in &plan.writes {
            let bytes = if *fragment < code.data() {
                let mut bytes = IoBufMut::with_capacity((range.end - range.start) as usize);
                for column in range.clone().step_by(block) {
                    let old = || read.block(*fragment, column);
                    bytes.extend_from_slice(
                        new(*fragment, column).or_else(old).ok_or_else(lacking)?,
                    );
                }
                bytes.freeze()
            } else {
                of_parity(fragment - code.data(), range).ok_or_else(lacking)?
            };
            writes.push(Patch { fragment: *fragment, at: base + range.start, bytes });
        }
        Ok((Staged { parity: redo, writes, cost: plan.cost(price) }, wrong))
    }

    /// The data of a column with its new blocks; `None` if too little was read.
    fn column<'b>(
        &self,
        coder: &crate::code::Coder,
        column: u64,
        new: &impl Fn(usize, u64) -> Option<&'b [u8]>,
        read: &'b Read,
    ) -> Option<Result<Vec<Cow<'b, [u8]>>>> {
        let code = self.code;
        let known = |fragment| new(fragment, column).or_else(|| read.block(fragment, column));
        let lost: Vec<_> = (0..code.data()).filter(|&fragment| known(fragment).is_none()).collect();
        let mut computed = vec![vec![0; BLOCK as usize]; lost.len()];
        if !lost.is_empty() {
            // Old bytes of others give old bytes.
            let have = (0..code.fragments()).filter_map(|f| Some((f, read.block(f, column)?)));
            let have: Vec<_> = have.take(code.data()).collect();
            if have.len() < code.data() {
                return None;
            }
            let mut wanted: Vec<_> =
                lost.iter().copied().zip(computed.iter_mut().map(|bytes| &mut bytes[..])).collect();
            if let Err(e) = coder.recover(&have, &mut wanted) {
                return Some(Err(e));
            }
        }
        let mut computed = computed.into_iter();
        (0..code.data())
            .map(|fragment| {
                known(fragment).map(Cow::Borrowed).or_else(|| computed.next().map(Cow::Owned))
            })
            .collect::<Option<Vec<_>>>()
            .map(Ok)
    }
}
