//! Volumes that are full or nearly full, or fail.

use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule as FaultRule};

use super::*;

fn faulty(rig: &Rig) -> (Store, FaultPlan, Arc<Fault<Mem>>) {
    let plan = FaultPlan::new(1);
    let fault = Arc::new(Fault::new(rig.mems[0].clone(), "v0", &plan, &rig.clock));
    let members = vec![Member::new("v0", Arc::clone(&fault))];
    let opening = Store::open(members, rig.options.clone(), rig.clock.clone(), Some(ID));
    let (store, _) = rig.clock.run(opening).unwrap();
    (store, plan, fault)
}

/// Puts of cyclic keys with 0.8 live data: without delays and the reserve the store would get stuck.
#[test]
fn a_nearly_full_volume_slows_puts_and_never_ends_in_a_dead_end() {
    let mut rig = Rig::new(1);
    rig.options.live = 0.8;
    rig.options.groups = 1;
    let store = rig.store();
    let keys = CAPACITY * 8 / 10 / format::record_len(8, 900) as u64;
    let mut random = 1u64;
    for n in 0..2 * keys {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = if n < keys { n } else { (random >> 33) % keys };
        rig.put_when_there_is_room(&store, key, n, 900);
        if n % 64 == 0 {
            rig.tend(&store);
        }
    }
    let figures = store.figures();
    assert_eq!(figures.keys, keys);
    assert!(figures.volumes[0].counts.merged > 0);
    assert_eq!(rig.all(&store).len() as u64, keys);
}

#[test]
fn a_put_waits_as_long_as_the_policy_says_and_holds_nothing() {
    let mut rig = Rig::new(1);
    rig.options.rule = Rule::Greedy;
    rig.options.target = 0.9;
    rig.options.delay_from = 0.5;
    let store = rig.store();
    let mut n = 0u64;
    while store.figures().volumes[0].put_delay.is_zero() {
        rig.put(&store, &n.to_be_bytes(), &value(n, 900));
        n += 1;
    }
    for _ in 0..300 {
        rig.put(&store, &n.to_be_bytes(), &value(n, 900));
        n += 1;
    }
    let delay = store.figures().volumes[0].put_delay;
    assert!(delay > Duration::from_millis(10), "{delay:?}");
    let began = rig.clock.now();
    rig.put(&store, b"k", b"v");
    assert_eq!(rig.clock.now().since(began), delay);
    let began = rig.clock.now();
    rig.clock.run(store.delete(b"k")).unwrap();
    assert_eq!(rig.clock.now().since(began), Duration::ZERO, "deletes never wait");
    assert!(store.figures().volumes[0].counts.delayed > 100);
}

#[test]
fn a_full_volume_costs_nothing_that_was_answered_and_writing_goes_on() {
    for durability in [Durability::Always, Durability::Never] {
        let mut rig = Rig::new(1);
        rig.options.durability = durability;
        rig.options.target = 0.1;
        let (store, plan, _) = faulty(&rig);
        let mut model = BTreeMap::new();
        let mut refused = 0;
        for n in 0..3_000u64 {
            // Now and then another program fills the volume for a while.
            if n % 500 == 300 {
                plan.inject(FaultRule::new(Effect::Full));
            }
            if n % 500 == 400 {
                plan.clear();
            }
            let key = (n * n % 701).to_be_bytes();
            let put = store.put(&key, value(n, 900).into(), None);
            match rig.clock.run(put) {
                Ok(()) => {
                    model.insert(key.to_vec(), value(n, 900));
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                    refused += 1;
                }
            }
            if n % 8 == 0 {
                let _ = rig.clock.run(store.tend_once(0));
            }
        }
        assert!(store.health().is_healthy(), "it takes puts again: {:?}", store.health());
        assert!((300..=700).contains(&refused), "{refused} refused");
        assert!(store.figures().volumes[0].counts.merged > 10);
        assert_eq!(rig.all(&store), model);
        rig.clock.run(store.close()).unwrap();
        drop(store);
        assert_eq!(rig.all(&rig.store()), model);
    }
}

#[test]
fn a_failed_sync_poisons_the_file_and_what_it_held_is_copied() {
    for durability in [Durability::Always, Durability::Never] {
        let mut rig = Rig::new(1);
        rig.options.durability = durability;
        let (store, plan, fault) = faulty(&rig);
        let mut model = BTreeMap::new();
        for n in 0..20u64 {
            rig.put(&store, &n.to_be_bytes(), &value(n, 900));
            model.insert(n.to_be_bytes().to_vec(), value(n, 900));
        }
        let rule = FaultRule::new(Effect::Fail(ErrorKind::Poisoned)).on(Op::Sync).nth(0);
        plan.inject(rule);
        let sync = async {
            store.put(b"x", Bytes::from_static(b"lost"), None).await?;
            store.sync().await
        };
        assert_eq!(rig.clock.run(sync).unwrap_err().kind(), ErrorKind::Poisoned);
        let put = store.put(b"y", Bytes::new(), None);
        let kind = rig.clock.run(put).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::Poisoned, "the volume takes nothing before it was probed");
        let there = rig.all(&store);
        assert!(model.iter().all(|(key, value)| there[key] == *value), "reads go on");
        fault.probe();
        rig.tend(&store);
        rig.clock.run(store.sync()).unwrap();
        rig.put(&store, b"y", b"again");
        model.insert(b"y".to_vec(), b"again".to_vec());
        if durability == Durability::Never {
            model.insert(b"x".to_vec(), b"lost".to_vec());
        }
        assert_eq!(rig.all(&store), model, "{durability:?}");
        drop(store);
        let mut found = rig.all(&rig.store());
        // The put was refused, but may be there.
        found.remove(&b"x"[..]);
        model.remove(&b"x"[..]);
        assert_eq!(found, model);
    }
}

