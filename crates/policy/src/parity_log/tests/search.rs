//! Searches by seed: everything in any order.

use rand::RngExt;

use super::super::data;
use super::super::parity;
use super::super::record::Group;
use super::super::rules::Rule;
use super::world::{Check, DATA, GROUPS, Setup, World};

fn random_step(world: &mut World, faults: u32) -> Check {
    let (g, i) = (world.random.random_range(0..GROUPS), world.random.random_range(0..DATA));
    let j = world.random.random_range(0..world.parity_count);
    match world.random.random_range(0..1000) {
        0..100 => world.issue(),
        100..115 => world.ask_again(),
        115..135 => world.step_data(g, i, data::Event::Resend)?,
        135..145 => world.step_parity(j, parity::Event::Resend)?,
        145..150 => world.step_parity(j, parity::Event::Merge(g as Group))?,
        150..175 => world.start_data(g, i),
        175..200 => world.start_parity(j),
        200..220 => world.mend(g),
        dice if (220..220 + faults).contains(&dice) => match world.random.random_range(0..12) {
            0..4 => {
                if !world.lost[g].contains(&i) && world.data[g][i].is_some() {
                    world.crash_data(g, i);
                }
            }
            4..8 => {
                if world.parity[j].is_some() {
                    world.crash_parity(j);
                }
            }
            8 => {
                // Power fails.
                for g in 0..GROUPS {
                    for i in 0..DATA {
                        if !world.lost[g].contains(&i) && world.data[g][i].is_some() {
                            world.crash_data(g, i);
                        }
                    }
                }
                for j in 0..world.parity_count {
                    if world.parity[j].is_some() {
                        world.crash_parity(j);
                    }
                }
            }
            9..11 => world.give_up_data(g, i),
            _ => world.give_up_parity(j),
        },
        _ => return world.deliver(),
    }
    Ok(())
}

fn check(world: &World) -> Check {
    world.check_indexes()?;
    world.check_bases()
}

/// Runs a seed; then everything is mended, and all requests are answered.
pub(super) fn run(world: &mut World) -> Check {
    let steps = world.random.random_range(100..1500);
    let faults = [0, 4, 12, 30][world.random.random_range(0..4)];
    for _ in 0..steps {
        random_step(world, faults)?;
        check(world)?;
    }
    world.is_healing = true;
    for _ in 0..400 {
        for g in 0..GROUPS {
            for i in 0..DATA {
                world.start_data(g, i);
                world.step_data(g, i, data::Event::Resend)?;
            }
            world.mend(g);
        }
        for j in 0..world.parity_count {
            world.start_parity(j);
            world.step_parity(j, parity::Event::Resend)?;
            world.step_parity(j, parity::Event::Merge(j as Group % 2))?;
        }
        world.ask_again();
        for _ in 0..10_000 {
            if world.pending.is_empty() {
                break;
            }
            world.deliver()?;
            check(world)?;
        }
        let is_whole = (0..GROUPS).all(|g| {
            let is_quiet = |it: &Option<data::Data>| {
                it.as_ref().is_some_and(|it| it.is_serving() && it.is_quiet())
            };
            world.lost[g].is_empty()
                && world.members[g].len() == world.parity_count
                && world.data[g].iter().all(is_quiet)
        });
        if is_whole && world.is_idle() {
            world.check_parity()?;
            return world.check_strips();
        }
    }
    let servers = world.data.iter().flatten().map(|server| {
        server.as_ref().map(|it| (it.view(), it.is_serving(), it.is_lost(), it.is_quiet()))
    });
    Err(format!(
        "it does not come to an end: {:?}, {:?}, {:?}, {:?}, {:?}",
        world.jobs,
        world.lost,
        world.members,
        servers.collect::<Vec<_>>(),
        world.client
    ))
}

fn run_seed(seed: u64, setup: Setup) -> (Check, World) {
    let mut world = World::new(seed, setup);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&mut world)));
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!("panic: {}", text.unwrap_or_default()))
    });
    (result, world)
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

/// `SEEDS=10000 FIRST=1 cargo test -p plimsoll-policy parity_log` tries others.
#[test]
fn no_write_is_lost_or_mixed_up() {
    let first = number("FIRST", 1);
    let mut counts = std::collections::BTreeMap::new();
    for seed in first..first + number("SEEDS", 300) {
        let (result, world) = run_seed(seed, Setup::default());
        for (what, count) in world.counts {
            *counts.entry(what).or_insert(0) += count;
        }
        if let Err(error) = result {
            let mut world = World::new(seed, Setup::default());
            world.log = Some(Vec::new());
            let log = std::panic::AssertUnwindSafe(&mut world);
            let _ = std::panic::catch_unwind(move || run({ log }.0));
            let log = world.log.expect("set above");
            let tail = log.len().saturating_sub(number("LINES", 30) as usize);
            panic!("seed {seed}: {error}\n{}", log[tail..].join("\n"));
        }
    }
    println!("{counts:#?}");
    for what in [
        "answered before a flush",
        "answered reads",
        "busy",
        "crashed data servers",
        "crashed parity servers",
        "degraded reads",
        "joined parity servers",
        "lost messages",
        "lost parity servers",
        "lost strips",
        "merges",
        "merges before a crash",
        "reads of a value before",
        "rebuilt strips",
        "redone",
        "repeated messages",
        "torn writes",
        "unflushed writes",
        "trims",
        "written",
    ] {
        assert!(counts.get(what).is_some_and(|&count| count > 5), "too few {what}");
    }
}

/// The first seed that fails with each rule off.
fn first_failure(setup: Setup) -> Option<(u64, String)> {
    (1..=number("SEEDS", 300)).find_map(|seed| {
        let (result, _) = run_seed(seed, setup);
        result.err().map(|error| (seed, error))
    })
}

#[test]
fn each_rule_is_needed() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let rules = [
        Rule::Coverage,
        Rule::DurableBelow,
        Rule::Everywhere,
        Rule::OriginalOnce,
        Rule::Monotone,
        Rule::Discarded,
        Rule::MergeSettled,
        Rule::MergeWhole,
        Rule::View,
        Rule::Flushed,
        Rule::Redo,
        Rule::SameEverywhere,
        Rule::Dedupe,
        Rule::Lock,
    ];
    let mut survived = Vec::new();
    let setups =
        rules.map(|rule| (format!("{rule:?}"), Setup { off: Some(rule), ..Setup::default() }));
    let torn = ("torn merges".into(), Setup { torn_merges: true, ..Setup::default() });
    let join = Setup { join_without_below: true, ..Setup::default() };
    let join = ("joining without below".into(), join);
    for (name, setup) in setups.into_iter().chain([torn, join]) {
        match first_failure(setup) {
            Some((seed, error)) => println!("{name}: seed {seed}: {error}"),
            None => survived.push(name),
        }
    }
    std::panic::set_hook(hook);
    assert!(survived.is_empty(), "no seed fails without {survived:?}");
}
