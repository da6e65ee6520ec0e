//! What whole files look like, where RocksDB itself asks no other copy: it takes a log to end at a wrong checksum, and
//! does not open if its MANIFEST or CURRENT is wrong.

use std::collections::BTreeSet;
use std::sync::Arc;

use volume::Check;

/// The block of a log: no record goes on beyond it without a header of its own.
const BLOCK: u64 = 32 << 10;
/// A record's checksum, length and type.
const HEADER: usize = 7;
/// The same with the number of the log.
const NUMBERED: usize = HEADER + 4;

/// Tells whether pieces of a file are as they were written.
#[derive(Clone)]
pub(crate) struct Form {
    /// The length of a piece in bytes; the last one may be shorter.
    pub(crate) piece: u64,
    /// Whether a piece is whole. One that a crash cut off is not.
    pub(crate) check: Check,
}

impl Form {
    /// Of the file called `file` in its directory; `manifests` are the names of the MANIFESTs there. `None` if RocksDB can
    /// do without the file.
    pub(crate) fn of(file: &str, manifests: impl FnOnce() -> BTreeSet<String>) -> Option<Self> {
        if file.ends_with(".log") || is_manifest(file) {
            return Some(Self { piece: BLOCK, check: Arc::new(is_whole) });
        }
        (file == "CURRENT").then(|| {
            let manifests = manifests();
            let names_one = move |bytes: &[u8]| {
                let text = std::str::from_utf8(bytes).ok();
                text.and_then(|text| text.strip_suffix('\n'))
                    .is_some_and(|it| manifests.contains(it))
            };
            Self { piece: BLOCK, check: Arc::new(names_one) }
        })
    }
}

/// Whether a file is a MANIFEST.
pub(crate) fn is_manifest(file: &str) -> bool {
    file.starts_with("MANIFEST-")
}

/// Whether a block of a log has whole records, up to its end.
fn is_whole(mut block: &[u8]) -> bool {
    while let Some((&head, body)) = block.split_first_chunk::<HEADER>() {
        let [c0, c1, c2, c3, l0, l1, kind] = head;
        let header = match kind {
            // Only a file's unwritten room has it.
            0 => return false,
            5..=8 | 11 | 131 => NUMBERED,
            _ => HEADER,
        };
        let end = header - HEADER + usize::from(u16::from_le_bytes([l0, l1]));
        let Some((body, rest)) = body.split_at_checked(end) else { return false };
        let sum = crc32c::crc32c_append(crc32c::crc32c(&[kind]), body);
        if masked(sum) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return false;
        }
        block = rest;
    }
    block.iter().all(|&byte| byte == 0)
}

/// A checksum as RocksDB stores it.
fn masked(sum: u32) -> u32 {
    sum.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(block: &mut Vec<u8>, kind: u8, body: &[u8]) {
        let sum = crc32c::crc32c_append(crc32c::crc32c(&[kind]), body);
        let number = if matches!(kind, 5..=8) { 4 } else { 0 };
        block.extend(masked(sum).to_le_bytes());
        block.extend(((body.len() - number) as u16).to_le_bytes());
        block.push(kind);
        block.extend(body);
    }

    #[test]
    fn a_block_is_whole_if_every_bit_of_it_is_as_it_was_and_it_ends_with_a_record() {
        let mut block = Vec::new();
        put(&mut block, 1, b"whole");
        put(&mut block, 6, b"7777with a number");
        let ends = [0, HEADER + 5, block.len()];
        for end in 0..=block.len() {
            // Fewer bytes than a header that are all zero are the end of a block.
            let is_whole_here = ends.contains(&end);
            assert_eq!(is_whole(&block[..end]), is_whole_here, "{end} bytes");
        }
        for at in 0..block.len() {
            let mut wrong = block.clone();
            wrong[at] ^= 0x10;
            assert!(!is_whole(&wrong), "byte {at}");
        }
        block.extend([0; HEADER - 1]);
        assert!(is_whole(&block));
        block.extend([0; 100]);
        assert!(!is_whole(&block), "room that was not written");
    }

    #[test]
    fn only_the_name_of_a_manifest_is_whole() {
        let manifests = || BTreeSet::from(["MANIFEST-000005".to_owned()]);
        let form = Form::of("CURRENT", manifests).expect("a form");
        let whole = b"MANIFEST-000005\n";
        assert!((form.check)(whole));
        for at in 0..whole.len() {
            let mut wrong = *whole;
            wrong[at] ^= 1;
            assert!(!(form.check)(&wrong), "byte {at}");
        }
        assert!(!(form.check)(&whole[..15]));
        assert!(Form::of("000007.log", BTreeSet::new).is_some());
        assert!(Form::of("MANIFEST-000005", BTreeSet::new).is_some());
        assert!(Form::of("IDENTITY", BTreeSet::new).is_none());
    }
}
