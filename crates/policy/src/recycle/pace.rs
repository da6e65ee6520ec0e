//! Spreads users' writes over time while a log of blocks makes room in bursts.
//!
//! Rows go in place some at a time, and each makes room for several blocks. Where writes take all room as soon as it is there, those
//! that come next wait until more rows are in place: half of all writes take milliseconds, and some a third of a second. So once
//! little room is left, writes go in groups. A group goes when rows have made as much room, on average, as the one before it took.
//!
//! ```text
//!   room made    ▄▄▄▄▄▄          ▄▄▄▄▄         ▄▄▄▄▄▄▄
//!   at once      ████████▁▁▁▁▁▁▁▁████▁▁▁▁▁▁▁▁▁█████▁▁▁▁▁
//!   in groups    ▄  ▄  ▄  ▄  ▄  ▄  ▄  ▄  ▄  ▄  ▄  ▄  ▄
//! ```
//! The writes of a group share the syncs of the log. Single writes at equal distances would not.

use std::time::Duration;

use crate::time::Instant;

/// How far back the rate at which rows make room is known, in seconds: the work of some rounds, and of many rows.
const MEMORY: f64 = 2.0;

/// Rows that come in place after a longer time say nothing of the rate.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The longest time between two groups. Where rows make less room, the log is full by then, and writes wait for that.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// A group for which there is room already waits for others to join it: this part of the time since the one before, 1/8.
const OTHERS_SHARE: u32 = 8;

/// And at most this long.
const OTHERS_MAX: Duration = Duration::from_millis(2);

/// When writes go.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// Blocks that came in place lately while there was little room, and the seconds that it took.
    placed: f64,
    seconds: f64,
    /// When the last of them came in place.
    last: Option<Instant>,
    /// When the last group went, or will go.
    at: Option<Instant>,
    /// The blocks that it takes room for.
    takes: u64,
}

impl Pace {
    /// `blocks` came in place while there was little room.
    pub fn placed(&mut self, now: Instant, blocks: u64) {
        let since = self.last.replace(now).map(|last| now.since(last));
        let Some(since) = since.filter(|&since| since < PAUSE_MAX) else { return };
        let keep = (-since.as_secs_f64() / MEMORY).exp();
        self.placed = self.placed * keep + blocks as f64;
        self.seconds = self.seconds * keep + since.as_secs_f64();
    }

    /// When a write goes that takes room for `blocks`: now, or with the next group. `ease` is 1 where the room is to stay as it is,
    /// and more where it may become less ([`Room::ease`](super::room::Room::ease)).
    pub fn enter(&mut self, now: Instant, blocks: u64, ease: f64) -> Instant {
        let at = match self.at {
            Some(at) if now < at => {
                self.takes += blocks;
                return at;
            }
            Some(at) => {
                let others = (now.since(at) / OTHERS_SHARE).min(OTHERS_MAX);
                (at + self.room_for(self.takes, ease)).max(now + others)
            }
            None => now,
        };
        self.at = Some(at);
        self.takes = blocks;
        at
    }

    /// How long rows take to make room for `blocks`.
    fn room_for(&self, blocks: u64, ease: f64) -> Duration {
        let rate = self.placed / self.seconds * ease;
        let seconds = blocks as f64 / rate;
        // Nothing is known of the rate at first.
        if seconds.is_nan() {
            Duration::ZERO
        } else {
            Duration::from_secs_f64(seconds.min(WAIT_MAX.as_secs_f64()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Rows of eight blocks, each 10 ms.
    fn pace() -> Pace {
        let mut pace = Pace::default();
        (0..300).for_each(|nth| pace.placed(at(10 * nth), 8));
        pace
    }

    #[test]
    fn a_group_goes_when_there_is_room_for_the_one_before() {
        let mut pace = pace();
        assert_eq!(pace.enter(at(3000), 16, 1.0), at(3000), "the first one");
        let second: Vec<_> = (1..9).map(|ms| pace.enter(at(3000 + ms), 2, 1.0)).collect();
        assert!(second.iter().all(|&goes| goes == second[0]), "{second:?}");
        assert!((19..=21).contains(&second[0].since(at(3000)).as_millis()), "{second:?}");
        let third = pace.enter(at(3030), 1, 1.0);
        assert!((19..=21).contains(&third.since(second[0]).as_millis()), "{third:?}");
        let late = [0, 1].map(|ms| pace.enter(at(4000 + ms), 1, 1.0));
        assert_eq!(late, [at(4002); 2], "room was made meanwhile, and others may come");
    }

    #[test]
    fn groups_go_faster_where_room_may_become_less() {
        let waits = |ease| {
            let mut pace = pace();
            pace.enter(at(3000), 80, ease);
            pace.enter(at(3000), 1, ease).since(at(3000)).as_millis()
        };
        assert!((95..=105).contains(&waits(1.0)) && (45..=55).contains(&waits(2.0)));
        assert_eq!((waits(f64::INFINITY), waits(0.0)), (0, WAIT_MAX.as_millis()));
    }

    #[test]
    fn writes_over_live_blocks_and_those_before_the_first_row_wait_for_others_only() {
        let mut pace = pace();
        let mut new = Pace::default();
        for ms in (0..100).map(|nth| 8 * nth) {
            let waits = [pace.enter(at(3000 + ms), 0, 0.5), new.enter(at(3000 + ms), 100, 0.5)];
            assert!(
                waits.iter().all(|goes| goes.since(at(3000 + ms)).as_millis() <= 1),
                "{waits:?}"
            );
        }
    }

    #[test]
    fn a_time_in_which_there_was_room_does_not_count() {
        let mut pace = pace();
        pace.placed(at(3_600_000), 8);
        pace.placed(at(3_600_010), 8);
        let rate = pace.placed / pace.seconds;
        assert!((700.0..=900.0).contains(&rate), "{rate}");
    }
}
