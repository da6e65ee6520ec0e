//! Merges, concurrent with changes of the records they copy.

use futures_util::future::join;
use policy::contract::{Contract, Latency, Percentiles};
use volume::layer::simulate::Simulate;

use super::super::merge::LOOK;
use super::store::select_for;
use super::*;

const MERGE: Io = Io::new(Origin::Merge { space_pressure_percent: 50 }, Step::Data);

/// How long each call of a device takes, and the steps in which the test goes through a merge.
const CALL: Duration = Duration::from_millis(1);
const STEP: Duration = Duration::from_micros(100);

/// Merges a file, as if the policy had picked it.
fn merge(rig: &Rig, store: &Store, id: FileId) {
    let handle = Arc::clone(&store.0.state().files[&id].handle);
    assert!(rig.clock.run(store.0.copy(0, &handle, MERGE)).unwrap(), "nothing is damaged");
    drop(handle);
    rig.clock.run(store.0.release(id, true, Duration::ZERO)).unwrap();
    rig.tend(store);
}

fn file_of(store: &Store, key: u64) -> FileId {
    store.0.state().index.get(&key.to_be_bytes()).unwrap().file
}

/// The bytes of tombstones in files.
fn deletions(store: &Store) -> u64 {
    store.0.state().files.values().map(|facts| facts.deletions).sum()
}

/// A client puts one key that a merge is copying, and deletes another, at every moment of the merge. The copies come
/// too late, both at once and after a crash.
#[test]
fn what_is_put_during_a_merge_is_newer_than_the_copy() {
    let mut rig = Rig::new(1);
    rig.options.target = 0.9;
    let store = rig.store();
    let mut before = BTreeMap::new();
    for n in (0..140u64).chain((0..70).step_by(2)) {
        let value = value(n + before.len() as u64, 900);
        rig.put(&store, &n.to_be_bytes(), &value);
        before.insert(n.to_be_bytes().to_vec(), value);
    }
    rig.clock.run(store.close()).unwrap();
    drop(store);
    let image = rig.mems[0].image();
    rig.options.target = 0.01;
    rig.options.quota = CAPACITY;
    let slow = Percentiles::constant(CALL);
    let contract =
        Contract { latency: Latency { read: slow, write: slow }, ..Contract::unlimited() };
    let (mut inside, mut copied) = (0, 0);
    for moment in 0.. {
        rig.mems = vec![Mem::from_image("v0", image.clone())];
        let device = Simulate::new(rig.mems[0].clone(), &contract, rig.clock.clone(), 1);
        let members = vec![Member::new("v0", device)];
        let opening = Store::open(members, rig.options.clone(), rig.clock.clone(), Some(ID));
        let (store, _) = rig.clock.run(opening).unwrap();
        let merging = async {
            assert!(store.tend_once(0).await.unwrap(), "a file is half dead");
            rig.clock.now()
        };
        let changing = async {
            rig.clock.sleep(STEP * moment).await;
            let began = rig.clock.now();
            let [first, last] = [1u64, 13].map(u64::to_be_bytes);
            store.put(&first, Bytes::from_static(b"newer"), None).await.unwrap();
            assert!(store.delete(&last).await.unwrap());
            began
        };
        let (ended, began) = rig.clock.run(join(merging, changing));
        let mut model = before.clone();
        model.insert(1u64.to_be_bytes().to_vec(), b"newer".to_vec());
        model.remove(13u64.to_be_bytes().as_slice());
        assert_eq!(rig.all(&store), model, "moment {moment}");
        let counts = store.figures().volumes[0].counts;
        assert_eq!(counts.merged, 1);
        copied = copied.max(counts.copied_bytes);
        // The process ends here.
        drop(store);
        assert_eq!(rig.all(&rig.store()), model, "moment {moment}, after a crash");
        if began > ended {
            break;
        }
        inside += 1;
    }
    assert!(inside > 20 && copied > 0, "{inside} moments, {copied} bytes copied");
}

