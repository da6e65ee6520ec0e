//! Volumes that are full, and get space again.

use rust_rocksdb::ErrorKind as RocksKind;
use volume::ErrorKind;
use volume::layer::call::Op;
use volume::layer::fault::{Effect, FaultPlan, Rule};

use super::{faulty, resume};
use crate::support::{check, compact, fill, label, open, volumes};

#[test]
fn out_of_space_ends_when_there_is_space_again() {
    let volumes = volumes(2);
    let plan = FaultPlan::new(0);
    let db = open(&faulty(&volumes, &plan));
    fill(&db, 0..300, 1);
    db.flush().unwrap();
    fill(&db, 300..400, 1);
    let full = plan.inject(Rule::new(Effect::Full).named("*.tab"));
    let error = db.flush().unwrap_err();
    assert_eq!(rocks::pool_error(&error), Some(ErrorKind::OutOfSpace), "{error}");
    check(&db, 0..400, 1);
    plan.lift(full);
    resume(&db);
    fill(&db, 400..500, 1);
    db.flush().unwrap();
    check(&db, 0..500, 1);
}

#[test]
fn with_one_volume_full_tables_go_to_the_others() {
    let volumes = volumes(3);
    let plan = FaultPlan::new(0);
    let db = open(&faulty(&volumes, &plan));
    fill(&db, 0..1000, 1);
    plan.inject(Rule::new(Effect::Full).volume(&label(2)));
    fill(&db, 1000..6000, 1);
    db.flush().unwrap();
    compact(&db);
    check(&db, 0..6000, 1);
}

#[test]
fn a_full_pool_refuses_writes_serves_reads_and_goes_on_when_there_is_room() {
    let volumes = volumes(2);
    let plan = FaultPlan::new(0);
    {
        let db = open(&faulty(&volumes, &plan));
        fill(&db, 0..300, 1);
        db.flush().unwrap();
        plan.inject(Rule::new(Effect::Full));
        // The log's last pages may still have room.
        let refused = (300..).find_map(|i| {
            let done = db.put(crate::support::key(i), crate::support::value(i, 1));
            done.err().map(|error| (i, error))
        });
        let (written, error) = refused.expect("a full volume takes no more");
        assert_eq!(error.kind(), RocksKind::IOError, "{error}");
        assert_eq!(rocks::pool_error(&error), Some(ErrorKind::OutOfSpace), "{error}");
        check(&db, 0..written, 1);
        plan.clear();
        resume(&db);
        fill(&db, written..written + 500, 1);
        db.flush().unwrap();
        compact(&db);
        check(&db, 0..written + 500, 1);
    }
    check(&open(&faulty(&volumes, &plan)), 0..800, 1);
}

#[test]
fn removing_makes_room_on_a_full_pool() {
    let volumes = volumes(2);
    let plan = FaultPlan::new(0);
    let db = open(&faulty(&volumes, &plan));
    fill(&db, 0..2000, 1);
    db.flush().unwrap();
    plan.inject(Rule::new(Effect::Full).on(Op::Create));
    // Work that needs no new object goes on: reads, and the removal of whole tables.
    db.delete_file_in_range(b"key00000", b"key01900").unwrap();
    check(&db, 1999..2000, 1);
}
