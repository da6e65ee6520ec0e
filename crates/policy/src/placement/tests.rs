//! Cases as text: `testdata/placement/*.txt`, one file a policy.
//!
//! ```text
//! policy NAME [CHUNK]              begins a case
//! volume ID FREE of TOTAL          a volume that answers, or its new state
//! volume ID away                   one that does not
//! object ID KIND [LEN]             places an object; the answer stands below it
//! ```
//! `UPDATE_EXPECT=1 cargo test` writes the answers anew, to be reviewed as a diff.

use expect_test::expect_file;
use proptest::prelude::*;

use super::*;
use crate::intent::{Family, Kind};
use crate::units::{KIB, MIB};

#[test]
fn the_cases_are_placed_as_written() {
    for file in ["single", "round-robin", "hash", "stripe"] {
        let path = format!("{}/testdata/placement/{file}.txt", env!("CARGO_MANIFEST_DIR"));
        let cases = std::fs::read_to_string(&path).expect("the cases are in the repository");
        expect_file![path].assert_eq(&replay(&cases));
    }
}

fn replay(cases: &str) -> String {
    let mut policy: Box<dyn Placement> = Box::new(Single);
    let mut volumes: Vec<Candidate> = Vec::new();
    let mut out = String::new();
    for line in cases.lines().filter(|line| !line.starts_with("  ")) {
        out += line;
        out.push('\n');
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            [] | ["#", ..] => {}
            ["policy", name, ref more @ ..] => {
                policy = named(name, more.first().map(|word| bytes(word)));
                volumes.clear();
            }
            ["volume", id, ref state @ ..] => {
                let volume = VolumeId(id.parse().expect("a number"));
                volumes.retain(|other| other.volume != volume);
                volumes.push(candidate(volume, state));
                volumes.sort_by_key(|other| other.volume);
            }
            ["object", id, kind, ref more @ ..] => {
                let intent = Intent { kind: self::kind(kind), len: more.first().map(|w| bytes(w)) };
                let layout = policy.choose(id.parse().expect("a number"), &intent, &volumes);
                let answer = layout.map_or("nowhere".into(), |layout| layout.to_string());
                out += &format!("  {answer}\n");
            }
            _ => panic!("no such line: {line:?}"),
        }
    }
    out
}

fn named(name: &str, chunk: Option<u64>) -> Box<dyn Placement> {
    match name {
        "single" => Box::new(Single),
        "round-robin" => Box::new(RoundRobin::default()),
        "hash" => Box::new(Hash),
        "stripe" => Box::new(Stripe::new(chunk.expect("a chunk size"))),
        _ => panic!("no policy {name:?}"),
    }
}

fn candidate(volume: VolumeId, state: &[&str]) -> Candidate {
    match state {
        ["away"] => Candidate { volume, free: 0, total: 0, healthy: false },
        [free, "of", total] => {
            Candidate { volume, free: bytes(free), total: bytes(total), healthy: true }
        }
        _ => panic!("no such state: {state:?}"),
    }
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
    ["single", "round-robin", "hash", "stripe"].map(|name| named(name, Some(64 * KIB))).into()
}

prop_compose! {
    fn any_candidate()(free in 0u64..4 * MIB, more in 0u64..MIB, healthy in any::<bool>())
        -> Candidate
    {
        Candidate { volume: VolumeId(0), free, total: free + more, healthy }
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
                let Some(layout) = policy.choose(object, &intent, &volumes) else {
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
            .map(|id| Candidate { volume: VolumeId(id), free: GIB, total: GIB, healthy: true })
            .collect();
        let mut policy = RoundRobin::default();
        let mut taken = vec![0; count];
        for object in 0..(count * rounds) as u64 {
            let layout = policy.choose(object, &Intent::DATA, &volumes).expect("all have room");
            taken[layout.volumes()[0].0 as usize] += 1;
        }
        prop_assert_eq!(taken, vec![rounds; count]);
    }
}
