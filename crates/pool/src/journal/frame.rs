//! Encodes edits as frames of a file, and replays them from copies that may be damaged.
//!
//! ```text
//!  0      4          8           16          24
//!  | len  | checksum | sequence  | durable   | body: records, len bytes |
//! ```
//! A frame is one edit: all of its records count or none. `sequence` counts the frames of a file from
//! zero. `durable` is the number of frames from the start that were known to be durable when this one was
//! made. It distinguishes a torn tail from damage: a frame that was never synced may be missing, even
//! before one that is present; a frame that another one calls durable may not.
//!
//! All copies of a generation have the same bytes, so a frame is read from any copy that has it whole.

use std::fmt;

use volume::Error;

use super::Replay;

const HEAD: usize = 24;
/// The longest valid body. Edits and the pieces of a snapshot stay far below.
const BODY_MAX: usize = 1 << 20;

/// Distinguishes a journal from any other of its generation: xxh3-64 of the body of its first frame.
///
/// Only processes that saw different volumes can write the same generation twice. Their first frames differ in
/// the volumes that hold copies.
pub(crate) fn seal(begin: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(begin)
}

/// Appends a frame with `body` to `out`.
pub(crate) fn encode(out: &mut Vec<u8>, seal: u64, sequence: u64, durable: u64, body: &[u8]) {
    assert!(!body.is_empty() && body.len() <= BODY_MAX, "a frame of {} bytes", body.len());
    let start = out.len();
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&durable.to_le_bytes());
    out.extend_from_slice(body);
    let checksum = checksum(seal, &out[start..]);
    out[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
}

/// CRC-32C of the seal and of the whole frame without the checksum itself.
fn checksum(seal: u64, frame: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&seal.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &frame[..4]), &frame[8..])
}

/// A frame in a file.
#[derive(Clone, Copy)]
struct Frame<'a> {
    whole: &'a [u8],
    sequence: u64,
    durable: u64,
}

impl<'a> Frame<'a> {
    /// The bytes at `at` as a frame; does not verify its checksum.
    fn parse(file: &'a [u8], at: usize) -> Option<Self> {
        let bytes = file.get(at..)?;
        let len = u32::from_le_bytes(field(bytes, 0)?) as usize;
        if len == 0 || len > BODY_MAX {
            return None;
        }
        let whole = bytes.get(..HEAD + len)?;
        let (sequence, durable) = (field(bytes, 8)?, field(bytes, 16)?);
        Some(Self {
            whole,
            sequence: u64::from_le_bytes(sequence),
            durable: u64::from_le_bytes(durable),
        })
    }

    fn body(self) -> &'a [u8] {
        &self.whole[HEAD..]
    }

    fn is_whole(self, seal: u64) -> bool {
        self.whole[4..8] == checksum(seal, self.whole).to_le_bytes()
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// The contents of one generation.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Replayed<S: Replay> {
    pub(crate) begin: S::Begin,
    /// The records of each frame after the first, in order.
    pub(crate) edits: Vec<Vec<S::Record>>,
}

impl<S: Replay> Replayed<S> {
    /// Applies all edits to `new`, the state that every generation begins with.
    ///
    /// # Errors
    /// That of an edit which does not fit, with its frame.
    pub(crate) fn rebuild(&self, new: S) -> volume::Result<S> {
        let mut state = new;
        for (frame, edit) in (1..).zip(&self.edits) {
            let applied = state.apply(edit);
            applied.map_err(|e| Error::new(e.kind(), format!("frame {frame}: {e}")))?;
        }
        Ok(state)
    }
}

/// Why a journal cannot be used. `E` says why bytes could not be decoded.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Damage<E: fmt::Display> {
    #[error("its first record cannot be read")]
    NoBegin,
    #[error("frame {frame}: {error}")]
    Decode { frame: u64, error: E },
    #[error("{have} frames can be read, of {durable} that were durable")]
    Lost { have: u64, durable: u64 },
}

type Result<T, S> = std::result::Result<T, Damage<<S as Replay>::DecodeError>>;

