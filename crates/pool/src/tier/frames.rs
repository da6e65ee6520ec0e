//! The frames of one object of a log, as an opening finds them.

use std::ops::Range;

use policy::purpose::Io;
use volume::{IoBufMut, Object, Result, again};

use super::record::{self, BLOCK, HEADER};

/// The sequence of the frame that takes the place of a generation's first one when a later generation counts.
const SUPERSEDED: u64 = u64::MAX;

/// What one of the two objects of a log has.
pub(super) enum Content {
    Frames(Frames),
    /// Its generation must never be used: the one with the number `by` is whole.
    Superseded {
        identity: u64,
        by: u64,
    },
    /// No generation has a first frame here. Later frames have these seals: of older generations, or of one whose first is damaged.
    Headless(Vec<u64>),
}

/// The frames of a generation from the first one to the first that is not whole.
pub(super) struct Frames {
    bytes: IoBufMut,
    pub(super) seal: u64,
    bodies: Vec<Range<usize>>,
    /// A later frame is there, and the ones between are not whole: they are damaged, since they were durable before it was written.
    pub(super) is_cut: bool,
}

/// The block that is written over the first one of a generation when the one with the number `by` is whole.
pub(super) fn superseded(identity: u64, by: u64) -> Vec<u8> {
    let mut block = Vec::new();
    record::frame(&mut block, identity, SUPERSEDED, &by.to_le_bytes());
    block
}

/// Reads an object of a log. Where it has no whole frame, its other copies are asked.
///
/// # Errors
/// Those of the volume.
pub(super) async fn read(object: &dyn Object, io: Io) -> Result<Content> {
    let len = usize::try_from(object.len()).unwrap_or(usize::MAX);
    let mut bytes = object.read_at(0, IoBufMut::zeroed(len), io).await?;
    let (mut expected, mut bodies, mut end) = (Expected::First, Vec::new(), 0);
    loop {
        while let Some(frame) = expected.read(&bytes[end..]) {
            if frame.sequence == SUPERSEDED {
                let by = frame.body.try_into().map(u64::from_le_bytes);
                let superseded = |by| Content::Superseded { identity: frame.seal, by };
                return Ok(by.map_or(Content::Headless(Vec::new()), superseded));
            }
            let body = end + HEADER;
            bodies.push(body..body + frame.body.len());
            expected = Expected::After(frame.seal, frame.sequence);
            end = len.min(end + frame.len);
        }
        let rest = len - end;
        if rest == 0 {
            break;
        }
        let whole = move |bytes: &[u8]| expected.count(bytes);
        let Some(found) = again::records(object, end as u64, rest, io, whole).await else { break };
        bytes[end..end + found.len()].copy_from_slice(&found);
    }
    let later = (end..len).step_by(BLOCK).filter_map(|at| record::read(&bytes[at..]));
    Ok(match expected {
        Expected::First => {
            let mut seals: Vec<_> = later.map(|frame| frame.seal).collect();
            seals.dedup();
            Content::Headless(seals)
        }
        Expected::After(seal, last) => {
            let is_cut = later.into_iter().any(|of| of.seal == seal && of.sequence > last);
            Content::Frames(Frames { bytes, seal, bodies, is_cut })
        }
    })
}

impl Frames {
    /// The body of the first one.
    pub(super) fn first(&self) -> &[u8] {
        &self.bytes[self.bodies[0].clone()]
    }

    /// The bodies of the others.
    pub(super) fn others(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.bodies[1..].iter().map(|body| &self.bytes[body.clone()])
    }
}

/// The frame that may come next.
#[derive(Clone, Copy)]
enum Expected {
    First,
    /// With this seal, after the one with this sequence.
    After(u64, u64),
}

impl Expected {
    /// It, if it begins here.
    fn read(self, bytes: &[u8]) -> Option<record::Found<'_>> {
        record::read(bytes).filter(|frame| match self {
            Self::First => [0, SUPERSEDED].contains(&frame.sequence),
            Self::After(seal, last) => (frame.seal, frame.sequence) == (seal, last + 1),
        })
    }

    /// The bytes of the frames that begin here.
    fn count(mut self, bytes: &[u8]) -> usize {
        let mut end = 0;
        while let Some(frame) = self.read(&bytes[end..]) {
            end = bytes.len().min(end + frame.len);
            if frame.sequence == SUPERSEDED {
                break;
            }
            self = Self::After(frame.seal, frame.sequence);
        }
        end
    }
}
