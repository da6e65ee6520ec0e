//! Files of logs that are longer than their objects, so that appends cost the file system no journal.
//!
//! Behind the last byte of the object stands a *mark*, and zeros to the end of the mark's sector. Every further sector has a mark
//! at its start, and zeros. Each append writes a new mark behind itself, in the same write. So the marks tell the object's length after
//! any end: it is where the first sector with a mark says.
//!
//! A mark holds a number that the volume draws when it first writes the file ahead, the length that it tells, and a checksum of both. Users
//! who store data do not know the number, so they cannot store a mark. Where a mark finds no room in the sector of the last byte, zeros follow, and the
//! mark is the one at the start of the next sector.
//!
//! # What a crash leaves
//!
//! Sectors that were written since the last sync have their old or their new bytes. Let the object have had `s` bytes at that sync. An
//! append writes data over the mark for `s`, and data are no mark: so an opening finds the length `s` if its sector is
//! old, and more if it is new. It ends before the first sector that was not written, so what lies behind lost bytes does not count. Where
//! only the mark at the start of a sector was lost, the zeros before it count, at most 31.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use crate::buf::PAGE;

/// What a device writes whole or not at all.
pub(super) const SECTOR: usize = 512;
const SECTOR_BYTES: u64 = SECTOR as u64;

const MARK: usize = 32;

/// More than is written ahead at once.
pub(super) const AHEAD_MAX: u64 = 1 << 20;

/// How far from its end a file can have its first mark.
const REACH: u64 = AHEAD_MAX + 4 * PAGE as u64;

/// A file that was written ahead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Ahead {
    number: [u8; 16],
    /// The length of the file: whole pages. Its last sector has a mark of its own, always.
    pub(super) end: u64,
}

impl Ahead {
    /// A file that is written ahead for the first time, up to `end`.
    pub(super) fn draw(end: u64) -> Self {
        let any = RandomState::new();
        let number = u128::from(any.hash_one(0)) << 64 | u128::from(any.hash_one(1));
        Self { number: number.to_le_bytes(), end }
    }

    /// The same file when it ends at `end`.
    pub(super) const fn until(self, end: u64) -> Self {
        Self { end, ..self }
    }

    /// Where a file has to end so that `more` bytes can be appended to `len`.
    pub(super) fn end_for(len: u64, more: u64) -> u64 {
        (len + more.min(AHEAD_MAX) + 2 * SECTOR_BYTES).next_multiple_of(PAGE as u64)
    }

    /// Whether an object of `len` bytes leaves the last sector alone.
    pub(super) fn has_room(&self, len: u64) -> bool {
        end_of_tail(len) + SECTOR_BYTES <= self.end
    }

    /// What stands behind the last byte of an object of `len` bytes, to the end of the sector with the mark.
    pub(super) fn tail(&self, len: u64) -> Vec<u8> {
        let end = end_of_tail(len);
        let mut tail = vec![0; (end - len) as usize];
        let at = mark_at(len) - len;
        tail[at as usize..][..MARK].copy_from_slice(&self.mark(len));
        tail
    }

    /// What stands in sectors that no append reached.
    pub(super) fn filling(&self, range: Range<u64>) -> Vec<u8> {
        let mut filling = vec![0; (range.end - range.start) as usize];
        let starts = range.step_by(SECTOR);
        for (at, sector) in starts.zip(filling.chunks_exact_mut(SECTOR)) {
            sector[..MARK].copy_from_slice(&self.mark(at));
        }
        filling
    }

    /// The part of a file of `end` bytes that tells the length of its object.
    pub(super) fn to_read(end: u64) -> Range<u64> {
        end.saturating_sub(REACH) / SECTOR_BYTES * SECTOR_BYTES..end
    }

    /// The length of the object, by the last bytes of its file, which begin at `from`. `None` if the file was not written ahead, or
    /// later appends made it longer.
    pub(super) fn len_in(bytes: &[u8], from: u64) -> Option<u64> {
        let last =
            bytes.len().checked_sub(SECTOR).filter(|_| bytes.len().is_multiple_of(SECTOR))?;
        let number = bytes[last..].first_chunk().copied()?;
        let this = Self { number, end: from + bytes.len() as u64 };
        if bytes[last..] != this.filling(this.end - SECTOR_BYTES..this.end) {
            return None;
        }
        let starts = (from..).step_by(SECTOR);
        starts.zip(bytes.chunks_exact(SECTOR)).find_map(|(at, sector)| this.len_of(sector, at))
    }

    /// The length that the mark in a sector tells, if it has one.
    fn len_of(&self, sector: &[u8], at: u64) -> Option<u64> {
        let place = sector.windows(self.number.len()).position(|bytes| *bytes == self.number)?;
        let mark = sector.get(place..place + MARK)?;
        let len = u64::from_le_bytes(*mark[self.number.len()..].first_chunk()?);
        let is_here = mark_at(len) == at + place as u64 && mark == self.mark(len);
        let is_last = sector[place + MARK..].iter().all(|&byte| byte == 0);
        (is_here && is_last).then_some(len)
    }

