//! Objects of a pool beyond the conformance suite.

use pool::spread::{Change, Spread};
use volume::layer::crash::{Crash, Power};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{ErrorKind, Intent, IoBuf, IoBufMut, Volume};

use crate::rig::{IO, get, members, mems, name, open, opening, put, survivors};

#[test]
fn a_crash_forgets_no_id_and_recognises_every_orphan() {
    const UNCOMMITTED: usize = 2500;
    let power = Power::new();
    let volumes: Vec<_> = (0..3).map(|i| Crash::new(Mem::new(&format!("s{i}")), &power)).collect();
    let last = block_on(async {
        let pool = open(&volumes).await.unwrap();
        for i in 0..UNCOMMITTED {
            pool.create(&name(&format!("draft{i}")), &Intent::DATA).await.unwrap();
        }
        pool.stat(&name(&format!("draft{}", UNCOMMITTED - 1))).await.unwrap().id
    });
    power.cut();
    for seed in 0..8 {
        let survivors = survivors(&volumes, seed);
        block_on(async {
            let pool = open(&survivors).await.unwrap();
            assert_eq!(pool.foreign(), []);
            assert_eq!(pool.check().await.unwrap().findings, []);
            put(&pool, "new", b"new").await.unwrap();
            assert!(pool.stat(&name("new")).await.unwrap().id > last);
        });
    }
}

#[test]
fn what_was_never_synced_does_not_show_in_a_gap() {
    for placement in ["single", "stripe"] {
        let volumes = mems(3);
        block_on(async {
            let pool = Spread::open(members(&volumes), opening(placement)).await.unwrap();
            let object = pool.create(&name("a"), &Intent::DATA).await.unwrap();
            object.write_at(0, IoBuf::from(&[1; 1000][..]), IO).await.unwrap();
            object.sync(IO).await.unwrap();
            object.write_at(1000, IoBuf::from(&[2; 200_000][..]), IO).await.unwrap();
            // The process crashes. Its last writes are on the volumes, but not in the manifest.
            drop((object, pool));
            let pool = Spread::open(members(&volumes), opening(placement)).await.unwrap();
            let object = pool.open(&name("a")).await.unwrap();
            assert_eq!(object.len(), 1000);
            object.write_at(150_000, IoBuf::from(&b"end"[..]), IO).await.unwrap();
            let bytes = object.read_at(0, IoBufMut::zeroed(200_000), IO).await.unwrap();
            assert_eq!(bytes.len(), 150_003);
            assert!(bytes[..1000].iter().all(|&b| b == 1), "{placement}");
            assert!(bytes[1000..150_000].iter().all(|&b| b == 0), "{placement}");
        });
    }
}

#[test]
fn what_was_written_whole_never_changes() {
    let volumes = mems(2);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        put(&pool, "a", b"bytes").await.unwrap();
        let a = pool.open(&name("a")).await.unwrap();
        let refused = [
            a.write_at(0, IoBuf::from(&b"other"[..]), IO).await.unwrap_err(),
            a.set_len(0).await.unwrap_err(),
        ];
        assert!(refused.iter().all(|e| e.kind() == ErrorKind::Invalid));
        assert_eq!(put(&pool, "a", b"").await.unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(get(&pool, "a").await.unwrap(), b"bytes");
        put(&pool, "empty", b"").await.unwrap();
        assert_eq!(get(&pool, "empty").await.unwrap(), b"");
    });
}

#[test]
fn ids_tell_objects_apart_that_had_one_name() {
    let volumes = mems(2);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        put(&pool, "a", b"1").await.unwrap();
        let first = pool.open_handle(&name("a")).await.unwrap();
        pool.link(&name("a"), &name("b")).await.unwrap();
        assert_eq!(pool.stat(&name("b")).await.unwrap().id, first.id());
        pool.remove(&name("a")).await.unwrap();
        put(&pool, "a", b"2").await.unwrap();
        assert_ne!(pool.stat(&name("a")).await.unwrap().id, first.id());
        assert_eq!(get(&pool, "b").await.unwrap(), b"1");
    });
}

