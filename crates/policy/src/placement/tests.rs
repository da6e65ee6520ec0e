//! Cases as text: `testdata/placement/*.txt`, one file a policy.
//!
//! ```text
//! policy NAME [CHUNK]              begins a case
//! volume ID FREE of TOTAL          a volume that answers, or its new state
//! volume ID away                   one that does not
//! load ID [WORD VALUE]…            its load: weight, paid, in-flight, saturated yes, answers-us
//! table ID FAMILY LEVEL FROM TO on ID… [rate READS] [leaving]     an existing table
//! moved ID LEVEL · leaving ID · on ID ID… · gone ID               changes of one
//! object ID KIND [LEN]             places an object; the answer stands below
//! object ID table LEN FAMILY LEVEL FROM TO [rate READS]           a table, which exists from now on
//! ```
//! `UPDATE_EXPECT=1 cargo test` rewrites the answers; review the diff.

use std::time::Duration;

use expect_test::expect_file;
use proptest::prelude::*;

use super::*;
use crate::intent::{Family, KeyRange, Kind};
use crate::units::{KIB, MIB};

const NAMES: [&str; 5] = ["single", "round-robin", "hash", "stripe", "least-overlap"];

#[test]
fn the_cases_are_placed_as_written() {
    for file in NAMES {
        let path = format!("{}/testdata/placement/{file}.txt", env!("CARGO_MANIFEST_DIR"));
        let cases = std::fs::read_to_string(&path).expect("the cases are in the repository");
        expect_file![path].assert_eq(&replay(&cases));
    }
}

fn replay(cases: &str) -> String {
    let mut policy: Box<dyn Placement> = Box::new(Single);
    let mut volumes: Vec<Candidate> = Vec::new();
    let mut tables = Tables::default();
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let mut out = String::new();
    for line in cases.lines().filter(|line| !line.starts_with("  ")) {
        out += line;
        out.push('\n');
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            [] | ["#", ..] => {}
            ["policy", name, ref more @ ..] => {
                policy = named(name, more);
                volumes.clear();
                tables = Tables::default();
            }
            ["volume", id, ref state @ ..] => {
                let volume = VolumeId(id.parse().expect("a number"));
                volumes.retain(|other| other.volume != volume);
                volumes.push(candidate(volume, state));
                volumes.sort_by_key(|other| other.volume);
            }
            ["load", id, ref state @ ..] => {
                let volume = volumes.iter_mut().find(|v| u64::from(v.volume.0) == number(id));
                load(volume.expect("a volume"), state);
            }
            ["table", id, family, level, from, to, "on", ref more @ ..] => {
                let split = more.iter().position(|word| ["rate", "leaving"].contains(word));
                let (on, more) = more.split_at(split.unwrap_or(more.len()));
                tables.insert(Table {
                    object: number(id),
                    family: &Family(family.into()),
                    level: Some(level.parse().expect("a level")),
                    keys: Some(keys(from, to)),
                    len: MIB,
                    on: &on.iter().map(|word| volume(word)).collect::<Vec<_>>(),
                    rate: rate(more),
                    leaving: more.contains(&"leaving"),
                });
            }
            ["moved", id, level] => tables.set_level(number(id), level.parse().expect("a level")),
            ["leaving", id] => tables.set_leaving(number(id), true),
            ["on", id, ref on @ ..] => {
                let on: Vec<_> = on.iter().map(|word| volume(word)).collect();
                tables.set_places(number(id), &on);
            }
            ["gone", id] => tables.remove(number(id)),
            ["object", id, kind, ref more @ ..] => {
                let object = number(id);
                let (kind, rate) = match more {
                    [_, family, level, from, to, more @ ..] => {
                        (table(family, level, from, to), rate(more))
                    }
                    _ => (self::kind(kind), 0.0),
                };
                let intent = Intent { kind, len: more.first().map(|w| bytes(w)), ..Intent::DATA };
                let new = New { object, intent: &intent, rate };
                let layout = policy.choose(new, &volumes, &tables);
                if let (Kind::Table { family, level, range }, Some(layout)) =
                    (&intent.kind, &layout)
                {
                    tables.insert(Table {
                        object,
                        family,
                        level: *level,
                        keys: range.as_ref().map(Keys::from),
                        len: new.len(),
                        on: layout.volumes(),
                        rate,
                        leaving: false,
                    });
                }
                let answer = layout.map_or("nowhere".into(), |layout| layout.to_string());
                out += &format!("  {answer}\n");
            }
            _ => panic!("no such line: {line:?}"),
        }
    }
    out
}

