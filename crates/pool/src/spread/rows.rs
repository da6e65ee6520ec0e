//! Objects in place that are kept as fragments: reads and changes of their rows.
//!
//! A row is a strip of each fragment. A change of one block of it changes a block of each parity fragment, and a crash
//! between these writes would leave parity that fits neither the old bytes nor the new ones. So a change has three steps:
//!
//! 1. [`Rows::stage`] reads what it needs, and computes the new parity;
//! 2. the caller makes the new bytes and the new parity durable elsewhere, with enough copies;
//! 3. [`Rows::decide`] and [`Rows::settle`] write them in place, until each fragment has them or is dropped.
//!
//! After a crash the caller repeats the third step, whatever of it was done before. Whoever computes a fragment from
//! others claims the rows first, and a claim ends what was decided.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{join, join_all};
use policy::placement::{Code, Piece};
use policy::recycle::{self, BLOCK, Cost, How, Plan, Price, Span};
use volume::ranges::Claim;
use volume::{Error, ErrorKind, Io, IoBuf, IoBufMut, Result};

use super::Spread;
use super::check::suffice;
use super::fragments::Trouble;
use super::handle::{Handle, another_may, was_refused};
use super::inode::{Replica, name_part};
use super::patches::Patch;
use super::write_lock::SharedGuard;
use crate::leaf::ObjectId;

/// Rows of an object that nobody else reads by computing, or changes.
pub(crate) struct Rows<'a> {
    handle: &'a Handle,
    code: Code,
    numbers: Range<u64>,
    _shared: SharedGuard<'a>,
    _claim: Claim,
}

/// A block of a row with its new bytes.
pub(crate) struct Dirty {
    /// The data fragment.
    pub(crate) fragment: usize,
    /// The block of its strip.
    pub(crate) block: u32,
    /// Its bytes.
    pub(crate) bytes: IoBuf,
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

impl Spread {
    /// The object of this number, which may be uncommitted.
    ///
    /// # Errors
    /// `Gone`: it was removed, or was never synced before the last opening.
    pub(crate) fn handle_by_id(&self, id: ObjectId) -> Result<Handle> {
        Ok(self.handle(self.0.catalog.named_inode_by_id(id)?))
    }

    /// Says that changes of rows which a crash cut off were repeated: from now on fragments of objects in place may be
    /// computed from others for good.
    pub(crate) fn rows_are_whole(&self) {
        self.0.coding.rows_are_whole.store(true, Ordering::Release);
    }

    /// # Errors
    /// `Busy`: changes of rows that a crash cut off were not repeated yet.
    pub(super) fn rows_must_be_whole(&self) -> Result<()> {
        if self.0.coding.rows_are_whole.load(Ordering::Acquire) {
            return Ok(());
        }
        let what =
            "objects in place have fragments whose log was not read yet: open the pool for service";
        Err(Error::new(ErrorKind::Busy, what))
    }
}

impl Handle {
    /// The code, if the object is kept as fragments and written in place: through a log, not by [`Handle::write_at`].
    #[must_use]
    pub(crate) fn in_place_code(&self) -> Option<Code> {
        self.inode().code().filter(|_| self.inode().is_overwritten())
    }

    /// Reads an existing range of an object in place that is kept as fragments.
    pub(super) async fn read_rows(
        &self,
        code: Code,
        offset: u64,
        mut into: IoBufMut,
        io: Io,
    ) -> Result<IoBufMut> {
        let len = self.within(offset, into.len());
        into.resize(len);
        let mut pieces = code.chunks().pieces(offset, len as u64).peekable();
        match pieces.peek() {
            None => return Ok(into),
            Some(piece) if piece.len == len as u64 => {
                return self.read_strip(code, *piece, into, io).await;
            }
            Some(_) => {}
        }
        let reads = pieces.map(async |piece| {
            let part = IoBufMut::unread(piece.len as usize);
            (piece.at as usize, self.read_strip(code, piece, part, io).await)
        });
        for (at, read) in join_all(reads).await {
            let read = read?;
            into[at..at + read.len()].copy_from_slice(&read);
        }
        Ok(into)
    }

