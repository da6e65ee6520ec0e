use super::*;

#[test]
fn its_work_can_be_spawned_anywhere() {
    fn is_send<T: Send>(_: T) {}
    let rig = Rig::new(1);
    let store = rig.store();
    is_send(store.tend(0));
    is_send(store.put(b"k", Bytes::new(), None));
    is_send(store.get(b"k"));
    is_send(store.delete(b"k"));
    is_send(store.sync());
    is_send(store.close());
}

#[test]
fn what_is_put_is_there_and_what_is_deleted_is_not() {
    let rig = Rig::new(2);
    let store = rig.store();
    for n in 0..100u64 {
        rig.put(&store, &n.to_be_bytes(), &value(n, 300));
    }
    rig.put(&store, &7u64.to_be_bytes(), b"again");
    assert!(rig.clock.run(store.delete(&8u64.to_be_bytes())).unwrap());
    assert!(!rig.clock.run(store.delete(&8u64.to_be_bytes())).unwrap());
    assert_eq!(rig.get(&store, &7u64.to_be_bytes()).unwrap(), b"again");
    assert_eq!(rig.get(&store, &8u64.to_be_bytes()), None);
    assert_eq!(rig.all(&store).len(), 99);
    let some = store.keys(&[0; 7], Some(&5u64.to_be_bytes()), 3);
    assert_eq!(some, [6u64, 7, 9].map(|n| Bytes::copy_from_slice(&n.to_be_bytes())));
    assert!(store.keys(b"zzz", None, 10).is_empty());
}

#[test]
fn keys_and_values_have_their_limits() {
    let rig = Rig::new(1);
    let store = rig.store();
    let put = |key: &[u8], len| {
        rig.clock.run(store.put(key, vec![0; len].into(), None)).map_err(|e| e.kind())
    };
    assert_eq!(put(b"", 1), Err(ErrorKind::Invalid));
    assert_eq!(put(&[1; 256], 1), Err(ErrorKind::Invalid));
    assert_eq!(put(&[1; 255], 16 << 10), Ok(()));
    assert_eq!(put(b"k", (16 << 10) + 1), Err(ErrorKind::Invalid));
    assert_eq!(put(b"k", 0), Ok(()));
    assert_eq!(rig.get(&store, b"k").unwrap(), b"");
}

#[test]
fn a_closed_store_opens_from_its_hints_alone() {
    let rig = Rig::new(2);
    let store = rig.store();
    for n in 0..600u64 {
        rig.put(&store, &(n % 300).to_be_bytes(), &value(n, 500));
    }
    for n in (0..300u64).step_by(3) {
        rig.clock.run(store.delete(&n.to_be_bytes())).unwrap();
    }
    let before = rig.all(&store);
    rig.clock.run(store.close()).unwrap();
    assert_eq!(
        rig.clock.run(store.put(b"k", Bytes::new(), None)).unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    drop(store);
    let log = volume::layer::trace::TraceLog::new(100_000);
    let members = rig.mems.iter().map(|mem| {
        Member::new(mem.label(), Trace::new(mem.clone(), mem.label(), &log, &rig.clock))
    });
    let opening = Store::open(members.collect(), rig.options.clone(), rig.clock.clone(), None);
    let (store, report) = rig.clock.run(opening).unwrap();
    assert_eq!((report.scanned, report.torn.len(), report.damage.len()), (0, 0, 0));
    let of_files = |record: &&volume::layer::trace::Record| {
        let name = record.call.name.as_ref();
        record.call.op == volume::layer::call::Op::Read
            && name.is_some_and(|name| name.as_str().ends_with(".seg"))
    };
    assert_eq!(log.records().iter().filter(of_files).count(), 0);
    assert_eq!(rig.all(&store), before);
}

#[test]
fn without_hints_files_are_read_and_get_them() {
    let rig = Rig::new(1);
    let store = rig.store();
    for n in 0..400u64 {
        rig.put(&store, &(n % 200).to_be_bytes(), &value(n, 500));
    }
    let before = rig.all(&store);
    drop(store);
    let image = rig.mems[0].image();
    let files = image.keys().filter(|name| name.as_str().ends_with(".seg")).count() as u64;
    for name in image.keys().filter(|name| name.as_str().ends_with(".hint")) {
        rig.clock.run(rig.mems[0].remove(name)).unwrap();
    }
    let (store, report) = rig.open();
    assert_eq!((report.scanned, report.files, report.damage.len()), (files, files, 0));
    assert_eq!(rig.all(&store), before);
    rig.tend(&store);
    drop(store);
    let (store, report) = rig.open();
    assert_eq!(report.scanned, 0, "they have hints now");
    assert_eq!(rig.all(&store), before);
}

#[test]
fn a_batch_is_there_as_a_whole() {
    let rig = Rig::new(1);
    let store = rig.store();
    rig.put(&store, b"b", b"old");
    let put = |key: &'static [u8]| Edit::Put {
        key: Bytes::from_static(key),
        value: Bytes::from_static(b"new"),
        lives: None,
    };
    let edits = vec![put(b"a"), Edit::Delete { key: Bytes::from_static(b"b") }, put(b"c")];
    rig.clock.run(store.write(edits)).unwrap();
    let expected: BTreeMap<_, _> = [b"a", b"c"].map(|key| (key.to_vec(), b"new".to_vec())).into();
    assert_eq!(rig.all(&store), expected);
    drop(store);
    assert_eq!(rig.all(&rig.store()), expected);
}