fn named(name: &str, more: &[&str]) -> Box<dyn Placement> {
    match (name, more) {
        ("single", _) => Box::new(Single),
        ("round-robin", _) => Box::new(RoundRobin::default()),
        ("hash", _) => Box::new(Hash),
        ("stripe", [chunk, ..]) => Box::new(Stripe::new(bytes(chunk))),
        ("least-overlap", ["by-heat", ..]) => Box::new(LeastOverlap::new(7).by_heat()),
        ("least-overlap", _) => Box::new(LeastOverlap::new(7)),
        _ => panic!("no policy {name:?}"),
    }
}

fn candidate(volume: VolumeId, state: &[&str]) -> Candidate {
    match state {
        ["away"] => Candidate::away(volume),
        [free, "of", total] => Candidate::new(volume, bytes(free), bytes(total)),
        _ => panic!("no such state: {state:?}"),
    }
}

fn load(volume: &mut Candidate, state: &[&str]) {
    let number = |value: &str| value.parse::<f64>().expect("a number");
    for pair in state.chunks(2) {
        match *pair {
            ["weight", value] => volume.weight = number(value),
            ["paid", value] => volume.paid = number(value),
            ["in-flight", value] => volume.in_flight = bytes(value),
            ["saturated", value] => volume.saturated = value == "yes",
            ["answers-us", value] => volume.answer = Duration::from_micros(number(value) as u64),
            _ => panic!("no such load: {pair:?}"),
        }
    }
}

fn volume(word: &str) -> VolumeId {
    VolumeId(word.parse().expect("a volume"))
}

fn keys<'a>(first: &'a str, last: &'a str) -> Keys<'a> {
    Keys { first: first.as_bytes(), last: last.as_bytes() }
}

fn table(family: &str, level: &str, first: &str, last: &str) -> Kind {
    let range = KeyRange { first: first.as_bytes().into(), last: last.as_bytes().into() };
    let level = Some(level.parse().expect("a level"));
    Kind::Table { family: Family(family.into()), level, range: Some(range) }
}

fn rate(words: &[&str]) -> f32 {
    let value = words.iter().position(|word| *word == "rate").map(|at| words[at + 1]);
    value.map_or(0.0, |value| value.parse().expect("a number"))
}

fn kind(word: &str) -> Kind {
    match word {
        "table" => Kind::Table { family: Family("default".into()), level: None, range: None },
        "log" => Kind::Log,
        "data" => Kind::Data,
        _ => panic!("no kind {word:?}"),
    }
}

fn bytes(word: &str) -> u64 {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &word[digits.len()..] {
        "KiB" => KIB,
        "MiB" => MIB,
        "GiB" => GIB,
        unit => panic!("no unit {unit:?}"),
    };
    digits.parse::<u64>().expect("a number") * unit
}

fn policies() -> Vec<Box<dyn Placement>> {
    NAMES.map(|name| named(name, &["64KiB"])).into()
}

prop_compose! {
    fn any_candidate()(free in 0u64..4 * MIB, more in 0u64..MIB, healthy in any::<bool>())
        -> Candidate
    {
        Candidate { healthy, ..Candidate::new(VolumeId(0), free, free + more) }
    }
}

proptest! {
    #[test]
    fn only_volumes_that_will_do_are_chosen(
        mut volumes in prop::collection::vec(any_candidate(), 0..7),
        objects in prop::collection::vec((any::<u64>(), 0u64..8 * MIB), 1..20),
    ) {
        for (id, volume) in volumes.iter_mut().enumerate() {
            volume.volume = VolumeId(id as u16 * 3 + 1);
        }
        for mut policy in policies() {
            for &(object, len) in &objects {
                let intent = Intent { len: Some(len), ..Intent::DATA };
                let Some(layout) = policy.choose(New::cold(object, &intent), &volumes, &Tables::default()) else {
                    prop_assert!(volumes.iter().all(|v| !v.takes(len)), "room was overlooked");
                    continue;
                };
                let mut chosen = layout.volumes().to_vec();
                for (part, &id) in chosen.iter().enumerate() {
                    let volume = volumes.iter().find(|v| v.volume == id).expect("a candidate");
                    prop_assert!(volume.takes(layout.chunks().part_len(len, part)));
                }
                chosen.sort_unstable();
                chosen.dedup();
                prop_assert_eq!(chosen.len(), layout.volumes().len(), "a volume named twice");
            }
        }
    }

    #[test]
    fn round_robin_gives_equal_volumes_equal_numbers(count in 1usize..8, rounds in 1usize..10) {
        let volumes: Vec<_> = (0..count as u16)
            .map(|id| Candidate::new(VolumeId(id), GIB, GIB))
            .collect();
        let mut policy = RoundRobin::default();
        let mut taken = vec![0; count];
        for object in 0..(count * rounds) as u64 {
            let new = New::cold(object, &Intent::DATA);
            let layout = policy.choose(new, &volumes, &Tables::default()).expect("all have room");
            taken[layout.volumes()[0].0 as usize] += 1;
        }
        prop_assert_eq!(taken, vec![rounds; count]);
    }
}

mod overlap;
mod streams;