    fn mark(&self, len: u64) -> [u8; MARK] {
        let mut mark = [0; MARK];
        mark[..16].copy_from_slice(&self.number);
        mark[16..24].copy_from_slice(&len.to_le_bytes());
        let checksum = xxh3_64(&mark[..24]);
        mark[24..].copy_from_slice(&checksum.to_le_bytes());
        mark
    }
}

/// Where the mark of a length stands: behind the last byte, or at the start of the next sector.
fn mark_at(len: u64) -> u64 {
    let sector_end = len.next_multiple_of(SECTOR_BYTES);
    if sector_end - len >= MARK as u64 { len } else { sector_end }
}

/// The end of the sector with the mark of a length.
fn end_of_tail(len: u64) -> u64 {
    (mark_at(len) + 1).next_multiple_of(SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NUMBER: [u8; 16] = *b"a number, drawn!";

    /// A file of an object of these bytes, written ahead.
    fn file_of(object: &[u8], more: u64) -> (Ahead, Vec<u8>) {
        let len = object.len() as u64;
        let ahead = Ahead { number: NUMBER, end: Ahead::end_for(len, more) };
        let mut file = object.to_vec();
        file.extend(ahead.tail(len));
        file.extend(ahead.filling(file.len() as u64..ahead.end));
        (ahead, file)
    }

    fn append(ahead: &Ahead, file: &mut [u8], at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        let tail = ahead.tail(end as u64);
        file[at..end].copy_from_slice(bytes);
        file[end..end + tail.len()].copy_from_slice(&tail);
    }

    fn len_of(file: &[u8]) -> Option<u64> {
        let range = Ahead::to_read(file.len() as u64);
        Ahead::len_in(&file[range.start as usize..], range.start)
    }

    #[test]
    fn every_length_is_told() {
        for len in 0..1200 {
            let (ahead, file) = file_of(&vec![0; len], 10_000);
            assert_eq!(len_of(&file), Some(len as u64));
            assert!(ahead.has_room(len as u64 + 10_000));
            assert!(file.len().is_multiple_of(PAGE));
        }
        assert_eq!(
            len_of(&file_of(&[1; 3 << 20], AHEAD_MAX).1),
            Some(3 << 20),
            "of a long file, too"
        );
    }

    #[test]
    fn other_files_are_as_long_as_they_are() {
        assert_eq!(len_of(&[]), None);
        assert_eq!(len_of(&[0; 4096]), None);
        let (_, mut file) = file_of(b"bytes", 10_000);
        file.extend([7; 100]);
        assert_eq!(len_of(&file), None, "appends went on without marks");
        file.extend([7; 412]);
        assert_eq!(len_of(&file), None);
    }

    #[test]
    fn a_mark_of_another_file_or_place_does_not_count() {
        let (ahead, file) = file_of(b"bytes", 1000);
        let other = Ahead::draw(0);
        // As data of one sector each: the mark of another file, and marks for other places.
        for foreign in [other.mark(0), ahead.mark(5), ahead.mark(512 * 9)] {
            let mut object = vec![0; 2 * SECTOR];
            object[SECTOR..][..MARK].copy_from_slice(&foreign);
            assert_eq!(len_of(&file_of(&object, 1000).1), Some(1024));
        }
        assert_eq!(len_of(&file), Some(5));
    }

    proptest! {
        /// After a crash each sector has its bytes of the last sync or those of one of the appends since.
        #[test]
        fn what_was_synced_is_never_cut_off(
            synced in 0usize..3000,
            fill in prop_oneof![Just(0u8), any::<u8>()],
            appends in prop::collection::vec(0usize..1500, 1..5),
            choices in prop::collection::vec(any::<prop::sample::Index>(), 64),
        ) {
            let (ahead, before) = file_of(&vec![fill; synced], 8000);
            let mut versions = vec![before];
            let mut len = synced;
            for bytes in appends {
                let mut file = versions.last().unwrap().clone();
                append(&ahead, &mut file, len, &vec![fill; bytes]);
                len += bytes;
                versions.push(file);
            }
            let mut crashed = versions[0].clone();
            for (nth, sector) in crashed.chunks_exact_mut(SECTOR).enumerate() {
                let version = choices[nth % choices.len()].get(&versions);
                sector.copy_from_slice(&version[nth * SECTOR..][..SECTOR]);
            }
            let found = len_of(&crashed).expect("its last sector is never written over") as usize;
            let most = len + MARK - 1;
            prop_assert!((synced..=most).contains(&found), "{found} of {synced}..={len}");
            prop_assert!(crashed[..synced].iter().all(|&byte| byte == fill));
            // No sector before the end was lost.
            let whole = found / SECTOR * SECTOR;
            let is_filling = |at: usize| crashed[at..at + SECTOR] == versions[0][at..at + SECTOR];
            let first = synced.next_multiple_of(SECTOR);
            prop_assert!((first..whole).step_by(SECTOR).all(|at| !is_filling(at)));
        }
    }
}
