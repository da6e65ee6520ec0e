//! That the best policy acts, and that nothing is lost when another one takes over.

use super::*;
use crate::cache::Auto;

/// A cache that acts as [`Auto`] says, and how often the policy changed.
fn run(room: usize, asked: impl IntoIterator<Item = u64>) -> (Auto, HashMap<Slot, u64>, usize) {
    let (mut auto, mut slots, mut keys) = (Auto::default(), HashMap::new(), HashMap::new());
    let (mut free, mut changes) = ((0..room as Slot).collect::<Vec<_>>(), 0);
    for key in asked {
        let acted = auto.acts();
        if let Some(&slot) = slots.get(&key) {
            auto.hit(slot);
        } else {
            auto.missed(key);
            let slot = free.pop().unwrap_or_else(|| auto.evict().expect("it is full"));
            if let Some(gone) = keys.insert(slot, key) {
                assert_eq!(slots.remove(&gone), Some(slot));
            }
            slots.insert(key, slot);
            auto.insert(slot, key, 1);
        }
        changes += usize::from(auto.acts() != acted);
    }
    (auto, keys, changes)
}

/// Each page is asked for twice in a row, and again after as many others as are just too many for a small queue: the fewest
/// hits for S3-FIFO.
fn pairs(count: u64) -> impl Iterator<Item = u64> {
    (0..count).flat_map(|page| [page, page, page.saturating_sub(150)])
}

#[test]
fn the_best_policy_acts() {
    let zipf = skewed(20_000, 0.99, 200_000);
    assert_eq!(run(400, zipf.clone()).0.acts(), Some(Kind::S3Fifo));
    let hits = |kind| hit_ratio(kind, 400, &zipf);
    assert!(hits(Kind::S3Fifo) > hits(Kind::Clock2QPlus) + 0.5);
    let pairs: Vec<_> = pairs(60_000).collect();
    let acts = run(400, pairs.iter().copied()).0.acts().expect("one acts");
    assert_ne!(acts, Kind::S3Fifo);
    assert!(hit_ratio(acts, 400, &pairs) > hit_ratio(Kind::S3Fifo, 400, &pairs) + 0.5);
}

#[test]
fn every_entry_stays_evictable_once_through_changes_of_the_policy() {
    let phases = (0..6).flat_map(|phase| {
        let far = 1_000_000 * (1 + phase);
        let zipf = skewed(20_000, 0.99, 150_000).into_iter().map(move |page| far + page);
        zipf.chain(pairs(150_000).map(move |page| far + 500_000 + page))
    });
    let (mut auto, keys, changes) = run(400, phases);
    assert!(changes >= 2, "{changes}");
    let held: Vec<_> = auto.coldest().collect();
    let mut listed = held.clone();
    listed.sort_unstable();
    assert_eq!(listed, (0..400).collect::<Vec<_>>());
    assert_eq!(keys.len(), 400);
    // One leaves for another reason, and one is worth keeping.
    auto.remove(held[200]);
    let kept = auto.evict().expect("399 are left");
    auto.keep(kept, keys[&kept], 1);
    let mut rest = order(&mut auto);
    assert_eq!(rest.len(), 399);
    rest.sort_unstable();
    rest.dedup();
    assert!(rest.len() == 399 && !rest.contains(&held[200]));
    assert_eq!(auto.evict(), None);
}

/// Its miniatures are caches of a sample, so a large cache has the same policy as a small one of a smaller load.
#[test]
fn the_miniatures_of_a_large_cache_stay_small() {
    let (auto, ..) = run(10_000, skewed(100_000, 0.99, 800_000));
    assert_eq!(auto.acts(), Some(Kind::S3Fifo));
    assert!(auto.largest_miniature() <= 2 * 2048 + 200, "{}", auto.largest_miniature());
}
