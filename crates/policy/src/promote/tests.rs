use std::time::Duration;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::time::Instant;
use crate::units::{BytesPerSec, KIB, MIB};

const START: Instant = Instant::ZERO;

fn filter(capacity: u64) -> Filter {
    Filter::new(Options::new(capacity), START)
}

fn read(unit: u64) -> Access {
    Access { unit, kind: AccessKind::Read, sequential: false, ghost: false }
}

/// Lets accesses of other units pass that do not count themselves.
fn pass(filter: &mut Filter, accesses: u64, now: Instant) {
    for _ in 0..accesses {
        let _ = filter.note(Access { sequential: true, ..read(0) }, now);
    }
}

#[test]
fn the_second_access_within_the_window_promotes() {
    // 800 accesses; the window is exact to an eighth.
    for (between, verdict) in [
        (0, Verdict::Promote),
        (690, Verdict::Promote),
        (800, Verdict::Bypass),
        (10_000, Verdict::Bypass),
    ] {
        for first in 0..100 {
            let mut filter = filter(400);
            pass(&mut filter, first, START);
            assert_eq!(filter.note(read(1), START), Verdict::Bypass);
            pass(&mut filter, between, START);
            assert_eq!(filter.note(read(1), START), verdict, "{between} after {first}");
        }
    }
}

#[test]
fn after_an_hour_an_access_no_longer_counts() {
    let minutes = |minutes: u64| START + Duration::from_secs(60 * minutes);
    for (later, verdict) in
        [(52, Verdict::Promote), (60, Verdict::Bypass), (1_000_000, Verdict::Bypass)]
    {
        let mut filter = filter(400);
        assert_eq!(filter.note(read(1), START), Verdict::Bypass);
        // Another access now and then makes no difference.
        for now in (0..later).step_by(14).take(100) {
            assert_eq!(filter.note(read(100 + now), minutes(now)), Verdict::Bypass);
        }
        assert_eq!(filter.note(read(1), minutes(later)), verdict, "{later} minutes");
    }
}

#[test]
fn a_ghost_promotes_at_once_unless_a_run_goes_over_it() {
    let mut filter = filter(400);
    let ghost = Access { ghost: true, ..read(1) };
    assert_eq!(filter.note(Access { sequential: true, ..ghost }, START), Verdict::Bypass);
    assert_eq!(filter.note(ghost, START), Verdict::Promote);
    // Where promotions do not pay, a ghost has to be accessed more often, too.
    filter.resume(800, 4);
    let ghost = Access { unit: 2, ..ghost };
    for verdict in [Verdict::Bypass, Verdict::Bypass, Verdict::Promote] {
        assert_eq!(filter.note(ghost, START), verdict);
    }
}

#[test]
fn writes_count_only_if_they_should() {
    for writes in [true, false] {
        let options = Options { writes, ..Options::new(400) };
        let mut filter = Filter::new(options, START);
        let write = Access { kind: AccessKind::Write, ..read(1) };
        assert_eq!(filter.note(write, START), Verdict::Bypass);
        let expected = if writes { Verdict::Promote } else { Verdict::Bypass };
        assert_eq!(filter.note(write, START), expected);
        let ghost = Access { ghost: true, ..write };
        assert_eq!(filter.note(ghost, START), expected);
        // The writes before are no reads.
        assert_eq!(filter.note(read(1), START), expected);
        assert_eq!(filter.note(read(1), START), Verdict::Promote);
    }
}

#[test]
fn a_promoted_unit_starts_anew() {
    let mut filter = filter(400);
    let _ = filter.note(read(1), START);
    assert_eq!(filter.note(read(1), START), Verdict::Promote);
    assert_eq!(filter.note(read(1), START), Verdict::Promote);
    let _ = filter.promoted(1);
    assert_eq!(filter.note(read(1), START), Verdict::Bypass);
    filter.forget(1);
    assert_eq!(filter.note(read(1), START), Verdict::Bypass);
}

#[test]
fn a_uniform_load_much_larger_than_the_window_promotes_little() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut filter = filter(1000);
    let mut promoted = 0;
    for _ in 0..100_000 {
        let access = read(random.random_range(0..1_000_000));
        promoted += usize::from(filter.note(access, START) == Verdict::Promote);
    }
    // 2,000 of a million units are within the window at any time: 0.2 %. A tag is shared by 0.01 %.
    assert!((100..300).contains(&promoted), "{promoted}");
}

