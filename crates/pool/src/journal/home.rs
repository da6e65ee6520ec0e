//! The copies of one generation of a journal, which all get the same writes.

use std::sync::Arc;

use futures_util::future::join_all;
use policy::placement::VolumeId;
use policy::purpose::Io;
use policy::units::{KIB, MIB};
use volume::{Error, ErrorKind, IoBuf, IoBufMut, Name, Object, Pending, Result, Volume};

use super::ledger::Ledger;
use super::{Lsn, Replay, frame};
use crate::members::Members;

/// A journal below this length is never compacted.
const COMPACT_MIN: u64 = MIB;
/// A journal is compacted at this many times the length of its snapshot.
const COMPACT_RATIO: u64 = 4;
/// Files are extended with zeros in steps of this many bytes, so that a record still fits on a full volume,
/// and its sync need not change the file's length.
pub(super) const EXTENT: u64 = 64 * KIB;

/// The copies of the current generation.
pub(super) struct Home<A> {
    /// Where this home is recorded as the current one.
    pub(super) anchor: A,
    pub(super) generation: u64,
    /// The last generation that a move tried to create.
    pub(super) tried: u64,
    pub(super) seal: u64,
    pub(super) copies: Vec<Copy>,
    /// Frames and bytes that every copy has.
    pub(super) frames: u64,
    pub(super) len: u64,
    /// The length of the files, with the zeros at the end.
    pub(super) allocated: u64,
    /// The length at which a compaction is tried.
    pub(super) compact_at: u64,
    /// Frames to be written at `len`. They stay until every copy has them.
    pub(super) unwritten: Unwritten,
    /// A copy failed, or another generation may be current already: no more writes here.
    pub(super) lost: bool,
    /// No edit since the journal was closed.
    pub(super) closed: bool,
}

#[derive(Default)]
pub(super) struct Unwritten {
    pub(super) bytes: Vec<u8>,
    pub(super) frames: u64,
    /// The last edit among them.
    pub(super) upto: Lsn,
}

#[derive(Clone)]
pub(super) struct Copy {
    pub(super) volume: VolumeId,
    pub(super) object: Arc<dyn Object>,
}

/// Volumes that failed, and how.
pub(crate) type Failed = Vec<(VolumeId, Error)>;

pub(super) struct Snapshot {
    pub(super) seal: u64,
    /// Frames, then zeros.
    pub(super) file: Vec<u8>,
    /// Bytes of the frames.
    pub(super) len: u64,
    pub(super) frames: u64,
    /// The last edit that it holds.
    pub(super) upto: Lsn,
}

impl<A> Home<A> {
    /// No home yet; `generation` is the highest number in use.
    pub(super) fn none(anchor: A, generation: u64) -> Self {
        Self {
            anchor,
            generation,
            tried: generation,
            seal: 0,
            copies: Vec::new(),
            frames: 0,
            len: 0,
            allocated: 0,
            compact_at: 0,
            unwritten: Unwritten::default(),
            lost: true,
            closed: false,
        }
    }

    /// Takes the place of the current home with the generation last tried; returns the old generation and its
    /// copies.
    pub(super) fn replace(&mut self, copies: Vec<Copy>, snapshot: &Snapshot) -> (u64, Vec<Copy>) {
        let old = (self.generation, std::mem::replace(&mut self.copies, copies));
        self.generation = self.tried;
        self.seal = snapshot.seal;
        self.frames = snapshot.frames;
        self.len = snapshot.len;
        self.allocated = snapshot.file.len() as u64;
        self.compact_at = COMPACT_MIN.max(COMPACT_RATIO * snapshot.len);
        self.unwritten = Unwritten::default();
        self.lost = false;
        self.closed = false;
        old
    }

    /// The volumes that hold a copy.
    pub(super) fn volumes(&self) -> Vec<VolumeId> {
        self.copies.iter().map(|copy| copy.volume).collect()
    }

    /// Writes unwritten frames to every copy, followed by zeros up to the end of the extent if they begin a
    /// new one.
    pub(super) async fn append(&mut self, io: Io) -> Failed {
        let end = self.len + self.unwritten.bytes.len() as u64;
        let mut data = IoBufMut::from(&self.unwritten.bytes[..]);
        if end > self.allocated {
            let padded = end.next_multiple_of(EXTENT);
            data.resize((padded - self.len) as usize);
            let failed = self.write(data.freeze(), io).await;
            if failed.iter().all(|(_, e)| e.kind() != ErrorKind::OutOfSpace) {
                self.allocated = padded;
                return failed;
            }
            // No space for a whole extent; perhaps for the frames.
            data = IoBufMut::from(&self.unwritten.bytes[..]);
        }
        self.write(data.freeze(), io).await
    }

