//! How errors that RocksDB passes on from the pool reach protocol servers.

use engine::kv::{Durability, Error};
use volume::ErrorKind;
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};

use super::*;

/// A store on one volume whose label reads like the message of a full one.
fn store(plan: &FaultPlan) -> Db {
    let fault = Fault::new(Mem::new("a"), "No space left on device", plan, &Clock::real());
    let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(1));
    let pool = block_on(Spread::open(vec![Member::new("a", Arc::new(fault))], opening));
    let options = Options { durability: Durability::Always, ..small() };
    open(pool.expect("the pool opens"), Clock::real(), &options).expect("the store opens")
}

fn put(store: &Db) -> Result<(), Error> {
    store.apply(&[Change::Put(Bytes::from_static(b"key"), Bytes::from_static(b"value"))])
}

/// The result of a write while the log fails, and of the next one without faults.
fn refusals(op: Op, kind: ErrorKind) -> [Result<(), Error>; 2] {
    let plan = FaultPlan::new(0);
    let store = store(&plan);
    plan.inject(Rule::new(Effect::Fail(kind)).on(op).named("*.log"));
    let refused = put(&store);
    plan.clear();
    [refused, put(&store)]
}

/// Messages were once searched for "No space left": a label with these words was enough.
#[test]
fn the_kind_of_a_refusal_is_the_pools_whatever_its_words_are() {
    let [full, _] = refusals(Op::Write, ErrorKind::OutOfSpace);
    assert!(matches!(full, Err(Error::OutOfSpace(_))), "{full:?}");
    for kind in [ErrorKind::Unavailable, ErrorKind::Io] {
        let [away, _] = refusals(Op::Write, kind);
        assert!(matches!(away, Err(Error::Unavailable(_))), "{away:?}");
    }
}

/// The error was once that of an unavailable volume: a client would retry for ever.
#[test]
fn a_store_whose_log_failed_takes_no_writes_until_it_is_opened_again() {
    let refused = refusals(Op::Sync, ErrorKind::Poisoned);
    let closed = refused.iter().all(|refused| matches!(refused, Err(Error::Closed(_))));
    assert!(closed, "{refused:?}");
}