#[test]
fn several_changes_are_made_at_once_or_not_at_all() {
    let volumes = mems(2);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        put(&pool, "new", b"new").await.unwrap();
        put(&pool, "old", b"old").await.unwrap();
        let uncommitted = pool.create(&name("draft"), &Intent::DATA).await.unwrap();
        uncommitted.write_at(0, IoBuf::from(&b"draft"[..]), IO).await.unwrap();
        let swap = [
            Change::Rename { from: name("old"), to: name("older") },
            Change::Rename { from: name("new"), to: name("old") },
            Change::Link { from: name("old"), to: name("current") },
            Change::Remove { name: name("draft") },
        ];
        let mut bad = swap.to_vec();
        bad.push(Change::Remove { name: name("nothing") });
        assert_eq!(pool.change(&bad).await.unwrap_err().kind(), ErrorKind::NotFound);
        let names = async || {
            let listed = pool.list().await.unwrap().into_iter();
            listed.map(|listed| listed.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names().await, ["draft", "new", "old"]);
        pool.change(&swap).await.unwrap();
        assert_eq!(names().await, ["current", "old", "older"]);
        assert_eq!(get(&pool, "current").await.unwrap(), b"new");
        assert_eq!(uncommitted.len(), 5, "an open uncommitted object stays readable");
        assert_eq!(pool.check().await.unwrap().findings, []);
    });
}

#[test]
fn uncommitted_objects_follow_their_directory_and_go_when_replaced() {
    let volumes = mems(2);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        let uncommitted = pool.create(&name("d/draft"), &Intent::DATA).await.unwrap();
        put(&pool, "d/a", b"a").await.unwrap();
        pool.rename_prefix(&name("d"), &name("e")).await.unwrap();
        uncommitted.write_at(0, IoBuf::from(&b"late"[..]), IO).await.unwrap();
        uncommitted.sync(IO).await.unwrap();
        assert_eq!(get(&pool, "e/draft").await.unwrap(), b"late");
        pool.create(&name("e/other"), &Intent::DATA).await.unwrap();
        pool.rename(&name("e/a"), &name("e/other")).await.unwrap();
        assert_eq!(get(&pool, "e/other").await.unwrap(), b"a");
        assert_eq!(pool.check().await.unwrap().findings, [], "its leaf is gone");
    });
}

#[test]
fn a_handle_opened_before_its_object_was_removed_can_still_be_read() {
    let volumes = mems(3);
    block_on(async {
        let pool = Spread::open(members(&volumes), opening("stripe")).await.unwrap();
        put(&pool, "a", &[3; 200_000]).await.unwrap();
        drop(pool);
        let pool = Spread::open(members(&volumes), opening("stripe")).await.unwrap();
        let a = pool.open(&name("a")).await.unwrap();
        pool.remove(&name("a")).await.unwrap();
        let bytes = a.read_at(0, IoBufMut::zeroed(200_000), IO).await.unwrap();
        assert!(bytes.iter().all(|&b| b == 3));
        a.sync(IO).await.unwrap();
        drop(a);
        assert_eq!(pool.list().await.unwrap(), []);
        assert_eq!(volumes.iter().map(|v| v.image().len()).max(), Some(2), "header and manifest");
    });
}

/// Callers on a multi-threaded runtime need `Send` futures.
#[test]
fn every_call_can_move_between_threads() {
    fn is_send<T: Send>(_: T) {}
    let volumes = mems(1);
    let pool = block_on(open(&volumes)).unwrap();
    let a = name("a");
    is_send(open(&volumes));
    is_send(Spread::format(&members(&volumes), crate::rig::POOL));
    is_send(Spread::inspect(&members(&volumes)));
    is_send(put(&pool, "a", b""));
    is_send(pool.open_handle(&a));
    is_send(pool.stat(&a));
    is_send(pool.list_prefix("a"));
    is_send(pool.change(&[]));
    is_send(pool.rename(&a, &a));
    is_send(pool.remove_soon(&a));
    is_send(pool.flush());
    is_send(pool.close());
    is_send(pool.check());
    is_send(pool.scrub(|_| ()));
}
