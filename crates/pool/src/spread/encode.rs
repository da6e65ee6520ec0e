//! Makes the fragments of an object, all at once: of a new one, or of one that has copies until then.
//!
//! The bytes are encoded and written in pieces. Which volumes get fragments, placement chooses, one after the other; the
//! number of the object rotates the fragments over them, so that parity, which no healthy read needs, is not always on the
//! volume that placement likes least.

use std::ops::Range;

use futures_util::future::join_all;
use policy::placement::{Code, Fragment, Layout};
use volume::{Error, ErrorKind, Intent, Io, IoBuf, IoBufMut, Name, Object, Result};
use xxhash_rust::xxh3::Xxh3;

use super::Spread;
use super::choose::{Place, is_about_the_volume};
use super::copies::How;
use super::handle::Handle;
use super::leaves::{At, NewCopy};
use super::placing::Wanted;
use crate::code::Coder;
use crate::leaf::{Kind, ObjectId};
use crate::manifest::{Copies, Placed};

/// Bytes of each fragment that are encoded and written at once, about.
const ENCODED: u64 = 1 << 20;

/// An object whose fragments are to be made.
#[derive(Clone, Copy)]
pub(super) struct Encoding<'a> {
    /// Its name, for messages.
    pub(super) name: &'a Name,
    pub(super) code: Code,
    pub(super) kind: Kind,
    pub(super) intent: &'a Intent,
    pub(super) source: Source<'a>,
    pub(super) io: Io,
}

/// Its bytes.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// Those of a new object.
    Bytes(&'a IoBuf),
    /// Those of an object of the pool, read as said.
    Object(&'a Handle, &'a How),
}

/// The fragments of an object, which are not recorded yet.
pub(super) struct Encoded {
    pub(super) id: ObjectId,
    pub(super) fragments: Vec<NewCopy>,
    /// Whether some are missing.
    pub(super) is_short: bool,
    /// The xxh3-64 of the bytes that were encoded.
    pub(super) checksum: u64,
}

/// A place for a fragment.
pub(super) struct Target<'a> {
    pub(super) index: u8,
    pub(super) number: u64,
    pub(super) place: Place<'a>,
}

/// What became of the fragments.
struct Written {
    complete: Vec<NewCopy>,
    lost: Vec<At>,
    checksum: u64,
}

impl Source<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Object(object, _) => object.len(),
        }
    }

    async fn read(&self, range: Range<u64>) -> Result<IoBuf> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            Self::Object(object, how) => {
                how.ready().await?;
                object.pool().catalog.must_live(object.inode().id)?;
                let into = IoBufMut::zeroed((range.end - range.start) as usize);
                Ok(object.read_at(range.start, into, how.io).await?.freeze())
            }
        }
    }

    /// The number of the object, if the pool has it.
    fn id(&self) -> Option<ObjectId> {
        match self {
            Self::Bytes(_) => None,
            Self::Object(object, _) => Some(object.inode().id),
        }
    }
}

