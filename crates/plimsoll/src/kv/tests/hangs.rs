//! A volume that hangs under a write: the runtime's other tasks go on.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use engine::kv::Durability;
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};

use super::*;

/// Longer than the runtime takes for a task, and not for ever.
const HANG: Duration = Duration::from_secs(2);

/// What ended first: a write to a volume that hangs, or a task that came to the runtime's only thread after the `writers`
/// had.
fn first_of(writers: u64, durability: Durability) -> &'static str {
    let plan = FaultPlan::new(1);
    let volume = Fault::new(Mem::new("a"), "a", &plan, &Clock::real());
    let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(1));
    let pool = block_on(Spread::open(vec![Member::new("a", volume)], opening));
    let pool = pool.expect("the pool opens");
    let db = open(pool, Clock::real(), &Options { durability, ..small() });
    let db = Arc::new(db.expect("the store opens"));
    db.apply(&[put(0)]).expect("a write");
    plan.inject(Rule::new(Effect::Slow(HANG)).on(Op::Write).named("*.log"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
    let runtime = runtime.expect("a runtime");
    let (ended, has_ended) = mpsc::channel();
    let calls = plan.calls();
    for n in 1..=writers {
        let (db, ended) = (Arc::clone(&db), ended.clone());
        runtime.spawn(async move {
            db.apply(&[put(n)]).expect("a late write");
            _ = ended.send("a write");
        });
    }
    while plan.calls() == calls {
        thread::yield_now();
    }
    runtime.spawn(async move { ended.send("another task") });
    let first = has_ended.recv().expect("something ends");
    // The writes use the store, and must end before it closes.
    let rest = has_ended.iter().count();
    assert_eq!(rest as u64, writers);
    first
}

/// Writes that need no sync are made on the runtime's thread: a hanging device once stopped reads, and `/health` with
/// them.
#[test]
fn a_write_that_hangs_leaves_the_runtime_to_others() {
    for durability in [Durability::EverySec, Durability::Always] {
        for writers in [1, 3] {
            assert_eq!(first_of(writers, durability), "another task", "{writers} {durability:?}");
        }
    }
}
