//! Leases, where a volume fails to take them.

use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule as FaultRule};

use super::*;

pub(super) fn faulty(rig: &Rig, plan: &FaultPlan) -> Store {
    let member = |mem: &Mem| {
        Member::new(mem.label(), Fault::new(mem.clone(), mem.label(), plan, &rig.clock))
    };
    let members = rig.mems.iter().map(member).collect();
    let opening = Store::open(members, rig.options.clone(), rig.clock.clone(), Some(ID));
    rig.clock.run(opening).unwrap().0
}

/// Writes more than one lease covers.
fn write_through(rig: &Rig, store: &Store, model: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    let ends = |store: &Store| {
        let state = store.0.state();
        (state.sequence_end, state.file_end)
    };
    let before = ends(store);
    for n in 0..60_000u64 {
        let key = (n % 500).to_be_bytes();
        rig.put(store, &key, &value(n, 900));
        model.insert(key.to_vec(), value(n, 900));
        if n % 50 == 0 {
            rig.tend(store);
        }
        let now = ends(store);
        if now.0 > before.0 && now.1 > before.1 && n % 500 == 499 {
            return;
        }
    }
    panic!("no lease was renewed");
}

/// A lease once had to be on every volume: a missing or full one ended all writes.
#[test]
fn a_lease_is_renewed_though_a_volume_does_not_take_it() {
    for kind in [ErrorKind::Unavailable, ErrorKind::OutOfSpace] {
        let rig = Rig::new(3);
        let plan = FaultPlan::new(1);
        let store = faulty(&rig, &plan);
        let mut model = BTreeMap::new();
        let rule = FaultRule::new(Effect::Fail(kind)).on(Op::Write).volume("v1").named("log/store");
        plan.inject(rule);
        write_through(&rig, &store, &mut model);
        write_through(&rig, &store, &mut model);
        drop(store);
        // Records after a crash are newer than those before it, whichever volume has the lease.
        plan.clear();
        let store = faulty(&rig, &plan);
        assert_eq!(rig.all(&store), model);
        write_through(&rig, &store, &mut model);
        rig.clock.run(store.close()).unwrap();
        assert_eq!(rig.all(&rig.store()), model, "{kind:?}");
    }
}

/// A failed write may leave half a page: the whole page is not overwritten before the other one is whole.
#[test]
fn a_volume_that_fails_again_and_again_keeps_a_whole_lease() {
    let rig = Rig::new(2);
    let plan = FaultPlan::new(1);
    let store = faulty(&rig, &plan);
    let mut model = BTreeMap::new();
    let on = || FaultRule::new(Effect::FlipBit).on(Op::Write).volume("v1").named("log/store");
    plan.inject(on());
    let fail = FaultRule::new(Effect::FailAfter(ErrorKind::Unavailable));
    plan.inject(fail.on(Op::Sync).volume("v1").named("log/store"));
    for _ in 0..3 {
        write_through(&rig, &store, &mut model);
    }
    drop(store);
    let (store, _) = rig.open();
    assert_eq!(rig.all(&store), model);
}

#[test]
fn where_no_volume_takes_it_there_is_no_lease() {
    let rig = Rig::new(2);
    let plan = FaultPlan::new(1);
    let store = faulty(&rig, &plan);
    let fail = FaultRule::new(Effect::Fail(ErrorKind::Unavailable)).on(Op::Write);
    plan.inject(fail.named("log/store"));
    let error = rig.clock.run(store.0.renew_lease()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let end = store.0.state().sequence_end;
    plan.clear();
    rig.put(&store, b"k", b"v");
    rig.clock.run(store.0.renew_lease()).unwrap();
    assert!(store.0.state().sequence_end > end);
}
