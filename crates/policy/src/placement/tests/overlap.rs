//! Least overlap and its index, against a naive implementation.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::inherit::{Fences, Made, inherit};

/// A table in the naive index.
#[derive(Clone, Debug)]
struct Plain {
    family: u8,
    level: Option<u8>,
    keys: Option<(u8, u8)>,
    on: Vec<VolumeId>,
    rate: f32,
    leaving: bool,
}

/// A list of all tables, scanned each time.
#[derive(Debug, Default)]
struct Naive(BTreeMap<u64, Plain>);

impl Naive {
    fn level(&self, family: u8, wanted: impl Fn(u8) -> bool) -> impl Iterator<Item = u8> {
        let tables = self.0.values().filter(move |t| t.family == family && t.keys.is_some());
        tables.filter_map(|t| t.level).filter(move |&level| wanted(level))
    }

    fn overlapping(&self, family: u8, level: u8, (from, to): (u8, u8)) -> Vec<u64> {
        let overlaps = |keys: Option<(u8, u8)>| keys.is_some_and(|(a, b)| a <= to && from <= b);
        let mut found: Vec<_> = self
            .0
            .iter()
            .filter(|(_, t)| t.family == family && t.level == Some(level) && overlaps(t.keys))
            .map(|(&object, t)| (t.keys.map(|(from, _)| from), object))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, object)| object).take(OVERLAPS_MAX).collect()
    }

    /// TANGO's overlaps, with our rules for the first and the last level.
    fn overlaps(&self, object: u64, of: &Plain, volume: VolumeId) -> f64 {
        let (Some(level), Some(keys)) = (of.level, of.keys) else { return 0.0 };
        let next = self.level(of.family, |other| other > level).min();
        let mut levels: Vec<u8> = next.into_iter().collect();
        if level == 0 {
            levels.push(0);
        } else if next.is_none() {
            levels.extend(self.level(of.family, |other| other < level).max());
        }
        let others = levels.into_iter().flat_map(|level| self.overlapping(of.family, level, keys));
        others
            .filter(|&other| other != object && !self.0[&other].leaving)
            .map(|other| &self.0[&other].on)
            .filter(|on| on.contains(&volume))
            .map(|on| 1.0 / on.len() as f64)
            .sum()
    }
}

fn family(number: u8) -> Family {
    Family(format!("kv#{number}").into())
}

#[derive(Clone, Debug)]
enum Event {
    Insert(u64, Plain),
    Describe(u64, u8, Option<u8>, Option<(u8, u8)>),
    Level(u64, u8),
    Leaving(u64, bool),
    Places(u64, Vec<VolumeId>),
    Remove(u64),
}

fn any_keys() -> impl Strategy<Value = (u8, u8)> {
    (any::<u8>(), 0u8..40).prop_map(|(from, width)| (from, from.saturating_add(width)))
}

fn any_places() -> impl Strategy<Value = Vec<VolumeId>> {
    prop::collection::btree_set(0u16..5, 1..4).prop_map(|on| on.into_iter().map(VolumeId).collect())
}

fn any_table() -> impl Strategy<Value = Plain> {
    let level = prop::option::weighted(0.9, 0u8..4);
    let keys = prop::option::weighted(0.9, any_keys());
    (0u8..2, level, keys, any_places(), 0.0f32..10.0, prop::bool::weighted(0.1)).prop_map(
        |(family, level, keys, on, rate, leaving)| Plain { family, level, keys, on, rate, leaving },
    )
}

fn any_event() -> impl Strategy<Value = Event> {
    let object = || 0u64..60;
    prop_oneof![
        6 => (object(), any_table()).prop_map(|(object, table)| Event::Insert(object, table)),
        1 => (object(), any_table()).prop_map(|(object, t)| {
            Event::Describe(object, t.family, t.level, t.keys)
        }),
        2 => (object(), 0u8..4).prop_map(|(object, level)| Event::Level(object, level)),
        1 => (object(), any::<bool>()).prop_map(|(object, on)| Event::Leaving(object, on)),
        1 => (object(), any_places()).prop_map(|(object, on)| Event::Places(object, on)),
        3 => object().prop_map(Event::Remove),
    ]
}

