//! The copies of one generation of a manifest, written to alike.

use std::sync::Arc;

use futures_util::future::join_all;
use policy::placement::VolumeId;
use policy::units::{KIB, MIB};
use volume::{Error, ErrorKind, IoBuf, IoBufMut, Object, Pending, Result};

use super::ledger::Ledger;
use super::{IO, Lsn};
use crate::manifest::frame;
use crate::manifest::recovery::enough_alone;

/// Below this a manifest is never compacted, however little of it is still true.
const COMPACT_MIN: u64 = MIB;
/// It is compacted when it has this many times the length of its snapshot.
const COMPACT_RATIO: u64 = 4;
/// Files are extended with zeros in steps of this many bytes: a record can then still be written when
/// the volume is full, and its sync need not change the file's length.
pub(super) const EXTENT: u64 = 64 * KIB;

/// Where the manifest is kept.
pub(super) struct Home {
    pub(super) generation: u64,
    /// The last generation anybody tried to make.
    pub(super) tried: u64,
    pub(super) seal: u64,
    pub(super) copies: Vec<Copy>,
    /// Frames and bytes that every copy has.
    pub(super) frames: u64,
    pub(super) len: u64,
    /// Bytes the files have, zeros at the end included.
    pub(super) allocated: u64,
    /// At this length a compaction is tried.
    pub(super) compact_at: u64,
    /// Frames to be written at `len`. They stay until every copy has them.
    pub(super) unwritten: Unwritten,
    /// A copy failed, or another generation may count already: nothing may be written here any more.
    pub(super) lost: bool,
    /// The volume that is enough without the others: the manifest goes nowhere before its epoch is
    /// raised. See [`enough_alone`].
    pub(super) alone: Option<VolumeId>,
    /// This home and those that may count instead of it, by their volumes: each that the manifest was on its
    /// way to since. What comes next has to meet them all.
    pub(super) may_count: Vec<Vec<VolumeId>>,
    /// Nothing was recorded since the pool was closed.
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
    /// The last edit it holds.
    pub(super) upto: Lsn,
}

impl Home {
    /// No home yet; `generation` is the highest number in use.
    pub(super) fn none(generation: u64) -> Self {
        Self {
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
            alone: None,
            may_count: Vec::new(),
            closed: false,
        }
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

    /// Writes what is unwritten to every copy, with zeros up to the next extent behind it if it
    /// reaches into that.
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
            // No room for a whole extent; perhaps for the frames.
            data = IoBufMut::from(&self.unwritten.bytes[..]);
        }
        self.write(data.freeze()).await
    }

    pub(super) async fn write(&self, data: IoBuf) -> Failed {
        on_each(&self.copies, |copy| copy.object.write_at(self.len, data.clone(), IO)).await
    }

    /// Every copy has what was unwritten; gives the last edit of it.
    pub(super) fn wrote(&mut self) -> Lsn {
        let Unwritten { bytes, frames, upto } = std::mem::take(&mut self.unwritten);
        self.len += bytes.len() as u64;
        self.frames += frames;
        upto
    }
}

impl Unwritten {
    /// Encodes what is pending as the frames after the first `written`. Encoded once: if the write is
    /// given up half-way and begun again, the bytes are the same.
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

/// Does the same on every copy at once; gives those where it failed.
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
