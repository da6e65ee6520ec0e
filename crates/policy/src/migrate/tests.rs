//! Cases as text: `testdata/migrate/*.txt`.
//!
//! ```text
//! policy NAME [KEY=VALUE]...             begins a case; min and max are numbers of copies
//! volume ID [STATE] [KEY=VALUE]...       a volume or its new state: line, bytes, used, now, wait,
//!                                        weight, free (of 100GiB), held, answers-us
//! table ID LEN RATE on VOLUME[:SHARE]... [leaving=SECONDS] [young]
//! gone ID                                a table goes
//! flight ID FROM TO                      a running copy
//! decide [TIMES]                         TIMES decisions, and the plan of the last
//! ```
//! Planned copies and drops count as done from then on, and reads are divided evenly, unless a line says otherwise.
//! `UPDATE_EXPECT=1 cargo test` rewrites the answers; review the diff.

mod properties;
mod rehearsal;

use std::fmt::Write;

use expect_test::expect_file;

use super::*;
use crate::units::{GIB, MIB};

#[test]
fn the_cases_are_decided_as_written() {
    for file in ["tango", "level", "iops", "jobs", "reclaim", "hasten"] {
        let path = format!("{}/testdata/migrate/{file}.txt", env!("CARGO_MANIFEST_DIR"));
        let cases = std::fs::read_to_string(&path).expect("the cases are in the repository");
        expect_file![path].assert_eq(&Stage::replay(&cases));
    }
}

struct Stage {
    planner: Planner,
    decisions: u64,
    volumes: Vec<Volume>,
    tables: Vec<Table>,
    in_flight: Vec<Flight>,
}

impl Stage {
    fn new(policy: Policy, terms: Terms) -> Self {
        let planner = Planner::new(policy, terms);
        Self { planner, decisions: 0, volumes: vec![], tables: vec![], in_flight: vec![] }
    }

