//! The cost of planning how a row of a coded object is updated in place.
//!
//! Target: under 20 µs with 13 dirty blocks, which is 5 % of a row of 4+2 with strips of 256 KiB. It measures processor
//! time: a plan does no I/O.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use policy::placement::Code;
use policy::price::Price;
use policy::recycle;
use policy::units::{KIB, MIB};
use rand::SeedableRng;
use rand::seq::index;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Rows in turn, so that no branch is learned.
const ROWS: usize = 64;

fn rows(code: Code, dirty: usize) -> Vec<Vec<(usize, u32)>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let blocks = (code.strip() / recycle::BLOCK) as usize;
    let row = |_| {
        let mut row: Vec<_> = index::sample(&mut rng, blocks * code.data(), dirty)
            .into_iter()
            .map(|i| (i / blocks, (i % blocks) as u32))
            .collect();
        row.sort_unstable();
        row
    };
    (0..ROWS).map(row).collect()
}

fn plan(c: &mut Criterion) {
    let price = Price::new(Some(125 * MIB / 3000), 256 * KIB);
    let mut group = c.benchmark_group("recycle");
    for (data, parity, strip) in [(4, 2, 256 * KIB), (16, 4, MIB)] {
        let code = Code::new(data, parity, strip).expect("within bounds");
        for dirty in [1, 13, 100, 256] {
            let rows = rows(code, dirty);
            for missing in [&[][..], &[0]] {
                let name = format!("{code}, {} missing", missing.len());
                let mut turn = 0;
                group.bench_function(BenchmarkId::new(name, dirty), |b| {
                    b.iter(|| {
                        turn = (turn + 1) % ROWS;
                        recycle::plan(code, black_box(&rows[turn]), missing, price)
                    });
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, plan);
criterion_main!(benches);