/// Reads a journal from its copies. With a `seal`, it uses only copies that carry it; without one, the
/// first copy with a readable beginning decides the journal.
///
/// The end is where no copy has the next frame. There the last crash cut the file, unless a frame
/// says that more was durable: then bytes are lost, and it is an error.
pub(crate) fn replay<S: Replay>(copies: &[&[u8]], seal: Option<u64>) -> Result<Replayed<S>, S> {
    let (begin, seal) = begin::<S>(copies, seal)?;
    let mut at = 0;
    let mut sequence = 0;
    let mut edits = Vec::new();
    let next = |at, sequence| {
        let frames = copies.iter().filter_map(|copy| Frame::parse(copy, at));
        frames.into_iter().find(|frame| frame.sequence == sequence && frame.is_whole(seal))
    };
    while let Some(frame) = next(at, sequence) {
        if sequence > 0 {
            let decoded = S::decode(frame.body());
            let records = decoded.map_err(|error| Damage::Decode { frame: sequence, error })?;
            edits.push(records);
        }
        at += frame.whole.len();
        sequence += 1;
    }
    let behind = copies.iter().map(|copy| durable_behind(copy, at, seal, sequence)).max();
    let durable = behind.unwrap_or(0).max(S::snapshot_frames(&begin));
    if sequence < durable {
        return Err(Damage::Lost { have: sequence, durable });
    }
    Ok(Replayed { begin, edits })
}

fn begin<S: Replay>(copies: &[&[u8]], wanted: Option<u64>) -> Result<(S::Begin, u64), S> {
    for copy in copies {
        let Some(frame) = Frame::parse(copy, 0) else { continue };
        let own = seal(frame.body());
        if wanted.is_some_and(|wanted| wanted != own) || !frame.is_whole(own) {
            continue;
        }
        let decoded = S::decode_begin(frame.body());
        return Ok((decoded.map_err(|error| Damage::Decode { frame: 0, error })?, own));
    }
    Err(Damage::NoBegin)
}

