//! The bytes of the tier's own objects: frames with a checksum, and what is in them.
//!
//! ```text
//! frame:  magic u32 │ crc32c u32 of the rest │ body length u32 │ 0 u32 │ seal u64 │ sequence u64 │ body │ zeros up to 4 KiB
//! ```
//! Numbers are little-endian. The seal is the same in all frames of one generation, so that frames left over from an
//! older one never count.

use std::collections::HashSet;

use policy::cache::Slot;
use volume::Name;

use super::places::Places;
use super::route::PAGE;
use super::table::Run;

/// Frames begin at multiples of this many bytes, so that an append is a write of whole pages.
pub(super) const BLOCK: usize = 4096;
/// `PLTP`. An older draft had `PLTI`, and a slot of one unit for each unit.
const MAGIC: u32 = 0x5054_4c50;
const HEADER: usize = 32;

/// Who owns the contents of a fast volume, and since which opening.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Head {
    /// Random, one for each slow volume.
    pub(super) identity: u64,
    /// Raised at each opening, and when the fast volume is given up.
    pub(super) epoch: u64,
}

/// The units on the fast volume at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Checkpoint {
    pub(super) head: Head,
    pub(super) generation: u64,
    /// Bytes of a unit.
    pub(super) unit: u32,
    /// Places of the slab.
    pub(super) places: u32,
    pub(super) objects: Vec<(Name, Vec<Placed>)>,
}

/// A unit of an object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Placed {
    pub(super) extent: u32,
    /// Its entry in the map, by which doubts name it.
    pub(super) entry: Slot,
    /// Where its valid pages are.
    pub(super) runs: Vec<Run>,
}

/// What a frame after the first of a generation says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Edit {
    /// The units of these entries are not any more as the checkpoint says.
    Doubt(Vec<Slot>),
    /// A later generation is complete: this one must never be used.
    Superseded,
}

/// The seal of a generation.
pub(super) const fn seal(head: Head, generation: u64) -> u64 {
    head.identity ^ head.epoch.rotate_left(40) ^ generation.rotate_left(16)
}

/// Appends a frame to `out`.
pub(super) fn frame(out: &mut Vec<u8>, seal: u64, sequence: u64, body: &[u8]) {
    let at = out.len();
    let len = u32::try_from(body.len()).expect("a map of less than 4 GiB");
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&seal.to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(body);
    let crc = crc32c::crc32c(&out[at + 8..]);
    out[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
    out.resize(at + (HEADER + body.len()).next_multiple_of(BLOCK), 0);
}

/// A frame at the beginning of some bytes.
pub(super) struct Found<'a> {
    pub(super) seal: u64,
    pub(super) sequence: u64,
    pub(super) body: &'a [u8],
    /// Its length with the zeros at its end.
    pub(super) len: usize,
}

/// The frame that begins here; `None` if there is no whole one.
pub(super) fn read(bytes: &[u8]) -> Option<Found<'_>> {
    let mut header = Reader(bytes);
    let (magic, crc) = (header.u32()?, header.u32()?);
    let len = header.u32()? as usize;
    let _ = header.u32()?;
    let (seal, sequence) = (header.u64()?, header.u64()?);
    let end = HEADER.checked_add(len)?;
    let checked = bytes.get(8..end)?;
    if magic != MAGIC || crc != crc32c::crc32c(checked) {
        return None;
    }
    Some(Found { seal, sequence, body: &bytes[HEADER..end], len: end.next_multiple_of(BLOCK) })
}

/// The bytes of a unit with this many runs in a checkpoint.
pub(super) const fn unit_bytes(runs: usize) -> usize {
    12 + 8 * runs
}

impl Head {
    pub(super) fn encode(self) -> Vec<u8> {
        [self.identity.to_le_bytes(), self.epoch.to_le_bytes()].concat()
    }

    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        Some(Self { identity: reader.u64()?, epoch: reader.u64()? })
    }
}