    fn replay(cases: &str) -> String {
        let mut stage = Self::new(Policy::Off, Terms::default());
        let mut out = String::new();
        for line in cases.lines().filter(|line| !line.starts_with("  ")) {
            writeln!(out, "{line}").expect("text grows");
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                [] | ["#", ..] => {}
                ["policy", name, ref terms @ ..] => {
                    let policy = Policy::named(name).expect("a policy");
                    stage = Self::new(policy, parse_terms(terms));
                }
                ["volume", id, ref state @ ..] => stage.set_volume(volume_id(id), state),
                ["table", id, len, rate, "on", ref copies @ ..] => {
                    let table = parse_table(number(id), parse_size(len), number(rate), copies);
                    stage.tables.retain(|other| other.object != table.object);
                    stage.tables.push(table);
                }
                ["gone", id] => stage.tables.retain(|table| table.object != number::<u64>(id)),
                ["flight", id, from, to] => {
                    let (from, to) = (volume_id(from), volume_id(to));
                    stage.in_flight.push(Flight { object: number(id), from, to });
                }
                ["decide"] => stage.decide(1, &mut out),
                ["decide", times] => stage.decide(number(times), &mut out),
                _ => panic!("no such line: {line:?}"),
            }
        }
        out
    }

    fn set_volume(&mut self, id: VolumeId, state: &[&str]) {
        let usual = Volume {
            id,
            state: State::Active,
            line: 1000.0,
            line_bytes: f64::INFINITY,
            used: 0.0,
            used_now: 0.0,
            wait: Duration::ZERO,
            weight: 0.0,
            free: 90 * GIB,
            total: 100 * GIB,
            held: 100 * GIB,
            answer: Duration::ZERO,
        };
        if !self.volumes.iter().any(|volume| volume.id == id) {
            self.volumes.push(usual);
        }
        let volume = self.volumes.iter_mut().find(|volume| volume.id == id).expect("it is there");
        for word in state {
            match word.split_once('=') {
                None => volume.state = parse_state(word),
                Some(("line", line)) => volume.line = number(line),
                Some(("bytes", bytes)) => volume.line_bytes = parse_size(bytes) as f64,
                Some(("used", used)) => {
                    (volume.used, volume.used_now) = (number(used), number(used))
                }
                Some(("now", used)) => volume.used_now = number(used),
                Some(("wait", ms)) => volume.wait = Duration::from_millis(number(ms)),
                Some(("weight", weight)) => volume.weight = number(weight),
                Some(("free", free)) => volume.free = parse_size(free),
                Some(("answers-us", us)) => volume.answer = Duration::from_micros(number(us)),
                Some(("held", held)) => volume.held = parse_size(held),
                Some((key, _)) => panic!("no such key: {key:?}"),
            }
        }
    }

    fn decide(&mut self, times: u64, out: &mut String) {
        let mut plan = Plan::default();
        for _ in 0..times {
            self.decisions += 1;
            let now = Instant::ZERO + Duration::from_secs(10) * self.decisions as u32;
            // In a tie the volume with the higher number has fewer overlaps.
            let overlap = |_: u64, volume: VolumeId| -f64::from(volume.0);
            let snapshot = Snapshot {
                volumes: &self.volumes,
                tables: &self.tables,
                in_flight: &self.in_flight,
                overlap: &overlap,
            };
            plan = self.planner.decide(&snapshot, now);
            for drop in &plan.drops {
                let table = self.table(drop.object);
                table.copies.retain(|copy| copy.volume != drop.volume);
                divide_evenly(table);
            }
            for copy in &plan.copies {
                self.planner.copied(copy.object, now);
                let table = self.table(copy.object);
                table.copies.push(Replica { volume: copy.to, share: 0.0 });
                divide_evenly(table);
            }
        }
        for Dropping { object, volume, whence, .. } in plan.drops {
            writeln!(out, "  drop {object} from {volume}: {}", whence.name()).expect("text grows");
        }
        for Copying { object, from, to, why, is_last, .. } in plan.copies {
            let why = why.name();
            let last = if is_last { ", the last" } else { "" };
            writeln!(out, "  copy {object} from {from} to {to}: {why}{last}").expect("text grows");
        }
        if let Some(InitialReplicas { two_from: rate, .. }) = plan.initial_replicas {
            writeln!(out, "  two copies from {rate:.0} reads/s on").expect("text grows");
        }
        for (why, count) in plan.skipped.iter().filter(|(_, count)| *count > 0) {
            writeln!(out, "  skipped {count}: {}", why.name()).expect("text grows");
        }
    }

    fn table(&mut self, object: u64) -> &mut Table {
        self.tables
            .iter_mut()
            .find(|table| table.object == object)
            .expect("a plan's table is there")
    }
}

fn divide_evenly(table: &mut Table) {
    let share = 1.0 / table.copies.len() as f64;
    table.copies.iter_mut().for_each(|copy| copy.share = share);
}

fn parse_terms(words: &[&str]) -> Terms {
    let mut terms = Terms::default();
    for word in words {
        match word.split_once('=') {
            Some(("min", copies)) => terms.copies_min = number(copies),
            Some(("max", copies)) => terms.copies_max = number(copies),
            _ => panic!("no such term: {word:?}"),
        }
    }
    terms
}

fn parse_table(object: u64, len: u64, rate: f64, words: &[&str]) -> Table {
    let young = words.contains(&"young");
    let leaving = words.iter().find_map(|word| word.strip_prefix("leaving="));
    let leaving = leaving.map(|seconds| Duration::from_secs(number(seconds)));
    let copies = words.iter().filter(|word| **word != "young" && !word.starts_with("leaving="));
    let copies = copies.map(|word| match word.split_once(':') {
        Some((volume, share)) => Replica { volume: volume_id(volume), share: number(share) },
        None => Replica { volume: volume_id(word), share: 1.0 },
    });
    let age = Duration::from_secs(if young { 5 } else { 3600 });
    Table { object, len, rate, copies: copies.collect(), age, leaving }
}

fn parse_state(word: &str) -> State {
    match word {
        "active" => State::Active,
        "draining" => State::Draining,
        "silent" => State::Silent,
        "away" => State::Away,
        _ => panic!("no such state: {word:?}"),
    }
}

fn volume_id(word: &str) -> VolumeId {
    VolumeId(number(word))
}

fn number<N: std::str::FromStr>(word: &str) -> N {
    word.parse().ok().unwrap_or_else(|| panic!("{word:?} is no number"))
}

