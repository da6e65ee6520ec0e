//! What is picked among many files.

use super::*;

/// With guesses that differ, the index by steps and bins must find what a look at every file would.
#[test]
fn what_lasts_longest_is_found_among_many() {
    let mut merges = Merges::new(Settings::new(Rule::DeathTime, FILE));
    let capacity = 1000 * FILE;
    let mut best = (0.0, FileId(0));
    for id in 0..2000 {
        let dead = (id * 7919 % 1000 + 1) * (FILE / 1024);
        let dies = 2000 * FILE + id * 104_729 % 977 * FILE;
        let sealed = Sealed {
            id: FileId(id),
            partition: 0,
            bytes: FILE,
            dead,
            death: Death::At(Written(dies)),
        };
        merges.sealed(sealed);
        let score = dead as f64 / (FILE - dead) as f64 * dies as f64;
        if score > best.0 {
            best = (score, FileId(id));
        }
    }
    let fill = Fill { capacity, used: capacity / 10 * 9, written: Written(0) };
    let pick = merges.next(&fill).expect("nothing dies in time");
    let found = merges.file(pick.file).expect("it is there");
    let score = found.dead as f64 / pick.live as f64 * found.death.known().unwrap().0 as f64;
    // Bins are some 8 of these files' times wide.
    assert!(score >= 0.97 * best.0, "{score} of {}", best.0);
}
