//! Single reads and prefetched blocks share the memory: together they answer at least as much as the
//! better of them alone.
//!
//! Loads are those of the cache rows of the benches (B11), second by second in virtual
//! time: 1000 reads of 4 KiB a second of objects of four blocks.

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

const OBJECTS: u64 = 256;
const OBJECT_BYTES: u64 = 4 * BLOCK;
const PAGES: u64 = OBJECTS * OBJECT_BYTES / 4096;
const READS_PER_SEC: usize = 1000;

/// Which page is read next.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Any.
    Uniform,
    /// A few scattered ones.
    Zipf,
    /// Popular ranges, and popular pages inside each, as in mixgraph.
    Ranges,
}

impl Load {
    fn page(self, random: &mut Xoshiro256PlusPlus) -> u64 {
        let u: f64 = random.random();
        match self {
            Self::Uniform => (u * PAGES as f64) as u64,
            // The inverse of a continuous zipf of exponent 0.99.
            Self::Zipf => {
                let most = (PAGES as f64).powf(0.01);
                scattered(((1.0 + u * (most - 1.0)).powf(100.0)) as u64) % PAGES
            }
            Self::Ranges => {
                const RANGES: u64 = 30;
                let weight = |n: f64| 5.18 * (-2.917 * n).exp() + 0.0164 * (-0.080_82 * n).exp();
                let all: f64 = (1..=RANGES).map(|n| weight(n as f64)).sum();
                let mut left = u * all;
                let mut range = 1;
                while range < RANGES && left > weight(range as f64) {
                    left -= weight(range as f64);
                    range += 1;
                }
                let pages = PAGES / RANGES;
                let rank = random.random::<f64>().powf(1.0 / 0.3467) * pages as f64 * 16.0;
                (range - 1) * pages + scattered(rank as u64) % pages
            }
        }
    }
}

fn scattered(n: u64) -> u64 {
    Xoshiro256PlusPlus::seed_from_u64(n).next_u64()
}

/// Seconds with many more reads than all others: caches are filled quickly after a start.
const RUSH: usize = 2;

/// The share of reads that no volume had to answer, once all is warm.
fn hits(load: Load, bytes: u64, policy: Option<Kind>, prefetch: bool) -> f64 {
    let mut rig = Rig::new(bytes, policy);
    rig.cache = Cache::new(Options { bytes, policy, prefetch, rewarm: false });
    rig.prefetcher = Prefetcher::new(rig.cache.clone());
    let objects: Vec<_> = (0..OBJECTS).map(|_| rig.create_blank(OBJECT_BYTES)).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut counted = 0;
    for second in 0..80 {
        let rush = if second < RUSH { 5 } else { 1 };
        for _ in 0..rush * READS_PER_SEC {
            let at = load.page(&mut random) * 4096;
            let (_, cached, _) = &rig.objects[&objects[(at / OBJECT_BYTES) as usize]];
            if cached.get(at % OBJECT_BYTES, 4096, |_| {}) {
                counted += usize::from(second >= 40);
            } else {
                cached.insert(at % OBJECT_BYTES, &[0; 4096]);
            }
        }
        rig.second(0.5);
        rig.work();
    }
    counted as f64 / (40 * READS_PER_SEC) as f64
}

#[test]
fn together_they_answer_what_the_better_one_does() {
    for load in [Load::Zipf, Load::Ranges, Load::Uniform] {
        for percent in [2, 4] {
            let bytes = OBJECTS * OBJECT_BYTES * percent / 100;
            let policy = Some(Kind::Lrfu);
            let [passive, prefetch, both] = [(policy, false), (None, true), (policy, true)]
                .map(|(policy, prefetch)| hits(load, bytes, policy, prefetch));
            let alone = passive.max(prefetch);
            eprintln!(
                "{load:?}, {percent} %: single {passive:.3}, blocks {prefetch:.3}, both {both:.3}"
            );
            assert!(
                both >= alone - 0.01,
                "{load:?}, {percent} %: single {passive:.3}, blocks {prefetch:.3}, both {both:.3}"
            );
        }
    }
}