    /// Reads a range of one strip, or computes it from others while nothing changes their row.
    async fn read_strip(
        &self,
        code: Code,
        piece: Piece,
        into: IoBufMut,
        io: Io,
    ) -> Result<IoBufMut> {
        let len = into.len();
        let replicas = self.inode().replicas();
        let mut mine = replicas.iter().filter(|replica| replica.index() == Some(piece.part));
        if let Some(replica) = mine.find(|replica| !replica.take_avoidance()) {
            match self.read_from(replica, piece.inner, into, io).await {
                Ok(read) => return Ok(read),
                Err(e) if another_may(&e) => self.fragment_failed(replica.number, &e),
                Err(e) => return Err(e),
            }
        }
        let _rows =
            self.rows(code, rows_of(code, &(piece.inner..piece.inner + piece.len)), io).await?;
        let into = IoBufMut::zeroed(len);
        self.read_fragment(code, &self.inode().replicas(), piece, into, io).await
    }

    /// Claims rows, and ends the changes of them that were decided, but not those that wait for room on a volume.
    ///
    /// # Errors
    /// Those of [`Rows::settle`].
    pub(crate) async fn rows(&self, code: Code, numbers: Range<u64>, io: Io) -> Result<Rows<'_>> {
        let shared = self.inode().write_lock.shared(0).await;
        let width = code.strip() * code.data() as u64;
        let claim = self.inode().changes.claim(numbers.start * width..numbers.end * width).await;
        let rows = Rows { handle: self, code, numbers, _shared: shared, _claim: claim };
        match rows.apply_all(false, io).await {
            // What is read of the others is what it would be.
            Err(e) if e.kind() != ErrorKind::OutOfSpace => Err(e),
            _ => Ok(rows),
        }
    }

    /// Computes a range of any fragment, while the caller has the claim of its rows.
    pub(super) async fn compute_range(
        &self,
        code: Code,
        index: usize,
        range: &Range<u64>,
        io: Io,
    ) -> Result<IoBufMut> {
        let (replicas, mut trouble) = (self.inode().replicas(), Trouble::default());
        let piece = Piece { part: index, inner: range.start, at: 0, len: range.end - range.start };
        match self.compute(code, piece, io, &replicas, &mut trouble).await? {
            Ok(computed) => Ok(computed),
            Err(found) => Err(trouble.failed.unwrap_or_else(|| self.too_few(code, found))),
        }
    }
}

