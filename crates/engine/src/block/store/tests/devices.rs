//! Devices are made, resized and deleted.

use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};

use super::*;

#[test]
fn devices_are_there_after_an_opening_and_names_are_unique() {
    let rig = Rig::new(1, 1);
    rig.clock.run(async {
        let (pool, store) = rig.open().await.unwrap();
        for (name, size) in [("b", 8192), ("a", 4096)] {
            store.create(name, size).await.unwrap();
        }
        assert!(matches!(store.create("a", 4096).await, Err(Error::AlreadyExists(_))));
        assert!(matches!(store.create("a/b", 4096).await, Err(Error::Invalid(_))));
        assert!(matches!(store.create("c", 100).await, Err(Error::Invalid(_))));
        drop((pool, store));
        let (_pool, store) = rig.open().await.unwrap();
        assert_eq!(store.names(), ["a", "b"]);
        assert_eq!(store.list()[1].size, 8192);
        assert!(matches!(BlockDevices::open(&store, "c").await, Err(Error::NotFound(_))));
    });
}

#[test]
fn a_deleted_device_gives_its_room_back_and_ends() {
    let rig = Rig::new(1, 1);
    rig.clock.run(async {
        let (pool, store) = rig.open().await.unwrap();
        let objects = pool.objects().len();
        store.create("disk", 8 * REGION).await.unwrap();
        let disk = device(&store, "disk").await;
        disk.write(0, bytes(4096, 1), Durable::Now).await.unwrap();
        disk.write(5 * REGION, bytes(4096, 1), Durable::Now).await.unwrap();
        store.delete("disk").await.unwrap();
        assert!(matches!(read(&*disk, 0, 4096).await, Err(Error::Closed(_))));
        assert_eq!(pool.objects().len(), objects + 1, "the table is left");
        store.create("disk", 8 * REGION).await.unwrap();
        let disk = device(&store, "disk").await;
        assert_eq!(read(&*disk, 0, 4096).await.unwrap(), [0; 4096]);
    });
}

#[test]
fn a_device_grows_and_shrinks_and_what_was_cut_off_is_zeros() {
    let rig = Rig::new(1, 1);
    rig.clock.run(async {
        let (pool, store) = rig.open().await.unwrap();
        store.create("disk", REGION + 8192).await.unwrap();
        let disk = device(&store, "disk").await;
        disk.write(REGION - 4096, bytes(4096 * 3, 1), Durable::Now).await.unwrap();
        assert!(matches!(store.resize("disk", 4096, false).await, Err(Error::Invalid(_))));
        store.resize("disk", REGION + 4096, true).await.unwrap();
        assert_eq!(disk.geometry().size, REGION + 4096);
        assert!(read(&*disk, REGION + 4096, 1).await.is_err());
        store.resize("disk", 40 * REGION, false).await.unwrap();
        drop((disk, pool, store));
        let (_pool, store) = rig.open().await.unwrap();
        let disk = device(&store, "disk").await;
        assert_eq!(disk.geometry().size, 40 * REGION);
        let mut expected = vec![1; 4096 * 2];
        expected.resize(4096 * 4, 0);
        assert_eq!(read(&*disk, REGION - 4096, 4096 * 4).await.unwrap(), expected);
        disk.write(39 * REGION, bytes(4096, 2), Durable::Now).await.unwrap();
        store.resize("disk", 4096, true).await.unwrap();
        assert_eq!(store.list()[0].room, REGION);
    });
}

#[test]
fn a_limit_holds_at_once_and_after_an_opening() {
    let rig = Rig::new(1, 1);
    let counts = policy::contract::Counted::Ops;
    let limit = policy::contract::Limit { counts, rate_per_sec: 10, depth: 1 };
    let contract = Contract { name: "small".into(), limits: vec![limit], ..Contract::unlimited() };
    rig.clock.run(async {
        let seconds = async |disk: &dyn BlockDevice| {
            let begin = rig.clock.now();
            for _ in 0..20 {
                read(disk, 0, 4096).await.unwrap();
            }
            rig.clock.now().since(begin).as_secs_f64()
        };
        let (pool, store) = rig.open().await.unwrap();
        store.create("disk", REGION).await.unwrap();
        let disk = device(&store, "disk").await;
        assert!(seconds(&*disk).await < 0.1);
        store.set_limit("disk", Some(contract.clone())).await.unwrap();
        assert_eq!(store.list()[0].limit, Some(contract.clone()));
        assert!((1.9..2.1).contains(&seconds(&*disk).await));
        let figures = store.list()[0].figures;
        assert_eq!((figures.reads, figures.bytes_read, figures.limited), (40, 40 * 4096, 20));
        assert!((1.9..2.1).contains(&figures.limited_for.as_secs_f64()), "{figures:?}");
        drop((disk, pool, store));
        let (_pool, store) = rig.open().await.unwrap();
        assert_eq!(store.list()[0].limit, Some(contract));
        let disk = device(&store, "disk").await;
        assert!((1.8..2.1).contains(&seconds(&*disk).await));
        store.set_limit("disk", None).await.unwrap();
        assert!(seconds(&*disk).await < 0.1);
    });
}