/// Every call fails once, at any moment: no answered change is lost, and the store goes on.
#[test]
fn any_call_may_fail() {
    for kind in [ErrorKind::Unavailable, ErrorKind::OutOfSpace, ErrorKind::Poisoned] {
        let mut failed = 0;
        for k in (0..).step_by(11) {
            let mut rig = Rig::new(1);
            rig.options.target = 0.05;
            let (store, plan, fault) = faulty(&rig);
            plan.inject(FaultRule::new(Effect::Fail(kind)).nth(k));
            let begun = plan.calls();
            let mut model: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
            let mut unsure = BTreeMap::new();
            for n in 0..160u64 {
                let key = (n * n % 67).to_be_bytes();
                let outcome = if n % 7 == 0 {
                    rig.clock.run(store.delete(&key)).map(|_| None)
                } else {
                    let put = store.put(&key, value(n, 2_900).into(), None);
                    rig.clock.run(put).map(|()| Some(value(n, 2_900)))
                };
                match outcome {
                    Ok(value) => {
                        unsure.remove(&key[..]);
                        model.insert(key.to_vec(), value);
                    }
                    Err(_) => {
                        failed += 1;
                        let tried = (n % 7 != 0).then(|| value(n, 2_900));
                        unsure.insert(key.to_vec(), tried);
                        fault.probe();
                    }
                }
                if rig.clock.run(store.tend_once(0)).is_err() {
                    failed += 1;
                    fault.probe();
                }
            }
            let check = |found: BTreeMap<Vec<u8>, Vec<u8>>| {
                let keys = model.keys().chain(found.keys()).chain(unsure.keys());
                for key in keys {
                    let now = found.get(key);
                    let known = model.get(key).cloned().flatten();
                    let tried = unsure.get(key);
                    assert!(
                        now == known.as_ref() || tried.is_some_and(|tried| now == tried.as_ref()),
                        "call {k}, {kind:?}, key {key:?}"
                    );
                }
            };
            let ended = plan.calls() - begun < k;
            plan.clear();
            check(rig.all(&store));
            drop(store);
            check(rig.all(&rig.store()));
            if ended {
                break;
            }
        }
        assert!(failed > 30, "{failed} calls failed as {kind:?}");
    }
}

/// A later sync had made the full file durable when the earlier one failed. No task synced the bytes that the failure gave back,
/// and a merge that needed them asked for a sync without end.
#[test]
fn a_sync_that_fails_after_a_later_one_of_the_same_file_leaves_nothing_to_sync() {
    let mut rig = Rig::new(1);
    rig.options.durability = Durability::Interval(Duration::from_secs(3600));
    let (store, plan, _) = faulty(&rig);
    rig.put(&store, b"k", b"v");
    for effect in [Effect::Slow(Duration::from_secs(5)), Effect::Fail(ErrorKind::Unavailable)] {
        plan.inject(FaultRule::new(effect).on(Op::Sync).nth(0));
    }
    let later = async {
        rig.clock.sleep(Duration::from_secs(1)).await;
        let files = store.figures().volumes[0].files;
        for n in 0u64.. {
            store.put(&n.to_be_bytes(), vec![7; 900].into(), None).await.unwrap();
            if store.figures().volumes[0].files > files {
                break;
            }
        }
        store.sync().await
    };
    let (earlier, later) = rig.clock.run(futures_util::future::join(store.sync(), later));
    assert!(earlier.is_err() && later.is_ok(), "{earlier:?}, {later:?}");
    let waits = store.0.state().members[0].dirty.has(u64::MAX, |_| true);
    assert_eq!(waits, (false, false));
}

/// Both said that all was durable, while the only record of the key was its deletion.
#[test]
fn a_sync_and_an_end_fail_while_a_deletion_may_be_lost() {
    let mut rig = Rig::new(1);
    rig.options.durability = Durability::Interval(Duration::from_secs(3600));
    for heals in [false, true] {
        let (store, plan, fault) = faulty(&rig);
        rig.put(&store, b"k", b"v");
        rig.clock.run(store.sync()).unwrap();
        assert!(rig.clock.run(store.delete(b"k")).unwrap());
        let broken = plan.inject(FaultRule::new(Effect::Fail(ErrorKind::Poisoned)).on(Op::Sync));
        for _ in 0..2 {
            let failed = rig.clock.run(store.sync()).unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::Poisoned, "{failed}");
        }
        plan.lift(broken);
        fault.probe();
        if heals {
            rig.tend(&store);
            rig.clock.run(store.sync()).unwrap();
            rig.clock.run(store.close()).unwrap();
        } else {
            let failed = rig.clock.run(store.close()).unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::Poisoned, "{failed}");
        }
    }
}
