//! The checksum of an object's bytes, kept while a process appends to it.
//!
//! It costs one pass over the bytes of each append. Who appends may write the last page again before it is synced, so the
//! last page's bytes are kept apart from the checksum; or leave the rest of that page out, which reads as zeros. Every other
//! write below the end or behind a gap, a write beside another, and a write that fails or is given up end it: then only
//! reading the object back gives its checksum.

use volume::buf::PAGE;
use xxhash_rust::xxh3::Xxh3;

use crate::manifest::Checked;

/// The running checksum of one object.
#[derive(Default)]
pub(super) struct Running {
    /// Of the bytes before `tail`.
    hash: Xxh3,
    /// How many bytes those are: whole pages.
    hashed: u64,
    /// The bytes that may be written again: at most a page.
    tail: Vec<u8>,
    /// The end of the object. A write below it leaves bytes behind that the checksum does not have.
    end: u64,
    /// A write is under way.
    is_writing: bool,
}

impl Running {
    /// The number of bytes that no writer may change any more without ending the checksum.
    pub(super) const fn hashed(&self) -> u64 {
        self.hashed
    }

    /// The checksum of those bytes.
    pub(super) fn fixed(&self) -> Checked {
        Checked { len: self.hashed, checksum: self.hash.digest() }
    }

    /// The checksum of all bytes.
    pub(super) fn whole(&self) -> Checked {
        let mut hash = self.hash.clone();
        hash.update(&self.tail);
        Checked { len: self.len(), checksum: hash.digest() }
    }

    const fn len(&self) -> u64 {
        self.hashed + self.tail.len() as u64
    }

    /// Begins a change from `offset` on; false if the checksum cannot follow it.
    pub(super) fn begin(&mut self, offset: u64) -> bool {
        !std::mem::replace(&mut self.is_writing, true) && offset >= self.hashed
    }

    /// Cuts the bytes from `offset` on; false if there is a gap before it.
    pub(super) fn cut(&mut self, offset: u64) -> bool {
        self.is_writing = false;
        let kept = offset.checked_sub(self.hashed).and_then(|kept| usize::try_from(kept).ok());
        let kept = kept.filter(|&kept| kept <= self.tail.len());
        self.tail.truncate(kept.unwrap_or_default());
        kept.is_some()
    }

    /// Cuts the object, or extends it; false if the checksum cannot follow.
    pub(super) fn resize(&mut self, len: u64) -> bool {
        self.end = len;
        self.cut(len)
    }

    /// Adds the bytes written at `offset`, and zeros for a gap of less than a page before them; false if the gap is longer
    /// or has other bytes.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let gap = offset.saturating_sub(self.len());
        if self.end <= self.len() && gap < PAGE as u64 {
            self.append(&[0; PAGE][..gap as usize]);
        }
        let follows = self.cut(offset);
        if follows {
            self.append(data);
            self.end = self.end.max(self.len());
        }
        follows
    }

    fn append(&mut self, data: &[u8]) {
        let len = self.tail.len() + data.len();
        // The last byte's page stays apart.
        let fixed = len.saturating_sub(1) / PAGE * PAGE;
        let (of_tail, of_data) = match fixed.checked_sub(self.tail.len()) {
            Some(of_data) => (self.tail.len(), of_data),
            None => (fixed, 0),
        };
        self.hash.update(&self.tail[..of_tail]);
        self.hash.update(&data[..of_data]);
        self.tail.drain(..of_tail);
        self.tail.extend_from_slice(&data[of_data..]);
        self.hashed += fixed as u64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    /// Writes `len` bytes at `back` bytes before the end of both.
    fn write(running: &mut Running, bytes: &mut Vec<u8>, back: usize, len: usize) -> bool {
        write_at(running, bytes, bytes.len().saturating_sub(back), len)
    }

    fn write_at(running: &mut Running, bytes: &mut Vec<u8>, at: usize, len: usize) -> bool {
        let data: Vec<u8> = (0..len).map(|i| (at + i) as u8).collect();
        let follows = running.begin(at as u64) && running.write(at as u64, &data);
        let end = (at + len).max(bytes.len());
        bytes.resize(end, 0);
        bytes[at..at + len].copy_from_slice(&data);
        follows
    }

    #[derive(Clone, Debug)]
    enum At {
        /// So many bytes before the end.
        Back(usize),
        /// So many bytes behind it.
        Behind(usize),
    }

    fn at() -> impl Strategy<Value = At> {
        prop_oneof![
            3 => Just(At::Behind(0)),
            2 => (0usize..5000).prop_map(At::Back),
            1 => (0usize..5000).prop_map(At::Behind),
        ]
    }

    proptest! {
        #[test]
        fn it_is_the_checksum_of_all_bytes_or_gives_up(
            writes in prop::collection::vec((at(), 1usize..20_000), 1..20),
        ) {
            let (mut running, mut bytes) = (Running::default(), Vec::new());
            for (at, len) in writes {
                let at = match at {
                    At::Back(back) => bytes.len().saturating_sub(back),
                    At::Behind(gap) => bytes.len() + gap,
                };
                let (hashed, known) = (running.hashed() as usize, running.len() as usize);
                let is_zeros = known == bytes.len() && at - known.min(at) < PAGE;
                let follows = write_at(&mut running, &mut bytes, at, len);
                prop_assert_eq!(follows, at >= hashed && (at <= known || is_zeros));
                if !follows {
                    return Ok(());
                }
                // What a write leaves behind its end is not the checksum's until it is written again.
                let known = &bytes[..at + len];
                let whole = Checked { len: known.len() as u64, checksum: xxh3_64(known) };
                prop_assert_eq!(running.whole(), whole);
                let fixed = &bytes[..running.hashed() as usize];
                let fixed = Checked { len: fixed.len() as u64, checksum: xxh3_64(fixed) };
                prop_assert_eq!(running.fixed(), fixed);
                prop_assert!(whole.len - fixed.len <= PAGE as u64);
            }
        }
    }

    #[test]
    fn the_last_page_may_be_written_again_and_no_other() {
        let (mut running, mut bytes) = (Running::default(), Vec::new());
        assert!(write(&mut running, &mut bytes, 0, 2 * PAGE));
        assert!(write(&mut running, &mut bytes, PAGE, PAGE + 10));
        assert_eq!(running.whole().checksum, xxh3_64(&bytes));
        assert!(!write(&mut running, &mut bytes, PAGE + 11, 1));
    }

    #[test]
    fn a_write_behind_a_gap_of_a_page_or_beside_another_ends_it() {
        let mut running = Running::default();
        assert!(running.begin(0) && running.write(0, b"bytes"));
        assert!(running.begin(5));
        assert!(!running.begin(5), "one is under way");
        assert!(!running.write(5 + PAGE as u64, b"behind a gap"));
    }

    /// The log store begins a page of its own after each sync.
    #[test]
    fn the_rest_of_a_page_that_is_left_out_is_zeros() {
        let (mut running, mut bytes) = (Running::default(), Vec::new());
        for (at, len) in [(0, 1), (PAGE, 3 * PAGE - 1), (4 * PAGE, 7), (5 * PAGE, PAGE)] {
            assert!(write_at(&mut running, &mut bytes, at, len));
            assert_eq!(running.whole().checksum, xxh3_64(&bytes));
        }
    }
}