/// The rows of a range of a fragment.
pub(super) const fn rows_of(code: Code, range: &Range<u64>) -> Range<u64> {
    range.start / code.strip()..range.end.div_ceil(code.strip())
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
    /// Computes a change of the only row.
    ///
    /// # Errors
    /// `Corrupt`, `Unavailable`, ...: too few fragments can be read. Those of the coder.
    pub(crate) async fn stage(&self, dirty: &[Dirty], price: Price, io: Io) -> Result<Staged> {
        let handle = self.handle;
        let numbers: Vec<_> = dirty.iter().map(|dirty| (dirty.fragment, dirty.block)).collect();
        let mut trouble = Trouble::default();
        let mut failed: Vec<u64> = Vec::new();
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
            let plan = match recycle::plan(self.code, &numbers, &missing, price) {
                Ok(plan) => plan,
                Err(few) => {
                    let few = handle.too_few(self.code, few.present);
                    return Err(trouble.failed.unwrap_or(few));
                }
            };
            let reads = plan.reads.iter().map(async |span| {
                let Some(replica) = usable[span.fragment] else { return (span, None) };
                let at = self.numbers.start * self.code.strip() + span.range.start;
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
            if !lost {
                let (parity, writes) = self.compute(&plan, dirty, &missing, &Read(read))?;
                return Ok(Staged { parity, writes, cost: plan.cost(price) });
            }
        }
    }

    /// The new parity, and what is to be written.
    fn compute(
        &self,
        plan: &Plan,
        dirty: &[Dirty],
        missing: &[usize],
        read: &Read,
    ) -> Result<(Vec<Patch>, Vec<Patch>)> {
        let (code, base) = (self.code, self.numbers.start * self.code.strip());
        let coder = self.handle.pool().coding.coder(code)?;
        let new = |fragment: usize, column: u64| {
            let key = (fragment, (column / BLOCK) as u32);
            let at = dirty.binary_search_by_key(&key, |d| (d.fragment, d.block)).ok()?;
            Some(&dirty[at].bytes[..])
        };
        let lacking = || Error::new(ErrorKind::Invalid, "a plan of a row reads too little");
        let block = BLOCK as usize;
        let mut parity = Vec::new();
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
            // A difference alone gives no new parity without the old one.
            if is_missing && plan.how == How::Delta {
                continue;
            }
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
        Ok((redo, writes))
    }

    /// The data of a column with its new blocks; `None` if too little was read.
    fn column<'b>(
        &self,
        coder: &crate::code::Coder,
        column: u64,
        new: &impl Fn(usize, u64) -> Option<&'b [u8]>,
        read: &'b Read,
    ) -> Option<Result<Vec<std::borrow::Cow<'b, [u8]>>>> {
        use std::borrow::Cow;
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

    /// Decides a change of the only row: from now on it is made, whatever happens.
    pub(crate) fn decide(&self, patches: Vec<Patch>) {
        self.handle.inode().unapplied.decide(self.numbers.start, patches);
    }

    /// Makes the changes of the rows that were decided. Durable on return. A fragment that cannot be written is dropped,
    /// if the others hold the object, but not because its volume is full.
    ///
    /// # Errors
    /// `Busy`: try again. `OutOfSpace`: a volume has no room for its fragment's new bytes; the rows stay decided, and can be
    /// read. Else too few fragments can be written: try again when their volumes are back.
    pub(crate) async fn settle(&self, io: Io) -> Result<()> {
        self.apply_all(true, io).await
    }

    async fn apply_all(&self, also_waiting: bool, io: Io) -> Result<()> {
        let unapplied = &self.handle.inode().unapplied;
        let (mut rows, mut full) = (self.numbers.clone(), Ok(()));
        while let Some((row, patches)) = unapplied.first(&rows, also_waiting) {
            rows.start = row + 1;
            match self.apply(&patches, io).await {
                Ok(()) => unapplied.applied(row),
                Err(e) if e.kind() == ErrorKind::OutOfSpace => {
                    unapplied.wait(row);
                    full = Err(e);
                }
                Err(e) => return Err(e),
            }
        }
        full
    }

    async fn apply(&self, patches: &[Patch], io: Io) -> Result<()> {
        let (handle, inode) = (self.handle, self.handle.inode());
        let replicas = inode.replicas();
        let writes = replicas.iter().map(async |replica| {
            if self.is_missed(replica, patches) {
                let what = "a row changed while it could not be read";
                return Err(name_part(inode, replica, 0, Error::new(ErrorKind::Unavailable, what)));
            }
            self.apply_to(replica, patches, io).await
        });
        let (written, ()) = join(join_all(writes), self.mirror(patches, io)).await;
        let (mut failed, mut whole, mut why) = (Vec::new(), Vec::new(), None);
        let mut full = Ok(());
        for (replica, written) in replicas.iter().zip(written) {
            match written {
                Ok(()) => whole.push(replica),
                Err(e) if was_refused(&e) => return Err(e),
                // The caller has its new bytes, as durable as the others, until there is room for them.
                Err(e) if e.kind() == ErrorKind::OutOfSpace => {
                    whole.push(replica);
                    full = Err(e);
                }
                Err(e) => {
                    failed.push(replica.number);
                    why = Some(e);
                }
            }
        }
        if let Some(why) = why {
            if !suffice(whole.iter().copied()) {
                return Err(why);
            }
            let whole: Vec<_> = whole.into_iter().map(|replica| replica.number).collect();
            if !handle.lose(&failed, &whole, &why.to_string()) {
                return Err(why);
            }
        }
        // Nothing repeats the change once it is done: a fragment that has not got it must not be back after a crash.
        handle.pool().journal.durable(inode.lsn()).await?;
        full
    }

    /// Whether a change of a row has no bytes for a parity fragment, which it changes for certain: it was missing when the
    /// change was computed from differences.
    fn is_missed(&self, replica: &Replica, patches: &[Patch]) -> bool {
        let is_parity = |&index: &usize| index >= self.code.data();
        replica.index().filter(is_parity).is_some_and(|index| lacks(patches, index))
    }

    /// Writes and syncs the patches of one fragment.
    async fn apply_to(&self, replica: &Arc<Replica>, patches: &[Patch], io: Io) -> Result<()> {
        let (handle, inode) = (self.handle, self.handle.inode());
        let mine: Vec<_> =
            patches.iter().filter(|patch| replica.index() == Some(patch.fragment)).collect();
        if mine.is_empty() {
            return Ok(());
        }
        let leaf = handle.leaf_of(replica, 0).await?;
        let len = replica.layout.len(inode.len());
        let named = |e: Error| name_part(inode, replica, 0, e);
        let writes = mine.iter().map(|patch| async {
            match within(patch, len) {
                Some(bytes) => leaf.write_at(patch.at, bytes, io).await,
                None => Ok(()),
            }
        });
        let written: Result<Vec<()>> = join_all(writes).await.into_iter().collect();
        written.map_err(named)?;
        leaf.sync(io).await.map_err(named)
    }

    /// Writes the patches to new fragments that are being made, too, as far as they have their bytes.
    async fn mirror(&self, patches: &[Patch], io: Io) {
        let inode = self.handle.inode();
        for resync in inode.resyncs.all() {
            let placed = &resync.target.placed;
            let Some(index) = placed.index().map(usize::from) else { continue };
            let len = placed.layout.len(inode.len());
            if index >= self.code.data() && lacks(patches, index) {
                for Patch { at, bytes, .. } in patches {
                    resync.redo(&(*at..at + bytes.len() as u64));
                }
                continue;
            }
            for patch in patches.iter().filter(|patch| patch.fragment == index) {
                let Some(bytes) = within(patch, len) else { continue };
                let range = patch.at..patch.at + bytes.len() as u64;
                let count = resync.begin_change(&range) as usize;
                if count > 0
                    && let Err(e) = resync.target.write(patch.at, bytes.slice(0..count), io).await
                {
                    resync.fail(e);
                }
            }
        }
    }

    /// The numbers of the rows.
    pub(super) const fn numbers(&self) -> &Range<u64> {
        &self.numbers
    }

    /// Writes bytes over a range of a fragment that has others, durably, as well as it can.
    pub(super) async fn replace(&self, piece: &Piece, bytes: IoBuf, io: Io) {
        let (handle, inode) = (self.handle, self.handle.inode());
        let patch = Patch { fragment: piece.part, at: piece.inner, bytes };
        for replica in inode.replicas() {
            if replica.index() != Some(piece.part) {
                continue;
            }
            handle.pool().damages.tell(inode, &replica, super::check::NOT_WRITTEN);
            match self.apply_to(&replica, std::slice::from_ref(&patch), io).await {
                Ok(()) => handle.pool().damages.repaired(inode.id, &[replica.number]),
                Err(e) => tracing::warn!("{} stays damaged for now: {e}", inode.name),
            }
        }
        self.mirror(std::slice::from_ref(&patch), io).await;
    }
}

/// Whether a change has no bytes for a fragment.
fn lacks(patches: &[Patch], fragment: usize) -> bool {
    patches.iter().all(|patch| patch.fragment != fragment)
}

/// The bytes of a patch that a fragment of `len` bytes has.
fn within(patch: &Patch, len: u64) -> Option<IoBuf> {
    let count = len.saturating_sub(patch.at).min(patch.bytes.len() as u64);
    (count > 0).then(|| patch.bytes.slice(0..count as usize))
}