/// Cyclic and random keys overwrite the volume many times.
#[test]
fn merges_make_room_for_ever() {
    for rule in Rule::ALL {
        let mut rig = Rig::new(1);
        rig.options.rule = rule;
        rig.options.target = 0.5;
        let store = rig.store();
        let mut model = BTreeMap::new();
        let mut random = 1u64;
        for n in 0..12_000u64 {
            // Some keys at random, some in turn.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = if n % 2 == 0 { n / 2 % 500 } else { 500 + (random >> 33) % 500 };
            let value = value(n, 900);
            rig.put(&store, &key.to_be_bytes(), &value);
            model.insert(key.to_be_bytes().to_vec(), value);
            if n % 16 == 0 {
                rig.tend(&store);
            }
        }
        assert_eq!(rig.all(&store), model, "{}", rule.name());
        let figures = store.figures();
        let volume = &figures.volumes[0];
        assert!(volume.counts.put_bytes > 2 * CAPACITY);
        assert!(volume.counts.died_whole + volume.counts.merged > 100, "{:?}", volume.counts);
        // The static triggers merge every file shorter than 10 MiB that has a dead record.
        let is_static = rule == Rule::Static;
        let written = volume.counts.write_amplification();
        assert!(is_static || written < 2.5, "{}: {:?}", rule.name(), volume.counts);
        assert_eq!(volume.dying_bytes, 0);
        let live = volume.live_bytes;
        assert_eq!(live, model.len() as u64 * format::record_len(8, 900) as u64);
        drop(store);
        assert_eq!(rig.all(&rig.store()), model, "{}", rule.name());
    }
}

/// The paper's issue "descriptors of deleted files": an idle reader keeps one file while it reads, and no other file
/// stays.
#[test]
fn a_file_goes_when_its_last_reader_is_done() {
    let rig = Rig::new(1);
    let store = rig.store();
    for n in 0..200u64 {
        rig.put(&store, &n.to_be_bytes(), &value(n, 900));
    }
    rig.tend(&store);
    let reader = {
        let state = store.0.state();
        let place = state.index.get(&0u64.to_be_bytes()).unwrap();
        (place, Arc::clone(&state.files[&place.file].handle))
    };
    for n in 0..200u64 {
        rig.put(&store, &n.to_be_bytes(), &value(n + 1, 900));
    }
    rig.tend(&store);
    assert!(store.figures().volumes[0].dying_bytes > 0);
    let (place, file) = reader;
    let (bytes, whole) = rig.clock.run(file.record(place, READ)).unwrap();
    assert_eq!(bytes[whole.value], value(0, 900));
    drop(file);
    rig.tend(&store);
    assert_eq!(store.figures().volumes[0].dying_bytes, 0);
    let own = store.0.state().members[0].own;
    let found: u64 = rig.mems[0].image().values().map(|bytes| bytes.len() as u64).sum();
    assert_eq!(own, found, "it is counted what is there");
}