fn parse_size(word: &str) -> u64 {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &word[digits.len()..] {
        "MiB" => MIB,
        "GiB" => GIB,
        unit => panic!("no unit {unit:?}"),
    };
    number::<u64>(digits) * unit
}

#[test]
fn copies_are_paced_by_what_their_volumes_are_paid_for() {
    let [a, b, c] = [0, 1, 2].map(VolumeId);
    let flight = |object, from, to| Flight { object, from, to };
    let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
    let mut pace = Pace::default();
    // Of which copies may take 160 and 16 a second.
    const K: f64 = 1.0 / COPY_SHARE;
    const ALL: f64 = COPY_BYTES_PER_SEC;
    let line = |ops| Line { ops: ops * K, bytes: f64::INFINITY };
    let lines = [(a, line(160.0)), (b, line(160.0)), (c, line(16.0))];
    pace.set_lines(lines.into_iter().collect());
    assert!(pace.may_begin(flight(1, a, b), at(0)));
    pace.begin(flight(1, a, b), 8 * MIB, ALL, at(0));
    // 32 operations of 160 a second; 8 MiB of 64 MiB a second.
    assert!(!pace.may_begin(flight(2, b, c), at(199)));
    pace.end(flight(1, a, b));
    assert!(!pace.may_begin(flight(2, b, c), at(199)), "it was faster than it may be in the mean");
    assert_eq!(pace.next(at(150)), Some(at(200)));
    assert!(pace.may_begin(flight(2, b, c), at(200)));
    pace.begin(flight(2, b, c), 8 * MIB, ALL, at(200));
    assert!(!pace.may_begin(flight(3, a, VolumeId(3)), at(324)), "64 MiB a second for all");
    assert!(pace.may_begin(flight(3, a, VolumeId(3)), at(325)));
    assert_eq!(pace.in_flight().collect::<Vec<_>>(), [flight(2, b, c)]);
    pace.end(flight(2, b, c));
    assert!(pace.may_begin(flight(3, a, b), at(400)));
    assert!(!pace.may_begin(flight(3, a, c), at(2199)), "a slower volume rests longer");
    assert!(pace.may_begin(flight(3, a, c), at(2200)));
    assert_eq!(pace.next(at(2200)), None);
}

/// On a volume that is paid for few bytes, a copy was once counted in operations only, and took all of them.
#[test]
fn copies_are_paced_by_bytes_too() {
    let [from, to] = [0, 1].map(VolumeId);
    let flight = |object| Flight { object, from, to };
    let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
    let line = Line { ops: 1e6, bytes: 8.0 * MIB as f64 / COPY_SHARE };
    let mut pace = Pace::default();
    let lines: Lines = [(from, line), (to, line)].into_iter().collect();
    pace.set_lines(lines.clone());
    pace.begin(flight(1), 8 * MIB, f64::INFINITY, at(0));
    assert!(!pace.may_begin(flight(2), at(999)) && pace.may_begin(flight(2), at(1000)));
    let mut steps = Steps::default();
    steps.set_lines(lines);
    // 32 blocks are 8 MiB.
    let mut now = at(0);
    let mut next = steps.come(vec![from, to]);
    for _ in 0..=32 {
        assert_eq!(steps.take(next, false, now), Ok(()));
        next = steps.come(vec![from, to]);
        now = steps.take(next, false, now).expect_err("the last has just gone");
    }
    assert_eq!(now, at(1000) + Duration::from_micros(31_250));
}

/// One write that took five seconds once stopped the copies to its volume for 18 minutes.
#[test]
fn a_volume_that_was_slow_for_a_moment_rests_no_longer_than_it_is_slow() {
    let [from, to] = [0, 1].map(VolumeId);
    let flight = |object| Flight { object, from, to };
    let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
    let lines = |ops| -> Lines { [(to, Line { ops, bytes: f64::INFINITY })].into_iter().collect() };
    let (mut pace, mut steps) = (Pace::default(), Steps::default());
    pace.set_lines(lines(0.2));
    steps.set_lines(lines(0.2));
    pace.begin(flight(1), 8 * MIB, COPY_BYTES_PER_SEC, at(0));
    let first = steps.come(vec![from, to]);
    assert_eq!(steps.take(first, true, at(0)), Ok(()));
    let next = steps.come(vec![from, to]);
    assert!(!pace.may_begin(flight(2), at(1_000_000)));
    assert_eq!(steps.take(next, true, at(10_000)), Err(at(50_000)));

    pace.set_lines(lines(2000.0));
    steps.set_lines(lines(2000.0));
    assert!(pace.may_begin(flight(2), at(10_000)));
    assert_eq!(steps.take(next, true, at(10_000)), Ok(()));
}

