use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

fn groups() -> Groups {
    Groups::new(8, 4, FILE / 100, CAPACITY)
}

/// Puts records of 1 MiB, the i-th with the life given for it; returns the place of each.
fn put(groups: &mut Groups, count: u64, mut life: impl FnMut(u64, Written) -> Life) -> Vec<Placed> {
    (0..count)
        .map(|i| {
            let now = Written(i * MIB);
            groups.put(i.wrapping_mul(0x9e37_79b9_7f4a_7c15), life(i, now), MIB, now)
        })
        .collect()
}

#[test]
fn series_that_are_kept_for_different_times_go_to_different_files() {
    let mut groups = groups();
    let kept = [100, 200, 400, 4000];
    let placed = put(&mut groups, 4000, |i, now| Life::Until(now.plus(kept[i as usize % 4] * MIB)));
    let last: Vec<_> = placed[3996..].iter().map(|placed| placed.group).collect();
    assert_eq!(last, [Group(0), Group(1), Group(2), Group(3)]);
    assert_eq!(placed[3996].death, Death::At(Written((3996 + 100) * MIB)));
    assert_eq!(groups.count(), 4);
    assert!(groups.is_open(Group(3)) && !groups.is_open(Group(4)));
}

#[test]
fn lifetimes_that_hardly_differ_share_a_file() {
    let mut groups = groups();
    put(&mut groups, 4000, |i, now| Life::Until(now.plus((1000 + i % 4) * MIB)));
    assert_eq!(groups.count(), 1);
}

#[test]
fn a_copy_joins_the_records_that_live_as_long_as_it_still_will() {
    let mut groups = groups();
    let kept = [100, 1000];
    put(&mut groups, 4000, |i, now| Life::Until(now.plus(kept[i as usize % 2] * MIB)));
    let now = Written(4000 * MIB);
    let mut copy =
        |left: u64| groups.copy(1, Some(now.plus(left * MIB)), Written(0), MIB, now).group;
    assert_eq!([copy(1000), copy(100), copy(3)], [Group(1), Group(0), Group(0)]);
}

/// Overwrites keys, of which one in ten is hot; returns the groups at the end.
fn overwrite(hot_share: f64) -> (Groups, Group, Group) {
    let mut groups = groups();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut since = vec![None; 1000];
    let mut last = [Group(0); 2];
    for i in 0..40_000 {
        let hot = random.random_bool(hot_share);
        let key = if hot { random.random_range(0..100) } else { random.random_range(100..1000) };
        let now = Written(i * MIB);
        let life = since[key].map_or(Life::First, Life::Replaces);
        since[key] = Some(now);
        let hash = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
        last[usize::from(hot)] = groups.put(hash, life, MIB, now).group;
    }
    let now = Written(40_000 * MIB);
    let mut of =
        |age: u64| groups.put(1, Life::Replaces(Written((40_000 - age) * MIB)), 1, now).group;
    let (young, old) = (of(20), of(9000));
    (groups, young, old)
}

#[test]
fn what_replaces_the_short_lived_is_kept_apart_from_the_rest() {
    let (groups, young, old) = overwrite(0.9);
    assert!(groups.count() > 1 && young != old, "{} groups", groups.count());
}

#[test]
fn chance_makes_no_groups() {
    let (groups, young, old) = overwrite(0.1);
    assert_eq!((groups.count(), young), (1, old));
}

/// The mean was once that of dead records only. While a store was young it grew with the store, and early files were
/// spared as short-lived. On keys written at random that copied 3 % more than greed.
#[test]
fn guesses_of_no_value_give_no_death() {
    for seed in 0..8 {
        let mut groups = groups();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut since = vec![None; 1000];
        for i in 0..6000u64 {
            let now = Written(i * MIB);
            let key = random.random_range(0..1000usize);
            let hash = |key: usize| (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let life = since[key].map_or(Life::First, Life::Replaces);
            let placed = groups.put(hash(key), life, MIB, now);
            assert_eq!((placed.death, groups.count()), (Death::Unknown, 1), "seed {seed}, put {i}");
            since[key] = Some(now);
            let old = random.random_range(0..1000usize);
            // Merges begin late, and copy old records.
            if let Some(put) = since[old].filter(|put| i > 1500 && now.since(*put) > 500 * MIB) {
                let placed = groups.copy(hash(old), None, put, MIB, now);
                assert_eq!(placed.death, Death::Unknown, "seed {seed}, copy at {i}");
            }
        }
    }
}

#[test]
fn beside_known_lifetimes_those_that_are_alike_are_one_guess() {
    let mut groups = groups();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut since = vec![None; 1000];
    let mut guesses = Vec::new();
    for i in 0..20_000u64 {
        let now = Written(i * MIB);
        if i % 2 == 0 {
            groups.put(u64::MAX - i, Life::Until(now.plus(3000 * MIB)), MIB, now);
            continue;
        }
        let key = random.random_range(0..1000usize);
        let life = since[key].map_or(Life::First, Life::Replaces);
        since[key] = Some(now);
        let hash = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        guesses.push(groups.put(hash, life, MIB, now).death);
    }
    // Every second put goes to one of a thousand keys.
    for death in &guesses[5000..] {
        let Death::After(lasts) = *death else { panic!("{death:?}") };
        assert!((1800..2200).contains(&(lasts / MIB)), "{} MiB", lasts / MIB);
    }
}

#[test]
fn what_is_known_and_what_is_guessed_never_share_a_file() {
    let mut groups = Groups::new(3, 1, MIB, CAPACITY);
    let mut seen = [Vec::new(), Vec::new()];
    for i in 0..2000u64 {
        let now = Written(i * MIB);
        let life = match i % 2 {
            0 => Life::Until(now.plus((10 << (i % 10)) * MIB)),
            _ => Life::First,
        };
        let placed = groups.put(i, life, MIB, now);
        if i > 10 {
            seen[(i % 2) as usize].push(placed.group);
        }
    }
    assert!(seen[0].iter().all(|group| !seen[1].contains(group)));
    assert!(groups.count() <= 3);
}

#[test]
fn one_group_is_no_grouping() {
    let mut groups = Groups::new(1, 1, MIB, CAPACITY);
    let placed = put(&mut groups, 100, |i, now| Life::Until(now.plus(MIB << (i % 20))));
    assert!(placed.iter().all(|placed| placed.group == Group(0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn there_are_never_more_groups_than_allowed(
        max in 1u8..9,
        puts in prop::collection::vec((any::<u64>(), 0u8..3, any::<u64>(), 1u64..10 * MIB), 1..100),
    ) {
        let mut groups = Groups::new(max, 2, MIB, CAPACITY);
        let mut now = Written(0);
        for (key, kind, time, len) in puts {
            let life = match kind {
                0 => Life::Until(Written(time)),
                1 => Life::Replaces(Written(time)),
                _ => Life::First,
            };
            let placed = groups.put(key % 64, life, len, now);
            let copied = groups.copy(key % 64, None, Written(time), len, now);
            for group in [placed.group, copied.group] {
                prop_assert!(group.0 < max && groups.is_open(group));
            }
            prop_assert!(groups.count() <= usize::from(max));
            now = now.plus(len);
        }
    }
}