/// An extra sync of a part of a file costs a disk a turn, and puts write back anyway. Without puts, a dead file does
/// not wait for ever.
#[test]
fn of_several_disks_a_dead_file_waits_for_others_to_make_durable_what_killed_it() {
    for volumes in [1, 2] {
        let mut rig = Rig::new(volumes);
        rig.options.durability = Durability::Never;
        let store = rig.store();
        let keys = 80 * u64::from(volumes);
        (0..keys).for_each(|n| rig.put(&store, &n.to_be_bytes(), &value(n, 900)));
        let mut files = (0..keys).map(|n| file_of(&store, n));
        let file = files.find(|file| store.0.state().files[file].member == 0).unwrap();
        let held: Vec<_> = (0..keys).filter(|&n| file_of(&store, n) == file).collect();
        let (last, others) = held.split_last().unwrap();
        let overwrite = |n: &u64| rig.put(&store, &n.to_be_bytes(), &value(*n, 901));
        others.iter().for_each(overwrite);
        rig.tend(&store);
        rig.clock.run(store.sync()).unwrap();
        overwrite(last);
        let syncs =
            || store.figures().volumes.iter().map(|volume| volume.counts.syncs).sum::<u64>();
        let before = syncs();
        let is_there = || store.0.state().files.contains_key(&file);
        rig.clock.run(select_for(&store, &rig.clock, LOOK / 2));
        if volumes > 1 {
            assert!(is_there() && syncs() == before, "{} syncs", syncs() - before);
            rig.clock.run(select_for(&store, &rig.clock, LOOK * 2));
        }
        assert!(!is_there() && syncs() > before, "{volumes} volumes");
    }
}

/// A tombstone that is dropped while a file has an older record of its key would bring the key back at the next start
/// (Bitcask's issues 82 and 156).
#[test]
fn a_deletion_stays_as_long_as_there_is_what_it_deletes() {
    let mut rig = Rig::new(1);
    // Many records in a file, on pages they share.
    rig.options.durability = Durability::Never;
    let store = rig.store();
    let put = |store: &Store, keys: std::ops::Range<u64>| {
        keys.for_each(|n| rig.put(store, &n.to_be_bytes(), &value(n, 900)));
    };
    put(&store, 0..70);
    let older = file_of(&store, 4);
    assert_eq!(older, file_of(&store, 3));
    rig.clock.run(store.delete(&3u64.to_be_bytes())).unwrap();
    put(&store, 100..170);
    rig.tend(&store);
    let holder = file_of(&store, 100);
    assert!(holder != older && deletions(&store) > 0);
    merge(&rig, &store, holder);
    assert!(deletions(&store) > 0, "the file from before it is still there");
    drop(store);
    let store = rig.store();
    assert_eq!(rig.get(&store, &3u64.to_be_bytes()), None);

    // Once all older records are superseded, and their file cannot reappear, the tombstone is not needed.
    put(&store, 0..3);
    put(&store, 4..70);
    rig.tend(&store);
    assert!(!store.0.state().files.contains_key(&older), "it was dead");
    rig.put(&store, b"x", b"a sync behind the removal");
    rig.clock.run(store.sync()).unwrap();
    let holder = *store.0.state().files.iter().find(|(_, facts)| facts.deletions > 0).unwrap().0;
    merge(&rig, &store, holder);
    assert_eq!(deletions(&store), 0);
    drop(store);
    let store = rig.store();
    assert_eq!(rig.get(&store, &3u64.to_be_bytes()), None);
    assert_eq!(rig.all(&store).len(), 140);
}

