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
/// `PLTQ`. Older drafts had `PLTI` and `PLTP`.
const MAGIC: u32 = 0x5154_4c50;
/// The bytes before the body of a frame.
pub(super) const HEADER: usize = 32;

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
    /// Where its clean pages are.
    pub(super) runs: Vec<Run>,
    /// Where its dirty pages are.
    pub(super) dirty: Vec<Run>,
}

/// What a frame after the first of a generation says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Edit {
    /// The clean pages of these entries are not any more as the checkpoint says.
    Doubt(Vec<Slot>),
    /// These pages of a unit are newer here than on the slow volume.
    Dirty { name: Name, extent: u32, entry: Slot, runs: Vec<Run> },
    /// These pages of an entry are not dirty any more.
    Clean { entry: Slot, runs: Vec<Run> },
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
    16 + 8 * runs
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
            encode_name(&mut out, name);
            out.extend_from_slice(&count(units.len()).to_le_bytes());
            for placed in units {
                for number in [placed.extent, placed.entry] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                encode_runs(&mut out, &placed.runs);
                encode_runs(&mut out, &placed.dirty);
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
            let name = reader.name()?;
            let mut units = Vec::new();
            for _ in 0..reader.u32()? {
                let (extent, entry) = (reader.u32()?, reader.u32()?);
                let (runs, dirty) = (reader.runs()?, reader.runs()?);
                units.push(Placed { extent, entry, runs, dirty });
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
            let mut pages = HashSet::new();
            entries.insert(placed.entry)
                && placed.runs.iter().chain(&placed.dirty).all(|run| {
                    let last = u64::from(run.place) + u64::from(run.count);
                    run.count > 0
                        && u64::from(run.end()) * PAGE <= self.unit.into()
                        && last <= self.places.into()
                        && run.pages().all(|page| pages.insert(page))
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
    /// The body of a frame with these edits.
    pub(super) fn encode(edits: &[Self]) -> Vec<u8> {
        let mut out = Vec::new();
        for edit in edits {
            match edit {
                Self::Doubt(entries) => {
                    out.push(0);
                    out.extend_from_slice(&count(entries.len()).to_le_bytes());
                    entries.iter().for_each(|entry| out.extend_from_slice(&entry.to_le_bytes()));
                }
                Self::Dirty { name, extent, entry, runs } => {
                    out.push(2);
                    encode_name(&mut out, name);
                    out.extend_from_slice(&extent.to_le_bytes());
                    out.extend_from_slice(&entry.to_le_bytes());
                    encode_runs(&mut out, runs);
                }
                Self::Clean { entry, runs } => {
                    out.push(3);
                    out.extend_from_slice(&entry.to_le_bytes());
                    encode_runs(&mut out, runs);
                }
            }
        }
        out
    }

    pub(super) fn decode(body: &[u8]) -> Option<Vec<Self>> {
        let (mut reader, mut edits) = (Reader(body), Vec::new());
        while let Some(kind) = reader.bytes(1) {
            edits.push(match kind[0] {
                0 => {
                    let entries = reader.u32()?;
                    Self::Doubt((0..entries).map(|_| reader.u32()).collect::<Option<_>>()?)
                }
                2 => Self::Dirty {
                    name: reader.name()?,
                    extent: reader.u32()?,
                    entry: reader.u32()?,
                    runs: reader.runs()?,
                },
                3 => Self::Clean { entry: reader.u32()?, runs: reader.runs()? },
                _ => return None,
            });
        }
        Some(edits)
    }
}

/// A list of ranges of units or bytes of objects: the body of a frame of the slow volume.
pub(super) type Ranges = Vec<(Name, Vec<std::ops::Range<u64>>)>;

/// Appends such a list to `out`.
pub(super) fn encode_ranges(out: &mut Vec<u8>, list: &Ranges) {
    out.extend_from_slice(&count(list.len()).to_le_bytes());
    for (name, ranges) in list {
        encode_name(out, name);
        out.extend_from_slice(&count(ranges.len()).to_le_bytes());
        for range in ranges {
            out.extend_from_slice(&range.start.to_le_bytes());
            out.extend_from_slice(&range.end.to_le_bytes());
        }
    }
}

/// As many such lists as wanted.
pub(super) fn decode_ranges<const N: usize>(body: &[u8]) -> Option<[Ranges; N]> {
    let mut reader = Reader(body);
    let mut lists = [const { Ranges::new() }; N];
    for list in &mut lists {
        for _ in 0..reader.u32()? {
            let (name, mut ranges) = (reader.name()?, Vec::new());
            for _ in 0..reader.u32()? {
                ranges.push(reader.u64()?..reader.u64()?);
            }
            list.push((name, ranges));
        }
    }
    Some(lists)
}

fn encode_name(out: &mut Vec<u8>, name: &Name) {
    let name = name.as_str().as_bytes();
    out.extend_from_slice(&count(name.len()).to_le_bytes());
    out.extend_from_slice(name);
}

fn encode_runs(out: &mut Vec<u8>, runs: &[Run]) {
    out.extend_from_slice(&count(runs.len()).to_le_bytes());
    for run in runs {
        out.extend_from_slice(&run.page.to_le_bytes());
        out.extend_from_slice(&run.count.to_le_bytes());
        out.extend_from_slice(&run.place.to_le_bytes());
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

    fn name(&mut self) -> Option<Name> {
        let len = self.u32()? as usize;
        Name::new(std::str::from_utf8(self.bytes(len)?).ok()?).ok()
    }

    fn runs(&mut self) -> Option<Vec<Run>> {
        let mut runs = Vec::new();
        for _ in 0..self.u32()? {
            runs.push(Run { page: self.u16()?, count: self.u16()?, place: self.u32()? });
        }
        Some(runs)
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
            dirty: vec![Run::new(&(4..5), place + 20)],
        };
        let objects = vec![
            (Name::new("o1.tab").unwrap(), vec![placed(0, 9, 40), placed(4, 1, 43)]),
            (Name::new("o2.dat").unwrap(), vec![]),
        ];
        Checkpoint { head: HEAD, generation: 4, unit: 1 << 16, places: 70, objects }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let checkpoint = checkpoint();
        assert_eq!(Checkpoint::decode(&checkpoint.encode()), Some(checkpoint));
        assert_eq!(Head::decode(&HEAD.encode()), Some(HEAD));
        let (name, runs) = (Name::new("o3.inp").unwrap(), vec![Run::new(&(3..5), 9)]);
        let edits = vec![
            Edit::Doubt(vec![]),
            Edit::Dirty { name, extent: 4, entry: 8, runs: runs.clone() },
            Edit::Doubt(vec![1, 77]),
            Edit::Clean { entry: 8, runs },
        ];
        let body = Edit::encode(&edits);
        assert_eq!(Edit::decode(&body), Some(edits));
        assert_eq!(Edit::decode(&body[..body.len() - 2]), None);
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
        let changes: [fn(&mut Vec<Placed>); 9] = [
            |units| units[1].entry = 9,
            |units| units[1].runs[0].place = 42,
            |units| units[0].runs[1].page = 2,
            |units| units[0].runs[1].page = 16,
            |units| units[0].runs[1].count = 0,
            |units| units[0].runs[1].count = u16::MAX,
            |units| units[0].dirty[0].page = 1,
            |units| units[0].runs[1].place = 70,
            |units| units[0].runs[1].place = u32::MAX,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut bad = checkpoint();
            change(&mut bad.objects[0].1);
            assert!(!bad.is_sound(), "change {number}");
        }
    }
}
