//! Names with an owner, objects with several names, and the stores on a pool.

use std::collections::BTreeSet;

use policy::purpose::Step;
use pool::Member;
use pool::spread::{Kept, Spread};
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Intent, Volume};

use crate::rig::{IO, get, members, mems, name, opening, put};

#[test]
fn a_name_has_one_owner_at_a_time() {
    let pool = block_on(Spread::open(members(&mems(1)), opening("single"))).unwrap();
    let mine = pool.lease_name(&name("kv/LOCK")).unwrap();
    let other_handle = pool.clone();
    let refused = other_handle.lease_name(&name("kv/LOCK")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    other_handle.lease_name(&name("kv2/LOCK")).unwrap();
    drop(mine);
    other_handle.lease_name(&name("kv/LOCK")).unwrap();
}

#[test]
fn an_object_knows_how_many_names_it_has() {
    let pool = block_on(Spread::open(members(&mems(2)), opening("single"))).unwrap();
    block_on(async {
        pool.create(&name("a"), &Intent::DATA).await.unwrap();
        let links = async |text| pool.stat(&name(text)).await.unwrap().links;
        assert_eq!(links("a").await, 1);
        pool.link(&name("a"), &name("b")).await.unwrap();
        assert_eq!((links("a").await, links("b").await), (2, 2));
        pool.remove(&name("a")).await.unwrap();
        assert_eq!(links("b").await, 1);
    });
}

/// Room was the same for all stores on a pool: users of one took what the other kept for its deletes.
#[test]
fn a_store_has_the_room_that_the_others_do_not_keep() {
    let volumes = [100, 100, 100].map(|pages| Mem::with_capacity("v", pages * 4096));
    let pool = block_on(Spread::open(members(&volumes), opening("single").copies(2))).unwrap();
    let [kv, series, again] = ["kv", "series", "kv"].map(|name| pool.enter(name));
    let writable = |of: &Spread| block_on(of.room()).writable;
    let all = writable(&pool);
    kv.keep(Kept { reserve: 100, pending: 20 });
    series.keep(Kept { reserve: 7, pending: 0 });
    assert_eq!([&pool, &kv, &series, &again].map(writable), [127, 7, 120, 7].map(|b| all - b));
    assert_eq!(block_on(Volume::space(&series)).unwrap().free, all - 120);
    assert_eq!(pool.reserve(), 2 * 107, "both copies");
    again.keep(Kept::default());
    assert_eq!((writable(&series), pool.reserve()), (all, 14));
    series.keep(Kept { reserve: u64::MAX, pending: 1 });
    assert_eq!((writable(&kv), writable(&series)), (0, all));
}

/// A gate divides tokens between stores by this number.
#[test]
fn the_io_of_a_store_carries_its_number() {
    let (log, clock) = (TraceLog::new(1000), Clock::simulated());
    let member = Member::new("s0", Trace::new(Mem::new("s0"), "s0", &log, &clock));
    let pool = block_on(Spread::open(vec![member], opening("single"))).unwrap();
    let (kv, series) = (pool.enter("kv"), pool.enter("series"));
    assert_eq!(pool.tenants(), [(kv.tenant(), "kv".into()), (series.tenant(), "series".into())]);
    let tenants = |work: &dyn Fn()| {
        let before = log.records().len();
        work();
        let calls = log.records().split_off(before).into_iter();
        let of_objects = calls.filter_map(|record| record.call.io);
        let of_objects = of_objects.filter(|io| io.step != Step::Manifest);
        let tenants: BTreeSet<_> = of_objects.map(|io| io.tenant).collect();
        tenants.into_iter().collect::<Vec<_>>()
    };
    for (store, text) in [(&kv, "kv/a"), (&series, "series/a"), (&pool, "a")] {
        let write = || block_on(put(store, text, b"bytes")).unwrap();
        assert_eq!(tenants(&write), [store.tenant()], "{text}");
        let read = || assert_eq!(block_on(get(store, text)).unwrap(), b"bytes");
        assert_eq!(tenants(&read), [store.tenant()], "{text}");
        let append = || {
            let log = block_on(store.create(&name(&format!("{text}.log")), &Intent::LOG)).unwrap();
            log.blocking_write_at(0, b"record", IO).unwrap();
            block_on(log.sync(IO)).unwrap();
            log.blocking_read_at(0, &mut [0; 6], IO).unwrap();
        };
        assert_eq!(tenants(&append), [store.tenant()], "{text}");
    }
}
