//! The cost of a decision of least overlap in a pool of 100,000 tables, and their memory.
//!
//! Targets: under 20 µs, and under 200 bytes a table (keys of 24 bytes, as in YCSB). It measures processor time: a
//! decision never waits.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use policy::inherit::Made;
use policy::intent::{Family, Intent, KeyRange, Kind};
use policy::placement::{Candidate, Keys, LeastOverlap, New, Placement, Table, Tables, VolumeId};
use policy::units::{GIB, MIB};

/// Tables of each level; ten times as many each, from the second on.
const LEVELS: [u64; 5] = [8, 80, 900, 9_000, 90_012];
const KEYS: u64 = 1 << 40;

fn key(number: u64) -> Box<[u8]> {
    format!("user{number:020}").into_bytes().into()
}

/// The key range of the `i`th of `count` tables that divide all keys.
fn range(i: u64, count: u64) -> KeyRange {
    let width = KEYS / count;
    KeyRange { first: key(i * width), last: key((i + 1) * width - 1) }
}

fn table_of<'a>(
    object: u64,
    family: &'a Family,
    level: u8,
    range: &'a KeyRange,
    on: &'a [VolumeId],
) -> Table<'a> {
    let (level, keys) = (Some(level), Some(range.into()));
    Table { object, family, level, keys, len: 8 * MIB, on, rate: 1.0, leaving: false }
}

fn filled(family: &Family) -> Tables {
    let mut tables = Tables::default();
    let mut object = 0;
    for (level, &count) in (0..).zip(&LEVELS) {
        // In an order other than that of keys; 7919 is coprime to all of the numbers.
        for i in (0..count).map(|i| i * 7919 % count) {
            let range = if level == 0 { range(0, 1) } else { range(i, count) };
            let on = [VolumeId((object % 6) as u16)];
            tables.insert(table_of(object, family, level, &range, &on));
            object += 1;
        }
    }
    tables
}

fn decisions(c: &mut Criterion) {
    let family = Family("kv#0".into());
    let before = resident();
    let mut tables = filled(&family);
    println!(
        "{} tables: {} bytes each by arithmetic, {} by the growth of the process",
        tables.len(),
        tables.bytes() / tables.len(),
        resident().saturating_sub(before) / tables.len(),
    );
    let volumes: Vec<_> = (0..6)
        .map(|id| Candidate {
            weight: f64::from(id) / 10.0,
            paid: 3000.0,
            ..Candidate::new(VolumeId(id), 100 * GIB, 100 * GIB)
        })
        .collect();
    let mut policy = LeastOverlap::new(7);
    let mut group = c.benchmark_group("place a table");
    let at = LEVELS.map(|count| count * 3 / 7);
    for (what, level, range) in [
        ("flushed", 0, range(0, 1)),
        ("at level 2", 2, range(at[2], LEVELS[2])),
        ("at level 3", 3, range(at[3], LEVELS[3])),
        ("at the deepest", 4, range(at[4], LEVELS[4])),
        ("over 9000 others", 3, range(0, 10)),
    ] {
        let kind = Kind::Table { family: family.clone(), level: Some(level), range: Some(range) };
        let intent = Intent { kind, len: Some(8 * MIB), ..Intent::DATA };
        let Kind::Table { range: Some(range), .. } = &intent.kind else { unreachable!() };
        let mut object = 1 << 32;
        group.bench_function(BenchmarkId::from_parameter(what), |b| {
            b.iter_custom(|count| {
                let before = on_processor();
                for _ in 0..count {
                    object += 1;
                    let levels = level.saturating_sub(1)..=level;
                    let rate = tables.inherited(&family, Keys::from(range), levels, Made::Merged);
                    let new = New { object, intent: &intent, rate };
                    let layout = policy.choose(new, &volumes, &tables).expect("all have room");
                    tables.insert(table_of(object, &family, level, range, layout.volumes()));
                    tables.remove(object);
                    black_box(layout);
                }
                // The system counts in its own steps; the result must not be zero.
                (on_processor() - before).max(Duration::from_nanos(1))
            });
        });
    }
    group.finish();
}

/// How long this thread has run on a processor.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    let nanos = text.split_whitespace().next().expect("it begins with a time");
    Duration::from_nanos(nanos.parse().expect("a number"))
}

/// Resident memory of the process in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

criterion_group!(benches, decisions);
criterion_main!(benches);