impl Spread {
    /// Makes the fragments of an object, synced and sealed on their volumes; at least as many as hold it.
    ///
    /// # Errors
    /// `OutOfSpace`, `Unavailable`, `Poisoned`, ...: too few volumes take a fragment. Those of a read of the source.
    pub(super) async fn encode(&self, encoding: Encoding<'_>) -> Result<Encoded> {
        let Encoding { name, code, kind, source, io, .. } = encoding;
        let pool = &self.0;
        let total = source.len();
        let intent = encoding.intent.of_part(Some(code.fragment_len(total, 0)));
        let mut failed: Vec<At> = Vec::new();
        loop {
            let known = source.id();
            let id = match known {
                Some(id) => id,
                None => pool.journal.issue_id().await?,
            };
            let forget = || {
                if known.is_none() {
                    pool.placing.forget_table(id);
                }
            };
            let wanted = Wanted { id, kind, intent: &intent, origin: Some(io.origin) };
            let targets = self.choose_fragments(code, wanted, known.is_none(), &mut failed).await?;
            // What the pool has already gets all fragments or keeps its copies.
            let needs = if known.is_none() { code.data() } else { code.fragments() };
            if targets.len() < needs {
                forget();
                return Err(self.nowhere_in_fragments(name, (code, needs), targets.len(), &failed));
            }
            let is_short = targets.len() < code.fragments();
            let Written { complete, mut lost, checksum } =
                self.write_fragments(encoding, wanted, targets).await.inspect_err(|_| forget())?;
            let is_foreign = lost.iter().any(|(_, e)| e.kind() == ErrorKind::AlreadyExists);
            let hard = lost
                .iter()
                .position(|(_, e)| !is_about_the_volume(e) && e.kind() != ErrorKind::AlreadyExists);
            let is_short = is_short || !lost.is_empty();
            let copies = Copies::of(complete.iter().map(|copy| copy.placed.clone()));
            if let Some(copies) = copies
                && hard.is_none()
                && !is_foreign
                && copies.suffice(|_| true)
            {
                for at in lost {
                    self.warn_of_failed(name, at);
                }
                if known.is_none() {
                    pool.placing.set_places(id, &copies);
                    pool.placing.complete(id, total);
                }
                return Ok(Encoded { id, fragments: complete, is_short, checksum });
            }
            self.remove_fragments(id, kind, &complete).await;
            forget();
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

    /// Removes fragments that were not recorded.
    pub(super) async fn remove_fragments(&self, id: ObjectId, kind: Kind, made: &[NewCopy]) {
        for NewCopy { placed, .. } in made {
            self.0.leaves.remove_copy(id, kind, placed).await;
        }
    }

    /// Places for all fragments, each on another volume; for fewer if too few volumes have room.
    pub(super) async fn choose_fragments<'a>(
        &'a self,
        code: Code,
        wanted: Wanted<'_>,
        is_new: bool,
        failed: &mut Vec<At>,
    ) -> Result<Vec<Target<'a>>> {
        let count = code.fragments();
        let (mut targets, mut taken) = (Vec::new(), Vec::new());
        while targets.len() < count {
            let is_first = is_new && targets.is_empty();
            let place = match self.choose(wanted, failed, (!is_first).then_some(&taken[..])).await {
                Ok(place) => place,
                Err(away) => {
                    failed.extend(away);
                    break;
                }
            };
            let number = if is_first { 0 } else { self.0.journal.issue_id().await?.0 };
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

    /// Creates, writes and seals the fragments.
    ///
    /// # Errors
    /// Those of the source. Then no fragment is left.
    async fn write_fragments(
        &self,
        encoding: Encoding<'_>,
        wanted: Wanted<'_>,
        targets: Vec<Target<'_>>,
    ) -> Result<Written> {
        let pool = &self.0;
        let Encoding { code, source, io, .. } = encoding;
        let Wanted { id, kind, intent, .. } = wanted;
        let total = source.len();
        let mut lost = Vec::new();
        let made = targets.into_iter().map(async |target| {
            let Target { index, number, place: Place { flight, occupied } } = target;
            let volume = flight.layout().volumes()[0];
            let placed = placed(number, Fragment { volume, index, code, checksum: 0 });
            let intent = intent.of_part(Some(code.fragment_len(total, usize::from(index))));
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
        let checksum = match self.write_rows(code, source, &mut fragments, io).await {
            Ok(checksum) => checksum,
            Err(e) => {
                for Writing { copy, .. } in fragments {
                    pool.leaves.remove_copy(id, kind, &copy.placed).await;
                }
                return Err(e);
            }
        };
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
        Ok(Written { complete, lost, checksum })
    }

    /// Encodes the source, writes the fragments and seals them; returns the checksum of the source.
    async fn write_rows(
        &self,
        code: Code,
        source: Source<'_>,
        fragments: &mut [Writing],
        io: Io,
    ) -> Result<u64> {
        let coder = self.0.coding.coder(code)?;
        let (total, width) = (source.len(), code.data() as u64);
        // Whole strips, so that the bytes of a piece lie together in the object.
        let step = (ENCODED / code.strip()).max(1) * code.strip();
        let longest = code.fragment_len(total, 0);
        let mut checksum = Xxh3::new();
        for from in (0..longest).step_by(step as usize) {
            let rows = Rows { from, count: (longest - from).min(step), total };
            let end = (from + step).saturating_mul(width).min(total);
            let data = source.read(from * width..end).await?;
            checksum.update(&data);
            let rows = rows.encode(code, &coder, &data)?;
            join_all(fragments.iter_mut().map(|fragment| fragment.write(from, &rows, io))).await;
        }
        join_all(fragments.iter_mut().map(|fragment| fragment.seal(io))).await;
        Ok(checksum.digest())
    }

    pub(super) fn nowhere_in_fragments(
        &self,
        name: &Name,
        (code, needs): (Code, usize),
        there: usize,
        failed: &[At],
    ) -> Error {
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

/// A piece of all fragments of an object: the same range of each, from the beginning of a strip.
struct Rows {
    from: u64,
    count: u64,
    /// The length of the object.
    total: u64,
}

impl Rows {
    /// The bytes of every fragment, of those of data up to their ends. `data` are the object's bytes of these rows.
    fn encode(&self, code: Code, coder: &Coder, data: &[u8]) -> Result<Vec<IoBuf>> {
        let &Self { from, count, total } = self;
        let (chunks, begin) = (code.chunks(), from * code.data() as u64);
        let mut rows: Vec<IoBufMut> =
            (0..code.fragments()).map(|_| IoBufMut::zeroed(count as usize)).collect();
        let (fragments, parity) = rows.split_at_mut(code.data());
        for (index, fragment) in fragments.iter_mut().enumerate() {
            let end = code.fragment_len(total, index).min(from + count);
            for at in (from..end).step_by(code.strip() as usize) {
                let run = code.strip().min(end - at) as usize;
                let there = (chunks.offset(index, at) - begin) as usize;
                let here = (at - from) as usize;
                fragment[here..here + run].copy_from_slice(&data[there..there + run]);
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
}

/// How far the fragments of an object are rotated: numbers of objects come in steps, which must not meet those of
/// placement.
const fn rotation(ObjectId(id): ObjectId) -> u64 {
    // Fibonacci hashing (Knuth, 1973).
    id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

pub(super) const fn placed(number: u64, fragment: Fragment) -> Placed {
    Placed { number, layout: Layout::Fragment(fragment) }
}
