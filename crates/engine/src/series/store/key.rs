//! Keys of what is stored, and slots of time.
//!
//! Slots are as long as a power of two of nanoseconds and begin at multiples of that. A source that writes
//! often has short ones: a slot is to hold some [`SLOT_ROWS`] rows.

use bytes::Bytes;

/// What a slot should hold.
pub(super) const SLOT_ROWS: u64 = 4096;
/// From a second to half a year, each eight times the one before.
pub(super) const LEVELS: [u8; 9] = [30, 33, 36, 39, 42, 45, 48, 51, 54];
/// How many sources that write little share a block: 2 to this power.
pub(super) const GROUP_BITS: u32 = 6;

/// Databases, floor and newest times.
pub(super) const META: &[u8] = b"m";
/// What the clock said when that record was written.
pub(super) const CLOCK: &[u8] = b"c";
/// Sessions.
pub(super) const SESSIONS: &[u8] = b"s";
/// Measurements: with an id behind it.
pub(super) const MEASUREMENT: u8 = b'n';
/// Pages of sources: with a number behind it.
pub(super) const PAGE: u8 = b'p';

/// Whose block it is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Owner {
    /// One source's.
    Source(u32),
    /// That of sources with the same upper bits.
    Group(u32),
}

impl Owner {
    /// The group a source is in.
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

/// A block: of those in one slot the one of the later round was written later.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct BlockKey {
    pub(super) slot: Slot,
    pub(super) round: u64,
}

/// The start of the slot a time is in.
pub(super) fn start_of(time: i64, level: u8) -> i64 {
    time & !((1 << level) - 1)
}

impl Slot {
    /// The first time behind it.
    pub(super) fn end(&self) -> i64 {
        self.start.saturating_add(1 << self.level)
    }

    /// What the keys of its blocks begin with.
    pub(super) fn prefix(&self) -> Vec<u8> {
        let mut prefix = Self::level_prefix(self.owner, self.level);
        prefix.extend_from_slice(&biased(self.start));
        prefix
    }

    /// What the keys of an owner's slots of one length begin with.
    pub(super) fn level_prefix(owner: Owner, level: u8) -> Vec<u8> {
        let mut prefix = Vec::with_capacity(22);
        owner.put(&mut prefix);
        prefix.push(level);
        prefix
    }
}

/// Ordered as bytes as the times are.
fn biased(time: i64) -> [u8; 8] {
    ((time as u64) ^ 1 << 63).to_be_bytes()
}

impl BlockKey {
    pub(super) fn bytes(&self) -> Bytes {
        let mut key = self.slot.prefix();
        key.extend_from_slice(&self.round.to_be_bytes());
        key.into()
    }

    /// The block a key is of, if it is one.
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

/// The key of one of several records that take the place of one: of the same generation, in their order.
pub(super) fn part(key: &[u8], generation: u8, number: u16) -> Bytes {
    [key, &[generation], &number.to_be_bytes()].concat().into()
}

/// The generation of such a key, if it is one.
pub(super) fn generation_of(key: &[u8], part: &[u8]) -> Option<u8> {
    part.strip_prefix(key).filter(|rest| rest.len() == 3).map(|rest| rest[0])
}

/// How long the slots should be of a source whose rows have these times, in order.
pub(super) fn level_of(times: &[i64]) -> u8 {
    // The middle half: a straggler from last year says nothing about the rate.
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