impl Checkpoint {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.head.encode();
        out.extend_from_slice(&self.generation.to_le_bytes());
        for number in [self.unit, self.places, count(self.objects.len())] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for (name, units) in &self.objects {
            let name = name.as_str().as_bytes();
            out.extend_from_slice(&count(name.len()).to_le_bytes());
            out.extend_from_slice(name);
            out.extend_from_slice(&count(units.len()).to_le_bytes());
            for placed in units {
                for number in [placed.extent, placed.entry, count(placed.runs.len())] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                for run in &placed.runs {
                    out.extend_from_slice(&run.page.to_le_bytes());
                    out.extend_from_slice(&run.count.to_le_bytes());
                    out.extend_from_slice(&run.place.to_le_bytes());
                }
            }
        }
        out
    }

    /// `None` if these bytes are no checkpoint.
    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let mut checkpoint = Self::decode_head(&mut reader)?;
        let objects = reader.u32()?;
        for _ in 0..objects {
            let len = reader.u32()? as usize;
            let name = Name::new(std::str::from_utf8(reader.bytes(len)?).ok()?).ok()?;
            let mut units = Vec::new();
            for _ in 0..reader.u32()? {
                let (extent, entry) = (reader.u32()?, reader.u32()?);
                let mut runs = Vec::new();
                for _ in 0..reader.u32()? {
                    runs.push(Run {
                        page: reader.u16()?,
                        count: reader.u16()?,
                        place: reader.u32()?,
                    });
                }
                units.push(Placed { extent, entry, runs });
            }
            checkpoint.objects.push((name, units));
        }
        Some(checkpoint)
    }

    /// Whether each entry has one unit, each page one place, and each place one page.
    pub(super) fn is_sound(&self) -> bool {
        let (mut places, mut entries) = (Places::new(self.places), HashSet::new());
        let mut units = self.objects.iter().flat_map(|(_, units)| units);
        units.all(|placed| {
            let mut end = 0;
            entries.insert(placed.entry)
                && placed.runs.iter().all(|run| {
                    let start = std::mem::replace(&mut end, run.end());
                    let last = u64::from(run.place) + u64::from(run.count);
                    u32::from(run.page) >= start
                        && run.count > 0
                        && u64::from(run.end()) * PAGE <= self.unit.into()
                        && last <= self.places.into()
                        && places.claim(&run.places())
                })
        })
    }

    /// The same without its units.
    pub(super) fn decode_empty(body: &[u8]) -> Option<Self> {
        Self::decode_head(&mut Reader(body))
    }

    fn decode_head(reader: &mut Reader<'_>) -> Option<Self> {
        let head = Head { identity: reader.u64()?, epoch: reader.u64()? };
        let (generation, unit, places) = (reader.u64()?, reader.u32()?, reader.u32()?);
        Some(Self { head, generation, unit, places, objects: Vec::new() })
    }
}

impl Edit {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Superseded => vec![1],
            Self::Doubt(entries) => {
                let mut out = vec![0];
                entries.iter().for_each(|entry| out.extend_from_slice(&entry.to_le_bytes()));
                out
            }
        }
    }

    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let (kind, rest) = body.split_first()?;
        let entries = rest.chunks_exact(4);
        match kind {
            0 if entries.remainder().is_empty() => {
                let entry = |bytes: &[u8]| bytes.try_into().ok().map(Slot::from_le_bytes);
                Some(Self::Doubt(entries.map(entry).collect::<Option<_>>()?))
            }
            1 if rest.is_empty() => Some(Self::Superseded),
            _ => None,
        }
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).expect("fewer than 4 billion of them")
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head = Head { identity: 7, epoch: 3 };

    fn checkpoint() -> Checkpoint {
        let placed = |extent, entry, place| Placed {
            extent,
            entry,
            runs: vec![Run::new(&(0..3), place), Run::new(&(9..10), place + 7)],
        };
        let objects = vec![
            (Name::new("o1.tab").unwrap(), vec![placed(0, 9, 40), placed(4, 1, 43)]),
            (Name::new("o2.dat").unwrap(), vec![]),
        ];
        Checkpoint { head: HEAD, generation: 4, unit: 1 << 16, places: 60, objects }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let checkpoint = checkpoint();
        assert_eq!(Checkpoint::decode(&checkpoint.encode()), Some(checkpoint));
        assert_eq!(Head::decode(&HEAD.encode()), Some(HEAD));
        for edit in [Edit::Doubt(vec![]), Edit::Doubt(vec![1, 77]), Edit::Superseded] {
            assert_eq!(Edit::decode(&edit.encode()), Some(edit));
        }
    }

    #[test]
    fn a_frame_that_is_cut_or_changed_anywhere_is_none() {
        let mut out = Vec::new();
        frame(&mut out, 5, 6, b"body of a frame");
        let found = read(&out).unwrap();
        assert_eq!((found.seal, found.sequence, found.len), (5, 6, BLOCK));
        assert_eq!(found.body, b"body of a frame");
        for at in 0..HEADER + found.body.len() {
            assert!(read(&out[..at]).is_none(), "cut at {at}");
            let mut bad = out.clone();
            bad[at] ^= 4;
            assert!(read(&bad).is_none(), "changed at {at}");
        }
    }

    #[test]
    fn garbage_is_no_checkpoint() {
        let body = checkpoint().encode();
        for cut in 0..body.len() {
            assert_eq!(Checkpoint::decode(&body[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn a_checkpoint_in_which_anything_is_twice_is_not_sound() {
        assert!(checkpoint().is_sound());
        let changes: [fn(&mut Vec<Placed>); 8] = [
            |units| units[1].entry = 9,
            |units| units[1].runs[0].place = 42,
            |units| units[0].runs[1].page = 2,
            |units| units[0].runs[1].page = 16,
            |units| units[0].runs[1].count = 0,
            |units| units[0].runs[1].count = u16::MAX,
            |units| units[0].runs[1].place = 60,
            |units| units[0].runs[1].place = u32::MAX,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut bad = checkpoint();
            change(&mut bad.objects[0].1);
            assert!(!bad.is_sound(), "change {number}");
        }
    }
}