    async fn write(&self, data: IoBuf, io: Io) -> Failed {
        on_each(&self.copies, |copy| copy.object.write_at(self.len, data.clone(), io)).await
    }

    /// Records that every copy has the unwritten frames; returns their last edit.
    pub(super) fn wrote(&mut self) -> Lsn {
        let Unwritten { bytes, frames, upto } = std::mem::take(&mut self.unwritten);
        self.len += bytes.len() as u64;
        self.frames += frames;
        upto
    }
}

impl Unwritten {
    /// Encodes pending edits as the frames after the first `written`. Each is encoded once, so that a repeated
    /// write has the same bytes.
    pub(super) fn take<S: Replay>(&mut self, ledger: &mut Ledger<S>, seal: u64, written: u64) {
        let mut body = Vec::new();
        for (lsn, edit) in ledger.pending.drain(..) {
            body.clear();
            edit.iter().for_each(|record| S::encode(record, &mut body));
            let sequence = written + self.frames;
            frame::encode(&mut self.bytes, seal, sequence, ledger.durable_frames, &body);
            self.frames += 1;
            self.upto = lsn;
        }
    }
}

/// Runs `work` on every copy concurrently; returns the volumes where it failed.
pub(super) async fn on_each<'a>(
    copies: &'a [Copy],
    work: impl Fn(&'a Copy) -> Pending<'a, ()>,
) -> Failed {
    let done = join_all(copies.iter().map(work)).await;
    let failed = copies.iter().zip(done);
    failed.filter_map(|(copy, done)| Some((copy.volume, done.err()?))).collect()
}

pub(super) fn partition(volumes: &[VolumeId], made: Vec<Result<Copy>>) -> (Vec<Copy>, Failed) {
    let (mut copies, mut failed) = (Vec::new(), Vec::new());
    for (&volume, made) in volumes.iter().zip(made) {
        match made {
            Ok(copy) => copies.push(copy),
            Err(e) => failed.push((volume, e)),
        }
    }
    (copies, failed)
}

/// Reads all copies with this name, to replay them together. Leaves out those that cannot be read, with a
/// warning. Each volume comes with its label.
pub(crate) async fn read_copies<'a, S: Replay>(
    holders: impl Iterator<Item = (&'a str, &'a dyn Volume)>,
    name: &Name,
    io: Io,
) -> Vec<IoBufMut> {
    let read = |(label, volume): (&'a str, &'a dyn Volume)| async move {
        let copy = read_whole(volume, name, io).await;
        copy.map_err(|e: Error| e.within(format_args!("volume {label}")))
    };
    let copies = join_all(holders.map(read)).await;
    let copies = copies.into_iter().filter_map(|copy| {
        copy.inspect_err(|e| tracing::warn!("a copy of the {} cannot be read: {e}", S::NAME)).ok()
    });
    copies.collect()
}

async fn read_whole(volume: &dyn Volume, name: &Name, io: Io) -> Result<IoBufMut> {
    let object = volume.open(name).await?;
    let len = usize::try_from(object.len()).map_err(|_| {
        Error::new(ErrorKind::Corrupt, format!("{name}: {} bytes long", object.len()))
    })?;
    object.read_at(0, IoBufMut::zeroed(len), io).await
}

/// The error when no volume takes a copy.
pub(crate) fn no_copy_left<S: Replay>(members: &Members, failed: &Failed) -> Error {
    let mut kinds = failed.iter().map(|(_, e)| e.kind());
    let kind = match kinds.next().unwrap_or(ErrorKind::Unavailable) {
        first if kinds.clone().all(|kind| kind == first) => first,
        first if first.is_away() && kinds.all(ErrorKind::is_away) => ErrorKind::Unavailable,
        _ => ErrorKind::Poisoned,
    };
    let (causes, owner, name) = (members.causes(failed), S::OWNER, S::NAME);
    let what = format!(
        "{owner} can be read but not changed, because no volume takes its {name} ({causes}): repair one \
         of them or make room, then try again"
    );
    Error::new(kind, what)
}
