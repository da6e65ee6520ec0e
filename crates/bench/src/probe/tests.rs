//! The whole probe in virtual time, on simulated volumes of every contract that has limits.

use policy::contract::spec::{Bought, Spec};
use policy::contract::{Contract, Counted, catalogue};
use policy::units::{Bytes, GIB, KIB};
use volume::layer::simulate::Simulate;
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Intent, Name, Volume};

use super::*;

const LABELS: Labels<'_> = Labels { name: "found", place: "/mnt/a", date: "2026-11-21" };

fn sold(name: &str, gib: u64, iops: Option<u64>, mib_per_s: Option<u64>) -> Contract {
    let spec = catalogue::find(name).expect("it is in the catalogue");
    spec.contract(Some(Bytes(gib * GIB)), Bought { iops, mib_per_s }).expect("it is sold so")
}

fn of(text: &str) -> Contract {
    Spec::parse(text).expect("a spec").contract(None, Bought::default()).expect("a contract")
}

/// Probes a fresh volume of `contract` for `secs` virtual seconds.
fn probe(contract: &Contract, secs: u64, writes: bool) -> Found {
    let clock = Clock::simulated();
    let volume = Simulate::new(Mem::new("simulated"), contract, clock.clone(), 7);
    let name = Name::new("probe.dat").expect("a name");
    let object = block_on(volume.create(&name, &Intent::DATA)).expect("memory does not fail");
    let time = Duration::from_secs(secs);
    let probe = Probe {
        object,
        bytes: 2 * BYTES_MIN,
        time,
        writes,
        clock,
        runs: Time::Virtual,
        seed: 1,
        device: None,
    };
    probe.run(&AtomicBool::new(false), &()).expect("memory does not fail")
}

fn off(found: f64, real: u64) -> f64 {
    (found / real as f64 - 1.0).abs()
}

/// Checks that the contract file of a volume of `real` parses, and that its limits are those of the volume.
#[track_caller]
fn check(real: &Contract, found: &Found) -> Contract {
    let text = found.contract(LABELS);
    let written = of(&text);
    let limit = |contract: &Contract, counts| {
        contract
            .limits
            .iter()
            .filter(|l| l.counts == counts)
            .min_by_key(|l| l.rate_per_sec)
            .copied()
    };
    let [ops, bytes] =
        [Counted::Ops, Counted::Bytes].map(|counts| (limit(real, counts), limit(&written, counts)));
    eprintln!("{}: {ops:?} {bytes:?}", real.name);
    if let (Some(real), Some(written)) = ops {
        assert!(off(written.rate_per_sec as f64, real.rate_per_sec) < 0.03, "IOPS\n{text}");
        assert!(off(written.depth as f64, real.depth) < 0.1, "depth\n{text}");
    } else {
        assert_eq!(ops.0, None, "no IOPS found\n{text}");
    }
    if let (Some(real), Some(written)) = bytes {
        assert!(off(written.rate_per_sec as f64, real.rate_per_sec) < 0.03, "bandwidth\n{text}");
    } else {
        assert_eq!(bytes.0, None, "no bandwidth found\n{text}");
    }
    written
}

fn finds(volumes: &[Contract]) {
    for real in volumes {
        let found = probe(real, 60, true);
        check(real, &found);
        let writes = found.writes.as_ref().expect("asked for");
        assert_eq!(writes.sharing, Sharing::Shared, "{}: {writes:?}", real.name);
        let latencies = [(&found.base, &real.latency.read), (&writes.base, &real.latency.write)];
        for (measured, expected) in latencies {
            let p50 = measured.percentiles.p50;
            assert!(p50.abs_diff(expected.p50) < expected.p50 / 20, "{p50:?} is not {expected:?}");
        }
        // Above the limit, the latency is the queue's length times the interval of tokens.
        let queue = found.over.at_once as f64 / found.iops.per_sec.value;
        let over = found.over.percentiles.p50.as_secs_f64();
        assert!((over / queue - 1.0).abs() < 0.05, "{over} is not {queue}");
    }
}

#[test]
fn the_contracts_of_one_cloud_are_found() {
    finds(&[
        sold("gp2", 2000, None, None),
        sold("gp3", 500, None, None),
        sold("gp3", 500, Some(6000), Some(250)),
        sold("io1", 100, Some(1000), None),
        sold("io2", 100, Some(2000), None),
    ]);
}

#[test]
fn the_contracts_of_other_clouds_are_found() {
    finds(&[
        sold("pd-balanced", 100, None, None),
        sold("pd-ssd", 10, None, None),
        sold("hyperdisk-balanced", 100, None, None),
        sold("premium-ssd-v2", 100, None, None),
    ]);
}

#[test]
fn what_counts_as_one_operation_is_found_where_it_matters() {
    for (name, iops, kib) in
        [("io1", Some(1000), 256), ("io2", Some(500), 256), ("st1", None, 1024)]
    {
        let real = sold(name, 512, iops, None);
        let found = probe(&real, 60, false);
        assert!(found.operation_is_largest, "{name}: {:?}", found.sizes);
        assert_eq!(found.operation_bytes, kib * KIB, "{name}: {:?}", found.sizes);
    }
    // The bandwidth limit comes first.
    let found = probe(&sold("gp3", 512, None, None), 30, false);
    assert!(!found.operation_is_largest, "{:?}", found.sizes);
    assert!(of(&found.contract(LABELS)).assumed.contains(&"op_kib_max".into()));
}

