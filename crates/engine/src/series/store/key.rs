//! Keys of stored records, and slots of time.
//!
//! The length of a slot is a power of two of nanoseconds; slots begin at multiples of it. A slot is to hold some
//! [`SLOT_ROWS`] rows, so a source that writes often has short ones.

use bytes::Bytes;

/// The wanted number of rows in a slot.
pub(super) const SLOT_ROWS: u64 = 4096;
/// From a second to half a year, each eight times the one before; in powers of two.
pub(super) const LEVELS: [u8; 9] = [30, 33, 36, 39, 42, 45, 48, 51, 54];
/// The sources that share a block because they write little: 2 to this power.
pub(super) const GROUP_BITS: u32 = 6;

/// The key of databases, floor and newest times.
pub(super) const META: &[u8] = b"m";
/// The key of the wall clock's time when that record was written.
pub(super) const CLOCK: &[u8] = b"c";
/// The key of the number of the log store's file that the scrub reads next.
pub(super) const SCRUB: &[u8] = b"v";
/// The key of sessions.
pub(super) const SESSIONS: &[u8] = b"s";
/// The prefix of measurements, followed by an id.
pub(super) const MEASUREMENT: u8 = b'n';
/// The prefix of pages of sources, followed by a number.
pub(super) const PAGE: u8 = b'p';

/// The owner of a block.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Owner {
    /// One source.
    Source(u32),
    /// The sources with these upper bits.
    Group(u32),
}

impl Owner {
    /// The group of a source.
    pub(super) fn group_of(source: u32) -> Self {
        Self::Group(source >> GROUP_BITS)
    }

    fn put(self, into: &mut Vec<u8>) {
        let (kind, number) = match self {
            Self::Source(source) => (b'b', source),
            Self::Group(group) => (b'g', group),
        };
        into.push(kind);
        into.extend_from_slice(&number.to_be_bytes());
    }
}

/// A slot of an owner.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Slot {
    pub(super) owner: Owner,
    pub(super) level: u8,
    pub(super) start: i64,
}

/// A block. Of two blocks in one slot, the one with the later round was written later.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct BlockKey {
    pub(super) slot: Slot,
    pub(super) round: u64,
}

/// The start of a time's slot.
pub(super) fn start_of(time: i64, level: u8) -> i64 {
    time & !((1 << level) - 1)
}

impl Slot {
    /// The first time behind the slot.
    pub(super) fn end(&self) -> i64 {
        self.start.saturating_add(1 << self.level)
    }

    /// The prefix of the keys of its blocks.
    pub(super) fn prefix(&self) -> Vec<u8> {
        let mut prefix = Self::level_prefix(self.owner, self.level);
        prefix.extend_from_slice(&biased(self.start));
        prefix
    }

    /// The prefix of the keys of an owner's slots of one length.
    pub(super) fn level_prefix(owner: Owner, level: u8) -> Vec<u8> {
        let mut prefix = Vec::with_capacity(22);
        owner.put(&mut prefix);
        prefix.push(level);
        prefix
    }
}

/// Encodes a time so that the order of bytes is the order of times.
fn biased(time: i64) -> [u8; 8] {
    ((time as u64) ^ 1 << 63).to_be_bytes()
}

impl BlockKey {
    pub(super) fn bytes(&self) -> Bytes {
        let mut key = self.slot.prefix();
        key.extend_from_slice(&self.round.to_be_bytes());
        key.into()
    }

    /// The block of a key, if it is a block's.
    pub(super) fn parse(key: &[u8]) -> Option<Self> {
        let key: &[u8; 22] = key.try_into().ok()?;
        let number = u32::from_be_bytes(*key[1..].first_chunk()?);
        let owner = match key[0] {
            b'b' => Owner::Source(number),
            b'g' => Owner::Group(number),
            _ => return None,
        };
        let level = LEVELS.contains(&key[5]).then_some(key[5])?;
        let start = (u64::from_be_bytes(*key[6..].first_chunk()?) ^ 1 << 63) as i64;
        let round = u64::from_be_bytes(*key[14..].first_chunk()?);
        Some(Self { slot: Slot { owner, level, start }, round })
    }
}

/// The key of a measurement or page.
pub(super) fn numbered(kind: u8, number: u32) -> Bytes {
    let mut key = vec![kind];
    key.extend_from_slice(&number.to_be_bytes());
    key.into()
}

/// The key of one of several parts of a record: parts of one generation belong together, in this order.
pub(super) fn part(key: &[u8], generation: u8, number: u16) -> Bytes {
    [key, &[generation], &number.to_be_bytes()].concat().into()
}

/// The generation of such a part, if it is one.
pub(super) fn generation_of(key: &[u8], part: &[u8]) -> Option<u8> {
    part.strip_prefix(key).filter(|rest| rest.len() == 3).map(|rest| rest[0])
}

/// The length of slots for a source whose rows have these times, in order: a power of two.
pub(super) fn level_of(times: &[i64]) -> u8 {
    // Only the middle half counts: one row of last year says nothing about the rate.
    let (low, high) = match times.len() {
        0 | 1 => return LEVELS[6],
        2..8 => (0, times.len() - 1),
        len => (len / 4, len * 3 / 4),
    };
    let took = (times[high].abs_diff(times[low]) / (high - low) as u64).max(1);
    let wanted = took.saturating_mul(SLOT_ROWS);
    let fits = |level: &&u8| 1 << **level <= wanted;
    *LEVELS.iter().rev().find(fits).unwrap_or(&LEVELS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_by_time_and_round_and_come_back() {
        let key = |start, round| BlockKey {
            slot: Slot { owner: Owner::Source(7), level: 33, start: start_of(start, 33) },
            round,
        };
        let keys = [key(i64::MIN, 9), key(-1, 3), key(0, 1), key(0, 2), key(1 << 40, 0)];
        assert!(keys.is_sorted_by_key(BlockKey::bytes));
        for key in keys {
            assert_eq!(BlockKey::parse(&key.bytes()), Some(key));
        }
        assert_eq!(key(-1, 3).slot.end(), 0);
        assert_eq!(BlockKey::parse(b"m"), None);
    }

    #[test]
    fn slots_are_as_long_as_the_rate_asks() {
        const SECOND: i64 = 1_000_000_000;
        let every = |step: i64| (0..100).map(|n| n * step).collect::<Vec<_>>();
        assert_eq!(level_of(&every(10 * SECOND)), 45);
        assert_eq!(level_of(&every(1000)), 30);
        assert_eq!(level_of(&every(i64::MAX / 100)), 54);
        let mut late = every(SECOND);
        late.insert(0, i64::MIN);
        assert_eq!(level_of(&late), level_of(&every(SECOND)));
        assert_eq!(level_of(&[5]), 48);
    }
}