#[test]
fn a_call_that_waits_for_the_limit_of_a_deleted_device_does_nothing() {
    let rig = Rig::new(1, 1);
    let counts = policy::contract::Counted::Ops;
    let limit = policy::contract::Limit { counts, rate_per_sec: 1, depth: 1 };
    let contract = Contract { limits: vec![limit], ..Contract::unlimited() };
    rig.clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        store.create_limited("disk", REGION, Some(contract)).await.unwrap();
        let disk = device(&store, "disk").await;
        disk.write(0, bytes(4096, 1), Durable::Now).await.unwrap();
        let late = async {
            let written = disk.write(0, bytes(4096, 2), Durable::Now).await;
            assert!(matches!(written, Err(Error::Closed(_))), "{written:?}");
        };
        let deleted = async { store.delete("disk").await.unwrap() };
        futures_util::future::join(late, deleted).await;
    });
}

/// The checksums of what was cut off were in memory only, and trusted when the device grew again.
#[test]
fn what_was_cut_off_before_a_crash_is_in_doubt_when_the_device_grows() {
    let mut rig = Rig::new(1, 1);
    rig.options.extent_bytes = 2 * REGION;
    let clock = rig.clock.clone();
    clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        store.create("disk", 2 * REGION).await.unwrap();
        let disk = device(&store, "disk").await;
        disk.write(REGION, bytes(4096, 1), Durable::Now).await.unwrap();
        store.tend().await.unwrap();
        rig.clock.sleep(Duration::from_secs(60)).await;
        store.tend().await.unwrap();
        assert_eq!(store.figures().dirty_regions, 0);
        store.resize("disk", REGION, true).await.unwrap();
    });
    rig.kill();
    clock.run(async {
        let (_pool, store) = rig.open().await.unwrap();
        store.resize("disk", 2 * REGION, false).await.unwrap();
        let disk = device(&store, "disk").await;
        assert_eq!(read(&*disk, REGION, 4096).await.unwrap(), [0; 4096]);
    });
}

/// It took effect beyond the end, and showed when the device grew again.
#[test]
fn a_write_that_waits_while_its_device_becomes_smaller_is_refused_beyond_the_new_end() {
    let clock = Clock::simulated();
    let plan = FaultPlan::new(1);
    let volume = Arc::new(Fault::new(Mem::new("v0"), "v0", &plan, &clock));
    clock.run(async {
        let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(7));
        let members = vec![::pool::Member::new("v0", volume)];
        let pool = Spread::open(members, opening).await.unwrap();
        let options = Options { extent_bytes: 2 * REGION, ..Options::default() };
        let store = Store::open(Arc::new(pool), options, clock.clone()).await.unwrap();
        store.create("disk", 2 * REGION).await.unwrap();
        let disk = device(&store, "disk").await;
        // The extent is being made when the device becomes smaller.
        let slow = Rule::new(Effect::Slow(Duration::from_secs(1))).on(Op::Create);
        let slow = plan.inject(slow);
        let late = disk.write(REGION, bytes(4096, 1), Durable::Now);
        let cut = async {
            clock.sleep(Duration::from_millis(1)).await;
            store.resize("disk", REGION, true).await.unwrap();
        };
        let (written, ()) = futures_util::future::join(late, cut).await;
        plan.lift(slow);
        assert!(matches!(written, Err(Error::Invalid(_))), "{written:?}");
        store.resize("disk", 2 * REGION, false).await.unwrap();
        assert_eq!(read(&*disk, REGION, 4096).await.unwrap(), [0; 4096]);
    });
}
