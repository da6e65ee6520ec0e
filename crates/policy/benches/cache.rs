//! The cost of a hit in each eviction policy, and of an access that a filter counts.
//!
//! Target: a hit takes at most 100 ns, for 200,000 units of 1 MiB (a fifth of 1 TB) as for 3.5 TiB. Slots are drawn
//! uniformly: memory of few units is in a processor cache.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use policy::cache::{Kind, Slot};
use policy::promote::{Access, AccessKind, Filter, Options, Runs};
use policy::time::Instant;
use policy::units::MIB;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const UNITS: [u32; 2] = [200_000, 3_670_016];

/// Draws that are made beforehand: a power of two.
const DRAWN: usize = 1 << 20;

fn drawn(below: u32) -> Vec<u32> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    (0..DRAWN).map(|_| random.random_range(0..below)).collect()
}

fn hits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hit");
    for units in UNITS {
        let slots: Vec<Slot> = drawn(units);
        for kind in Kind::ALL {
            let mut policy = kind.policy();
            for slot in 0..units {
                policy.insert(slot, slot.into(), MIB as u32);
            }
            let mut at = 0;
            group.bench_function(BenchmarkId::new(kind.name(), units), |bencher| {
                bencher.iter(|| {
                    policy.hit(slots[at % DRAWN]);
                    at += 1;
                });
            });
            black_box(policy.evict());
        }
    }
}

fn evictions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("insertion and eviction");
    let [units, _] = UNITS;
    for kind in Kind::ALL {
        let mut policy = kind.policy();
        for slot in 0..units {
            policy.insert(slot, slot.into(), MIB as u32);
        }
        let keys = drawn(4 * units);
        let mut at = 0;
        group.bench_function(kind.name(), |bencher| {
            bencher.iter(|| {
                let slot = policy.evict().expect("it holds all units");
                policy.insert(slot, keys[at % DRAWN].into(), MIB as u32);
                at += 1;
            });
        });
    }
}

fn notes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("filter");
    let now = Instant::ZERO;
    for units in UNITS {
        let mut filter = Filter::new(Options::new(units.into()), now);
        let asked = drawn(4 * units);
        let mut at = 0;
        group.bench_function(BenchmarkId::new("note", units), |bencher| {
            bencher.iter(|| {
                let unit = asked[at % DRAWN].into();
                let kind = AccessKind::Read;
                at += 1;
                filter.note(Access { unit, kind, sequential: false, ghost: false }, now)
            });
        });
    }
    let mut runs = Runs::new(1024);
    let offsets = drawn(u32::MAX);
    let mut at = 0;
    group.bench_function("runs", |bencher| {
        bencher.iter(|| {
            at += 1;
            runs.note((at % 16) as u64, u64::from(offsets[at % DRAWN]) * 4096, 4096)
        });
    });
}

criterion_group!(benches, hits, evictions, notes);
criterion_main!(benches);
