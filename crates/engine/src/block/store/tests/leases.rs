//! Leases of devices are durable when a call returns.

use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};

use super::*;

fn holder(id: u8) -> Holder {
    Holder { id: [id; 16], name: format!("host {id}") }
}

#[test]
fn a_lease_is_there_after_a_crash_and_needs_force_from_others_only() {
    let mut rig = Rig::new(1, 1);
    let clock = rig.clock.clone();
    clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        store.create("disk", 8192).await.unwrap();
        assert_eq!(store.lease("disk"), Lease::default());
        assert!(matches!(store.take("other", &holder(1), false).await, Err(Error::NotFound(_))));
        assert_eq!(store.take("disk", &holder(1), false).await, Ok(1));
    });
    rig.crash(1);
    clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        assert_eq!(store.list()[0].lease, Lease { token: 1, holder: Some(holder(1)) });
        let refused = store.take("disk", &holder(2), false).await;
        assert_eq!(refused, Err(Error::Held("device disk is held by host 1".into())));
        assert_eq!(store.take("disk", &holder(1), false).await, Ok(2));
        assert_eq!(store.take("disk", &holder(2), true).await, Ok(3));
    });
    rig.crash(2);
    clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        // An earlier holder ends only its own take.
        store.release("disk", Some(2)).await.unwrap();
        assert!(store.lease("disk").is_held_with(3));
        store.release("disk", Some(3)).await.unwrap();
    });
    rig.crash(3);
    clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        assert_eq!(store.lease("disk"), Lease { token: 3, holder: None });
        // Tokens of earlier takes never come back.
        assert_eq!(store.take("disk", &holder(1), false).await, Ok(4));
        store.resize("disk", 4096, true).await.unwrap();
        assert!(store.lease("disk").is_held_with(4));
    });
}

const FAILS: Effect = Effect::Fail(ErrorKind::Io);
const FAILS_AFTER: Effect = Effect::FailAfter(ErrorKind::Io);

/// Whichever change of the table is cut off, a crash leaves one holder or the other, and what was refused holds nothing once
/// the store was looked after.
#[test]
fn a_take_that_fails_leaves_the_holder_that_was_there() {
    for (k, effect) in (0..5).flat_map(|k| [(k, FAILS), (k, FAILS_AFTER)]) {
        let mut rig = Rig::new(1, 1);
        let clock = rig.clock.clone();
        let plan = FaultPlan::new(1);
        clock.run(async {
            let (pool, store) = rig.open().await.unwrap();
            store.create("disk", 8192).await.unwrap();
            store.take("disk", &holder(1), false).await.unwrap();
            drop(store);
            let faulty = Fault::new(pool.clone(), "pool", &plan, &rig.clock);
            let store = Store::open(Arc::new(faulty), rig.options.clone(), rig.clock.clone());
            let store = store.await.unwrap();
            plan.inject(Rule::new(effect).named("block/devices*").nth(k));
            let taken = store.take("disk", &holder(2), true).await;
            plan.clear();
            if taken.is_err() {
                assert!(store.lease("disk").is_held_with(1), "call {k}, {effect:?}");
                store.tend().await.unwrap();
            }
            assert_eq!(store.lease("disk").is_held_with(2), taken.is_ok(), "call {k}, {effect:?}");
        });
        rig.crash(1);
        clock.run(async {
            let (_pool, store) = rig.open().await.unwrap();
            let lease = store.lease("disk");
            assert!(
                lease.is_held_with(1) || lease.is_held_with(2),
                "call {k}, {effect:?}: {lease:?}"
            );
        });
    }
}
