//! The space of a journal: what its records take, and what is kept free for records that must not be refused.

use std::collections::VecDeque;
use std::time::Duration;

use super::record::{Body, Lsn};

/// Sizes of a journal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Options {
    /// Bytes of the journal.
    pub capacity: u64,
    /// Bytes of a record beside its payload.
    pub header: u64,
    /// A record takes a multiple of this many bytes: a sector of the disk.
    pub align: u64,
    /// A group is merged when this number of its ranges have values that the parity strip does not count. A range takes about
    /// 48 bytes of memory.
    pub extents_max: usize,
}

/// Merging begins at this part of the capacity, in percent.
const MERGE: u64 = 50;
/// From here on answers wait, to slow writers down.
const SLOW: u64 = 75;
/// From here on writes are refused. The rest is for values before a write and for discards.
const BUSY: u64 = 90;
/// How long an answer waits when the journal is nearly [`BUSY`].
const WAIT_MAX: Duration = Duration::from_millis(50);

impl Options {
    /// Bytes that a record with this much payload takes.
    #[must_use]
    pub fn record_bytes(&self, payload: u64) -> u64 {
        (self.header + payload).next_multiple_of(self.align)
    }
}

/// The records of a journal, by size.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) options: Options,
    records: VecDeque<(Lsn, u64)>,
    used: u64,
}

impl Journal {
    pub(super) fn new(options: Options) -> Self {
        Self { options, records: VecDeque::new(), used: 0 }
    }

    pub(super) fn add(&mut self, lsn: Lsn, body: &Body) {
        let bytes = self.options.record_bytes(body.payload_bytes());
        self.records.push_back((lsn, bytes));
        self.used += bytes;
        assert!(self.used <= self.options.capacity, "no room for a record that was reserved");
    }

    /// Drops records before `cut`. Says whether there were any.
    pub(super) fn trim(&mut self, cut: Lsn) -> bool {
        let before = self.records.len();
        while let Some(&(lsn, bytes)) = self.records.front()
            && lsn < cut
        {
            self.records.pop_front();
            self.used -= bytes;
        }
        self.records.len() < before
    }

    /// The bytes that a write of `payload` bytes may need beside its data record: for the value before it, and a discard.
    pub(super) fn reserve_for(&self, payload: u64) -> u64 {
        self.options.record_bytes(payload) + self.options.record_bytes(0)
    }

    /// Whether a write of `payload` bytes can be taken, while `reserved` bytes stay free for other writes.
    pub(super) fn has_room(&self, payload: u64, reserved: u64) -> bool {
        let write = self.options.record_bytes(payload) + self.reserve_for(payload);
        self.used + reserved + write <= self.options.capacity * BUSY / 100
    }

    pub(super) fn wants_merge(&self) -> bool {
        self.used >= self.options.capacity * MERGE / 100
    }

    /// How long the answer to a write waits.
    pub(super) fn wait(&self) -> Duration {
        let (from, to) = (self.options.capacity * SLOW / 100, self.options.capacity * BUSY / 100);
        let over = self.used.saturating_sub(from).min(to - from);
        WAIT_MAX.mul_f64(over as f64 / (to - from).max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_wait_longer_the_fuller_it_is() {
        let options = Options { capacity: 1000, header: 4, align: 10, extents_max: 9 };
        assert_eq!((options.record_bytes(0), options.record_bytes(7)), (10, 20));
        let mut journal = Journal::new(options);
        let discard = Body::Discard { version: Default::default() };
        let mut waits = Vec::new();
        for lsn in 1..=100 {
            journal.add(lsn, &discard);
            assert_eq!(journal.wants_merge(), lsn >= 50);
            assert_eq!(journal.has_room(6, 10), 10 * lsn + 10 + 30 <= 900);
            waits.push(journal.wait().as_millis());
        }
        assert_eq!((waits[74], waits[81], waits[89], waits[99]), (0, 23, 50, 50));
        assert!(journal.trim(40) && !journal.trim(40));
        assert_eq!(journal.used, 610);
    }
}
