use super::*;
use crate::units::MIB;

const CAPACITY: u64 = 1000 * MIB;
const FILE: u64 = 10 * MIB / 100 * 100;

fn fill(percent: u64) -> Fill {
    Fill { capacity: CAPACITY, used: CAPACITY / 100 * percent, written: Written(0) }
}

fn sealed(id: u64, dead_percent: u64) -> Sealed {
    let dead = FILE / 100 * dead_percent;
    Sealed { id: FileId(id), partition: 0, bytes: FILE, dead, death: Death::Unknown }
}

#[test]
fn whatever_the_rule_dead_files_go_at_once_and_full_ones_never() {
    for rule in Rule::ALL {
        let mut merges = Merges::new(Settings::new(rule, FILE));
        merges.sealed(sealed(1, 0));
        merges.sealed(sealed(2, 100));
        let pick = merges.next(&fill(10)).unwrap();
        assert_eq!((pick.file, pick.why, pick.live), (FileId(2), Why::Dead, 0), "{}", rule.name());
        merges.merged(FileId(2));
        for percent in [10, 85, 95, 100] {
            assert_eq!(merges.next(&fill(percent)), None, "{}", rule.name());
        }
    }
}

#[test]
fn a_file_that_is_merged_is_no_candidate_until_that_failed() {
    let mut merges = Merges::new(Settings::new(Rule::Greedy, FILE));
    merges.sealed(sealed(1, 50));
    assert_eq!(merges.next(&fill(85)).unwrap().file, FileId(1));
    merges.died(FileId(1), MIB);
    assert_eq!(merges.next(&fill(85)), None);
    merges.failed(FileId(1));
    let pick = merges.next(&fill(85)).unwrap();
    assert_eq!((pick.file, pick.live), (FileId(1), FILE / 2 - MIB));
}

#[test]
fn every_rule_is_found_by_its_name() {
    for rule in Rule::ALL {
        assert_eq!(Rule::named(rule.name()), Some(rule));
    }
    assert_eq!(Rule::named("fish"), None);
    assert_eq!(Rule::default().name(), "death-time");
}