fn bytes_of(keys: &Option<(u8, u8)>) -> Option<([u8; 1], [u8; 1])> {
    keys.map(|(from, to)| ([from], [to]))
}

fn insert(tables: &mut Tables, object: u64, plain: &Plain) {
    let keys = bytes_of(&plain.keys);
    tables.insert(Table {
        object,
        family: &family(plain.family),
        level: plain.level,
        keys: keys.as_ref().map(|(first, last)| Keys { first, last }),
        len: MIB,
        on: &plain.on,
        rate: plain.rate,
        leaving: plain.leaving,
    });
}

/// Reports the same event to both.
fn apply(tables: &mut Tables, naive: &mut Naive, event: &Event) {
    match event {
        Event::Insert(object, plain) => {
            insert(tables, *object, plain);
            naive.0.insert(*object, plain.clone());
        }
        Event::Describe(object, of, level, keys) => {
            let with = bytes_of(keys);
            let with = with.as_ref().map(|(first, last)| Keys { first, last });
            tables.describe(*object, &family(*of), *level, with);
            if let Some(plain) = naive.0.get_mut(object) {
                (plain.family, plain.level, plain.keys) = (*of, *level, *keys);
                plain.leaving = false;
            }
        }
        Event::Level(object, level) => {
            tables.set_level(*object, *level);
            naive.0.entry(*object).and_modify(|plain| plain.level = Some(*level));
        }
        Event::Leaving(object, leaving) => {
            tables.set_leaving(*object, *leaving);
            naive.0.entry(*object).and_modify(|plain| plain.leaving = *leaving);
        }
        Event::Places(object, on) => {
            tables.set_places(*object, on);
            naive.0.entry(*object).and_modify(|plain| plain.on.clone_from(on));
        }
        Event::Remove(object) => {
            tables.remove(*object);
            naive.0.remove(object);
        }
    }
}

