//! The tokens that a database spends equal the I/Os of its devices.

use std::sync::Arc;

use policy::budget::Share;
use policy::contract::{Contract, Counted, Limit};
use volume::layer::gate::Gate;
use volume::layer::simulate::Simulate;
use volume::mem::Mem;
use volume::{Clock, Volume};

use crate::support::{
    NAME, check, compact, fill, key, opening, options, pool_of, settle, value, volumes,
};

/// So small that some requests of a test wait.
fn contract() -> Contract {
    let limit = Limit { counts: Counted::Ops, rate_per_sec: 20_000, depth: 400 };
    Contract { name: "small".into(), limits: vec![limit], ..Contract::unlimited() }
}

#[test]
fn tokens_spent_equal_the_ios_of_the_device() {
    let clock = Clock::real();
    let share = Share::new(0.95, 0.05).unwrap();
    let gates: Vec<Arc<Gate<Simulate<Mem>>>> = volumes(3)
        .into_iter()
        .enumerate()
        .map(|(i, volume)| {
            let device = Simulate::new(volume, &contract(), clock.clone(), i as u64);
            Arc::new(Gate::new(device, "v", &contract(), share, clock.clone()))
        })
        .collect();
    let members = gates.iter().map(|gate| Arc::clone(gate) as Arc<dyn Volume>).collect();
    let pool = pool_of(members, opening()).unwrap();
    for version in 1..=2 {
        let settings = rocks::Settings::default();
        let db =
            rocks::open(pool.clone(), clock.clone(), NAME, options(), settings).expect("it opens");
        fill(&db, 0..5000, version);
        let mut sync = rust_rocksdb::WriteOptions::default();
        sync.set_sync(true);
        for i in 0..50 {
            db.put_opt(key(i), value(i, version), &sync).unwrap();
        }
        db.flush().unwrap();
        compact(&db);
        check(&db, 0..5000, version);
        settle(&db);
    }
    let mut ops = 0;
    for gate in &gates {
        let (paid, done) = (gate.meter().spent(), gate.inner().meter().total);
        assert_eq!((paid.ops, paid.bytes), (done.ops, done.bytes));
        assert_eq!(done.throttled, 0, "the provider's bucket was overdrawn");
        ops += done.ops;
    }
    assert!(ops > 1000, "too little work was done: {ops} operations");
}
