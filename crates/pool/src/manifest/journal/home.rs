//! The copies of one generation of a manifest, which all get the same writes.

use std::sync::Arc;

use futures_util::future::join_all;
use policy::placement::VolumeId;
use policy::units::{KIB, MIB};
use volume::{Error, ErrorKind, IoBuf, IoBufMut, Object, Pending, Result};

use super::ledger::Ledger;
use super::{IO, Lsn};
use crate::manifest::frame;
use crate::manifest::recovery::enough_alone;

/// A manifest below this length is never compacted.
const COMPACT_MIN: u64 = MIB;
/// A manifest is compacted at this many times the length of its snapshot.
const COMPACT_RATIO: u64 = 4;
/// Files are extended with zeros in steps of this many bytes, so that a record still fits on a full volume,
/// and its sync need not change the file's length.
pub(super) const EXTENT: u64 = 64 * KIB;

/// The copies of the current generation.
#[derive(Default)]
pub(super) struct Home {
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
    /// The volume that may open the pool alone: a move raises its epoch first. See [`enough_alone`].
    pub(super) alone: Option<VolumeId>,
    /// The volumes of this home, and of every home that a failed move may have made current since. The next
    /// home must meet them all.
    pub(super) may_count: Vec<Vec<VolumeId>>,
    /// No edit since the pool was closed.
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
pub(super) type Failed = Vec<(VolumeId, Error)>;

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

impl Home {
    /// No home yet; `generation` is the highest number in use.
    pub(super) fn none(generation: u64) -> Self {
        Self { generation, tried: generation, lost: true, ..Self::default() }
    }

    pub(super) fn new(generation: u64, copies: Vec<Copy>, snapshot: &Snapshot) -> Self {
        let volumes: Vec<_> = copies.iter().map(|copy| copy.volume).collect();
        Self {
            alone: enough_alone(&volumes, false),
            may_count: vec![volumes],
            tried: generation,
            seal: snapshot.seal,
            copies,
            frames: snapshot.frames,
            len: snapshot.len,
            allocated: snapshot.file.len() as u64,
            compact_at: COMPACT_MIN.max(COMPACT_RATIO * snapshot.len),
            lost: false,
            ..Self::none(generation)
        }
    }

    /// Writes unwritten frames to every copy, followed by zeros up to the end of the extent if they begin a
    /// new one.
    pub(super) async fn append(&mut self) -> Failed {
        let end = self.len + self.unwritten.bytes.len() as u64;
        let mut data = IoBufMut::from(&self.unwritten.bytes[..]);
        if end > self.allocated {
            let padded = end.next_multiple_of(EXTENT);
            data.resize((padded - self.len) as usize);
            let failed = self.write(data.freeze()).await;
            if failed.iter().all(|(_, e)| e.kind() != ErrorKind::OutOfSpace) {
                self.allocated = padded;
                return failed;
            }
            // No space for a whole extent; perhaps for the frames.
            data = IoBufMut::from(&self.unwritten.bytes[..]);
        }
        self.write(data.freeze()).await
    }

    pub(super) async fn write(&self, data: IoBuf) -> Failed {
        on_each(&self.copies, |copy| copy.object.write_at(self.len, data.clone(), IO)).await
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
    pub(super) fn take(&mut self, ledger: &mut Ledger, seal: u64, written: u64) {
        let mut body = Vec::new();
        for (lsn, edit) in ledger.pending.drain(..) {
            body.clear();
            edit.iter().for_each(|record| record.encode(&mut body));
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