proptest! {
    #[test]
    fn the_index_finds_what_a_list_finds(
        events in prop::collection::vec(any_event(), 0..150),
        asked in prop::collection::vec((0u8..2, 0u8..4, any_keys()), 1..20),
    ) {
        let (mut tables, mut naive) = (Tables::default(), Naive::default());
        for event in &events {
            apply(&mut tables, &mut naive, event);
        }
        prop_assert_eq!(tables.len(), naive.0.len());
        for (table, (object, plain)) in tables.iter().zip(&naive.0) {
            prop_assert_eq!(table.object, *object);
            prop_assert_eq!(table.family, &family(plain.family));
            prop_assert_eq!((table.level, table.on), (plain.level, &*plain.on));
            let keys = bytes_of(&plain.keys);
            let keys = keys.as_ref().map(|(first, last)| Keys { first, last });
            prop_assert_eq!((table.keys, table.leaving), (keys, plain.leaving));
        }
        for (of, level, (from, to)) in asked {
            let mut found = Vec::new();
            let keys = Keys { first: &[from], last: &[to] };
            tables.overlapping(&family(of), level, keys, |table| found.push(table.object));
            prop_assert_eq!(found, naive.overlapping(of, level, (from, to)));
            let next = naive.level(of, |other| other > level).min();
            prop_assert_eq!(tables.next_level(&family(of), level), next);
            let previous = naive.level(of, |other| other < level).max();
            prop_assert_eq!(tables.previous_level(&family(of), level), previous);
        }
    }

    #[test]
    fn no_volume_has_fewer_overlaps_than_the_chosen_one(
        events in prop::collection::vec(any_event(), 0..100),
        news in prop::collection::vec(any_table(), 1..20),
        weights in prop::collection::vec(0.0f64..1.0, 5),
        seed in any::<u64>(),
    ) {
        let (mut tables, mut naive) = (Tables::default(), Naive::default());
        for event in &events {
            apply(&mut tables, &mut naive, event);
        }
        let volumes: Vec<_> = (0..).zip(&weights)
            .map(|(id, &weight)| Candidate { weight, ..Candidate::new(VolumeId(id), GIB, GIB) })
            .collect();
        for (object, mut new) in (100..).zip(news) {
            new.leaving = false;
            let range = bytes_of(&new.keys).map(|(first, last)| KeyRange {
                first: first.into(), last: last.into(),
            });
            let kind = Kind::Table { family: family(new.family), level: new.level, range };
            let intent = Intent { kind, len: Some(MIB), ..Intent::DATA };
            // Without earlier choices, so no volume has exceeded its share.
            let mut policy = LeastOverlap::new(seed);
            let layout = policy.choose(New::cold(object, &intent), &volumes, &tables);
            let on = layout.expect("all have room").volumes().to_vec();
            let overlaps: Vec<_> =
                volumes.iter().map(|v| naive.overlaps(object, &new, v.volume)).collect();
            let least = overlaps.iter().copied().fold(f64::INFINITY, f64::min);
            let chosen = on[0].0 as usize;
            prop_assert!(overlaps[chosen] < least + 1e-6, "{chosen} of {overlaps:?}");
            let tied = overlaps.iter().zip(&weights).filter(|(overlap, _)| **overlap < least + 1e-6);
            let lightest = tied.map(|(_, &weight)| weight).fold(f64::INFINITY, f64::min);
            prop_assert!(weights[chosen] <= (lightest * 1.05).max(lightest + 0.01));
            new.on = on;
            apply(&mut tables, &mut naive, &Event::Insert(object, new));
        }
    }

    #[test]
    fn a_volume_never_gets_more_than_twice_its_part(
        count in 3u16..8, newcomer in 0u16..3, objects in 60u64..200,
    ) {
        // One volume carries nothing, the others as much as they can.
        let volumes: Vec<_> = (0..count)
            .map(|id| Candidate {
                weight: if id == newcomer { 0.0 } else { 1.0 },
                ..Candidate::new(VolumeId(id), GIB, GIB)
            })
            .collect();
        let mut policy = LeastOverlap::new(1);
        let mut placed = Vec::new();
        for object in 0..objects {
            let new = New::cold(object, &Intent::DATA);
            let layout = policy.choose(new, &volumes, &Tables::default()).expect("room");
            placed.push(layout.volumes()[0].0);
        }
        let window = 8 * usize::from(count);
        for some in placed.windows(window) {
            let got = some.iter().filter(|&&id| id == newcomer).count();
            prop_assert!((15..=17).contains(&got), "{got} of {window}");
        }
    }
}

#[test]
fn the_same_seed_chooses_the_same_and_another_seed_does_not() {
    let volumes: Vec<_> = (0..4).map(|id| Candidate::new(VolumeId(id), GIB, GIB)).collect();
    let placed = |seed| {
        let mut policy = LeastOverlap::new(seed);
        let choose =
            |object| policy.choose(New::cold(object, &Intent::DATA), &volumes, &Tables::default());
        (0..40).map(choose).collect::<Vec<_>>()
    };
    assert_eq!(placed(3), placed(3));
    assert_ne!(placed(3), placed(4));
}

#[test]
fn a_decision_looks_at_so_many_tables_and_no_more() {
    let mut tables = Tables::default();
    let all = 3 * OVERLAPS_MAX as u64;
    for object in 0..all {
        let key = object.to_be_bytes();
        let keys = Some(Keys { first: &key, last: &key });
        let family = &family(0);
        let on = &[VolumeId(0)];
        tables.insert(Table {
            object,
            family,
            level: Some(1),
            keys,
            len: MIB,
            on,
            rate: 1.0,
            leaving: false,
        });
    }
    let keys = Keys { first: &[], last: &[0xff; 8] };
    let overlaps = Overlaps::of(all, &family(0), 0, keys, &tables, false);
    assert_eq!(overlaps.on(VolumeId(0)), OVERLAPS_MAX as f64);
}

