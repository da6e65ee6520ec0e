//! Every I/O has its origin, and costs no more operations than necessary.

use policy::purpose::{Class, Origin, Step};
use pool::spread::Spread;
use rocks::Db;
use rust_rocksdb::{ReadOptions, WriteOptions};
use volume::Clock;
use volume::layer::call::{Call, Op};
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;

use crate::support::{
    check, compact, fill, key, layered, open, opening, pool_of, settle, value, volumes,
};

/// Volumes that record every call.
struct Watched {
    pool: Spread,
    log: TraceLog,
}

fn watched(volumes: &[Mem]) -> Watched {
    let log = TraceLog::new(1_000_000);
    let clock = Clock::real();
    let traced = layered(volumes, |volume, label| Trace::new(volume, label, &log, &clock));
    Watched { pool: pool_of(traced, opening()).unwrap(), log }
}

impl Watched {
    /// The reads, writes and syncs of `work` on objects whose names end in `end`.
    fn during(&self, end: &str, work: impl FnOnce()) -> Vec<Call> {
        let before = self.log.records().len();
        work();
        let calls = self.log.records().split_off(before).into_iter().map(|record| record.call);
        let on_leaf =
            |call: &Call| call.name.as_ref().is_some_and(|name| name.as_str().ends_with(end));
        calls.filter(|call| call.io.is_some() && on_leaf(call)).collect()
    }
}

fn only(calls: &[Call], op: Op) -> Vec<&Call> {
    calls.iter().filter(|call| call.op == op).collect()
}

fn origin(call: &Call) -> Origin {
    call.io.expect("only calls with a reason are kept").origin
}

#[track_caller]
fn assert_origin(calls: &[&Call], expected: Origin) {
    assert!(!calls.is_empty(), "no call at all");
    for call in calls {
        assert_eq!(origin(call), expected, "{call}");
    }
}

const TABLE: &str = ".tab";
const LOG: &str = ".log";
const WINDOW: u64 = 256 << 10;

/// Two levels of tables, all keys in both.
fn two_levels(db: &Db) {
    fill(db, 0..6000, 1);
    db.flush().unwrap();
    compact(db);
    settle(db);
}

#[test]
fn a_write_waits_for_its_log_in_class_commit_and_for_nothing_else() {
    let volumes = volumes(3);
    let watched = watched(&volumes);
    let db = open(&watched.pool);
    let mut sync = WriteOptions::default();
    sync.set_sync(true);
    db.put_opt(key(0), value(0, 1), &sync).unwrap();
    let calls = watched.during("", || db.put_opt(key(1), value(1, 1), &sync).unwrap());
    let ops: Vec<_> = calls.iter().map(|call| call.op).collect();
    assert_eq!(ops, [Op::Write, Op::Sync], "{calls:?}");
    for call in &calls {
        let io = call.io.unwrap();
        assert_eq!((io.class(), io.step, io.deadline), (Class::Commit, Step::Log, None));
        assert!(call.name.as_ref().unwrap().as_str().ends_with(".log"));
    }
}

#[test]
fn a_flush_is_urgent_and_reads_nothing_back() {
    let volumes = volumes(3);
    let watched = watched(&volumes);
    let db = open(&watched.pool);
    fill(&db, 0..300, 1);
    let calls = watched.during(TABLE, || db.flush().unwrap());
    assert_origin(&only(&calls, Op::Write), Origin::Flush);
    assert_eq!(calls[0].io.unwrap().class(), Class::Urgent);
    assert!(only(&calls, Op::Read).is_empty(), "its end is still in memory: {calls:?}");
}

#[test]
fn a_get_reads_a_few_pages_for_its_user() {
    let volumes = volumes(3);
    let watched = watched(&volumes);
    let db = open(&watched.pool);
    two_levels(&db);
    check(&db, 0..10, 1);
    let calls = watched.during(TABLE, || check(&db, 3000..3001, 1));
    assert_origin(&calls.iter().collect::<Vec<_>>(), Origin::UserRead);
    assert_eq!(calls.len(), 1, "one data block: {calls:?}");
    assert_eq!((calls[0].offset % 4096, calls[0].io.unwrap().deadline), (0, None));
    assert!(calls[0].len <= 12 << 10, "{calls:?}");
}

#[test]
fn a_reader_in_a_hurry_says_until_when() {
    let volumes = volumes(2);
    let watched = watched(&volumes);
    let db = open(&watched.pool);
    two_levels(&db);
    let mut hurry = ReadOptions::default();
    hurry.set_io_timeout(60_000_000);
    let calls = watched.during(TABLE, || {
        assert_eq!(db.get_opt(key(5), &hurry).unwrap(), Some(value(5, 1)));
    });
    assert!(calls.iter().all(|call| call.io.unwrap().deadline.is_some()), "{calls:?}");
}

