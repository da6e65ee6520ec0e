use engine::kv::Memory;
use proptest::prelude::*;

use super::*;
use crate::drive::scramble;

const RECORDS: u64 = 30_000;

const SETTINGS: Settings = Settings {
    mix: Vec::new(),
    keys: Keys::Ranges(TwoTerms::PUBLISHED, Power::PUBLISHED),
    values: Lengths::Fixed(64),
    scans: Lengths::Pareto { of: Pareto::SCANS, min: 1, max: 100 },
    load: Load::AtOnce,
    threads: 1,
    time: Duration::from_secs(600),
    operations: 1000,
    seed: 1,
};

fn loaded(values: Lengths) -> Memory {
    let store = Memory::default();
    let (bar, stop) = (ProgressBar::hidden(), AtomicBool::new(false));
    load(&store, RECORDS, values, 2, 1, &bar, &stop).expect("memory does not fail");
    store
}

fn run(store: &dyn KeyValue, settings: &Settings) -> Driven {
    let (clock, stop) = (Clock::real(), AtomicBool::new(false));
    let bench = Bench::new(store, &clock, RECORDS, Duration::from_secs(1), &stop);
    bench.run(settings, &[], clock.now()).expect("memory does not fail")
}

#[test]
fn ranges_are_as_popular_as_the_two_terms_say() {
    let ranges = Ranges::new(RECORDS, TwoTerms::PUBLISHED);
    let (size, shares) = ranges.shares();
    assert_eq!((size, shares.len()), (RECORDS / 30, 30));
    let mut sorted = shares.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let weights: Vec<_> = (1..=30).map(|n| TwoTerms::PUBLISHED.weight(n)).collect();
    for (share, weight) in sorted.iter().zip(&weights) {
        // Shares are whole multiples of the least one.
        let off = share / sorted[29] - weight / weights[29];
        assert!(off > -1.001 && off < 0.3, "{off}");
    }
    assert!((0.58..0.66).contains(&sorted[0]), "{sorted:?}");
    assert_ne!(shares, sorted, "the hot range is anywhere");

    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    let mut counts = vec![0_u64; 30];
    for _ in 0..100_000 {
        counts[(ranges.record(Power::PUBLISHED, &mut random) / size) as usize] += 1;
    }
    for (count, share) in counts.iter().zip(&shares) {
        let (expected, deviation) = (share * 1e5, (share * (1.0 - share) * 1e5).sqrt());
        assert!((*count as f64 - expected).abs() < 5.0 * deviation, "{count} of {expected}");
    }
}

#[test]
fn keys_of_a_range_are_as_popular_as_the_power_says() {
    // db_bench draws as many distinct values as a range has keys; with many keys, the power alone shapes the choice.
    const SIZE: u64 = 3_333_333;
    let power = Power::PUBLISHED;
    for rank in [10_u32, 1000, 100_000] {
        let share = power.a * f64::from(rank).powf(power.b);
        let below = (0..SIZE).filter(|n| power.rank(*n as f64 / SIZE as f64) <= rank.into());
        let found = below.count() as f64 / SIZE as f64;
        assert!((found - share).abs() < 1e-5, "rank {rank}: {found} is not {share}");
    }
}

#[test]
fn a_smaller_key_space_keeps_its_shape() {
    let (large, small) = (Power::PUBLISHED, Power::PUBLISHED.shrunk(50.0));
    for percent in 5..100 {
        let u = f64::from(percent) / 100.0;
        let ratio = large.rank(u) as f64 / small.rank(u) as f64;
        assert!((ratio / 50.0 - 1.0).abs() < 0.02, "{percent} %: {ratio}");
    }
}

proptest! {
    #[test]
    fn every_choice_is_a_record(
        records in 30_u64..1_000_000, a in 0.0..0.1_f64, b in 0.1..2.0_f64, seed: u64
    ) {
        let ranges = Ranges::new(records, TwoTerms::PUBLISHED);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for _ in 0..200 {
            let record = ranges.record(Power { a, b }, &mut random);
            prop_assert!(record < records, "{} of {}", record, records);
        }
    }

    #[test]
    fn a_load_meets_every_record_once(records in 1_u64..5000) {
        let step = stride(records);
        let met: std::collections::BTreeSet<_> =
            (0..records).map(|number| scattered(number, step, records)).collect();
        prop_assert_eq!(met.len() as u64, records);
    }
}