#[test]
fn a_table_takes_little_memory() {
    let mut tables = Tables::default();
    for object in 0..10_000_u64 {
        let [first, last] = [object, object + 1].map(|n| format!("user{n:020}").into_bytes());
        let keys = Some(Keys { first: &first, last: &last });
        let (family, on) = (&family(0), &[VolumeId(0)]);
        tables.insert(Table {
            object,
            family,
            level: Some(1),
            keys,
            len: MIB,
            on,
            rate: 1.0,
            leaving: false,
        });
    }
    assert!(tables.bytes() < 200 * tables.len(), "{}", tables.bytes());
    (0..10_000).for_each(|object| tables.remove(object));
    let empty = tables.bytes();
    assert!(tables.is_empty() && tables.get(1).is_none());
    insert(
        &mut tables,
        1,
        &Plain {
            family: 1,
            level: None,
            keys: None,
            on: vec![VolumeId(1)],
            rate: 0.0,
            leaving: false,
        },
    );
    assert!(tables.bytes() < empty + 100, "what was freed is used again");
}

#[test]
fn a_table_inherits_the_reads_between_its_keys() {
    let (kv, on) = (family(0), [VolumeId(0)]);
    let mut tables = Tables::default();
    for (object, level, first, last, rate) in
        [(1, 1, b"a", b"e", 8.0), (2, 2, b"c", b"g", 4.0), (3, 3, b"a", b"z", 100.0)]
    {
        let keys = Some(Keys { first, last });
        let level = Some(level);
        let family = &kv;
        tables.insert(Table {
            object,
            family,
            level,
            keys,
            len: MIB,
            on: &on,
            rate,
            leaving: false,
        });
    }
    let keys = Keys { first: b"c", last: b"e" };
    let inherited = |tables: &Tables, levels, made| tables.inherited(&kv, keys, levels, made);
    // Half of each; deeper levels do not count.
    assert_eq!(inherited(&tables, 1..=2, Made::Merged), 6.0);
    // If it is known which tables leave, it is made of those.
    tables.set_leaving(2, true);
    assert_eq!(inherited(&tables, 1..=2, Made::Merged), 2.0);
    assert_eq!(inherited(&tables, 0..=0, Made::Merged), 0.0);
}

proptest! {
    #[test]
    fn a_table_inherits_as_one_of_a_single_block(
        keys in any_keys(),
        old in prop::collection::vec((any_keys(), 0.0f32..10.0), 0..8),
        flushed in any::<bool>(),
    ) {
        let kv = family(0);
        let mut tables = Tables::default();
        for (object, &(keys, rate)) in (0..).zip(&old) {
            let (keys, on, leaving) = (Some(keys), vec![VolumeId(0)], false);
            insert(&mut tables, object, &Plain { family: 0, level: Some(1), keys, on, rate, leaving });
        }
        let fences = |(first, last): (u8, u8)| {
            let range = KeyRange { first: [first].into(), last: [last].into() };
            Fences::new(&range, []).expect("in order")
        };
        let blocks: Vec<_> = old.iter().map(|&(keys, rate)| (fences(keys), [(0, rate)])).collect();
        let blocks = blocks.iter().map(|(fences, heat)| (fences, &heat[..]));
        let made = if flushed { Made::Flushed } else { Made::Merged };
        let expected: f32 = inherit(&fences(keys), blocks, made).into_iter().sum();
        let (first, last) = ([keys.0], [keys.1]);
        let keys = Keys { first: &first, last: &last };
        let found = tables.inherited(&kv, keys, 0..=1, made);
        // A table of one key counts whole here, and not at all for fences, where it covers nothing.
        let single = old.iter().any(|((from, to), _)| from == to);
        prop_assert!((found - expected).abs() < 1e-3 || (single && flushed), "{found}, {expected}");
    }
}
