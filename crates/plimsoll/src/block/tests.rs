use policy::contract::Limit;
use policy::units::MIB;
use volume::mem::Mem;

use super::*;
use crate::volumes::{PoolBuilder, Volume};

/// What a provider sells for a volume, or we sell for a device.
fn contract(limits: &[(Counted, u64)]) -> Contract {
    let limit = |&(counts, rate_per_sec)| Limit { counts, rate_per_sec, depth: rate_per_sec };
    Contract { limits: limits.iter().map(limit).collect(), ..Contract::unlimited() }
}

fn both(iops: u64, mib_per_sec: u64) -> Contract {
    contract(&[(Counted::Ops, iops), (Counted::Bytes, mib_per_sec * MIB)])
}

/// Volumes of 1000 operations and 100 MiB a second.
fn volumes<const N: usize>(names: [&'static str; N]) -> PoolBuilder {
    let volume = |name| Volume::other(name, Mem::new(name), both(1000, 100));
    Pool::builder().volumes(names.map(volume))
}

fn open(pool: PoolBuilder) -> Store {
    Store::open(Arc::new(pool.open().unwrap()), Options::default()).unwrap()
}

fn refused(result: Result<()>) -> String {
    match result {
        Err(Error::Block(engine::block::Error::Invalid(told))) => told,
        other => panic!("{other:?}"),
    }
}

fn limits(store: &Store) -> Vec<Option<Contract>> {
    store.list().into_iter().map(|device| device.limit).collect()
}

#[test]
fn devices_are_sold_no_more_than_the_volumes_give_for_every_copy() {
    // 2000 operations are paid for, of which 1800 are for sale, and a write takes two.
    let store = open(volumes(["a", "b"]).copies(2));
    for name in ["x", "y"] {
        store.create(name, MIB).unwrap();
    }
    store.set_limit("x", Some(both(500, 10)), false).unwrap();
    let told = refused(store.set_limit("y", Some(both(401, 10)), false));
    for word in ["device y", "901 IOPS", "500 IOPS", "900 IOPS", "2000 IOPS", "90 %", "overselling"]
    {
        assert!(told.contains(word), "{word} is not in: {told}");
    }
    let told = refused(store.set_limit("y", Some(both(400, 81)), false));
    assert!(told.contains("91 MiB/s") && told.contains("90 MiB/s"), "{told}");
    assert_eq!(limits(&store), [Some(both(500, 10)), None]);
    store.set_limit("y", Some(both(400, 80)), false).unwrap();
    // A device's own limit is not counted twice.
    store.set_limit("x", Some(both(450, 10)), false).unwrap();
    // What was oversold is in the next sum, and no limit is always taken.
    store.set_limit("y", Some(both(5000, 500)), true).unwrap();
    refused(store.set_limit("x", Some(both(1, 1)), false));
    store.set_limit("y", None, false).unwrap();
    store.set_limit("x", Some(both(900, 90)), false).unwrap();
    assert_eq!(limits(&store), [Some(both(900, 90)), None]);
}

#[test]
fn a_refused_limit_leaves_no_device_behind() {
    let store = open(volumes(["a"]));
    let create =
        |name, iops, oversell| store.create_limited(name, MIB, Some(both(iops, 10)), oversell);
    create("x", 600, false).unwrap();
    refused(create("y", 301, false));
    assert_eq!(limits(&store), [Some(both(600, 10))]);
    create("y", 301, true).unwrap();
    assert_eq!(limits(&store), [Some(both(600, 10)), Some(both(301, 10))]);
}

#[test]
fn writes_to_a_pool_of_pools_are_counted_for_the_copies_of_both() {
    let below = |names| volumes(names).copies(2);
    let tree = Pool::builder().pool("left", below(["a", "b"])).pool("right", below(["c", "d"]));
    let store = open(tree.copies(2));
    store.create("x", MIB).unwrap();
    // 4000 are paid for: 3600 of them in fours.
    assert!(refused(store.set_limit("x", Some(both(901, 10)), false)).contains("takes 4 of them"));
    store.set_limit("x", Some(both(900, 90)), false).unwrap();
}

#[test]
fn a_limit_counts_with_all_that_it_lets_through() {
    let store = open(volumes(["a"]));
    store.create("x", MIB).unwrap();
    let set = |limits: &[(Counted, u64)]| store.set_limit("x", Some(contract(limits)), false);
    // Without bytes, operations of 256 KiB.
    assert!(refused(set(&[(Counted::Ops, 400)])).contains("100 MiB/s would be sold"));
    set(&[(Counted::Ops, 360)]).unwrap();
    // Without operations, any number.
    assert!(refused(set(&[(Counted::Bytes, MIB)])).contains("no operations a second"));
    // Reads and writes that are counted apart add up.
    let apart = [(Counted::ReadOps, 500), (Counted::WriteOps, 401), (Counted::Bytes, MIB)];
    assert!(refused(set(&apart)).contains("901 IOPS"));
    // Volumes without limits give anything.
    let volume = Volume::other("a", Mem::new("a"), Contract::unlimited());
    let store = open(Pool::builder().volumes([volume]));
    store.create("x", MIB).unwrap();
    store.set_limit("x", Some(both(1_000_000, 10_000)), false).unwrap();
}