#[test]
fn partitions_may_change() {
    let mut rig = Rig::new(2);
    let mut model = BTreeMap::new();
    for (life, partitions) in [2u16, 5, 1, 3].into_iter().enumerate() {
        rig.options.partitions = partitions;
        let store = rig.store();
        assert_eq!(rig.all(&store), model, "{partitions} partitions");
        for n in 0..1_500u64 {
            let key = (n * 7 + life as u64) % 400;
            if n % 5 == 0 {
                rig.clock.run(store.delete(&key.to_be_bytes())).unwrap();
                model.remove(key.to_be_bytes().as_slice());
            } else {
                let value = value(n, 700);
                rig.put(&store, &key.to_be_bytes(), &value);
                model.insert(key.to_be_bytes().to_vec(), value);
            }
            if n % 16 == 0 {
                rig.tend(&store);
            }
        }
        if life % 2 == 0 {
            rig.clock.run(store.close()).unwrap();
        }
    }
    // The volumes may come in another order, but none may be missing.
    rig.mems.reverse();
    assert_eq!(rig.all(&rig.store()), model);
    let missing = rig.mems.pop();
    let opening = Store::open(rig.members(), rig.options.clone(), rig.clock.clone(), Some(ID));
    assert_eq!(rig.clock.run(opening).err().unwrap().kind(), ErrorKind::Invalid);
    rig.mems.extend(missing);
    rig.mems.push(Mem::with_capacity("new", CAPACITY));
    assert_eq!(rig.all(&rig.store()), model, "one more volume");
}

#[test]
fn one_sync_serves_all_who_wait() {
    use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};

    let rig = Rig::new(1);
    let plan = FaultPlan::new(1);
    plan.inject(Rule::new(Effect::Slow(Duration::from_millis(5))));
    let slow = Fault::new(rig.mems[0].clone(), "v0", &plan, &rig.clock);
    let members = vec![Member::new("v0", slow)];
    let opening = Store::open(members, rig.options.clone(), rig.clock.clone(), Some(ID));
    let (store, _) = rig.clock.run(opening).unwrap();
    let syncs = || store.figures().volumes[0].counts.syncs;
    let before = syncs();
    let puts = (0..50u64).map(|n| {
        let store = store.clone();
        async move { store.put(&n.to_be_bytes(), Bytes::from(value(n, 100)), None).await }
    });
    let done = rig.clock.run(futures_util::future::join_all(puts));
    assert!(done.into_iter().all(|outcome| outcome.is_ok()));
    // The first put waits for no other, but waiting ones join its group.
    assert_eq!(syncs() - before, 1);
    assert_eq!(rig.all(&store).len(), 50);
}

#[test]
fn a_put_that_is_given_up_holds_nobody_up() {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};

    let rig = Rig::new(1);
    let plan = FaultPlan::new(1);
    let slow = Fault::new(rig.mems[0].clone(), "v0", &plan, &rig.clock);
    let members = vec![Member::new("v0", slow)];
    let opening = Store::open(members, rig.options.clone(), rig.clock.clone(), Some(ID));
    let (store, _) = rig.clock.run(opening).unwrap();
    rig.put(&store, b"a", b"1");
    plan.inject(Rule::new(Effect::Slow(Duration::from_secs(5))).nth(0));
    {
        let mut given_up = pin!(store.put(b"b", Bytes::from_static(b"2"), None));
        let polled = given_up.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending));
    }
    rig.put(&store, b"c", b"3");
    assert_eq!(rig.get(&store, b"a").unwrap(), b"1");
    assert_eq!(rig.get(&store, b"b").unwrap(), b"2", "the next group took it along");
    assert_eq!(rig.get(&store, b"c").unwrap(), b"3");
    drop(store);
    assert_eq!(rig.all(&rig.store()).len(), 3);
}

