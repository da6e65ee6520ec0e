//! Random changes, compared with a map, on a machine that loses its power again and again.

use engine::kv::conformance::Harness;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::conformance::{Stores, in_turn, machine, restless};
use super::*;
use crate::kv::Durability;

const SEEDS: u64 = 4;
const CUTS: u64 = 4;
/// Enough for some flushes and compactions, which happen every few hundred changes.
const STEPS_MAX: u64 = 2500;

/// Some changes to a few hundred keys, with ranges of them among the deleted.
fn changes(random: &mut Xoshiro256PlusPlus) -> Vec<Change> {
    let mut below = |limit: u64| random.next_u64() % limit;
    let key = |n: u64| Bytes::from(format!("key {n:03}"));
    let mut changes = Vec::new();
    for _ in 0..=below(8) {
        let n = below(300);
        changes.push(match below(20) {
            0..14 => Change::Put(key(n), vec![below(256) as u8; below(1500) as usize].into()),
            14..18 => Change::Delete(key(n)),
            18 => {
                let to = Some(key(n + below(20)));
                Change::DeleteRange(KeyRange { from: key(n), to })
            }
            _ => Change::DeleteRange(KeyRange { from: key(280 + below(20)), to: None }),
        });
    }
    changes
}

fn everything(store: &dyn KeyValue) -> Vec<(Bytes, Bytes)> {
    let all = Scan {
        range: KeyRange::ALL,
        reverse: false,
        entries_max: usize::MAX,
        bytes_max: usize::MAX,
    };
    store.scan(&all).expect("a scan")
}

/// Loses the power again and again.
fn round(seed: u64) {
    let always = Options { durability: Durability::Always, ..restless() };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut stores = Stores::new(machine(3), always, in_turn);
    let model = Memory::default();
    for cut in 0..CUTS {
        assert!(stores.cut_power_after(random.next_u64() % STEPS_MAX));
        let failed = loop {
            let changes = changes(&mut random);
            if stores.store().apply(&changes).is_err() {
                break changes;
            }
            model.apply(&changes).expect("the model takes anything");
        };
        assert!(stores.reopen());
        let found = everything(stores.store());
        if found != everything(&model) {
            // An unacknowledged batch may be there, but then as a whole.
            model.apply(&failed).expect("the model takes anything");
            assert!(found == everything(&model), "seed {seed}, cut {cut}");
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_after_every_power_cut() {
    (0..SEEDS).for_each(round);
}