#[test]
fn keys_that_lie_together_are_read_in_one_operation() {
    let volumes = volumes(2);
    let watched = watched(&volumes);
    let db = open(&watched.pool);
    two_levels(&db);
    check(&db, 0..6000, 1);
    let near: Vec<_> = (1000..1200).step_by(20).map(key).collect();
    let calls = watched.during(TABLE, || {
        for (i, found) in (1000..1200).step_by(20).zip(db.multi_get(&near)) {
            assert_eq!(found.unwrap(), Some(value(i, 1)));
        }
    });
    assert!(calls.len() <= 2, "200 keys are 20 KiB of one or two tables: {calls:?}");
    assert_origin(&calls.iter().collect::<Vec<_>>(), Origin::UserRead);
}

#[test]
fn a_compaction_is_as_urgent_as_its_level() {
    let volumes = volumes(3);
    let watched = watched(&volumes);
    let db = open(&watched.pool);
    // No compaction of level 0 before the test starts one.
    db.set_options(&[("disable_auto_compactions", "true")]).unwrap();
    fill(&db, 0..1000, 1);
    db.flush().unwrap();
    fill(&db, 0..1000, 2);
    db.flush().unwrap();
    // Level 0 into level 1.
    let calls = watched.during(TABLE, || compact(&db));
    let level_0 = Origin::Compaction { level: 0 };
    assert_origin(&only(&calls, Op::Read), level_0);
    assert_origin(&only(&calls, Op::Write), level_0);
    // Level 1 outgrows its size again and again, and RocksDB merges it into level 2.
    db.set_options(&[("disable_auto_compactions", "false")]).unwrap();
    let calls = watched.during(TABLE, || {
        for version in 3..7 {
            fill(&db, 0..6000, version);
            db.flush().unwrap();
        }
        settle(&db);
    });
    let level_1 = Origin::Compaction { level: 1 };
    assert!(calls.iter().any(|call| call.op == Op::Write && origin(call) == level_1), "{calls:?}");
    for call in &calls {
        let known = matches!(
            origin(call),
            Origin::Flush | Origin::Compaction { level: 0..=6 } | Origin::UserRead
        );
        assert!(known, "{call}");
    }
}

#[test]
fn a_compaction_reads_each_table_in_whole_windows_once() {
    let volumes = volumes(3);
    let watched = watched(&volumes);
    let mut options = crate::support::options();
    options.set_write_buffer_size(4 << 20);
    options.set_target_file_size_base(4 << 20);
    options.set_disable_auto_compactions(true);
    // Blocks of a size that does not divide a window.
    let mut blocks = rust_rocksdb::BlockBasedOptions::default();
    blocks.disable_cache();
    blocks.set_block_size(10_000);
    options.set_block_based_table_factory(&blocks);
    let db = crate::support::try_open(&watched.pool, options).unwrap();
    for version in 1..=2 {
        fill(&db, 0..15_000, version);
        db.flush().unwrap();
    }
    let tables = db.live_files().unwrap();
    let windows: u64 = tables.iter().map(|table| (table.size as u64).div_ceil(WINDOW)).sum();
    assert!(windows >= 12, "tables of several windows: {windows}");
    let calls = watched.during(TABLE, || compact(&db));
    let reads = only(&calls, Op::Read);
    assert!(reads.iter().all(|read| read.len <= WINDOW && read.offset % WINDOW == 0), "{reads:?}");
    assert!(
        reads.len() as u64 <= windows,
        "{} reads for {windows} windows: {reads:?}",
        reads.len()
    );
    check(&db, 0..15_000, 2);
}

#[test]
fn a_scan_pays_for_no_more_than_the_windows_it_crosses() {
    let volumes = volumes(1);
    let watched = watched(&volumes);
    let mut options = crate::support::options();
    options.set_write_buffer_size(64 << 20);
    options.set_target_file_size_base(64 << 20);
    let db = crate::support::try_open(&watched.pool, options).unwrap();
    fill(&db, 0..60_000, 1);
    db.flush().unwrap();
    check(&db, 0..1, 1);
    let bytes: u64 = db.live_files().unwrap().iter().map(|table| table.size as u64).sum();
    let calls = watched.during(TABLE, || {
        assert_eq!(db.iterator(rust_rocksdb::IteratorMode::Start).count(), 60_000);
    });
    assert_origin(&calls.iter().collect::<Vec<_>>(), Origin::UserRead);
    let ops: u64 = calls.iter().map(|call| call.len.div_ceil(WINDOW)).sum();
    // Readahead begins with small reads.
    assert!(ops <= bytes.div_ceil(WINDOW) + 12, "{ops} operations for {bytes} bytes");
}

#[test]
fn opening_reads_logs_in_windows() {
    let volumes = volumes(2);
    {
        let db = open(&watched(&volumes).pool);
        fill(&db, 0..4000, 1);
    }
    let watched = watched(&volumes);
    let mut db = None;
    let calls = watched.during(LOG, || db = Some(open(&watched.pool)));
    let reads: Vec<_> = only(&calls, Op::Read);
    assert_origin(&reads, Origin::Open);
    let bytes: u64 = reads.iter().map(|read| read.len).sum();
    let ops = reads.len() as u64;
    assert!(ops <= bytes / WINDOW + 7, "{ops} reads of {bytes} bytes: {reads:?}");
    check(&db.expect("it was opened"), 0..4000, 1);
}