#[test]
fn a_mix_does_what_it_says_and_finds_what_was_stored() {
    let mix = vec![(Operation::Read, 83), (Operation::Update, 14), (Operation::Scan, 3)];
    for values in
        [Lengths::Fixed(64), Lengths::Pareto { of: Pareto::VALUES, min: 10, max: 1 << 20 }]
    {
        let store = loaded(values);
        let settings =
            Settings { mix: mix.clone(), values, threads: 3, operations: 4000, ..SETTINGS };
        let outcome = run(&store, &settings);
        assert_eq!((outcome.operations(), outcome.wrong), (4000, 0), "{:?}", outcome.example);
        assert_eq!(outcome.dots.len(), 4000);
        for (operation, share) in &mix {
            let count = outcome.latencies.count(*operation);
            assert!(count.abs_diff(u64::from(*share) * 40) < 145, "{operation:?}: {count}");
        }
    }
}

#[test]
fn a_value_of_another_record_or_length_is_found() {
    let store = loaded(Lengths::Fixed(64));
    let shape = Ordered(Lengths::Fixed(64));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
    for record in 0..RECORDS {
        let wrong = match record % 4 {
            0 => value(record, 63, &mut random),
            1 => value(scramble(record), 64, &mut random),
            _ => continue,
        };
        store.apply(&[Change::Put(shape.key(record), wrong)]).expect("memory does not fail");
    }
    let keys = Keys::Ycsb(Distribution::Uniform);
    let outcome = run(&store, &Settings { mix: vec![(Operation::Read, 100)], keys, ..SETTINGS });
    assert!(outcome.wrong.abs_diff(500) < 80, "{} of 1000", outcome.wrong);
    assert!(outcome.example.is_some());
}

#[test]
fn the_same_seed_leaves_the_same_bytes_behind() {
    let left = |seed| {
        let store = loaded(Lengths::Fixed(16));
        let mix = vec![(Operation::Update, 100)];
        run(&store, &Settings { mix, values: Lengths::Fixed(16), seed, ..SETTINGS });
        let all = (0..RECORDS).map(|record| Ordered(Lengths::Fixed(16)).key(record));
        store.get_many(&all.collect::<Vec<_>>()).expect("memory does not fail")
    };
    let first = left(1);
    assert!(first == left(1) && first != left(2));
}

#[test]
fn an_open_loop_counts_from_the_intended_start_and_a_closed_one_does_not() {
    let store = loaded(Lengths::Fixed(64));
    let rate = Rate {
        wave: Wave::Sine { a: 5000.0, b: 0.035, c: 4.17, d: 10_000.0 },
        noise: 0.3,
        interval: Duration::from_millis(50),
        seed: 1,
    };
    let mix = vec![(Operation::Read, 100)];
    let settings = Settings { mix, threads: 2, operations: 500, ..SETTINGS };
    let open = run(&store, &Settings { load: Load::Open(rate), ..settings.clone() });
    assert_eq!(open.open.count(Operation::Read), 500);
    // The last of 500 is due when the rate adds up to 500.
    let due = rate.after(Duration::ZERO, 1.0, 500.0).expect("the rate is above zero");
    assert!(open.elapsed >= due, "{:?} of {due:?}", open.elapsed);
    let closed = run(&store, &Settings { load: Load::Closed(rate), ..settings });
    assert_eq!((closed.operations(), closed.open.count(Operation::Read)), (500, 0));
    // There are two threads with 250 operations each; the last one to start its third hundred starts the sixth in all.
    let due = rate.after(Duration::ZERO, 1.0, 600.0).expect("the rate is above zero");
    assert!(closed.elapsed >= due, "{:?} of {due:?}", closed.elapsed);
}
