//! Random events under every rule, compared with a plain list of files.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Event {
    Sealed { partition: u32, dead: u64, death: Death },
    Died { file: prop::sample::Index, bytes: u64 },
    Next { used: u64 },
    Merged(prop::sample::Index),
    Failed(prop::sample::Index),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let death = prop_oneof![
        Just(Death::Unknown),
        (0..5000u64).prop_map(|mib| Death::At(Written(mib * MIB))),
        (1..CAPACITY).prop_map(Death::After),
    ];
    let index = any::<prop::sample::Index>;
    let event = prop_oneof![
        3 => (0..4u32, 0..=FILE, death)
            .prop_map(|(partition, dead, death)| Event::Sealed { partition, dead, death }),
        6 => (index(), 0..FILE).prop_map(|(file, bytes)| Event::Died { file, bytes }),
        4 => (0..=CAPACITY).prop_map(|used| Event::Next { used }),
        2 => index().prop_map(Event::Merged),
        1 => index().prop_map(Event::Failed),
    ];
    prop::collection::vec(event, 1..120)
}

/// A file and, while it is being merged, its live bytes at the start: copies take their room even if they die
/// meanwhile.
type Known = (Sealed, Option<u64>);

fn check(rule: Rule, events: Vec<Event>) -> Result<(), TestCaseError> {
    let mut merges = Merges::new(Settings::new(rule, FILE));
    let mut files: Vec<Known> = Vec::new();
    let mut written = Written(0);
    for (event, id) in events.into_iter().zip(0..) {
        match event {
            Event::Sealed { partition, dead, death } => {
                let sealed = Sealed { id: FileId(id), partition, bytes: FILE, dead, death };
                merges.sealed(sealed);
                files.push((sealed, None));
            }
            Event::Died { file, bytes } if !files.is_empty() => {
                let at = file.index(files.len());
                let (sealed, _) = &mut files[at];
                let bytes = bytes.min(sealed.bytes - sealed.dead);
                sealed.dead += bytes;
                written = written.plus(bytes);
                prop_assert!(merges.died(sealed.id, bytes));
            }
            Event::Next { used } => {
                let fill = Fill { capacity: CAPACITY, used, written };
                let bar = merges.threshold(&fill);
                let pick = merges.next(&fill);
                check_pick(rule, &files, &fill, bar, pick)?;
                if let Some(pick) = pick {
                    let known = files.iter_mut().find(|(file, _)| file.id == pick.file);
                    known.expect("it was checked").1 = Some(pick.live);
                }
            }
            Event::Merged(at) => {
                let merging: Vec<_> =
                    files.iter().filter(|(_, merging)| merging.is_some()).collect();
                if !merging.is_empty() {
                    let id = merging[at.index(merging.len())].0.id;
                    merges.merged(id);
                    files.retain(|(file, _)| file.id != id);
                    prop_assert!(!merges.died(id, 1), "it is gone");
                }
            }
            Event::Failed(at) => {
                let merging: Vec<_> =
                    files.iter_mut().filter(|(_, merging)| merging.is_some()).collect();
                if !merging.is_empty() {
                    let at = at.index(merging.len());
                    let (file, merging) = merging.into_iter().nth(at).expect("an index");
                    merges.failed(file.id);
                    *merging = None;
                }
            }
            Event::Died { .. } => {}
        }
        prop_assert_eq!(merges.files(), files.len());
        for (file, _) in &files {
            prop_assert_eq!(merges.file(file.id), Some(*file));
        }
    }
    Ok(())
}

fn check_pick(
    rule: Rule,
    files: &[Known],
    fill: &Fill,
    bar: f64,
    pick: Option<Pick>,
) -> Result<(), TestCaseError> {
    let share = |file: &Sealed| file.dead as f64 / file.bytes as f64;
    let live = |file: &Sealed| file.bytes - file.dead;
    let free: Vec<&Sealed> =
        files.iter().filter(|(_, merging)| merging.is_none()).map(|(file, _)| file).collect();
    let promised: u64 = files.iter().filter_map(|(_, merging)| *merging).sum();
    let room = fill.free().saturating_sub(promised);
    let some_dead = free.iter().any(|file| live(file) == 0);
    let fits = |file: &Sealed| file.dead > 0 && live(file) <= room;
    let Some(pick) = pick else {
        prop_assert!(!some_dead, "dead files go always");
        // Live bytes are exact to a step.
        let slack = FILE / 1024 + 1;
        let stuck = !free.iter().any(|file| file.dead > 0 && live(file) + slack <= room);
        let idle = fill.space_pressure(0.8) < 1.0 && fill.free() >= FILE;
        prop_assert!(stuck || idle, "there is no room, and something could be merged");
        if rule == Rule::Greedy && fill.share() > 0.8 {
            prop_assert!(stuck, "greedy takes whatever fits");
        }
        return Ok(());
    };
    let file = free.iter().find(|file| file.id == pick.file);
    let file = **file.expect("only files that are sealed, and not being merged");
    prop_assert_eq!(pick.live, live(&file));
    prop_assert!(file.dead > 0 && (pick.live == 0 || fits(&file)));
    prop_assert_eq!(some_dead, pick.why == Why::Dead);
    let most = free.iter().map(|file| share(file)).fold(0.0, f64::max);
    let least = free.iter().filter(|file| file.dead > 0).map(|file| live(file)).min();
    let step = 1.0 / 1024.0;
    match (pick.why, rule) {
        (Why::Dead, _) => {
            let oldest = free.iter().filter(|file| live(file) == 0).map(|file| file.id).min();
            prop_assert_eq!(Some(pick.file), oldest);
        }
        (Why::Emergency, _) => {
            let least = least.expect("there is one");
            prop_assert!(pick.live as f64 <= least as f64 + step * FILE as f64);
        }
        (Why::Rule, Rule::Greedy | Rule::FishermanProduct | Rule::Fisherman) => {
            prop_assert!(fill.share() > 0.8 && share(&file) >= bar);
            prop_assert!(share(&file) + step >= most, "{} of {most}", share(&file));
        }
        (Why::Rule, Rule::DeathTime) => prop_assert!(fill.share() > 0.8),
        (Why::Rule, Rule::Static) => prop_assert!(share(&file) >= 0.4 || file.dead >= 128 * MIB),
        (Why::Overdue, rule) => {
            prop_assert!(rule != Rule::Static && fill.space_pressure(0.8) > 0.5);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn picks_are_what_the_rules_say(events in events()) {
        for rule in Rule::ALL {
            check(rule, events.clone())?;
        }
    }
}

/// With guesses that differ, the index by steps and bins must find what a scan of all files would.
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
