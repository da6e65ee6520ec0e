use std::collections::BTreeMap;

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

fn place(n: u64) -> Place {
    Place { file: FileId(n << 8 | 3), offset: n as u32, len: n as u32 | 1, sequence: n << 20 }
}

fn key(random: &mut impl Rng) -> Vec<u8> {
    let len = match random.random_range(0..20) {
        0 => random.random_range(1..=255),
        _ => random.random_range(1..6),
    };
    (0..len).map(|_| random.random_range(0..4)).collect()
}

fn walked(index: &Index, from: Bound<&[u8]>) -> Vec<(Vec<u8>, Place)> {
    let mut all = Vec::new();
    index.walk(from, |key, place| {
        all.push((key.to_vec(), place));
        true
    });
    all
}

/// The memory that the index reports equals that of its leaves.
fn check_memory(index: &Index) {
    let bytes =
        index.leaves.iter().map(|(name, leaf)| name.len() + leaf.0.capacity()).sum::<usize>();
    assert_eq!(index.bytes, bytes);
}

#[test]
fn is_a_map() {
    for seed in 0..20 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut index, mut map) = (Index::default(), BTreeMap::new());
        for n in 0..8_000 {
            let key = key(&mut random);
            // It grows, then shrinks.
            if random.random_bool(if n < 5_000 { 0.8 } else { 0.1 }) {
                assert_eq!(index.insert(&key, place(n)), map.insert(key, place(n)));
            } else {
                assert_eq!(index.get(&key), map.get(&key).copied());
                let victim = map.range(key..).next().map(|(key, _)| key.clone());
                let victim = victim.unwrap_or_else(|| b"none".to_vec());
                assert_eq!(index.remove(&victim), map.remove(&victim));
            }
            assert_eq!(index.len(), map.len());
        }
        check_memory(&index);
        let start = key(&mut random);
        for from in [Bound::Unbounded, Bound::Included(&start[..]), Bound::Excluded(&start[..])] {
            let there: Vec<_> = map.range::<[u8], _>((from, Bound::Unbounded)).collect();
            let found = walked(&index, from);
            assert!(found.iter().map(|(key, place)| (key, place)).eq(there));
        }
        index.retain(|key, _| key[0] != 1);
        map.retain(|key, _| key[0] != 1);
        assert!(walked(&index, Bound::Unbounded).into_iter().eq(map));
        check_memory(&index);
    }
}

#[test]
fn a_walk_ends_where_it_is_told() {
    let mut index = Index::default();
    for n in 0..1_000u32 {
        index.insert(&n.to_be_bytes(), place(1));
    }
    let mut seen = 0;
    index.walk(Bound::Excluded(&17u32.to_be_bytes()), |key, _| {
        seen += 1;
        key != 20u32.to_be_bytes()
    });
    assert_eq!(seen, 3);
}

/// The bytes that a key costs: the key itself, its place, and the slack around them.
fn cost(keys: usize, key: impl Fn(u64) -> Vec<u8>, order: impl Fn(u64) -> u64) -> f64 {
    let mut index = Index::default();
    for n in 0..keys as u64 {
        index.insert(&key(order(n)), place(n));
    }
    assert_eq!(index.len(), keys);
    index.memory() as f64 / keys as f64
}

#[test]
fn a_key_costs_its_length_and_thirty_bytes() {
    const KEYS: usize = 50_000;
    // A permutation that looks like random keys: the multiplier is odd.
    let mixed = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let long = |n: u64| [&n.to_be_bytes()[..], &[7; 24]].concat();
    for (found, len) in [
        (cost(KEYS, |n| (n as u32).to_be_bytes().to_vec(), |n| n), 4),
        (cost(KEYS, |n| n.to_be_bytes().to_vec(), mixed), 8),
        (cost(KEYS, |n| [n.to_be_bytes(); 2].concat(), mixed), 16),
        (cost(KEYS, long, mixed), 32),
    ] {
        // Halved leaves are half full where keys come in order.
        assert!(found < f64::from(len + 22) * 2.1 + 4.0, "{len}: {found}");
        assert!(found > f64::from(len + 22), "{len}: {found}");
        println!("a key of {len} bytes: {found:.1} bytes");
    }
}
