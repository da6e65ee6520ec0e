//! Put delays, feasibility and selective reads.

use std::time::Duration;

use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::contract::Contract;
use crate::units::{GIB, KIB};

fn fill(used: u64) -> Fill {
    Fill { capacity: CAPACITY, used, written: Written(0) }
}

#[test]
fn puts_wait_from_low_to_high_and_never_use_the_reserve() {
    let limits = PutLimits::new(100 * MIB);
    let mut report = String::new();
    for used in [0, 850, 855, 860, 880, 899, 900, 950] {
        report += &format!("{used} MiB: {:?}\n", limits.admit(MIB, &fill(used * MIB)));
    }
    expect![[r#"
        0 MiB: Now
        850 MiB: Now
        855 MiB: Now
        860 MiB: After(111.111111ms)
        880 MiB: After(555.555556ms)
        899 MiB: After(977.777778ms)
        900 MiB: Refused { retry_after: 1s }
        950 MiB: Refused { retry_after: 1s }
    "#]]
    .assert_eq(&report);
    let slowly = PutLimits { exponent: 2.0, ..limits };
    assert!(slowly.delay(&fill(880 * MIB)) < limits.delay(&fill(880 * MIB)));
}

#[test]
fn a_limit_without_a_way_is_a_step() {
    let step = PutLimits { low: 0.9, high: 0.9, ..PutLimits::new(0) };
    assert_eq!(step.delay(&fill(900 * MIB)), Duration::ZERO);
    assert_eq!(step.delay(&fill(901 * MIB)), Duration::from_secs(1));
}

#[test]
fn the_reserve_is_a_file_and_what_closing_takes() {
    assert_eq!(PutLimits::reserve(GIB, 1, 64, MIB), GIB + 65 * MIB);
    assert_eq!(PutLimits::reserve(GIB, 5, 64, MIB), 5 * GIB + 69 * MIB);
}

/// The paper's nodes: planing up to 0.16 with files of 1 GiB.
const PAPER: Room =
    Room { capacity: 100 * GIB, live: 0.15, open: 64, file_bytes: GIB, target: 0.8, reserve: 0 };

#[test]
fn the_paper_planes_up_to_a_sixth() {
    assert!(PAPER.planes());
    assert!(!Room { live: 0.16, ..PAPER }.planes());
    assert_eq!(PAPER.files(), 1.25);
    // Five nodes, one of which fails: 0.6 becomes 0.75, and files must be a quarter as large.
    let max = |live| Room { live, ..PAPER }.file_bytes_max().map(|bytes| bytes / MIB);
    assert_eq!([max(0.6), max(0.75), max(0.8)], [Some(320), Some(80), None]);
}

#[test]
fn the_error_for_what_does_not_fit_names_the_way_out() {
    let mut report = String::new();
    for (live, open, file_bytes) in [(0.3, 64, GIB), (0.7, 64, GIB), (0.995, 1, GIB), (1.1, 1, GIB)]
    {
        match (Room { live, open, file_bytes, ..PAPER }).check() {
            Ok(()) => report += "it fits\n",
            Err(error) => report += &format!("{error}\n"),
        }
    }
    expect![[r#"
        it fits
        70 % of 100 GiB alive, 64 files of 1 GiB open at once and one to merge into need 135 GiB: seal files at 472.6 MiB or less, have at most 29 open, keep less, or take a larger volume
        100 % of 100 GiB alive, 1 files of 1 GiB open at once and one to merge into need 101.5 GiB: seal files at 256 MiB or less, keep less, or take a larger volume
        110 % of 100 GiB alive, 1 files of 1 GiB open at once and one to merge into need 112.0 GiB: keep less, or take a larger volume
    "#]]
    .assert_eq(&report);
}

/// A 7200 rpm disk: 5.2 ms for a jump, 150 MB/s.
fn disk() -> Device {
    Device {
        bytes_per_sec: 150e6,
        jump: Duration::from_micros(5200),
        ops_per_sec: f64::INFINITY,
        op_bytes: 256 * KIB,
    }
}

/// A volume of 3000 operations and 125 MiB a second.
fn paid() -> Device {
    Device {
        bytes_per_sec: 125.0 * MIB as f64,
        jump: Duration::ZERO,
        ops_per_sec: 3000.0,
        op_bytes: 256 * KIB,
    }
}

#[test]
fn little_left_is_read_alone_and_much_with_the_rest() {
    // One record of 4 KiB in every `every` bytes: a disk reads 762 KiB in the time of a jump.
    let read = |device: &Device, every: u64| {
        let live = (0..256 * MIB / every).map(|i| i * every..i * every + 4 * KIB);
        match reading(device, 256 * MIB, live) {
            Reading::Whole => 1.0,
            Reading::Ranges(ranges) => {
                let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
                bytes as f64 / (256 * MIB) as f64
            }
        }
    };
    let every = [128 * KIB, 512 * KIB, MIB, 8 * MIB];
    let near = |found: [f64; 4], wanted: [f64; 4]| {
        assert!(found.iter().zip(wanted).all(|(f, w)| (f - w).abs() < 0.01), "{found:?}");
    };
    near(every.map(|every| read(&disk(), every)), [1.0, 1.0, 0.004, 0.0005]);
    near(every.map(|every| read(&paid(), every)), [1.0, 0.008, 0.004, 0.0005]);
}

#[test]
fn the_dead_front_of_a_file_is_skipped() {
    let live = 128 * MIB..256 * MIB;
    let pieces = (128..256).map(|mib| mib * MIB..(mib + 1) * MIB);
    for device in [disk(), paid(), Device::of(&Contract::unlimited())] {
        assert_eq!(
            reading(&device, 256 * MIB, pieces.clone()),
            Reading::Ranges(vec![live.clone()])
        );
    }
}

#[test]
fn a_device_is_what_its_contract_says() {
    let device = Device::of(&Contract::unlimited());
    assert_eq!((device.jump, device.gap_max()), (Duration::ZERO, 256 * KIB));
    assert_eq!(disk().gap_max(), 780_000);
}

proptest! {
    #[test]
    fn all_that_lives_is_read_and_for_less_than_the_whole(
        lens in prop::collection::vec((1u64..2 * MIB, 1u64..256 * KIB), 0..200)
    ) {
        let mut end = 0;
        let live: Vec<_> = lens
            .into_iter()
            .map(|(gap, len)| {
                let start = end + gap;
                end = start + len;
                start..end
            })
            .collect();
        for device in [disk(), paid()] {
            if let Reading::Ranges(ranges) = reading(&device, end, live.iter().cloned()) {
                let covered = |range: &std::ops::Range<u64>| {
                    ranges.iter().any(|r| r.start <= range.start && range.end <= r.end)
                };
                prop_assert!(live.iter().all(covered));
                prop_assert!(ranges.windows(2).all(|w| w[0].end + device.gap_max() <= w[1].start));
            }
        }
    }

    #[test]
    fn it_planes_up_to_the_largest_file_and_no_further(
        live in 0.0f64..1.0, target in 0.5f64..0.95, open in 1u64..100
    ) {
        let room = Room { live, target, open, ..PAPER };
        match room.file_bytes_max() {
            Some(max) => {
                // At 100 GiB, rounding errors may exceed a byte.
                let fits = Room { file_bytes: max.max(2) - 1, ..room };
                let over = Room { file_bytes: max + 2, ..room };
                prop_assert!(fits.planes() && !over.planes());
            }
            None => {
                let least = Room { file_bytes: 1, ..room };
                prop_assert!(!least.planes());
            }
        }
    }

    #[test]
    fn what_is_advised_fits(
        live in 0.0f64..1.2, open in 1u64..200, file_bytes in 1u64..20 * GIB, reserve in 0..GIB
    ) {
        let room = Room { live, open, file_bytes, reserve, ..PAPER };
        if let Err(advice) = room.check() {
            if advice.file_bytes_max > 0 {
                let smaller = Room { file_bytes: advice.file_bytes_max, ..room };
                prop_assert!(smaller.check().is_ok());
            }
            if advice.open_max > 0 {
                let fewer = Room { open: advice.open_max, ..room };
                prop_assert!(fewer.check().is_ok());
                prop_assert!(advice.open_max < open);
            }
        }
    }

    #[test]
    fn a_fuller_volume_never_lets_a_put_go_earlier(
        a in 0..=CAPACITY, b in 0..=CAPACITY, reserve in 0..CAPACITY, exponent in 0.5f64..4.0
    ) {
        let limits = PutLimits { exponent, ..PutLimits::new(reserve) };
        let wait = |used| match limits.admit(1, &fill(used)) {
            Put::Now => Duration::ZERO,
            Put::After(delay) => delay,
            Put::Refused { .. } => Duration::MAX,
        };
        prop_assert!(wait(a.min(b)) <= wait(a.max(b)));
        prop_assert!(limits.delay(&fill(a)) <= limits.delay_max);
    }
}

#[test]
fn what_is_set_aside_is_for_the_stores_own_puts() {
    let limits = PutLimits { set_aside: 50, ..PutLimits::new(100) };
    assert_eq!(limits.kept(), 150);
    let with_free = |free| fill(CAPACITY - free);
    let is_refused = |free| matches!(limits.admit(10, &with_free(free)), Put::Refused { .. });
    assert!(!is_refused(160) && is_refused(159));
    let is_upkeep_refused = |free| !limits.admit_upkeep(10, &with_free(free));
    assert!(!is_upkeep_refused(110) && is_upkeep_refused(109), "merges need the reserve");
}
