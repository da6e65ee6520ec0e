use std::fs;

use policy::cache::Kind;

use super::*;
use crate::Options;
use crate::report::Report;
use crate::trace::StandIn;

/// A trace of block numbers, one a line.
fn trace(dir: &tempfile::TempDir, blocks: impl IntoIterator<Item = u64>) -> Source {
    let path = dir.path().join("ids.txt");
    let lines: Vec<String> = blocks.into_iter().map(|block| format!("{block}\n")).collect();
    fs::write(&path, lines.concat()).expect("room for a file");
    Source::File { path, format: None, requests_max: None }
}

fn temporary() -> tempfile::TempDir {
    tempfile::TempDir::new().expect("room for a directory")
}

fn counts(replayed: &Replayed, unit_bytes: u32, kind: Kind) -> Vec<Counts> {
    counts_of(replayed, unit_bytes, Scheme { kind, promotion: Promotion::Demand })
}

fn counts_of(replayed: &Replayed, unit_bytes: u32, scheme: Scheme) -> Vec<Counts> {
    let scheme = Scheme::all().position(|one| one == scheme).expect("every scheme is there");
    let of_unit = replayed.cells.iter().filter(|cell| cell.unit_bytes == unit_bytes);
    of_unit.map(|cell| cell.counts[scheme]).collect()
}

#[test]
fn lru_hits_what_a_stack_of_its_size_holds() {
    // The distances of this list are small enough to count by hand.
    let blocks = [1, 2, 3, 1, 2, 3, 300, 1, 1, 301];
    let dir = temporary();
    let sizes = [Size::Bytes(8192), Size::Bytes(12_288), Size::Percent(80.0)];
    let replayed = replay(&trace(&dir, blocks), &sizes).expect("a trace");
    let [block, unit] = UNIT_BYTES;
    let hits = |unit_bytes| -> Vec<u64> {
        counts(&replayed, unit_bytes, Kind::Lru).iter().map(|counts| counts.hits).collect()
    };
    // Of five blocks: two see only 1 after 1; three see 1 2 3 again; 80 % are four, which also keep 1 past 300.
    assert_eq!(hits(block), [1, 4, 5]);
    // Two units of 1 MiB. Room for less than one is room for one; 80 % of two are two.
    assert_eq!(hits(unit), [6, 6, 8]);
    let facts = replayed.facts;
    assert_eq!((facts.requests, facts.writes, facts.bytes), (10, 0, 40_960));
    assert_eq!((facts.accesses, facts.footprint), ([10, 10], [5, 2]));
}

#[test]
fn on_demand_every_miss_installs_its_unit_and_no_cache_hits_a_first_access() {
    let of = StandIn::ALL[3];
    let source = Source::StandIn { of, requests: 5000, seed: 3 };
    let replayed = replay(&source, &Size::DEFAULT).expect("a stand-in");
    assert_eq!(replayed.cells.len(), UNIT_BYTES.len() * Size::DEFAULT.len());
    for cell in &replayed.cells {
        let nth = usize::from(cell.unit_bytes == UNIT_BYTES[1]);
        assert_eq!(cell.counts.len(), Scheme::all().count());
        for (scheme, counts) in Scheme::all().zip(&cell.counts) {
            assert_eq!(counts.accesses, replayed.facts.accesses[nth]);
            let misses = counts.accesses - counts.hits;
            assert!(misses >= replayed.facts.footprint[nth]);
            match scheme.promotion {
                Promotion::Demand => assert_eq!(counts.promoted, misses),
                Promotion::Lazy => assert!(counts.promoted < misses),
            }
        }
    }
    // A larger LRU holds all that a smaller one holds.
    let lru = counts(&replayed, UNIT_BYTES[0], Kind::Lru);
    assert!(lru.is_sorted_by_key(|counts| counts.hits));
    assert!(lru[0].hits < lru[4].hits);
}

#[test]
fn a_cache_of_the_whole_footprint_misses_each_unit_once() {
    let dir = temporary();
    let source = trace(&dir, (0..3000).map(|at| at * at % 701));
    let replayed = replay(&source, &[Size::Percent(100.0)]).expect("a trace");
    for (cell, footprint) in replayed.cells.iter().zip(replayed.facts.footprint) {
        assert_eq!(cell.room as u64, footprint);
        let demand = Scheme::all().zip(&cell.counts).take(Kind::ALL.len());
        assert!(demand.into_iter().all(|(_, counts)| counts.promoted == footprint));
    }
}

#[test]
fn a_scan_is_not_installed_lazily() {
    let dir = temporary();
    let source = trace(&dir, (0..300).chain(0..300));
    let replayed = replay(&source, &[Size::Percent(100.0)]).expect("a trace");
    for unit_bytes in UNIT_BYTES {
        let scheme = Scheme { kind: Kind::Clock2QPlus, promotion: Promotion::Lazy };
        // At most where the scan begins again.
        assert!(counts_of(&replayed, unit_bytes, scheme)[0].promoted <= 1);
    }
}

#[test]
fn a_limit_ends_the_replay_and_an_empty_trace_is_an_error() {
    let dir = temporary();
    let whole = trace(&dir, 0..100);
    let Source::File { path, format, .. } = whole.clone() else { unreachable!("it is a file") };
    let some = Source::File { path, format, requests_max: Some(7) };
    assert_eq!(replay(&some, &Size::DEFAULT).expect("a trace").facts.requests, 7);
    let error = replay(&trace(&dir, []), &Size::DEFAULT).expect_err("no requests");
    assert_eq!(error.to_string(), "ids.txt has no requests");
}

#[test]
fn a_report_says_that_it_was_computed_and_has_each_scheme() {
    let dir = temporary();
    let source = trace(&dir, [1, 1, 1, 2]);
    let replayed = replay(&source, &[Size::Percent(50.0)]).expect("a trace");
    let mut report = Report::new("tier", &Options::default());
    describe(&mut report, &[replayed]);
    assert!(report.notes[0].starts_with("computed by replay"));
    let value = |id: &str, case: &str, scheme: &str, unit: &str| {
        let mut rows = report.rows.iter();
        let row = rows.find(|row| {
            row.id == id && row.case == case && row.scheme == scheme && row.unit == unit
        });
        row.and_then(|row| row.value)
    };
    let case = "ids.txt, 50 % = 1 of 4 KiB";
    for scheme in Scheme::all() {
        // Lazy: the second access installs the unit, and only the third one hits.
        let (hits, promoted) = match scheme.promotion {
            Promotion::Demand => (50.0, 0.5),
            Promotion::Lazy => (25.0, 0.25),
        };
        let scheme = scheme.name();
        assert_eq!(value("units of 4 KiB", case, &scheme, "%"), Some(hits), "{scheme}");
        assert_eq!(value("units of 4 KiB", case, &scheme, "x"), Some(promoted), "{scheme}");
    }
    assert_eq!(value("units of 4 KiB", case, "limit", "%"), Some(50.0));
    assert_eq!(value("trace", "ids.txt", "mean request", "KiB"), Some(4.0));
    assert_eq!((report.tables.len(), report.plots.len()), (9, 4));
}
