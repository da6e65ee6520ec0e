//! TWA: one pool, and time windows that end with the second; the longer a group's window, the more it can take
//! (Calcspar, ATC 2023).
//!
//! ```text
//!   start_q = 1 - k · alloc_q     alloc_q in parts of P, moved once a second
//! ```
//!
//! The high group's window is the whole second. The other two allocations move by how much less was used, up to the
//! opening of the medium window, than in the second before. Two forms:
//!
//! | | paper | released code |
//! |---|---|---|
//! | k | 1 | 0.75 |
//! | first allocations | 0.3, 0.1 | 0.1, 0.05 |
//! | first windows from | 0.7 s, 0.9 s | 0.7 s, 0.9 s, until they were moved once |
//! | among those open | first come, first served | a class at random, until it is empty |
//!
//! The random order comes from a fixed seed. Two rules differ from both forms: an allocation is between 0 and P, and
//! each window opens at 0.95 s at the latest. In the code an allocation of 0 shuts the low window for ever, and the
//! medium one may fall below 0.

use super::{GROUPS, Scheme, Used};
use crate::purpose::Class;
use crate::sched::Ticket;

/// The latest opening of any window, in parts of the second.
const OPENS_MAX: f64 = 0.95;

/// One pool, and windows.
#[derive(Debug)]
pub struct Windows {
    /// The length of a window in seconds, for each P that was allocated.
    k: f64,
    medium: Window,
    low: Window,
    /// Use in the second before, up to the opening of the medium window.
    before: f64,
    /// Use in all of the last second.
    last: f64,
    /// Whether the windows were moved in this second.
    moved: bool,
    order: Order,
}

#[derive(Debug)]
struct Window {
    alloc: f64,
    opens: f64,
}

#[derive(Debug)]
enum Order {
    Arrival,
    Random { state: u64, drained: Option<usize> },
}

impl Windows {
    /// The paper's form.
    #[must_use]
    pub const fn published() -> Self {
        Self {
            k: 1.0,
            medium: Window { alloc: 0.3, opens: 0.7 },
            low: Window { alloc: 0.1, opens: 0.9 },
            before: 0.85,
            last: 0.0,
            moved: false,
            order: Order::Arrival,
        }
    }

    /// The form of the released code, with its constants for 1000 IOPS in parts of P.
    #[must_use]
    pub const fn released() -> Self {
        Self {
            k: 0.75,
            medium: Window { alloc: 0.1, opens: 0.7 },
            low: Window { alloc: 0.05, opens: 0.9 },
            order: Order::Random { state: 1, drained: None },
            ..Self::published()
        }
    }

    fn move_windows(&mut self, used: f64) {
        let mut freed = self.before - used;
        self.before = used;
        if self.last < 0.85 && freed < 0.05 {
            freed += 0.05;
        } else if self.last > 0.85 && freed > 0.05 {
            freed -= 0.025;
        }
        for (window, part) in [(&mut self.medium, 0.7), (&mut self.low, 0.3)] {
            window.alloc = (window.alloc + part * freed).clamp(0.0, 1.0);
            window.opens = (1.0 - self.k * window.alloc).min(OPENS_MAX);
        }
    }
}

impl Scheme for Windows {
    fn deal(&mut self, last: Option<Used>) -> [f64; GROUPS] {
        self.last = last.map_or(0.0, |used| used.total());
        self.moved = false;
        [1.0, 0.0, 0.0]
    }

    fn pool(&self, _: usize) -> usize {
        0
    }

    fn opens(&self, group: usize) -> f64 {
        [0.0, self.medium.opens, self.low.opens][group]
    }

    /// The first look after the medium window opened moves the windows.
    fn look(&mut self, passed: f64, used: Used) {
        if !self.moved && passed >= self.medium.opens {
            self.moved = true;
            self.move_windows(used.total());
        }
    }

    fn next(&mut self, open: &[Option<Ticket>; Class::ALL.len()]) -> Option<usize> {
        let waiting =
            || open.iter().enumerate().filter_map(|(index, t)| Some((t.as_ref()?, index)));
        let Order::Random { state, drained } = &mut self.order else {
            return waiting().min().map(|(_, index)| index);
        };
        if drained.is_none_or(|index| open[index].is_none()) {
            let count = waiting().count() as u64;
            *drained = (count > 0).then(|| {
                let drawn = usize::try_from(draw(state) % count).expect("less than five");
                waiting().nth(drawn).map(|(_, index)| index).expect("drawn below their count")
            });
        }
        *drained
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
const fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
