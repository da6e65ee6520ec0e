//! Cases as text: `testdata/merge/*.txt`, on a volume of 1000 MiB with files of 100 MiB.
//!
//! ```text
//! rule NAME [target PERCENT]                  begins a case
//! sealed FILE of PARTITION, DEAD MiB dead     of 100 MiB; [, dies at MiB | , lasts MiB]
//! died FILE MiB
//! put MiB                                     advances the clock
//! next at PERCENT                             the pick stands below
//! merged FILE | failed FILE
//! ```
//! `UPDATE_EXPECT=1 cargo test` rewrites the picks; review the diff.

mod groups;
mod limits;
mod picks;

use expect_test::expect_file;

use super::*;
use crate::units::MIB;

const CAPACITY: u64 = 1000 * MIB;
const FILE: u64 = 100 * MIB;

#[test]
fn the_cases_are_picked_as_written() {
    for file in ["static", "greedy", "fisherman", "death-time", "overdue", "emergency"] {
        let path = format!("{}/testdata/merge/{file}.txt", env!("CARGO_MANIFEST_DIR"));
        let cases = std::fs::read_to_string(&path).expect("the cases are in the repository");
        expect_file![path].assert_eq(&replay(&cases));
    }
}

fn replay(cases: &str) -> String {
    let mut merges = Merges::new(Settings::new(Rule::Greedy, FILE));
    let mut written = Written(0);
    let mut out = String::new();
    for line in cases.lines().filter(|line| !line.starts_with("  ")) {
        out += line;
        out.push('\n');
        let words: Vec<_> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        match words[..] {
            [] | ["#", ..] => {}
            ["rule", name, ref more @ ..] => {
                let mut settings = Settings::new(Rule::named(name).expect("a rule"), FILE);
                if let ["target", percent] = more {
                    settings.target = number(percent) as f64 / 100.0;
                }
                (merges, written) = (Merges::new(settings), Written(0));
            }
            ["sealed", id, "of", partition, dead, "MiB", "dead", ref more @ ..] => {
                merges.sealed(Sealed {
                    id: FileId(number(id)),
                    partition: number(partition) as u32,
                    bytes: FILE,
                    dead: number(dead) * MIB,
                    death: death(more),
                });
            }
            ["died", id, mib] => assert!(merges.died(FileId(number(id)), number(mib) * MIB)),
            ["put", mib] => written = written.plus(number(mib) * MIB),
            ["next", "at", percent] => {
                let used = CAPACITY / 100 * number(percent);
                let fill = Fill { capacity: CAPACITY, used, written };
                out += &format!("  {}\n", described(merges.next(&fill)));
            }
            ["merged", id] => merges.merged(FileId(number(id))),
            ["failed", id] => merges.failed(FileId(number(id))),
            _ => panic!("no such line: {line:?}"),
        }
    }
    out
}

fn described(pick: Option<Pick>) -> String {
    let Some(Pick { file: FileId(file), why, live, space_pressure_percent }) = pick else {
        return "nothing".into();
    };
    let live = live / MIB;
    format!("{file}: {why:?}, {live} MiB live, space pressure {space_pressure_percent} %")
}

fn death(words: &[&str]) -> Death {
    match words {
        [] => Death::Unknown,
        ["dies", "at", mib] => Death::At(Written(number(mib) * MIB)),
        ["lasts", mib] => Death::After(number(mib) * MIB),
        _ => panic!("no such death: {words:?}"),
    }
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

#[test]
fn every_rule_is_found_by_its_name() {
    for rule in Rule::ALL {
        assert_eq!(Rule::named(rule.name()), Some(rule));
    }
    assert_eq!(Rule::named("fish"), None);
    assert_eq!(Rule::default().name(), "death-time");
}

#[test]
fn a_file_of_both_dies_for_certain_if_both_do() {
    use Death::{After, At, Unknown};
    assert_eq!(At(Written(3)).join(At(Written(5))), At(Written(5)));
    assert_eq!(At(Written(3)).join(After(1)), After(1));
    assert_eq!(After(7).join(After(2)), After(7));
    assert_eq!(After(7).join(Unknown), Unknown);
    assert_eq!([At(Written(3)), After(7)].map(Death::known), [Some(Written(3)), None]);
}
