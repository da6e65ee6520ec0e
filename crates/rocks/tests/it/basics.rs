//! A database opens, writes, flushes, compacts, reads, iterates, closes and opens again.

use std::sync::Arc;

use rust_rocksdb::{IteratorMode, WriteBatch};
use volume::Volume;
use volume::dir::{Dir, DirOptions};

use crate::support::{
    check, compact, fill, key, label, open, opening, pool, pool_of, value, volumes,
};

#[test]
fn what_was_written_is_there_after_a_reopening_on_any_number_of_volumes() {
    for count in [1, 2, 6] {
        let volumes = volumes(count);
        {
            let db = open(&pool(&volumes));
            fill(&db, 0..3000, 1);
            db.flush().unwrap();
            fill(&db, 1000..2000, 2);
            compact(&db);
            fill(&db, 2500..2600, 3);
            check(&db, 0..1000, 1);
        }
        let db = open(&pool(&volumes));
        check(&db, 0..1000, 1);
        check(&db, 1000..2000, 2);
        check(&db, 2000..2500, 1);
        check(&db, 2500..2600, 3);
        assert_eq!(db.get(b"no such key").unwrap(), None);
    }
}

#[test]
fn an_iterator_sees_a_snapshot_in_order() {
    let volumes = volumes(3);
    let db = open(&pool(&volumes));
    fill(&db, 0..2000, 1);
    db.flush().unwrap();
    let snapshot = db.snapshot();
    fill(&db, 0..2000, 2);
    let mut batch = WriteBatch::default();
    batch.delete_range(key(500), key(700));
    db.write(&batch).unwrap();
    db.flush().unwrap();
    let seen: Vec<_> = snapshot.iterator(IteratorMode::Start).map(Result::unwrap).collect();
    assert_eq!(seen.len(), 2000);
    for (i, (k, v)) in (0u32..).zip(&seen) {
        assert_eq!((&**k, &**v), (&key(i)[..], &value(i, 1)[..]));
    }
    assert_eq!(db.iterator(IteratorMode::End).count(), 1800);
}

#[test]
fn a_batch_is_written_whole() {
    let volumes = volumes(2);
    {
        let db = open(&pool(&volumes));
        let mut batch = WriteBatch::default();
        (0..100).for_each(|i| batch.put(key(i), value(i, 1)));
        batch.delete(key(50));
        db.write(&batch).unwrap();
    }
    let db = open(&pool(&volumes));
    check(&db, 0..50, 1);
    assert_eq!(db.get(key(50)).unwrap(), None);
    check(&db, 51..100, 1);
}

#[test]
fn a_database_lives_in_directories() {
    let mounts = tempfile::tempdir().unwrap();
    for reopened in [false, true] {
        let directories = (0..3).map(|i| {
            let path = mounts.path().join(label(i));
            std::fs::create_dir_all(&path).unwrap();
            Arc::new(Dir::open(path, DirOptions::default()).unwrap()) as Arc<dyn Volume>
        });
        let db = open(&pool_of(directories.collect(), opening()).unwrap());
        if !reopened {
            fill(&db, 0..3000, 1);
            db.flush().unwrap();
            fill(&db, 1000..3000, 2);
            compact(&db);
            fill(&db, 2000..3000, 3);
        }
        check(&db, 0..1000, 1);
        check(&db, 1000..2000, 2);
        check(&db, 2000..3000, 3);
    }
}
