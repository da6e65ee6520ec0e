//! Sealed objects, and logs with a checksum: after an unclean end they are not compared, so damage does not spread. What
//! may differ is compared when it is used.

use std::sync::Arc;

use policy::placement::RoundRobin;
use policy::units::{KIB, MIB};
use pool::spread::{Opening, Problem, Spread};
use pool::{Member, ObjectId};
use volume::layer::call::Op;
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Check, Clock, ErrorKind, Intent, IoBuf, IoBufMut, Name, Object, Volume};

use crate::rig::{IO, POOL, get, mems, name};

/// Volumes whose calls are recorded.
pub(crate) struct Rig {
    pub(crate) mems: Vec<Mem>,
    log: TraceLog,
    traces: Vec<Arc<Trace<Mem>>>,
}

impl Rig {
    pub(crate) fn new(volumes: usize) -> Self {
        let (mems, log, clock) = (mems(volumes), TraceLog::new(1 << 20), Clock::simulated());
        let trace = |mem: &Mem| Arc::new(Trace::new(mem.clone(), mem.label(), &log, &clock));
        Self { traces: mems.iter().map(trace).collect(), log, mems }
    }

    /// Opens the pool with as many copies of every object.
    pub(crate) async fn open(&self, copies: usize) -> Spread {
        let member =
            |(i, trace): (usize, &Arc<Trace<Mem>>)| Member::new(format!("s{i}"), Arc::clone(trace));
        let members = self.traces.iter().enumerate().map(member).collect();
        let opening = Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(copies);
        Spread::open(members, opening).await.unwrap()
    }

    /// Bytes of objects that were read so far.
    pub(crate) fn read(&self) -> u64 {
        let of_object = |name: &Name| name.as_str().starts_with('o');
        let records = self.log.records().into_iter().map(|record| record.call);
        let reads =
            records.filter(|call| call.op == Op::Read && call.name.as_ref().is_some_and(of_object));
        reads.map(|call| call.len).sum()
    }

    /// The volumes with a copy of an object, in order, and its leaf object on each.
    async fn leaves(&self, pool: &Spread, text: &str) -> Vec<(&Mem, Name)> {
        let stat = pool.objects().into_iter().find(|stat| stat.name == name(text)).unwrap();
        let volumes =
            stat.copies.iter().map(|copy| &self.mems[usize::from(copy.layout.volumes()[0].0)]);
        volumes.map(|mem| (mem, leaf(mem, stat.id))).collect()
    }
}

fn leaf(mem: &Mem, id: ObjectId) -> Name {
    let mut leaves = mem.image().into_keys();
    leaves.find(|leaf| leaf.as_str().starts_with(&format!("o{id}"))).unwrap()
}

fn bytes_of((mem, leaf): &(&Mem, Name)) -> Vec<u8> {
    mem.image()[leaf].to_vec()
}

async fn create(pool: &Spread, text: &str) -> Arc<dyn Object> {
    let intent = if text.ends_with(".log") { Intent::LOG } else { Intent::DATA };
    pool.create(&name(text), &intent).await.unwrap()
}

async fn write(object: &dyn Object, offset: u64, bytes: &[u8]) {
    object.write_at(offset, IoBuf::from(bytes), IO).await.unwrap();
}

