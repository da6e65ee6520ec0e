//! The write-ahead log: accepted rows that are not in blocks yet, as records in segments.
//!
//! A segment is a log object, and defines the numbers it uses: its first record with a source or a shape defines that.
//! So segments are removed one by one, and a failed one affects no other. Bytes: `docs/format/series.md`.

use crate::log::StoreId;
use crate::series::batch::{put_varint, take_varint};

/// The length of a segment's header.
pub(super) const HEADER: usize = 64;
const MAGIC: [u8; 8] = *b"PlimSeWL";
const VERSION: u32 = 1;
/// Length and checksum of a record.
const HEAD: usize = 8;
/// The longest record, which is about a batch.
pub(super) const RECORD_MAX: usize = 256 << 20;

/// The kinds of records.
pub(super) const BATCH: u8 = 1;
pub(super) const DELETE: u8 = 2;

/// A segment's header.
pub(super) fn header(store: StoreId, segment: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..32].copy_from_slice(&store.0);
    header[32..36].copy_from_slice(&segment.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..]);
    header[12..16].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Appends a record that goes to `offset` of a segment.
pub(super) fn put_record(into: &mut Vec<u8>, segment: u32, offset: u64, parts: &[&[u8]]) {
    let start = into.len();
    into.extend_from_slice(&[0; HEAD]);
    parts.iter().for_each(|part| into.extend_from_slice(part));
    let len = into.len() - start - HEAD;
    let sum = checksum(segment, offset, &into[start + HEAD..]);
    into[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
    into[start + 4..start + HEAD].copy_from_slice(&sum.to_le_bytes());
}

/// The checksum covers the segment and the place in it.
fn checksum(segment: u32, offset: u64, body: &[u8]) -> u32 {
    let mut place = [0; 16];
    place[..4].copy_from_slice(&segment.to_le_bytes());
    place[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), body)
}

/// The records of a segment, up to its end or to where a crash cut it.
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    segment: u32,
    at: usize,
}

impl<'a> Records<'a> {
    /// `None` if the header is not that of this segment.
    pub(super) fn new(bytes: &'a [u8], store: StoreId, segment: u32) -> Option<Self> {
        let fits = bytes.len() >= HEADER && bytes[..HEADER] == header(store, segment);
        fits.then_some(Self { bytes, segment, at: HEADER })
    }

    /// The end of the whole records read so far.
    pub(super) fn end(&self) -> usize {
        self.at
    }

    /// Where the next whole record begins behind invalid bytes. The end of a process leaves none, as a segment is
    /// written from front to back. The bytes before one are damaged, or were lost unsynced with the machine.
    pub(super) fn resume(&self) -> Option<usize> {
        let is_record = |at: &usize| {
            let mut records = Records { at: *at, ..*self };
            records.next().is_some()
        };
        (self.at + 1..self.bytes.len()).find(is_record)
    }

    /// Continues at a whole record.
    pub(super) fn skip_to(&mut self, at: usize) {
        self.at = at;
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let body = record(self.bytes.get(self.at..)?, self.segment, self.at as u64)?;
        self.at += HEAD + body.len();
        Some(body)
    }
}

/// The body of the record at the start of `bytes`, which is `at` in its segment; `None` if there is no whole one.
fn record(bytes: &[u8], segment: u32, at: u64) -> Option<&[u8]> {
    let len = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    if len == 0 || len > RECORD_MAX {
        return None;
    }
    let body = bytes.get(HEAD..HEAD + len)?;
    let sum = checksum(segment, at, body);
    crate::series::sum_fits(sum, &bytes[4..HEAD]).then_some(body)
}

/// How many bytes whole records take at the start of `bytes`, which is `at` in their segment.
pub(super) fn records_len(bytes: &[u8], segment: u32, at: u64) -> usize {
    let mut end = 0;
    while let Some(body) = record(&bytes[end..], segment, at + end as u64) {
        end += HEAD + body.len();
    }
    end
}

/// Appends a string with its length.
pub(super) fn put_text(into: &mut Vec<u8>, text: &[u8]) {
    put_varint(into, text.len() as u64);
    into.extend_from_slice(text);
}

/// Takes bytes with their length.
pub(super) fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_varint(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(bytes)
}

/// Takes a string with its length.
pub(super) fn take_text<'a>(from: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take_bytes(from)?).ok()
}

/// Takes a number of at most 32 bits.
pub(super) fn take_u32(from: &mut &[u8]) -> Option<u32> {
    u32::try_from(take_varint(from)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_where_a_crash_cut_them_and_belong_to_their_place() {
        let store = StoreId([3; 16]);
        let mut bytes = header(store, 5).to_vec();
        for body in [&b"one"[..], b"two", b"three"] {
            let at = bytes.len() as u64;
            put_record(&mut bytes, 5, at, &[body]);
        }
        let read = |bytes: &[u8]| -> Vec<Vec<u8>> {
            Records::new(bytes, store, 5).unwrap().map(<[u8]>::to_vec).collect()
        };
        assert_eq!(read(&bytes), [&b"one"[..], b"two", b"three"]);
        for cut in HEADER..bytes.len() {
            let whole = read(&bytes[..cut]).len();
            assert_eq!(whole, [75, 86, 99].iter().filter(|&&end| end <= cut).count());
        }
        let mut damaged = bytes.clone();
        damaged[HEADER + 12 + 8] ^= 1;
        assert_eq!(read(&damaged), [&b"one"[..]]);
        let end = |bytes: &[u8]| {
            let mut records = Records::new(bytes, store, 5).unwrap();
            records.by_ref().for_each(drop);
            (records.end(), records.resume())
        };
        assert_eq!(end(&damaged), (75, Some(86)));
        assert_eq!(end(&bytes[..bytes.len() - 1]), (86, None));
        let mut moved = bytes[..HEADER].to_vec();
        moved.extend_from_slice(&bytes[75..]);
        assert!(read(&moved).is_empty());
        assert!(Records::new(&bytes, store, 6).is_none());
    }
}