/// A period of 10,000 accesses, and this many hits on units of the period before, promotions and ghosts.
fn period(
    filter: &mut Filter,
    promoted: Period,
    (hits, promotions, ghosts): (u64, u64, u64),
) -> (Period, Adjustment) {
    let now = Instant::from_nanos(filter.accesses() * 1_000_000 + 1);
    for _ in 0..hits {
        filter.hit(promoted, now);
    }
    for unit in 0..10_000 - hits {
        let _ = filter.note(Access { ghost: unit < ghosts, ..read(unit) }, now);
    }
    let promoted = (0..promotions).map(|unit| filter.promoted(unit)).last().unwrap_or_default();
    let end = Instant::from_nanos(filter.accesses() * 1_000_000) + Duration::from_secs(10);
    (promoted, filter.adjust(end).expect("enough time and accesses"))
}

#[test]
fn promotions_that_bring_little_become_rarer_and_others_more_frequent() {
    let mut filter = filter(1000);
    let mut promoted = Period::default();
    let mut table =
        String::from("hits promotions ghosts  hits/promotion ghost rate window threshold\n");
    for (times, (hits, promotions, ghosts)) in [
        (3, (0, 100, 0)),   // The first period has none before it; then the window shrinks.
        (1, (199, 100, 0)), // Just too few hits.
        (1, (200, 100, 9000)), // Just enough.
        (1, (900, 100, 0)), // Many, but no ghosts.
        (2, (900, 100, 1000)), // Many, and ghosts: the window grows.
        (12, (0, 100, 0)),  // At its bound; then the threshold rises to its own.
        (7, (0, 100, 0)),
        (1, (0, 0, 0)),
        (1, (0, 0, 0)),   // Without promotions, back to the defaults.
        (30, (0, 49, 0)), // Few promotions cost little, and are as good as none.
        (1, (0, 100, 0)),
        (30, (900, 100, 1000)), // From the upper bound on, a lower threshold.
    ] {
        let mut shown = None;
        for _ in 0..times {
            let (next, adjusted) = period(&mut filter, promoted, (hits, promotions, ghosts));
            (promoted, shown) = (next, Some(adjusted));
        }
        let Some(Adjustment { hits_per_promotion, ghost_rate, window, threshold }) = shown else {
            continue;
        };
        let brought = hits_per_promotion.map_or("-".into(), |hits| format!("{hits:.2}"));
        table += &format!(
            "{hits:<4} {promotions:10} {ghosts:6}  {brought:>14} {ghost_rate:10.2} {window:6} {threshold:9}\n"
        );
    }
    expect_test::expect![[r#"
        hits promotions ghosts  hits/promotion ghost rate window threshold
        0           100      0            0.00       0.00   1280         2
        199         100      0            1.99       0.00   1024         2
        200         100   9000            2.00       0.92   1024         2
        900         100      0            9.00       0.00   1024         2
        900         100   1000            9.00       0.11   1600         2
        0           100      0            0.00       0.00    250         5
        0           100      0            0.00       0.00    250         8
        0             0      0            0.00       0.00    312         8
        0             0      0               -       0.00    390         8
        0            49      0            0.00       0.00   2000         2
        0           100      0            0.00       0.00   1600         2
        900         100   1000            9.00       0.11   8000         1
    "#]]
    .assert_eq(&table);
}

#[test]
fn a_short_period_goes_on() {
    for (capacity, accesses) in [(1, 10_000), (1000, 10_000), (10_000, 40_000)] {
        let mut filter = filter(capacity);
        pass(&mut filter, accesses - 1, START);
        let late = START + Duration::from_secs(10);
        assert_eq!(filter.adjust(late), None);
        pass(&mut filter, 1, START);
        assert_eq!(filter.adjust(START + Duration::from_millis(9_999)), None);
        assert!(filter.adjust(late).is_some());
        assert_eq!(filter.adjust(late), None);
    }
}

#[test]
fn a_filter_resumes_within_its_bounds() {
    let mut filter = filter(1000);
    filter.resume(5000, 3);
    assert_eq!((filter.window(), filter.threshold()), (5000, 3));
    filter.resize(2000);
    assert_eq!((filter.window(), filter.threshold()), (10_000, 3));
    filter.resume(0, 0);
    assert_eq!((filter.window(), filter.threshold()), (500, 1));
    filter.resume(u64::MAX, u8::MAX);
    assert_eq!((filter.window(), filter.threshold()), (16_000, 8));
}

#[test]
fn a_run_goes_on_where_it_ended() {
    let mut runs = Runs::new(64);
    let asked = [
        (1, 0, false),
        (1, 4, true),
        (2, 8, false), // Of another object.
        (1, 8, true),
        (1, 0, false),   // Again.
        (1, 100, false), // Elsewhere.
        (1, 12, true),
        (1, 104, true),
    ];
    for (object, page, continues) in asked {
        assert_eq!(runs.note(object, page * 4096, 4 * 4096), continues, "{object}, {page}");
    }
}

#[test]
fn the_same_place_again_is_no_run() {
    let mut runs = Runs::new(64);
    assert!((0..100).all(|_| !runs.note(1, 64 * KIB, 4096)));
}

#[test]
fn a_run_survives_requests_out_of_order_and_others_in_between() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut runs = Runs::new(64);
    let mut begun = 0;
    // Four scans of one object, 16 requests of each in flight; three of four requests are random ones.
    for chunk in 0..1000_u64 {
        for scan in 0..4_u64 {
            for swapped in 0..16 {
                let page = (scan << 30) + chunk * 16 + (swapped ^ (chunk % 4));
                begun += usize::from(!runs.note(1, page * 4096, 4096));
                for _ in 0..3 {
                    runs.note(1, random.random_range(1 << 50..1 << 51), 4096);
                }
            }
        }
    }
    assert!(begun < 30, "{begun} of 64,000");
}

#[test]
fn promotions_keep_their_rate() {
    let mut budget = Budget::new(BytesPerSec(100 * MIB), 0.1, 2);
    let mut now = START;
    let mut copied = 0;
    while now < START + Duration::from_secs(100) {
        match budget.admit(MIB, now) {
            Admission::Now => {
                copied += MIB;
                budget.finish();
            }
            Admission::At(later) => {
                assert!(later > now);
                now = later;
            }
            Admission::Busy => unreachable!("each has finished"),
        }
    }
    // A second's bytes at once, and one that is begun.
    assert!((1000..=1012).contains(&(copied / MIB)), "{} MiB", copied / MIB);
}

#[test]
fn promotions_wait_for_one_another() {
    let mut budget = Budget::new(BytesPerSec(100 * MIB), 1.0, 2);
    assert_eq!(budget.admit(MIB, START), Admission::Now);
    assert_eq!(budget.admit(MIB, START), Admission::Now);
    assert_eq!(budget.admit(MIB, START), Admission::Busy);
    budget.finish();
    assert_eq!(budget.admit(MIB, START), Admission::Now);
}

#[test]
fn without_bandwidth_nothing_is_promoted() {
    let mut budget = Budget::new(BytesPerSec(100 * MIB), 0.0, 2);
    assert_eq!(budget.admit(1, START), Admission::At(Instant::FAR));
    budget.set(BytesPerSec(1), 1.0);
    assert_eq!(budget.admit(MIB, START), Admission::Now);
    assert!(matches!(budget.admit(1, START), Admission::At(later) if later < Instant::FAR));
}

proptest! {
    #[test]
    fn a_scan_promotes_nothing(
        capacity in 1u64..1000,
        pages in prop::sample::select(vec![1u64, 4, 16, 64, 256]),
        scans in prop::collection::vec((0u64..4, 0u64..1000), 1..5),
    ) {
        // Each from a place of its own, as the first unit of a scan counts.
        let (mut filter, mut runs) = (filter(capacity), Runs::new(64));
        for (number, (object, first)) in scans.into_iter().enumerate() {
            let first = first + 10_000 * number as u64;
            for request in 0..10 * capacity.min(200) {
                let offset = first * MIB + request * pages * 4096;
                let sequential = runs.note(object, offset, pages * 4096);
                let unit = (object << 32) | (offset / MIB);
                let access = Access { sequential, ..read(unit) };
                prop_assert_eq!(filter.note(access, START), Verdict::Bypass);
            }
        }
    }

    #[test]
    fn adjustment_stays_within_its_bounds(
        capacity in 1u64..2500,
        periods in prop::collection::vec((0u64..10_000, 0u64..100, 0u64..2_000), 1..60),
    ) {
        let mut filter = filter(capacity);
        let mut promoted = Period::default();
        for counts in periods {
            let before = (filter.window(), filter.threshold());
            let (next, adjusted) = period(&mut filter, promoted, counts);
            promoted = next;
            let (window, threshold) = (adjusted.window, adjusted.threshold);
            prop_assert!((capacity / 4..=8 * capacity).contains(&window));
            prop_assert!((1..=8).contains(&threshold));
            // One step at a time.
            prop_assert!(window == before.0 || threshold == before.1);
            prop_assert!(threshold.abs_diff(before.1) <= 1);
        }
    }

    /// Agrees with exact counts while units fit.
    #[test]
    fn it_promotes_what_is_accessed_often_enough(
        window in 8u64..200,
        threshold in 1u8..=8,
        units in prop::collection::vec(0u64..40, 1..600),
    ) {
        let mut filter = filter(100);
        filter.resume(window, threshold);
        let window = filter.window();
        let generation = window.div_ceil(8) as usize;
        for (at, &unit) in units.iter().enumerate() {
            let first = (at / generation).saturating_sub(7) * generation;
            let count = units[first..=at].iter().filter(|&&other| other == unit).count();
            let promotes = filter.note(read(unit), START) == Verdict::Promote;
            // A generation counts at most 15 accesses of a unit: more than any threshold.
            prop_assert_eq!(promotes, count >= threshold.into(), "{} at {}", unit, at);
        }
    }
}