fn pattern(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

#[test]
fn a_sealed_object_never_changes_and_damage_of_one_copy_does_not_spread() {
    for (text, wrong) in [("a.log", 0), ("a.log", 1), ("a.seg", 0), ("a.seg", 1)] {
        let rig = Rig::new(3);
        block_on(async {
            let pool = rig.open(2).await;
            let object = create(&pool, text).await;
            write(&*object, 0, &pattern(10_000)).await;
            object.seal(IO).await.unwrap();
            object.seal(IO).await.unwrap();
            assert_eq!(rig.read(), 0, "the checksum was kept while it was written");
            let mut leaves = rig.leaves(&pool, text).await;
            drop((object, pool));
            // An unclean end.
            let (bad, good) = (leaves.remove(wrong), leaves.remove(0));
            bad.0.damage(&bad.1, 3000, |byte| *byte ^= 1);
            let pool = rig.open(2).await;
            let object = pool.open_handle(&name(text)).await.unwrap();
            for refused in [
                object.write_at(0, IoBuf::from(&b"x"[..]), IO).await,
                object.write_at(10_000, IoBuf::from(&b"x"[..]), IO).await,
                object.set_len(5).await,
                object.blocking_write_at(10_000, b"x", IO),
            ] {
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
            }
            object.sync(IO).await.unwrap();
            assert_eq!(rig.read(), 0, "no copy was read");
            assert_eq!(bytes_of(&good), pattern(10_000));
            assert_eq!(pool.distrust(&object, IO).await, 1);
            assert_eq!(get(&pool, text).await.unwrap(), pattern(10_000));
            assert_eq!(pool.stat(&name(text)).await.unwrap().copies.len(), 1);
        });
    }
}

#[test]
fn damage_of_an_open_log_does_not_spread_below_what_was_synced() {
    for wrong in 0..2 {
        let rig = Rig::new(3);
        block_on(async {
            let pool = rig.open(2).await;
            let log = create(&pool, "a.log").await;
            for at in 0..5 {
                write(&*log, at * MIB, &pattern(MIB)).await;
                log.sync(IO).await.unwrap();
            }
            write(&*log, 5 * MIB, b"acknowledged").await;
            let mut leaves = rig.leaves(&pool, "a.log").await;
            drop((log, pool));
            let (bad, good) = (leaves.remove(wrong), leaves.remove(0));
            bad.0.damage(&bad.1, 4 * MIB - 1, |byte| *byte ^= 1);
            let before = bytes_of(&good);
            let pool = rig.open(2).await;
            let log = pool.open(&name("a.log")).await.unwrap();
            assert_eq!(log.len(), 5 * MIB + 12);
            assert!(rig.read() <= 2 * (64 * KIB), "{} bytes were compared", rig.read());
            write(&*log, log.len(), b"!").await;
            assert_eq!(bytes_of(&good), [&before[..], b"!"].concat());
            let report = pool.scrub(|_| ()).await.unwrap();
            let found: Vec<_> =
                report.findings.iter().map(|f| (&*f.volume, &f.problem, f.elsewhere)).collect();
            assert_eq!(found, [(bad.0.label(), &Problem::Damaged, true)]);
        });
    }
}

/// Two equal copies of a log without a checksum in the manifest, of which one was damaged after a crash, and the pool
/// opened again: the bytes as they were written, the damaged leaf and the good one, and the log.
async fn damaged_in_the_open(
    rig: &Rig,
    wrong: usize,
) -> (Vec<u8>, [(&Mem, Name); 2], Spread, Arc<dyn Object>) {
    let pool = rig.open(2).await;
    let log = create(&pool, "a.log").await;
    let bytes = pattern(600 * KIB);
    write(&*log, 0, &bytes).await;
    log.sync(IO).await.unwrap();
    let mut leaves = rig.leaves(&pool, "a.log").await;
    drop((log, pool));
    let (bad, good) = (leaves.remove(wrong), leaves.remove(0));
    bad.0.damage(&bad.1, 300 * KIB, |byte| *byte ^= 1);
    let pool = rig.open(2).await;
    let log = pool.open(&name("a.log")).await.unwrap();
    (bytes, [bad, good], pool, log)
}

#[test]
fn a_store_finds_the_good_copy_of_an_open_log_after_a_crash() {
    for wrong in 0..2 {
        let rig = Rig::new(2);
        block_on(async {
            let (bytes, leaves, pool, log) = damaged_in_the_open(&rig, wrong).await;
            let read = crate::rig::read_all(&*log).await.unwrap();
            let first = leaves[usize::from(wrong > 0)].clone();
            assert_eq!(read, bytes_of(&first), "of the first copy");
            for _ in 0..3 {
                assert_eq!(crate::rig::read_all(&*log).await.unwrap(), read, "always the same");
            }
            let wanted = bytes.clone();
            let check: Check = Arc::new(move |found| *found == wanted[..]);
            let into = IoBufMut::zeroed(bytes.len());
            let again = log.read_again(0, into, IO, check).await.unwrap();
            assert_eq!(&again[..], &bytes[..]);
            log.sync(IO).await.unwrap();
            assert!(leaves.iter().all(|leaf| bytes_of(leaf) == bytes));
            drop((log, pool));
            let pool = rig.open(2).await;
            let log = pool.open(&name("a.log")).await.unwrap();
            assert_eq!(crate::rig::read_all(&*log).await.unwrap(), bytes);
        });
    }
}

#[test]
fn copies_of_a_log_that_its_store_took_as_they_are_become_alike() {
    for wrong in 0..2 {
        let rig = Rig::new(2);
        block_on(async {
            let (mut bytes, leaves, _pool, log) = damaged_in_the_open(&rig, wrong).await;
            bytes[300 * KIB as usize] ^= 1 - wrong as u8;
            assert_eq!(crate::rig::read_all(&*log).await.unwrap(), bytes);
            write(&*log, log.len(), b"!").await;
            bytes.push(b'!');
            assert!(leaves.iter().all(|leaf| bytes_of(leaf) == bytes), "{wrong}");
        });
    }
}

#[test]
fn a_pool_that_is_closed_before_its_store_read_leaves_both_copies() {
    for wrong in 0..2 {
        let rig = Rig::new(2);
        block_on(async {
            let (bytes, leaves, pool, log) = damaged_in_the_open(&rig, wrong).await;
            crate::rig::read_all(&*log).await.unwrap();
            drop(log);
            pool.close().await.unwrap();
            drop(pool);
            assert_eq!(bytes_of(&leaves[1]), bytes);
            let pool = rig.open(2).await;
            let log = pool.open(&name("a.log")).await.unwrap();
            let read = crate::rig::read_all(&*log).await.unwrap();
            assert_eq!(read == bytes, wrong == 1, "again the first copy");
        });
    }
}

#[test]
fn an_opening_after_a_crash_reads_as_little_as_one_after_a_close() {
    let rig = Rig::new(2);
    block_on(async {
        let pool = rig.open(2).await;
        for number in 0..50 {
            let object = create(&pool, &format!("{number}.{}", ["log", "seg"][number % 2])).await;
            write(&*object, 0, &pattern(100 * KIB)).await;
            object.seal(IO).await.unwrap();
        }
        pool.close().await.unwrap();
        drop(pool);
        let pool = rig.open(2).await;
        pool.list_prefix("").await.unwrap();
        assert_eq!(rig.read(), 0, "after a close");
        for text in ["open.log", "open.seg"] {
            let object = create(&pool, text).await;
            write(&*object, 0, &pattern(10 * KIB)).await;
            object.sync(IO).await.unwrap();
        }
        drop(pool);
        let pool = rig.open(2).await;
        assert_eq!(rig.read(), 0, "after a crash");
        // The lengths of logs depend on the bytes that may differ.
        pool.list_prefix("").await.unwrap();
        assert_eq!(rig.read(), 2 * 10 * KIB);
        let open = pool.open(&name("open.seg")).await.unwrap();
        assert_eq!(rig.read(), 2 * 10 * KIB);
        assert_eq!(crate::rig::read_all(&*open).await.unwrap(), pattern(10 * KIB));
        assert_eq!(rig.read(), (2 + 2 + 1) * 10 * KIB);
        assert_eq!(crate::rig::read_all(&*open).await.unwrap(), pattern(10 * KIB));
        assert_eq!(rig.read(), (2 + 2 + 2) * 10 * KIB, "once");
    });
}

#[test]
fn copies_that_differ_after_a_crash_are_made_alike_at_the_first_use_also_after_another() {
    let rig = Rig::new(2);
    block_on(async {
        let pool = rig.open(2).await;
        for text in ["read.log", "written.log", "left.log", "read", "left"] {
            let object = create(&pool, text).await;
            write(&*object, 0, b"acknowledged").await;
            object.sync(IO).await.unwrap();
        }
        let leaves = async |pool: &Spread, text: &str| rig.leaves(pool, text).await;
        // The second copy has bytes that were not synced: at the end of a log, or within data.
        for text in ["read.log", "written.log", "left.log", "read", "left"] {
            let (mem, leaf) = leaves(&pool, text).await.remove(1);
            let at = if text.ends_with(".log") { 12 } else { 4 };
            let tail = mem.open(&leaf).await.unwrap();
            write(&*tail, at, b"more").await;
        }
        drop(pool);
        let alike = async |pool: &Spread, text: &str| {
            let leaves = leaves(pool, text).await;
            bytes_of(&leaves[0]) == bytes_of(&leaves[1])
        };
        let pool = rig.open(2).await;
        assert!(!alike(&pool, "read.log").await && !alike(&pool, "read").await);
        assert_eq!(get(&pool, "read.log").await.unwrap(), b"acknowledgedmore");
        let read = get(&pool, "read").await.unwrap();
        // Within bytes that both have, only its store can tell which are wrong: the next sync or write ends that.
        assert!(alike(&pool, "read.log").await && !alike(&pool, "read").await);
        assert_eq!(pool.redundancy(&[].into()).doubtful, 1, "the others may be alike");
        pool.open(&name("read")).await.unwrap().sync(IO).await.unwrap();
        assert!(alike(&pool, "read").await);
        let written = pool.open(&name("written.log")).await.unwrap();
        write(&*written, 16, b"!").await;
        assert!(alike(&pool, "written.log").await);
        assert!(!alike(&pool, "left.log").await && !alike(&pool, "left").await);
        assert_eq!(pool.redundancy(&[].into()).doubtful, 0);
        // Another crash.
        drop((written, pool));
        let pool = rig.open(2).await;
        assert!(!alike(&pool, "left.log").await && !alike(&pool, "left").await);
        pool.close().await.unwrap();
        assert!(alike(&pool, "left.log").await && !alike(&pool, "left").await);
        assert_eq!(get(&pool, "left.log").await.unwrap(), b"acknowledgedmore");
        assert_eq!(get(&pool, "written.log").await.unwrap(), b"acknowledgedmore!");
        assert_eq!(get(&pool, "read").await.unwrap(), read);
    });
}

#[test]
fn the_checksum_follows_the_last_page_and_other_writes_make_sealing_read_the_copies() {
    let rig = Rig::new(2);
    block_on(async {
        let pool = rig.open(2).await;
        let page = pattern(4096);
        let object = create(&pool, "last-page").await;
        write(&*object, 0, &pattern(3 * 4096)).await;
        write(&*object, 2 * 4096, &page).await;
        write(&*object, 2 * 4096, &pattern(5000)).await;
        object.seal(IO).await.unwrap();
        assert_eq!(rig.read(), 0);
        for text in ["below", "below.log", "cut.log", "gap"] {
            let before = rig.read();
            let object = create(&pool, text).await;
            write(&*object, 0, &pattern(3 * 4096)).await;
            match text {
                "cut.log" => object.set_len(4096).await.unwrap(),
                "gap" => write(&*object, 4 * 4096, b"behind").await,
                _ => write(&*object, 4096, b"over").await,
            }
            object.seal(IO).await.unwrap();
            assert_eq!(rig.read() - before, 2 * object.len(), "{text}: both copies");
        }
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
        let object = create(&pool, "unlike.log").await;
        write(&*object, 0, b"acknowledged").await;
        write(&*object, 0, b"ACK").await;
        let (mem, leaf) = rig.leaves(&pool, "unlike.log").await.remove(1);
        mem.damage(&leaf, 5, |byte| *byte ^= 1);
        let refused = object.seal(IO).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        write(&*object, 12, b", and not sealed").await;
    });
}

#[test]
fn a_single_copy_is_sealed_by_what_blocking_writes_gave() {
    let rig = Rig::new(1);
    let (pool, object) = block_on(async {
        let pool = rig.open(1).await;
        let object = create(&pool, "a.log").await;
        write(&*object, 0, b"a").await;
        (pool, object)
    });
    object.blocking_write_at(1, b"cknowledged", IO).unwrap();
    block_on(async {
        object.seal(IO).await.unwrap();
        assert_eq!(rig.read(), 0);
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
        let (mem, leaf) = rig.leaves(&pool, "a.log").await.remove(0);
        mem.damage(&leaf, 5, |byte| *byte ^= 1);
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings.len(), 1);
    });
}