/// The most frames that any frame after `at` calls durable. Frames may begin at any position there, so
/// every one is tried.
fn durable_behind(file: &[u8], at: usize, seal: u64, sequence: u64) -> u64 {
    let rest = file.len().saturating_sub(at);
    // No more frames than these can follow, so most positions need no checksum.
    let plausible = sequence..=sequence + (rest / HEAD) as u64;
    let frames = (at..file.len()).filter_map(|at| Frame::parse(file, at));
    let frames = frames.filter(|frame| plausible.contains(&frame.sequence) && frame.is_whole(seal));
    frames.map(|frame| frame.durable).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use policy::placement::VolumeId;
    use proptest::prelude::*;

    use super::*;
    use crate::header::PoolId;
    use crate::journal::quorum::Quorum;
    use crate::manifest::record::DecodeError;
    use crate::manifest::record::tests::any_record;
    use crate::manifest::{Begin, Record, State};

    /// As the manifest, whose records are the richest.
    type Replayed = super::Replayed<State>;

    fn replay(
        copies: &[&[u8]],
        seal: Option<u64>,
    ) -> std::result::Result<Replayed, Damage<DecodeError>> {
        super::replay(copies, seal)
    }

    fn begin(snapshot_frames: u64) -> Begin {
        Begin {
            pool: PoolId(7),
            generation: 3,
            snapshot_frames,
            volumes: vec![(VolumeId(0), "a".into())],
            home: Quorum::majority(vec![VolumeId(0)]),
        }
    }

    /// A file with a sync after the number of frames in each of `synced`; also returns the offset of each
    /// frame's end.
    fn file(begin: &Begin, edits: &[Vec<Record>], synced: &[u64]) -> (Vec<u8>, Vec<usize>) {
        let (mut out, mut ends) = (Vec::new(), Vec::new());
        encode(&mut out, begin.seal(), 0, 0, &begin.encode());
        ends.push(out.len());
        for (sequence, edit) in (1..).zip(edits) {
            let mut body = Vec::new();
            edit.iter().for_each(|record| record.encode(&mut body));
            let durable = synced.iter().copied().filter(|&s| s <= sequence).max().unwrap_or(0);
            encode(&mut out, begin.seal(), sequence, durable, &body);
            ends.push(out.len());
        }
        (out, ends)
    }

    fn any_edits() -> impl Strategy<Value = Vec<Vec<Record>>> {
        prop::collection::vec(prop::collection::vec(any_record(), 1..4), 0..8)
    }

    proptest! {
        #[test]
        fn edits_are_replayed(edits in any_edits()) {
            let begin = begin(1);
            let (file, _) = file(&begin, &edits, &[1]);
            let expected = Replayed { begin, edits };
            prop_assert_eq!(replay(&[&file], None), Ok(expected));
        }

        #[test]
        fn a_cut_anywhere_in_the_unsynced_tail_ends_the_replay(
            edits in any_edits(), cut: prop::sample::Index, zeros in 0usize..50,
        ) {
            let begin = begin(1);
            let (mut file, ends) = file(&begin, &edits, &[]);
            let cut = ends[0] + cut.index(file.len() - ends[0] + 1);
            file.truncate(cut);
            file.resize(cut + zeros, 0);
            let whole = ends[1..].iter().filter(|&&end| end <= cut).count();
            // A frame may end in zeros, so the appended zeros can complete a cut one.
            let got = replay(&[&file], Some(begin.seal())).unwrap();
            prop_assert!(got.edits.len() >= whole);
            prop_assert_eq!(&got.edits[..], &edits[..got.edits.len()]);
        }

        #[test]
        fn one_damaged_copy_of_two_does_no_harm(
            edits in any_edits(), at: prop::sample::Index, change in 1u8..,
        ) {
            let begin = begin(1);
            let (file, _) = file(&begin, &edits, &[]);
            let mut bad = file.clone();
            bad[at.index(file.len())] ^= change;
            let expected = Ok(Replayed { begin: begin.clone(), edits });
            prop_assert_eq!(&replay(&[&bad, &file], Some(begin.seal())), &expected);
            prop_assert_eq!(&replay(&[&file, &bad], Some(begin.seal())), &expected);
        }

        #[test]
        fn copies_damaged_in_different_frames_mend_each_other(
            edits in any_edits(), at: (prop::sample::Index, prop::sample::Index),
        ) {
            let begin = begin(1);
            let (file, ends) = file(&begin, &edits, &[]);
            let at = [at.0.index(file.len()), at.1.index(file.len())];
            let frame = at.map(|at| ends.iter().filter(|&&end| end <= at).count());
            prop_assume!(frame[0] != frame[1]);
            let copies = at.map(|at| {
                let mut copy = file.clone();
                copy[at] ^= 0x10;
                copy
            });
            let got = replay(&[&copies[0], &copies[1]], Some(begin.seal()));
            prop_assert_eq!(got, Ok(Replayed { begin, edits }));
        }

        #[test]
        fn damage_in_what_a_later_frame_calls_durable_is_never_a_torn_tail(
            edits in any_edits(), at: prop::sample::Index, change in 1u8..,
        ) {
            let begin = begin(1);
            let mut edits = edits;
            edits.push(vec![Record::Close]);
            let all = edits.len() as u64;
            let (mut file, ends) = file(&begin, &edits, &[all]);
            file[at.index(ends[edits.len() - 1])] ^= change;
            prop_assert!(replay(&[&file], Some(begin.seal())).is_err());
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(replay(&[&bytes], None).is_err());
        }
    }

    #[test]
    fn a_hole_in_the_unsynced_tail_is_the_end_not_damage() {
        let begin = begin(1);
        let edits = vec![vec![Record::Lease { from: 1, upto: 9 }], vec![Record::Close]];
        let (mut file, ends) = file(&begin, &edits, &[]);
        file[ends[0]..ends[1]].fill(0);
        let got = replay(&[&file], Some(begin.seal())).unwrap();
        assert_eq!(got.edits, Vec::<Vec<Record>>::new());
    }

    #[test]
    fn a_snapshot_cut_short_is_damage() {
        let begin = begin(3);
        let edits = vec![vec![Record::Lease { from: 1, upto: 9 }]];
        let (file, _) = file(&begin, &edits, &[]);
        assert_eq!(replay(&[&file], None), Err(Damage::Lost { have: 2, durable: 3 }));
    }

    #[test]
    fn a_copy_with_another_seal_is_not_mixed_in() {
        let (mine, mut theirs) = (begin(1), begin(1));
        theirs.home.volumes.push(VolumeId(4));
        let lease = |upto| vec![Record::Lease { from: 1, upto }];
        let (my_file, _) = file(&mine, &[lease(2)], &[]);
        let (their_file, _) = file(&theirs, &[lease(3), lease(4)], &[]);
        let got = replay(&[&their_file, &my_file], Some(mine.seal())).unwrap();
        assert_eq!(got, Replayed { begin: mine, edits: vec![lease(2)] });
    }
}