#[test]
fn the_index_is_bounded() {
    let mut rig = Rig::new(1);
    rig.options.index_bytes_max = 8 << 10;
    let store = rig.store();
    let mut put = 0u64;
    let error = loop {
        match rig.clock.run(store.put(&put.to_be_bytes(), Bytes::from_static(b"v"), None)) {
            Ok(()) => put += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    assert!((150..300).contains(&put), "{put} keys");
    rig.put(&store, &0u64.to_be_bytes(), b"a known key may change");
    for n in 0..put {
        rig.clock.run(store.delete(&n.to_be_bytes())).unwrap();
    }
    rig.put(&store, b"new", b"there is room again");
}

#[test]
fn a_store_that_cannot_work_is_not_opened() {
    let mut rig = Rig::new(1);
    rig.options.partitions = 64;
    let opening = Store::open(rig.members(), rig.options.clone(), rig.clock.clone(), Some(ID));
    let error = rig.clock.run(opening).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("seal files at"), "{error}");
    rig.options.partitions = 1;
    let none = Store::open(rig.members(), rig.options.clone(), rig.clock.clone(), None);
    assert_eq!(rig.clock.run(none).err().unwrap().kind(), ErrorKind::NotFound);
}

#[test]
fn intervals_sync_what_was_answered() {
    use volume::layer::crash::{Crash, Power};

    let mut rig = Rig::new(1);
    rig.options.durability = Durability::Interval(Duration::from_millis(500));
    let power = Power::new();
    let crash = Crash::new(rig.mems[0].clone(), &power);
    let members = vec![Member::new("v0", crash.clone())];
    let opening = Store::open(members, rig.options.clone(), rig.clock.clone(), Some(ID));
    let (store, _) = rig.clock.run(opening).unwrap();
    rig.put(&store, b"a", b"1");
    let died = crash.after_process_death();
    let tended = select_for(&store, &rig.clock, Duration::from_secs(1));
    rig.clock.run(tended);
    rig.put(&store, b"b", b"2");
    power.cut();
    for seed in 0..20 {
        rig.mems = vec![crash.survivor(seed)];
        let store = rig.store();
        assert_eq!(rig.get(&store, b"a").unwrap(), b"1");
        assert!(rig.get(&store, b"b").is_none_or(|value| value == b"2"));
    }
    rig.mems = vec![died];
    assert_eq!(rig.get(&rig.store(), b"a").unwrap(), b"1", "the machine lived");
}

pub(super) async fn select_for(store: &Store, clock: &Clock, time: Duration) {
    let tend = std::pin::pin!(store.tend(0));
    futures_util::future::select(tend, clock.sleep(time)).await;
}

#[test]
fn pieces_of_a_reserve_go_where_the_owner_reserves_the_room() {
    let mut rig = Rig::new(1);
    rig.options.set_aside = CAPACITY / 20;
    let pieces = || {
        let listed = rig.clock.run(rig.mems[0].list()).unwrap().into_iter();
        listed.filter(|listed| listed.name.as_str().contains("reserve")).count()
    };
    let store = rig.store();
    rig.tend(&store);
    let kept = store.room_kept();
    assert!(pieces() > 0 && kept > CAPACITY / 20, "{kept}");
    rig.clock.run(store.close()).unwrap();
    drop(store);
    let options = Options { allocates: false, ..rig.options.clone() };
    let opening = Store::open(rig.members(), options, rig.clock.clone(), None);
    let (store, _) = rig.clock.run(opening).unwrap();
    rig.tend(&store);
    assert_eq!((pieces(), store.room_kept()), (0, kept));
}