/// An opening checks whether partitions fit; a refused store stays as it was.
#[test]
fn more_partitions_than_fit_are_refused_at_creation_and_nothing_is_lost() {
    for (partitions, live) in [(64, 0.3), (1, 0.99), (16, 0.6)] {
        let mut rig = Rig::new(1);
        (rig.options.partitions, rig.options.live) = (partitions, live);
        let opening = Store::open(rig.members(), rig.options.clone(), rig.clock.clone(), Some(ID));
        let error = rig.clock.run(opening).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{partitions} partitions, {live} alive");
        assert!(error.to_string().contains("keep less"), "{error}");
        assert_eq!(
            rig.clock.run(rig.mems[0].list()).unwrap(),
            [],
            "a refused store left something"
        );
    }
    // An existing store is opened all the same, so that its data stay accessible.
    let mut rig = Rig::new(1);
    let store = rig.store();
    rig.put(&store, b"k", b"v");
    rig.clock.run(store.close()).unwrap();
    drop(store);
    (rig.options.partitions, rig.options.live) = (16, 0.6);
    assert_eq!(rig.get(&rig.store(), b"k"), Some(b"v".to_vec()));
}

/// Merges by death time use the largest files whose oldest ones are dead in time; other rules use the given size.
#[test]
fn files_are_no_larger_than_there_is_room_for() {
    const VOLUME: u64 = 10_000 * MIB;
    let of = |rule, live, partitions| {
        let mut options = Options::new(1);
        (options.rule, options.live, options.groups) = (rule, live, 1);
        (options.partitions, options.file_bytes) = (partitions as u16, 1024 * MIB);
        options.file_bytes_for(VOLUME, partitions, 1)
    };
    assert_eq!(of(Rule::Greedy, 0.85, 8), 1024 * MIB);
    assert_eq!(of(Rule::DeathTime, 0.0, 1), 1024 * MIB);
    let sizes = [0.3, 0.6, 0.85].map(|live| of(Rule::DeathTime, live, 8));
    assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
    for (live, size) in [0.3, 0.6, 0.85].into_iter().zip(sizes) {
        let mut options = Options::new(1);
        (options.live, options.groups, options.file_bytes) = (live, 1, size);
        options.check_room("v", VOLUME, 8, 1).unwrap();
        // The oldest file of each partition and the live records stay below the fill that delays puts.
        let dead = 8.0 * size as f64 / VOLUME as f64;
        assert!(live + dead < options.delay_from, "{live} alive, {dead} dead");
    }
    // With room set aside, as much as a volume has for that, the defaults fit on volumes of every size.
    for volume in [100, 300, 1024, 3 * 1024, 16 * 1024].map(|mib| mib * MIB) {
        for partitions in [1, 3, 12] {
            for devices in [1, 5] {
                let mut options = Options::new(partitions);
                options.set_aside = 512 * MIB;
                options.file_bytes = options.file_bytes_for(volume, partitions.into(), devices);
                options.check_room("v", volume, partitions.into(), devices).unwrap();
                let kept = options.limits(volume, partitions.into(), devices).kept();
                assert!(kept < volume / 5, "{kept} of {volume} for {partitions}, {devices}");
            }
        }
    }
}

/// The file was removed with the deletion, a crash took the put, and the value before the deletion came back.
#[test]
fn a_deletion_stays_until_the_put_after_it_is_durable() {
    let mut rig = Rig::new(1);
    rig.options.durability = Durability::Interval(Duration::from_secs(3600));
    let store = rig.store();
    let files = || store.figures().volumes[0].files;
    let fill_a_file = |first: u64| {
        let before = files();
        let mut n = first;
        while files() == before {
            rig.put(&store, &n.to_be_bytes(), &value(n, 900));
            n += 1;
        }
    };
    rig.put(&store, b"k", b"first");
    fill_a_file(0);
    rig.clock.run(store.delete(b"k")).unwrap();
    fill_a_file(1000);
    rig.clock.run(store.sync()).unwrap();
    rig.put(&store, b"k", b"second");
    let (id, file) = {
        let state = store.0.state();
        let (&id, facts) = state.files.iter().find(|(_, facts)| facts.deletions > 0).unwrap();
        (id, Arc::clone(&facts.handle))
    };
    let io = Io::new(Origin::Merge { space_pressure_percent: 0 }, Step::Data);
    assert!(rig.clock.run(store.0.copy(0, &file, io)).unwrap());
    let state = store.0.state();
    let put = state.index.get(b"k").unwrap().sequence;
    assert_eq!(state.files[&id].superseding_max, put);
}
