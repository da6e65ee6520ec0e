use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use engine::kv::{Change, Count, Durability, KeyRange, Memory, Result, Scan};

use super::*;
use crate::Options;
use crate::report::Report;

const SETTINGS: Settings = Settings {
    records: 1000,
    shape: Shape { key_bytes: 16, value_bytes: 64 },
    threads: 3,
    operations: Some(2000),
    time: None,
    target_per_sec: None,
    distribution: None,
    seed: 1,
    sample_every: Duration::from_secs(1),
};

/// Loads `store`, runs `workloads` on it, and returns every phase.
fn run(store: &dyn KeyValue, settings: &Settings, workloads: &[Workload]) -> Vec<Phase> {
    let (clock, stop) = (Clock::real(), AtomicBool::new(false));
    let bench = Bench::new(store, &clock, &[], settings, 0, &stop);
    let load = bench.load().expect("memory does not fail");
    let runs = workloads.iter().map(|workload| bench.run(*workload).expect("it does not fail"));
    std::iter::once(load).chain(runs).collect()
}

fn entries(store: &dyn KeyValue) -> Vec<(Bytes, Bytes)> {
    let all = Scan {
        range: KeyRange::ALL,
        reverse: false,
        entries_max: usize::MAX,
        bytes_max: usize::MAX,
    };
    store.scan(&all).expect("memory does not fail")
}

#[test]
fn every_workload_does_its_mix_and_finds_what_was_stored() {
    let store = Memory::default();
    let phases = run(&store, &SETTINGS, &Workload::ALL);
    assert_eq!(phases[0].name, "Load");
    assert_eq!(phases[0].driven.latencies.count(Operation::Insert), 1000);
    let mut records = 1000;
    for (phase, workload) in phases[1..].iter().zip(Workload::ALL) {
        let name = workload.name();
        assert_eq!(phase.name, name);
        assert_eq!(
            (phase.driven.operations(), phase.driven.wrong),
            (2000, 0),
            "{name}: {:?}",
            phase.driven.example
        );
        for operation in Operation::ALL {
            let expected = u64::from(operation.share(workload.mix())) * 20;
            let count = phase.driven.latencies.count(operation);
            // Six deviations of a binomial count are at most 134.
            assert!(count.abs_diff(expected) < 135, "{name}: {} {count} times", operation.name());
            assert_eq!(count == 0, expected == 0, "{name}: {}", operation.name());
        }
        records += phase.driven.latencies.count(Operation::Insert);
        assert!(!phase.driven.samples.is_empty());
    }
    assert_eq!(entries(&store).len() as u64, records);
}

#[test]
fn the_same_seed_leaves_the_same_bytes_behind() {
    let left = |seed| {
        let store = Memory::default();
        // With several threads, the seed does not determine which thread inserts which record first.
        let settings = Settings { seed, threads: 1, ..SETTINGS };
        run(&store, &settings, &[Workload::A, Workload::D, Workload::F]);
        entries(&store)
    };
    let first = left(1);
    assert_eq!(first, left(1));
    assert_ne!(first, left(2));
}

/// Every hundredth answer is wrong.
#[derive(Default)]
struct Liar {
    store: Memory,
    answers: AtomicU64,
}

impl Liar {
    fn lies(&self) -> bool {
        self.answers.fetch_add(1, Ordering::Relaxed) % 100 == 99
    }
}

impl KeyValue for Liar {
    fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let mut values = self.store.get_many(keys)?;
        match self.answers.load(Ordering::Relaxed) % 200 {
            _ if !self.lies() => {}
            99 => values[0] = None,
            _ => values[0] = Some(Bytes::from_static(&[7; 64])),
        }
        Ok(values)
    }

    fn apply(&self, changes: &[Change]) -> Result<()> {
        self.store.apply(changes)
    }

    fn scan(&self, scan: &Scan) -> Result<Vec<(Bytes, Bytes)>> {
        let mut found = self.store.scan(scan)?;
        match self.answers.load(Ordering::Relaxed) % 200 {
            _ if !self.lies() => {}
            99 => drop(found.remove(0)),
            _ => found[0].1 = Bytes::new(),
        }
        Ok(found)
    }

    fn count(&self, range: &KeyRange) -> Result<Count> {
        self.store.count(range)
    }

    fn durability(&self) -> Durability {
        self.store.durability()
    }
}

#[test]
fn every_lie_is_counted() {
    let settings = Settings { threads: 1, ..SETTINGS };
    let phases = run(&Liar::default(), &settings, &[Workload::C, Workload::E]);
    assert_eq!(phases[1].driven.wrong, 20, "of 2000 reads");
    assert!(phases[1].driven.example.as_ref().is_some_and(|example| example.contains("no record")));
    let scans = phases[2].driven.latencies.count(Operation::Scan);
    assert_eq!(phases[2].driven.wrong, scans / 100, "of {scans} scans");
    let mut report = Report::new("kv", &Options::default());
    add_to(&mut report, "YCSB", &phases, &[], "liar");
    assert!(!report.holds());
}

/// Fails on every 500th batch of changes for lack of space.
struct Full(Memory, AtomicU64);