/// A rebuild goes once both of its volumes have rested. Two others use one of them each, as soon as that has rested.
#[test]
fn a_rebuild_between_two_busy_volumes_has_its_turns() {
    let [a, b, c, d] = [0, 1, 2, 3].map(VolumeId);
    let mut steps = Steps::default();
    let line = Line { ops: 100.0 / REBUILD_SHARE, bytes: f64::INFINITY };
    steps.set_lines([a, b, c, d].map(|volume| (volume, line)).into_iter().collect());
    let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
    // Each rebuild asks again at the time that `take` gave. The third one begins last.
    let pairs = [vec![a, c], vec![b, d], vec![a, b]];
    let mut waits: Vec<_> =
        (0..3).map(|n| (at(5 * n), steps.come(pairs[n as usize].clone()))).collect();
    let mut went = [0; 3];
    while let Some(n) = (0..3).min_by_key(|&n| waits[n].0).filter(|&n| waits[n].0 < at(10_000)) {
        let (now, ticket) = waits[n];
        waits[n] = match steps.take(ticket, true, now) {
            Err(again) => {
                assert!(again > now, "it would ask for ever");
                (again, ticket)
            }
            Ok(()) => {
                went[n] += 1;
                (now, steps.come(pairs[n].clone()))
            }
        };
    }
    // A volume carries 1,000 of them.
    assert!(went.iter().all(|&count| count >= 300), "{went:?}");
    // Volume `b` becomes slow: while a rebuild waits for it, others on `a` go on.
    let now = at(20_000);
    waits.iter().for_each(|&(_, ticket)| steps.leave(ticket));
    let slow = Line { ops: 0.01 / REBUILD_SHARE, ..line };
    let lines = [(a, line), (b, slow), (c, line)];
    steps.set_lines(lines.into_iter().collect());
    let waiting = steps.come(vec![a, b]);
    assert!(steps.take(waiting, true, now).is_err());
    let other = steps.come(vec![a, c]);
    assert_eq!(steps.take(other, true, now), Ok(()));
    steps.leave(waiting);
    // A rebuild that stopped waiting does not hold up the next one.
    let [first, second] = [0, 1].map(|_| steps.come(vec![a, c]));
    assert!(steps.take(second, true, at(30_000)).is_err());
    steps.leave(first);
    assert_eq!(steps.take(second, true, at(30_000)), Ok(()));
}

#[test]
fn the_last_copies_are_made_as_fast_as_the_pool_is_large() {
    let rate = |volumes, is_last| bytes_per_sec(volumes, is_last) / COPY_BYTES_PER_SEC;
    assert_eq!([1, 2, 3, 20].map(|volumes| rate(volumes, true)), [1.0, 1.0, 1.5, 10.0]);
    assert_eq!([1, 2, 3, 20].map(|volumes| rate(volumes, false)), [1.0; 4]);
}

#[test]
fn copies_that_queue_do_not_hold_each_other_up_but_for_a_few() {
    let [from, to] = [0, 1].map(VolumeId);
    let mut pace = Pace::default();
    let flight = |object| Flight { object, from, to };
    let at = |object: u64| Instant::ZERO + Duration::from_secs(object);
    for object in 0..4 {
        assert!(pace.may_begin(flight(object), at(object)), "{object}: rested, and none has ended");
        pace.begin(flight(object), MIB, COPY_BYTES_PER_SEC, at(object));
    }
    assert!(!pace.may_begin(flight(4), at(1000)));
    assert_eq!(pace.next(at(1000)), None, "it waits for the end of a copy");
    pace.end(flight(2));
    assert!(pace.may_begin(flight(4), at(1000)));
}
