//! Blocks that are kept as they are written.

use policy::inherit::{Fences, Made};
use policy::intent::{Family, KeyRange};

use super::*;

/// A table whose blocks begin with these keys; the last is the last of all.
fn table(family: &str, level: u8, keys: &[u8]) -> Table {
    let mut keys: Vec<Box<[u8]>> = keys.iter().map(|&key| [key].into()).collect();
    let last = keys.pop().expect("two keys");
    let range = KeyRange { first: keys.remove(0), last };
    let fences = Fences::new(&range, keys).expect("in order");
    Table { family: Family(family.into()), level, fences }
}

impl Rig {
    fn describe(&self, number: u64, table: Table) {
        self.objects[&number].1.describe(table);
    }

    fn rewarm(&self, number: u64, table: Table, made: Made) {
        let (_, cached, handle) = &self.objects[&number];
        let bytes: Vec<_> = (0..handle.len()).map(|offset| byte(number, offset)).collect();
        cached.rewarm(table, &bytes, made);
    }
}

/// Two blocks of one table, of which the second is hot; and a table of two blocks and a bit that is to take
/// its place.
fn rig(old: Table) -> (Rig, u64, u64) {
    let mut rig = Rig::new(8 * MIB, None);
    let (hot, new) = (rig.create(2 * BLOCK), rig.create(2 * BLOCK + 5000));
    rig.describe(hot, old);
    rig.warm(hot, 1);
    // The volumes have nothing to spare.
    rig.second(1.0);
    (rig, hot, new)
}

#[test]
fn a_table_that_takes_the_place_of_a_hot_one_is_hot_for_no_operation() {
    let (mut rig, hot, new) = rig(table("f", 1, &[0, 100, 200]));
    let before: Vec<_> = rig.gates.iter().map(|gate| gate.meter()).map(ops).collect();
    rig.rewarm(new, table("f", 1, &[0, 20, 200, 255]), Made::Merged);
    let Figures { blocks, rewarmed, rewarmed_useful, prefetches, .. } = rig.cache.figures();
    assert_eq!((blocks, rewarmed, rewarmed_useful, prefetches), (1, 1, 0, 0));
    assert!(rig.read(new, BLOCK + 4000, 3000), "its bytes are those of the object");
    assert!(!rig.read(new, 0, 3000));
    let after: Vec<_> = rig.gates.iter().map(|gate| gate.meter()).map(ops).collect();
    let Figures { rewarmed_useful, useful, .. } = rig.cache.figures();
    assert_eq!((rewarmed_useful, useful), (1, 1));
    assert_eq!(after, before);
    rig.remove(hot);
    assert!(rig.read(new, BLOCK + 9000, 3000), "it needs the old one no more");
}

fn ops(meter: volume::layer::gate::Meter) -> u64 {
    meter.classes.iter().map(|class| class.spent.ops).sum()
}

#[test]
fn what_a_new_table_has_no_keys_of_leaves_it_cold() {
    for (old, made) in [
        (table("other", 1, &[0, 100, 200]), Made::Flushed),
        (table("f", 2, &[0, 100, 200]), Made::Merged),
        (table("f", 1, &[0, 1, 2]), Made::Merged),
    ] {
        let (rig, _, new) = rig(old.clone());
        rig.rewarm(new, table("f", 1, &[10, 20, 200, 255]), made);
        assert_eq!(rig.cache.figures().rewarmed, 0, "{old:?}");
    }
    // A flush takes over from tables of any level, those it has room for.
    let (rig, _, new) = rig(table("f", 2, &[0, 100, 200]));
    rig.rewarm(new, table("f", 0, &[0, 100, 200]), Made::Flushed);
    assert_eq!(rig.cache.figures().rewarmed, 1);
}

#[test]
fn the_last_block_is_kept_as_far_as_it_goes() {
    let (rig, _, new) = rig(table("f", 1, &[0, 100, 200]));
    rig.rewarm(new, table("f", 1, &[0, 50, 100, 200]), Made::Merged);
    assert!(rig.read(new, 2 * BLOCK, 5000));
    assert_eq!(rig.cache.figures().rewarmed, 1);
}

#[test]
fn blocks_are_kept_in_the_budget_only() {
    let (rig, _, new) = rig(table("f", 1, &[0, 100, 200]));
    rig.cache.set_bytes(BLOCK);
    rig.rewarm(new, table("f", 1, &[0, 100, 200]), Made::Merged);
    assert_eq!((rig.blocks(), rig.cache.figures().bytes), (0, 0));
}

#[test]
fn heat_is_passed_on_once_more() {
    let (mut rig, hot, new) = rig(table("f", 0, &[0, 100, 200]));
    rig.rewarm(new, table("f", 1, &[0, 100, 200]), Made::Merged);
    rig.remove(hot);
    let newest = rig.create(2 * BLOCK);
    rig.rewarm(newest, table("f", 2, &[0, 100, 200]), Made::Merged);
    rig.remove(new);
    let Figures { blocks, rewarmed, wasted, .. } = rig.cache.figures();
    assert_eq!((blocks, rewarmed, wasted), (1, 2, 1));
    assert!(rig.read(newest, BLOCK, 1));
}
