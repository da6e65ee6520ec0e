//! Pools that keep extents as fragments of an erasure code, with one half of the seeds. Their extents are written through
//! a log.
//!
//! ```text
//!   Store ── Narrow ── Logged ── Spread ── Simulate ── Deadline ── Fault ── Crash     one row for each volume
//! ```
//! Such a pool survives what happens to as many volumes as the code has parity fragments. So the search keeps the set of
//! volumes that something happened to since every object had all of its fragments. In [`Weather::Few`] the members of this
//! set fail, are away, or are lost and replaced, they are never more than that, and no call may fail.

use std::cell::RefCell;
use std::collections::BTreeSet;

use policy::placement::Code;
use policy::units::KIB;
use pool::logged::Options;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::mem::Image;

use super::spoil::Spoiled;
use super::weather::Weather;
use crate::Sim;

/// One pool of this many has a code.
const CODES_ONE_IN: u32 = 2;

/// A pool with a code, over all lives of the store. Volumes are named by their rows.
pub(super) struct Coded {
    pub(super) code: Code,
    pub(super) options: Options,
    pub(super) volumes: u32,
    /// Volumes whose fragments and copies may be missing or old.
    pub(super) affected: RefCell<BTreeSet<u32>>,
    /// Volumes that are not known to be the pool's: spare ones, and those that replace lost ones.
    pub(super) blank: RefCell<BTreeSet<u32>>,
    pub(super) spoiled: Spoiled,
}

impl Coded {
    /// A code, and the volumes of the pool that has it; `None` with the other seeds. It has a stream of its own, so
    /// those draw what they always did.
    pub(super) fn draw(sim: &Sim) -> Option<Self> {
        let mut random = sim.random("code");
        if random.random_range(0..CODES_ONE_IN) > 0 {
            return None;
        }
        let (data, parity) = [(2, 1), (3, 2), (4, 2)][random.random_range(0..3)];
        let strip = [4, 8, 16][random.random_range(0..3)] * KIB;
        let code = Code::new(data, parity, strip).expect("its numbers are within bounds");
        let limit = random.random_range(48..256) * KIB;
        let file_len = limit / random.random_range(2..6);
        let memory = if random.random_bool(0.5) { 0 } else { limit };
        let options = Options { limit, file_len, memory, ..Options::default() };
        let (more, spare) = (random.random_range(0..=1), random.random_range(0..=1));
        let first = code.fragments() as u32 + more;
        Some(Self {
            code,
            options,
            volumes: first + spare,
            affected: RefCell::default(),
            blank: RefCell::new((first..first + spare).collect()),
            spoiled: Spoiled::default(),
        })
    }

    /// Draws the weather of a life.
    pub(super) fn weather(&self, random: &mut Xoshiro256PlusPlus) -> Weather {
        let affected = self.affected.borrow().len();
        let weather = match random.random_range(0..10) {
            0..2 => Weather::Calm,
            2..4 => Weather::Rot,
            4..8 => Weather::Few,
            _ => Weather::Storm,
        };
        let may_be = match weather {
            Weather::Calm => true,
            Weather::Flicker => false,
            // What rots affects a fragment, too.
            Weather::Rot => affected == 0,
            Weather::Few => affected <= self.code.parity() && !self.spoiled.is_unfit(),
            // A lost volume beside all others would be too much.
            Weather::Storm => {
                let (affected, blank) = (self.affected.borrow(), self.blank.borrow());
                affected.is_disjoint(&blank) && !self.spoiled.is_unfit()
            }
        };
        if may_be { weather } else { Weather::Calm }
    }

    /// Draws the volumes that something happens to in a life, takes the bytes of those that are lost, and returns those
    /// that are away.
    pub(super) fn begin_life(
        &self,
        weather: Weather,
        images: &mut [Image],
        random: &mut Xoshiro256PlusPlus,
    ) -> BTreeSet<u32> {
        let (mut affected, mut blank) = (self.affected.borrow_mut(), self.blank.borrow_mut());
        let mut away = BTreeSet::new();
        match weather {
            Weather::Few => {
                let wanted = random.random_range(1..=self.code.parity());
                while affected.len() < wanted {
                    affected.insert(random.random_range(0..self.volumes));
                }
                for &row in &*affected {
                    match random.random_range(0..10) {
                        0..3 => drop(blank.insert(row)),
                        3..5 if !blank.contains(&row) => drop(away.insert(row)),
                        _ => {}
                    }
                }
            }
            Weather::Storm => {
                *affected = (0..self.volumes).collect();
                if random.random_bool(0.3) {
                    away.insert(random.random_range(0..self.volumes));
                }
            }
            Weather::Calm | Weather::Rot | Weather::Flicker => {}
        }
        blank.iter().for_each(|&row| images[row as usize].clear());
        away
    }

    /// The volumes that fail in this life.
    pub(super) fn failing(&self) -> Vec<u32> {
        self.affected.borrow().iter().copied().collect()
    }

    /// Whether a volume may be affected, and is from now on.
    pub(super) fn affect(&self, row: u32, weather: Weather) -> bool {
        let mut affected = self.affected.borrow_mut();
        let may = match weather {
            Weather::Storm => true,
            Weather::Calm => affected.contains(&row) || affected.len() < self.code.parity(),
            Weather::Few => affected.contains(&row),
            Weather::Rot | Weather::Flicker => false,
        };
        if may {
            affected.insert(row);
        }
        may
    }
}
