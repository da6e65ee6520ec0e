//! How a log of blocks makes room.
//!
//! A block is *live* while the log has its newest value, and the files of a log go in their order. There are two ways to make
//! room:
//!
//! - A row goes in place, and all of its live blocks are dead then. The more it has, the less each costs.
//! - The live blocks of the oldest file are appended again, and the file goes. This gives the room of its dead blocks. Many blocks
//!   share an operation, but each is written to all copies of the log once more.
//!
//! So a log is kept full of live blocks, up to a part of it: the more there are, the more of them a row has when it goes in place,
//! and the more are written over before that. Beyond that part the oldest file has few dead blocks, and room for one block takes
//! many appends.

use super::BLOCK;

/// Blocks that are appended again together: with their records one operation.
pub const MOVED: u64 = 63;

/// What a log has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fill {
    /// Bytes of its files.
    pub bytes: u64,
    /// Live blocks.
    pub live: u64,
}

/// The rules of a log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Room {
    limit: u64,
    file_len: u64,
    live_max: u64,
}

impl Room {
    /// Live blocks take at most this part of the limit, in percent. With less, a row has fewer blocks when it goes in place; with much
    /// more, hardly any block of the oldest file is dead.
    const LIVE_PERCENT: u64 = 60;
    /// So many files are there for writes while the live blocks of an older one are appended again.
    const FILES_AHEAD: u64 = 2;
    /// Little room is left from this part on of what live blocks may take, 1/8. That has to be several times what rows free that
    /// come in place together; half of it is not used on average.
    const LITTLE_SHARE: u64 = 8;
    /// With less, writes would wait longer than until there is room.
    const EASE_MIN: f64 = 0.5;
    /// A round brings this part of the log in place, so that choosing its rows costs little.
    const ROUNDS: u64 = 8;

    /// Of a log of `limit` bytes, each copy counted once, in files of `file_len`.
    #[must_use]
    pub const fn new(limit: u64, file_len: u64) -> Self {
        let live_max = limit / 100 * Self::LIVE_PERCENT;
        Self { limit, file_len, live_max: if live_max > BLOCK { live_max } else { BLOCK } }
    }

    /// Whether it takes a write. One `over` live blocks only makes more of them dead.
    #[must_use]
    pub const fn takes(&self, fill: Fill, over: bool) -> bool {
        fill.bytes < self.limit && (over || fill.live * BLOCK < self.live_max)
    }

    /// How much faster than rows make room writes may take it, once little is left: 1 where half of that is live, more with less, and
    /// half as fast at least. `None`: there is more room.
    #[must_use]
    pub fn ease(&self, fill: Fill) -> Option<f64> {
        let little = self.live_max / Self::LITTLE_SHARE;
        let left = self.live_max.saturating_sub(fill.live * BLOCK);
        (left < little).then(|| (left as f64 / (little - left) as f64).max(Self::EASE_MIN))
    }

    /// Whether blocks go in place while users leave operations over.
    #[must_use]
    pub const fn is_due(&self, fill: Fill) -> bool {
        fill.bytes >= self.limit / 4
    }

    /// How many blocks go in place in the next round.
    #[must_use]
    pub fn to_place(&self, fill: Fill) -> u64 {
        if !self.is_due(fill) {
            return 0;
        }
        let most = (self.limit / BLOCK / Self::ROUNDS).max(1);
        fill.live.saturating_sub(self.limit / BLOCK / 16).min(most)
    }

    /// Whether the live blocks of the oldest file are appended again: the log is nearly full, or hardly any block is live.
    #[must_use]
    pub const fn moves(&self, fill: Fill) -> bool {
        let live = fill.live * BLOCK;
        let is_full = fill.bytes + Self::FILES_AHEAD * self.file_len > self.limit;
        // With more live blocks than that, rows have to go in place first.
        let has_dead = live <= self.live_max + self.file_len;
        is_full && has_dead || self.is_due(fill) && 4 * live <= fill.bytes
    }