impl KeyValue for Full {
    fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        self.0.get_many(keys)
    }

    fn apply(&self, changes: &[Change]) -> Result<()> {
        if self.1.fetch_sub(1, Ordering::Relaxed).is_multiple_of(500) {
            return Err(engine::kv::Error::OutOfSpace("volume a".into()));
        }
        self.0.apply(changes)
    }

    fn scan(&self, scan: &Scan) -> Result<Vec<(Bytes, Bytes)>> {
        self.0.scan(scan)
    }

    fn count(&self, range: &KeyRange) -> Result<Count> {
        self.0.count(range)
    }

    fn durability(&self) -> Durability {
        self.0.durability()
    }
}

#[test]
fn an_error_of_the_store_ends_the_workload_and_names_it() {
    let (clock, stop) = (Clock::real(), AtomicBool::new(false));
    let store = Full(Memory::default(), AtomicU64::new(1_000_499));
    let bench = Bench::new(&store, &clock, &[], &SETTINGS, 0, &stop);
    let error = format!("{:#}", bench.load().expect_err("the store is full"));
    assert_eq!(error, "workload Load, insert: out of space: volume a");
}

#[test]
fn whoever_asks_it_to_stop_gets_what_there_is() {
    let (clock, stop, store) = (Clock::real(), AtomicBool::new(false), Memory::default());
    let settings = Settings { operations: None, time: None, ..SETTINGS };
    let volume = Volume { name: "a".into(), paid_iops: Some(3000), ops: Tally::new(|| 0) };
    let volumes = [volume];
    let bench = Bench::new(&store, &clock, &volumes, &settings, 0, &stop);
    bench.load().expect("memory does not fail");
    let phase = std::thread::scope(|scope| {
        let running = scope.spawn(|| bench.run(Workload::D));
        while bench.records() < 1100 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        running.join().expect("it does not panic").expect("memory does not fail")
    });
    assert!(phase.driven.operations() >= 100 && phase.driven.wrong == 0);
}

#[test]
fn a_rate_counts_latencies_from_when_operations_should_have_started() {
    let store = Memory::default();
    let settings = Settings { operations: Some(50), target_per_sec: Some(10_000), ..SETTINGS };
    let phases = run(&store, &settings, &[Workload::C]);
    let count = phases[1].driven.open.count(Operation::Read);
    assert_eq!((count, phases[0].driven.open.count(Operation::Insert)), (50, 0));
    assert!(
        phases[1].driven.elapsed >= Duration::from_micros(4900),
        "{:?}",
        phases[1].driven.elapsed
    );
    for ((_, service), (_, open)) in
        phases[1].driven.latencies.each().zip(phases[1].driven.open.each())
    {
        assert!(open.mean() >= service.mean());
    }
}

#[test]
fn the_report_has_every_figure_and_draws_its_pictures() {
    let ops = AtomicU64::new(0);
    let ops: &'static AtomicU64 = Box::leak(Box::new(ops));
    let volume = |name: &str, paid_iops| Volume {
        name: name.into(),
        paid_iops,
        ops: Tally::new(|| ops.fetch_add(30, Ordering::Relaxed)),
    };
    let volumes = [volume("a", Some(3000)), volume("b", Some(3000)), volume("c", None)];
    let (hits, asked) = (AtomicU64::new(0), AtomicU64::new(0));
    let grows = |count, by| Tally::new(move || AtomicU64::fetch_add(count, by, Ordering::Relaxed));
    let cache = |name: &str, hits, asked| Cache { name: name.into(), hits, asked };
    let caches = [
        cache("memory", grows(&hits, 3), grows(&asked, 4)),
        cache("tier idle", Tally::new(|| 7), Tally::new(|| 9)),
    ];
    let (clock, stop, store) = (Clock::real(), AtomicBool::new(false), Memory::default());
    let bench = Bench::new(&store, &clock, &volumes, &SETTINGS, 0, &stop).caches(&caches);
    let phases = [bench.load(), bench.run(Workload::A)].map(|phase| phase.expect("no failure"));
    let mut report = Report::new("kv", &Options::default());
    add_to(&mut report, "YCSB", &phases, &volumes, "round-robin");
    assert!(report.holds());
    let row = |case: &str| {
        let row = report.rows.iter().find(|row| row.case == case);
        row.unwrap_or_else(|| panic!("no row {case}")).value.expect("it was measured")
    };
    assert_eq!(row("Load, insert"), 1000.0);
    assert!(row("A") > 0.0 && row("A, update, p50") <= row("A, update, p99.9"));
    assert_eq!((row("Load, hits in memory"), row("A, hits in memory")), (75.0, 75.0));
    assert!(report.rows.iter().all(|row| !row.case.contains("tier idle")), "it was not asked");
    assert!(row("A, volume b") > 0.0 && row("A, volume b, of what is paid for") > 0.0);
    assert!(report.rows.iter().all(|row| row.id == "YCSB" && row.scheme == "round-robin"));
    assert!(report.rows.iter().any(|row| row.unit == "IOPS over time"));
    let titles: Vec<_> = report.plots.iter().map(|plot| plot.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "Throughput over time",
            "I/Os of each volume over time",
            "I/Os of each volume over time, against its line of 3000 IOPS",
            "Latency: read",
            "Latency: update",
            "Latency: insert",
        ]
    );
    let page = tempfile::NamedTempFile::new().expect("room for a file");
    report.write_html(page.path()).expect("it draws");
}
