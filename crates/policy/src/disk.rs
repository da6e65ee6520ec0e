//! The mechanics of a spinning disk: one arm, one request at a time.
//!
//! ```text
//!   serve = wait for the arm + seek + wait for the sector to come round + transfer
//! ```
//!
//! The platter always turns, so the head's place over the track depends on the time alone. A
//! request for the bytes behind the last one finds them under the head if it was waiting already;
//! if it comes just after, it misses them by nearly a whole turn. PARIX (ATC 2017) builds on that
//! rotation.

use std::time::Duration;

use crate::contract::Mechanics;
use crate::time::{Instant, NANOS_PER_SEC};

/// One disk and the position of its arm.
#[derive(Clone, Debug)]
pub struct Disk {
    mechanics: Mechanics,
    turn_nanos: u64,
    /// The byte under the head when the last request ended.
    head: u64,
    free_at: Instant,
    busy: Busy,
}

/// How a disk spent its time; it was idle for the rest.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Busy {
    /// Moving the arm.
    pub seek: Duration,
    /// Waiting for the sector to come round.
    pub turn: Duration,
    /// Moving bytes to or from the platter.
    pub transfer: Duration,
}

impl Busy {
    /// The sum.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.seek + self.turn + self.transfer
    }
}

impl Disk {
    /// A disk at rest over its first byte.
    ///
    /// # Panics
    /// When it does not turn, holds nothing or transfers nothing.
    #[must_use]
    pub fn new(mechanics: &Mechanics, now: Instant) -> Self {
        assert!(mechanics.rpm > 0 && mechanics.capacity > 0 && mechanics.transfer_per_sec > 0);
        let turn_nanos = 60 * NANOS_PER_SEC / u64::from(mechanics.rpm);
        Self {
            mechanics: mechanics.clone(),
            turn_nanos,
            head: 0,
            free_at: now,
            busy: Busy::default(),
        }
    }

    /// Serves `len` bytes at `position`, after all earlier requests; returns when they are done.
    ///
    /// Positions beyond the capacity begin again at zero.
    pub fn serve(&mut self, now: Instant, position: u64, len: u64) -> Instant {
        let start = now.max(self.free_at);
        let position = position % self.mechanics.capacity;
        let seek = self.seek(position);
        let over_track = start + seek;
        let end = position.saturating_add(len);
        let from = self.nanos_to(position);
        let transfer = Duration::from_nanos(self.nanos_to(end) - from);
        let turn = self.turn_until(from, over_track);
        self.head = end;
        self.busy.seek += seek;
        self.busy.turn += turn;
        self.busy.transfer += transfer;
        self.free_at = over_track + turn + transfer;
        self.free_at
    }

    /// How it spent its time so far, including requests whose service still lies ahead.
    #[must_use]
    pub const fn busy(&self) -> Busy {
        self.busy
    }

    /// How long the arm moves. The time grows with the square root of the distance: the arm speeds
    /// up for one half and slows down for the other (Ruemmler and Wilkes, "An introduction to disk
    /// drive modeling", IEEE Computer 27(3), 1994).
    fn seek(&self, position: u64) -> Duration {
        let track = |byte| self.nanos_to(byte) / self.turn_nanos;
        // The next byte is never a seek away: tracks are skewed by the time a head switch takes.
        let way = track(self.head).abs_diff(track(position));
        if way == 0 || position == self.head {
            return Duration::ZERO;
        }
        let Mechanics { capacity, seek_track, seek_full, .. } = self.mechanics;
        let full = track(capacity).max(1);
        seek_track + seek_full.saturating_sub(seek_track).mul_f64((way as f64 / full as f64).sqrt())
    }

    /// The wait until the angle `from` is under the head.
    fn turn_until(&self, from: u64, now: Instant) -> Duration {
        let angle = now.as_nanos() % self.turn_nanos;
        let wanted = from % self.turn_nanos;
        Duration::from_nanos((wanted + self.turn_nanos - angle) % self.turn_nanos)
    }