    /// Whether a log gains room if it appends the `live` blocks of a file of `bytes` again, and removes the file.
    #[must_use]
    pub const fn gains(&self, live: u64, bytes: u64) -> bool {
        let appended = (live + live.div_ceil(MOVED)) * BLOCK;
        live > 0 && appended <= bytes - bytes / 8
    }

    /// How urgent it is that rows go in place and that blocks are appended again, in percent: at 100 writes wait.
    #[must_use]
    pub fn percent(&self, fill: Fill) -> u8 {
        let ahead = Self::FILES_AHEAD * self.file_len;
        // Of the room that is left for writes while an older file is appended again.
        let used = fill.bytes.saturating_sub(self.limit.saturating_sub(ahead));
        let percent = (100 * fill.live * BLOCK / self.live_max).max(100 * used / ahead.max(1));
        u8::try_from(percent).unwrap_or(u8::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;

    const ROOM: Room = Room::new(100 * MIB, 4 * MIB);

    fn fill(bytes: u64, live: u64) -> Fill {
        Fill { bytes: bytes * MIB, live: live * MIB / BLOCK }
    }

    #[test]
    fn a_full_log_takes_no_write_and_one_full_of_live_blocks_only_overwrites() {
        assert!(ROOM.takes(fill(99, 59), false));
        assert!(!ROOM.takes(fill(99, 60), false) && ROOM.takes(fill(99, 60), true));
        assert!(!ROOM.takes(fill(100, 10), true));
    }

    #[test]
    fn rows_go_in_place_from_a_quarter_on_until_few_blocks_are_live() {
        assert_eq!(ROOM.to_place(fill(24, 24)), 0);
        assert_eq!(ROOM.to_place(fill(25, 8)), (8 * MIB - 100 * MIB / 16) / BLOCK);
        assert_eq!(ROOM.to_place(fill(90, 6)), 0);
        assert_eq!(ROOM.to_place(fill(90, 60)), 100 * MIB / BLOCK / 8);
        assert_eq!([30, 60, 90].map(|live| ROOM.percent(fill(95, live))), [50, 100, 150]);
        assert_eq!([92, 96, 100].map(|bytes| ROOM.percent(fill(bytes, 10))), [16, 50, 100]);
    }

    #[test]
    fn the_less_room_is_left_the_slower_writes_take_it() {
        let live_max = 100 * MIB / 100 * 60 / BLOCK;
        let ease = |part: f64| ROOM.ease(Fill { bytes: 0, live: (live_max as f64 * part) as u64 });
        assert_eq!(ease(0.87), None);
        let eases = [0.9, 15.0 / 16.0, 0.98].map(|part| ease(part).unwrap());
        assert!(eases[0] > 2.0 && (eases[1] - 1.0).abs() < 0.01, "{eases:?}");
        assert_eq!((eases[2], ease(1.5)), (0.5, Some(0.5)));
    }

    #[test]
    fn blocks_are_appended_again_where_that_makes_room() {
        assert!(!ROOM.moves(fill(92, 40)) && ROOM.moves(fill(93, 40)));
        assert!(!ROOM.moves(fill(100, 65)), "few of them are dead");
        assert!(ROOM.moves(fill(40, 10)) && !ROOM.moves(fill(40, 11)) && !ROOM.moves(fill(20, 0)));
    }

    #[test]
    fn a_file_that_is_nearly_all_live_is_not_appended_again() {
        assert!(ROOM.gains(126, 147 * BLOCK) && !ROOM.gains(126, 146 * BLOCK));
        assert!(!ROOM.gains(1, 2 * BLOCK), "it would be as long again");
        assert!(!ROOM.gains(0, MIB));
    }

    /// Whatever a log has: rows go in place or files go, until it is a quarter full.
    #[test]
    fn a_log_that_is_due_has_something_to_do() {
        for bytes in (0..=150).step_by(5) {
            for live in (0..=bytes).step_by(5) {
                let fill = fill(bytes, live);
                let works = ROOM.to_place(fill) > 0 || ROOM.moves(fill);
                assert!(works || !ROOM.is_due(fill) && ROOM.takes(fill, false), "{fill:?}");
            }
        }
    }
}
