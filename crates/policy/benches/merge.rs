//! The cost of merge control in a store with 100,000 files: of choosing the next file, and of a record's death.
//!
//! `cargo bench -p plimsoll-policy --bench merge`.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use policy::merge::{Death, FileId, Fill, Groups, Life, Merges, Rule, Sealed, Settings, Written};
use policy::units::{GIB, KIB, MIB};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const FILES: u64 = 100_000;
const FILE: u64 = GIB;
const RECORD: u64 = 4 * KIB;

fn sealed(id: u64, random: &mut Xoshiro256PlusPlus) -> Sealed {
    let death = match id % 3 {
        0 => Death::Unknown,
        1 => Death::At(Written(random.random_range(FILES * FILE..3 * FILES * FILE))),
        _ => Death::After(random.random_range(FILE..FILES * FILE)),
    };
    let dead = random.random_range(1..FILE);
    Sealed { id: FileId(id), partition: (id % 64) as u32, bytes: FILE, dead, death }
}

fn filled(rule: Rule) -> (Merges, Fill, Xoshiro256PlusPlus) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut merges = Merges::new(Settings::new(rule, FILE));
    (0..FILES).for_each(|id| merges.sealed(sealed(id, &mut random)));
    let capacity = FILES * FILE / 10 * 11;
    (merges, Fill { capacity, used: FILES * FILE, written: Written(0) }, random)
}

fn picks(criterion: &mut Criterion) {
    for rule in Rule::ALL {
        let (mut merges, fill, mut random) = filled(rule);
        let mut id = FILES;
        criterion.bench_function(&format!("pick of 100,000, {}", rule.name()), |bencher| {
            bencher.iter(|| {
                let pick = merges.next(black_box(&fill)).expect("much is dead");
                merges.merged(pick.file);
                // The new file has as many dead bytes; otherwise a rule with a threshold would soon find nothing to
                // pick.
                merges.sealed(Sealed { dead: FILE - pick.live, ..sealed(id, &mut random) });
                id += 1;
            });
        });
    }
}

fn deaths(criterion: &mut Criterion) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    criterion.bench_function("death of a record, death-time", |bencher| {
        bencher.iter_batched_ref(
            || filled(Rule::DeathTime).0,
            |merges| {
                for _ in 0..1000 {
                    // The last live bytes of a file may be less than a record.
                    let file = FileId(random.random_range(0..FILES));
                    let known = merges.file(file).expect("nothing is merged");
                    merges.died(file, RECORD.min(known.bytes - known.dead));
                }
            },
            BatchSize::PerIteration,
        );
    });
}

fn groups(criterion: &mut Criterion) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut groups = Groups::new(8, 4, 64 * MIB, 100 * GIB);
    let mut now = Written(0);
    criterion.bench_function("group of a record", |bencher| {
        bencher.iter(|| {
            let age = random.random_range(0..now.0 + 1);
            let placed = groups.put(random.random(), Life::Replaces(Written(age)), RECORD, now);
            now = now.plus(RECORD);
            placed
        });
    });
}

criterion_group!(benches, picks, deaths, groups);
criterion_main!(benches);