/// An st1 of 512 GiB bursts for an hour and a half.
#[test]
fn credits_are_found_where_there_is_time_and_else_it_says_so() {
    let real = sold("st1", 512, None, None);
    let found = probe(&real, 7200, false);
    let burst = found.iops.burst.expect("it ends within the time");
    assert!(off(burst.per_sec, 125) < 0.03, "{burst:?}");
    assert!(off(found.iops.per_sec.value, 20) < 0.03, "{:?}", found.iops);
    assert!(off(burst.credits, 512 * 1024) < 0.05, "{burst:?}");
    // The bytes' credits are as many; spending all of them would take as long again.
    let written = of(&found.contract(LABELS));
    assert_eq!(written.limits.iter().filter(|limit| limit.counts == Counted::Ops).count(), 2);

    let small = sold("gp2", 100, None, None);
    let found = probe(&small, 60, false);
    assert!(off(found.iops.per_sec.value, 3000) < 0.03 && found.iops.burst.is_none());
    let text = found.contract(LABELS);
    assert!(text.contains("a burst that ends was not seen within"), "{text}");
}

/// A stopwatch includes the bucket's depth (scylladb/seastar#1030: iotune takes EBS's burst for the disk's speed); with
/// gp2's credits it is off by the whole burst.
#[test]
fn a_full_bucket_does_not_fool_it() {
    let real = of("iops = { included = 300, burst = { rate = 3000, credits = 120_000 } }\n\
                   mib_per_s = 125\n\
                   latency = { read = { p1_us = 200, p50_us = 300, p90_us = 400, p99_us = 500, p999_us = 600 }, \
                   write = { p1_us = 200, p50_us = 300, p90_us = 400, p99_us = 500, p999_us = 600 } }");
    let found = probe(&real, 120, false);
    let burst = found.iops.burst.expect("it ends within the time");
    assert!(off(found.iops.per_sec.value, 300) < 0.03, "{:?}", found.iops.per_sec);
    assert!(off(burst.per_sec, 3000) < 0.03, "{burst:?}");
    assert!(off(burst.credits, 120_000) < 0.1, "{burst:?}");
    let stopwatch = found.iops.naive_per_sec;
    assert!(stopwatch > 2.0 * found.iops.per_sec.value, "{stopwatch}");
    let written = of(&found.contract(LABELS));
    assert_eq!(written.limits.iter().filter(|limit| limit.counts == Counted::Ops).count(), 2);
}

#[test]
fn credits_that_end_while_other_things_are_measured_are_no_lasting_rate() {
    let real =
        of("iops = { included = 300, burst = { rate = 3000, credits = 20_000 } }\nmib_per_s = 125");
    let found = probe(&real, 60, true);
    let burst = found.iops.burst.expect("it ended");
    assert!(off(found.iops.per_sec.value, 300) < 0.03, "{:?}", found.iops.per_sec);
    assert!(off(burst.per_sec, 3000) < 0.1, "{burst:?}");
}

#[test]
fn bandwidth_alone_is_not_taken_for_operations() {
    let real = of("mib_per_s = 20");
    let found = probe(&real, 30, true);
    assert_eq!(found.iops.bound, Bound::OtherLimit);
    let written = check(&real, &found);
    assert_eq!(written.paid_iops(), None);
}

#[test]
fn limits_of_reads_and_of_writes_are_found_apart() {
    let real = of("read_iops = 500\nwrite_iops = 450");
    let found = probe(&real, 60, true);
    let written = of(&found.contract(LABELS));
    let rate = |counts| written.limits.iter().find(|l| l.counts == counts).map(|l| l.rate_per_sec);
    let [reads, writes] = [Counted::ReadOps, Counted::WriteOps].map(|counts| rate(counts).unwrap());
    assert!(off(reads as f64, 500) < 0.03 && off(writes as f64, 450) < 0.03, "{written:?}");
    assert_eq!(rate(Counted::Ops), None);
}

#[test]
fn shallow_buckets_and_deep_ones_are_measured() {
    for depth in [0.1, 0.5, 2.0] {
        let real = of(&format!(
            "iops = {{ included = 2000, depth_s = {depth} }}\nmib_per_s = {{ included = 100, depth_s = {depth} }}"
        ));
        check(&real, &probe(&real, 90, false));
    }
}

#[test]
fn what_answers_in_no_time_is_an_error() {
    let clock = Clock::simulated();
    let object = block_on(
        Mem::new("memory").create(&Name::new("probe.dat").expect("a name"), &Intent::DATA),
    );
    let probe = Probe {
        object: object.expect("memory does not fail"),
        bytes: BYTES_MIN,
        time: TIME_MIN,
        writes: true,
        clock,
        runs: Time::Virtual,
        seed: 1,
        device: None,
    };
    let error = probe.run(&AtomicBool::new(false), &()).expect_err("there is nothing to find");
    assert!(error.to_string().contains("in no time"), "{error}");
    let error = probe.run(&AtomicBool::new(true), &()).expect_err("it was stopped");
    assert!(error.is::<Interrupted>(), "{error}");
}
