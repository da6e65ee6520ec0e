//! A log store without bytes under every rule of merging: the costs of the rules, and their invariants.
//!
//! `sim merge` searches with any rule, any lifetimes, and merges that are slower or faster than puts. A
//! feasible store must never run out of space, and never refuse puts for ever. `sim merge --table` runs
//! until equilibrium and prints write amplification, for the rules of the paper (PSTA 8(3), 2017) too.

mod load;
mod store;
mod table;

pub use load::Lifetimes;
pub use store::{Figures, PUTS_PER_SEC, Shape, play};
pub use table::{at_peak, table};

use policy::merge::{Put, Room, Rule, Settings};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{Program, Sim};
use load::Load;
use store::Store;

/// See the [module](self).
pub const PROGRAM: Program = Program {
    name: "merge",
    about: "A log store without bytes under every rule of merging: room, progress, account",
    run,
};

/// Puts of a run, in fillings of the volume.
const FILLINGS: u64 = 4;
/// A put that is refused this many times in a row counts as refused for ever: each refusal gives the merges
/// a second.
const REFUSALS_MAX: u32 = 2000;

fn run(sim: &Sim) -> String {
    let mut random = sim.random("script");
    let shape = any_shape(&mut random);
    sim.note("store", format_args!("! {shape:?}"));
    let mut store = Store::new(shape, &mut random);
    let mut load = Load::new(shape.lifetimes, shape.keys(), &mut random);
    let (mut picks, mut refusals) = (0u64, 0u64);
    for _ in 0..FILLINGS * u64::from(shape.capacity) {
        let (key, again) = load.next(&mut random);
        let mut refused = 0;
        while let Put::Refused { .. } = store.admit() {
            refused += 1;
            assert!(refused < REFUSALS_MAX, "puts are refused for ever at {:?}", store.fill());
            store.look(|store, pick| {
                picks += 1;
                sim.note("store", format_args!("{pick:?} at {:?}", store.fill()));
            });
        }
        refusals += u64::from(refused);
        store.put(key, again);
        let room = store.look(|store, pick| {
            picks += 1;
            sim.note("store", format_args!("{pick:?} at {:?}", store.fill()));
        });
        assert!(room, "out of space at {:?}", store.fill());
    }
    store.audit();
    let rule = shape.settings.rule.name();
    format!("{rule}, {}: {picks} picks, {refusals} refusals", shape.lifetimes.name())
}

/// Any feasible store.
fn any_shape(random: &mut Xoshiro256PlusPlus) -> Shape {
    let range = 1 << random.random_range(1..7);
    let lifetimes = [
        Lifetimes::Cyclic,
        Lifetimes::Random,
        Lifetimes::Hot,
        Lifetimes::Series { range },
        Lifetimes::SeriesUntold { range },
        Lifetimes::Spread { range },
        Lifetimes::Mixed,
    ];
    loop {
        let rule = Rule::ALL[random.random_range(0..Rule::ALL.len())];
        let target = random.random_range(0.5..0.95);
        let shape = Shape {
            lifetimes: lifetimes[random.random_range(0..lifetimes.len())],
            partitions: random.random_range(1..6),
            capacity: random.random_range(400..1500),
            file: random.random_range(4..40),
            live: random.random_range(0.1..0.97),
            groups: random.random_range(1..6),
            settings: Settings { target, ..Settings::new(rule, 1) },
            pace: Some(random.random_range(0.1..8.0)),
            polite: true,
        };
        let room = Room {
            capacity: shape.capacity.into(),
            live: shape.live,
            // Merges write their own files.
            open: 2 * u64::from(shape.partitions) * u64::from(shape.groups),
            file_bytes: shape.file.into(),
            target,
            reserve: shape.file.into(),
        };
        if room.check().is_ok() {
            return shape;
        }
    }
}

#[cfg(test)]
mod tests;
