//! Cases as text: `testdata/sched/*.txt` hold the steps, with their results indented below. Each begins with the
//! scheduler, if it is not `strict`, and its contract. `UPDATE_EXPECT=1` rewrites the results; review the diff.

use std::fmt::Write;
use std::path::Path;

use expect_test::expect_file;

use super::*;
use crate::contract::Direction;

#[test]
fn large_requests_reserve() {
    run("reserve.txt");
}

#[test]
fn classes_go_in_strict_order() {
    run("classes.txt");
}

#[test]
fn queues_are_bounded_for_those_who_may_be_refused() {
    run("bounds.txt");
}

#[test]
fn deadlines_expire_those_who_have_one() {
    run("deadlines.txt");
}

#[test]
fn work_of_tags_waits_until_it_is_due_and_then_until_it_is_overdue() {
    run("tags.txt");
}

#[test]
fn windows_of_a_second_open_one_after_the_other() {
    run("windows.txt");
}

#[test]
fn pools_of_a_second_are_private() {
    run("static.txt");
}

#[test]
fn terms_change_while_requests_wait() {
    run("terms.txt");
}

fn run(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/sched").join(file);
    let case = std::fs::read_to_string(&path).expect("the case is there");
    let mut report = String::new();
    let mut policy = Policy::Strict;
    let mut stage = None;
    for line in case.lines().filter(|line| !line.starts_with("  ")) {
        writeln!(report, "{line}").expect("text grows");
        if !(line.is_empty() || line.starts_with('#')) {
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["scheduler", name] => policy = Policy::named(name).expect("a scheduler"),
                _ => Stage::act(&mut stage, policy, &words, &mut report),
            }
        }
    }
    expect_file![path].assert_eq(&report);
}

struct Stage {
    scheduler: Box<dyn Scheduler>,
    now: Instant,
}

impl Stage {
    fn act(stage: &mut Option<Self>, policy: Policy, words: &[&str], report: &mut String) {
        if let ["contract", limits @ ..] = words {
            let limits = limits.iter().map(|limit| parse_limit(limit)).collect();
            let contract = Contract { limits, ..Contract::unlimited() };
            match stage {
                Some(stage) => stage.scheduler.set_contract(&contract, stage.now),
                None => {
                    let share = Share::new(1.0, 0.0).unwrap();
                    let scheduler = policy.build(&contract, share, 2, T0);
                    *stage = Some(Self { scheduler, now: T0 });
                    return;
                }
            }
        }
        let stage = stage.as_mut().expect("a case begins with its contract");
        match *words {
            ["contract", ..] => {}
            ["at", time] => stage.now = parse_time(time),
            ["submit", ticket, class, size, ref rest @ ..] => {
                let deadline = rest.iter().find_map(|word| word.strip_prefix("deadline="));
                let request = Request {
                    class: *Class::ALL.iter().find(|c| c.name() == class).expect("a class"),
                    tenant: Tenant::POOL,
                    cost: Contract::unlimited().cost(Direction::Read, parse_size(size)),
                    deadline: deadline.map(parse_time),
                    refusable: rest.contains(&"refusable"),
                    of_user: !rest.contains(&"raised"),
                };
                let ticket = Ticket(ticket.parse().expect("a number"));
                if let Err(full) = stage.scheduler.submit(ticket, request, stage.now) {
                    writeln!(report, "  refused: {full}").expect("text grows");
                }
            }
            ["cancel", ticket] => {
                let ticket = Ticket(ticket.parse().expect("a number"));
                assert!(stage.scheduler.cancel(ticket), "{ticket:?} waits");
            }
            ["refund", class, size] => {
                let class = *Class::ALL.iter().find(|c| c.name() == class).expect("a class");
                stage
                    .scheduler
                    .refund(class, Contract::unlimited().cost(Direction::Read, parse_size(size)));
            }
            _ => panic!("what does {words:?} mean?"),
        }
        while let Some(event) = stage.scheduler.poll(stage.now) {
            match event {
                Event::Granted(Grant { ticket, cost, .. }) => {
                    writeln!(
                        report,
                        "  {} goes for {} ops, {} KiB",
                        ticket.0,
                        cost.ops,
                        cost.bytes / KIB
                    )
                }
                Event::Expired { ticket } => writeln!(report, "  {} expired", ticket.0),
            }
            .expect("text grows");
        }
        if let Some(at) = stage.scheduler.next_wakeup() {
            writeln!(report, "  next at {:?}", at.since(T0)).expect("text grows");
        }
    }
}

/// `100ops/s`, `64KiB/s`; each saves up one second.
fn parse_limit(limit: &str) -> Limit {
    let rate = limit.strip_suffix("/s").expect("a rate");
    let (counts, rate_per_sec) = match rate.strip_suffix("ops") {
        Some(ops) => (Counted::Ops, ops.parse().expect("a number")),
        None => (Counted::Bytes, parse_size(rate)),
    };
    Limit { counts, rate_per_sec, depth: rate_per_sec }
}

fn parse_size(size: &str) -> u64 {
    let kib: u64 = size.strip_suffix("KiB").expect("a size in KiB").parse().expect("a number");
    kib * KIB
}

fn parse_time(time: &str) -> Instant {
    millis(time.strip_suffix("ms").expect("a time in ms").parse().expect("a number"))
}
