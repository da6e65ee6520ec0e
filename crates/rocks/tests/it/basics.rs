//! A database opens, writes, flushes, compacts, reads, iterates, closes and opens again.

use rust_rocksdb::{IteratorMode, WriteBatch};

use crate::support::{check, fill, key, open, pool, value, volumes};

#[test]
fn what_was_written_is_there_after_a_reopening_on_any_number_of_volumes() {
    for count in [1, 2, 6] {
        let volumes = volumes(count);
        {
            let db = open(&pool(&volumes));
            fill(&db, 0..3000, 1);
            db.flush().unwrap();
            fill(&db, 1000..2000, 2);
            db.compact_range::<&[u8], &[u8]>(None, None);
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