    /// How long the head takes from the first byte to `byte`, track after track without a pause.
    /// Modulo a turn, this is the angle of the byte.
    fn nanos_to(&self, byte: u64) -> u64 {
        let nanos = u128::from(byte) * u128::from(NANOS_PER_SEC)
            / u128::from(self.mechanics.transfer_per_sec);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

/// Where an object's bytes lie on a disk: runs allocated in sequence as it grows.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// Offset within the object and address on the disk of each run's start, ascending.
    starts: Vec<(u64, u64)>,
    end: u64,
}

/// The unit of growth of an object.
const RUN: u64 = 1 << 20;

impl Runs {
    /// The address of the byte at `offset`. At least `len` bytes from there have addresses
    /// afterwards; if the object grows, it does so at `next_free`, the first free address.
    pub fn address(&mut self, offset: u64, len: u64, next_free: &mut u64) -> u64 {
        let needed = offset.saturating_add(len.max(1));
        if needed > self.end {
            let more = (needed - self.end).div_ceil(RUN).saturating_mul(RUN);
            self.starts.push((self.end, *next_free));
            *next_free = next_free.saturating_add(more);
            self.end = self.end.saturating_add(more);
        }
        let (start, address) = self.starts[self.starts.partition_point(|&(s, _)| s <= offset) - 1];
        address.saturating_add(offset - start)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::units::MIB;

    const MS: Duration = Duration::from_millis(1);

    /// A disk of 7200 rpm: a turn of 8.33 ms, about 8 ms for the average seek.
    fn mechanics() -> Mechanics {
        Mechanics {
            capacity: 4_000_000_000_000,
            rpm: 7200,
            seek_track: MS,
            seek_full: Duration::from_micros(14_200),
            transfer_per_sec: 200_000_000,
        }
    }

    fn disk() -> Disk {
        Disk::new(&mechanics(), Instant::ZERO)
    }

    #[test]
    fn random_reads_take_a_seek_and_half_a_turn() {
        let mut disk = disk();
        let mut now = Instant::ZERO;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..10_000 {
            now = disk.serve(now, random.random_range(0..mechanics().capacity), 4096);
        }
        let mean = now.since(Instant::ZERO) / 10_000;
        assert!(
            mean > Duration::from_micros(11_500) && mean < Duration::from_micros(12_700),
            "{mean:?}"
        );
        let (expected, found) = (mechanics().random_iops(4096), 1.0 / mean.as_secs_f64());
        assert!((found / expected - 1.0).abs() < 0.03, "{found} a second, not {expected}");
    }

    #[test]
    fn requests_that_wait_in_order_stream() {
        let mut disk = disk();
        let mut done = disk.serve(Instant::ZERO, 0, MIB);
        for i in 1..1000 {
            done = disk.serve(Instant::ZERO, i * MIB, MIB);
        }
        let seconds = done.since(Instant::ZERO).as_secs_f64();
        let ideal = 1000.0 * MIB as f64 / 200e6;
        assert!((seconds - ideal).abs() < 1e-3, "{seconds} against {ideal}");
    }

    #[test]
    fn rewriting_what_was_just_read_costs_a_turn() {
        let mut disk = disk();
        let read = disk.serve(Instant::ZERO, 123 * MIB, 4096);
        let wrote = disk.serve(read, 123 * MIB, 4096);
        let turn = wrote.since(read);
        assert!(
            turn.abs_diff(Duration::from_nanos(8_333_333)) < Duration::from_micros(1),
            "{turn:?}"
        );
    }

    #[test]
    fn a_request_just_too_late_waits_for_the_next_turn() {
        let mut disk = disk();
        let first = disk.serve(Instant::ZERO, 0, 4096);
        let late = disk.serve(first + Duration::from_micros(10), 4096, 4096);
        let lost = late.since(first);
        assert!(lost > 8 * MS && lost < 9 * MS, "{lost:?}");
    }

    #[test]
    fn a_longer_way_takes_longer_but_less_than_in_proportion() {
        let seek = |share: f64| disk().seek((mechanics().capacity as f64 * share) as u64);
        let [tenth, half, whole] = [0.1, 0.5, 0.999_999].map(seek);
        assert!(tenth < half && half < whole && half < 5 * tenth);
        assert!(whole <= mechanics().seek_full && mechanics().seek_full - whole < MS / 100);
    }

    #[test]
    fn an_object_written_alone_lies_in_one_piece() {
        let (mut object, mut next_free) = (Runs::default(), 7 * MIB);
        let addresses: Vec<u64> =
            (0..64).map(|i| object.address(i * MIB / 4, MIB / 4, &mut next_free)).collect();
        assert!(addresses.iter().zip(0..).all(|(&a, i)| a == 7 * MIB + i * MIB / 4));
    }

    #[test]
    fn objects_that_grow_together_share_no_byte() {
        let mut objects = [Runs::default(), Runs::default()];
        let mut next_free = 0;
        let mut seen = std::collections::HashSet::new();
        for piece in 0..100 {
            for object in &mut objects {
                let address = object.address(piece * MIB / 2, MIB / 2, &mut next_free);
                assert!(seen.insert(address / (MIB / 2)));
                assert_eq!(address % (MIB / 2), 0);
            }
        }
    }

    proptest! {
        #[test]
        fn the_arm_serves_one_after_the_other(
            requests in prop::collection::vec((0u64..20_000_000, 0u64..1 << 42, 1u64..1 << 20), 1..50),
        ) {
            let mut disk = disk();
            let (mut now, mut last) = (Instant::ZERO, Instant::ZERO);
            let turn = Duration::from_nanos(8_333_334);
            for (gap, position, len) in requests {
                now = now + Duration::from_nanos(gap);
                let done = disk.serve(now, position, len);
                let busy = done.since(now.max(last));
                let transfer = Duration::from_nanos(len * 5);
                prop_assert!(busy + Duration::from_nanos(5) >= transfer);
                prop_assert!(busy <= transfer + mechanics().seek_full + turn);
                last = done;
            }
        }
    }
}
