//! The store on a pool that keeps two copies of each object.

use std::sync::Arc;

use ::pool::PoolId;
use ::pool::spread::{Opening, Spread};
use futures_util::future::select;
use policy::placement::{LeastOverlap, Placement, RoundRobin};
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule as FaultRule};
use volume::layer::trace::TraceLog;

use super::*;

const KEYS: u64 = 400;

/// A pool of two volumes whose calls are recorded.
struct Two {
    rig: Rig,
    log: TraceLog,
    plan: FaultPlan,
    traces: Vec<Arc<Trace<Fault<Mem>>>>,
}

impl Two {
    fn new(durability: Durability) -> Self {
        let mut rig = Rig::new(1);
        rig.options.durability = durability;
        rig.mems = ["s0", "s1"].map(|label| Mem::with_capacity(label, 4 * CAPACITY)).into();
        let (log, plan) = (TraceLog::new(1 << 20), FaultPlan::new(0));
        let trace = |mem: &Mem| {
            let fault = Fault::new(mem.clone(), mem.label(), &plan, &rig.clock);
            Arc::new(Trace::new(fault, mem.label(), &log, &rig.clock))
        };
        Self { traces: rig.mems.iter().map(trace).collect(), log, plan, rig }
    }

    fn open(&self) -> (Spread, Store) {
        self.rig.clock.run(async {
            let labelled = self.traces.iter().zip(["s0", "s1"]);
            let members =
                labelled.map(|(trace, label)| ::pool::Member::new(label, Arc::clone(trace)));
            let opening =
                Opening::new(RoundRobin::default()).create_if_missing(PoolId(7)).copies(2);
            let pool = Spread::open(members.collect(), opening).await.unwrap();
            let member = Member::new("pool", pool.clone());
            let (options, clock) = (self.rig.options.clone(), self.rig.clock.clone());
            let (store, _) = Store::open(vec![member], options, clock, Some(ID)).await.unwrap();
            (pool, store)
        })
    }

    /// Puts every key, in many files.
    fn fill(&self, store: &Store) {
        for n in 0..KEYS {
            self.rig.put(store, &n.to_be_bytes(), &value(n, 5000));
            if n % 50 == 0 {
                self.rig.clock.run(store.sync()).unwrap();
                self.rig.tend(store);
            }
        }
        self.rig.clock.run(store.sync()).unwrap();
        self.rig.tend(store);
    }

    /// Bytes of the pool's objects that were read so far.
    fn read(&self) -> u64 {
        let records = self.log.records().into_iter().map(|record| record.call);
        let of_object = |name: &Name| name.as_str().starts_with('o');
        let reads =
            records.filter(|call| call.op == Op::Read && call.name.as_ref().is_some_and(of_object));
        reads.map(|call| call.len).sum()
    }
}

#[test]
fn damage_of_one_copy_of_a_sealed_file_does_not_spread_in_a_crash() {
    for (durability, end) in [(Durability::Always, ".seg"), (Durability::Never, ".log")] {
        let two = Two::new(durability);
        let (pool, store) = two.open();
        two.fill(&store);
        // The last bit of each page of the first copy of a full file.
        let files = pool.objects().into_iter();
        let files = files.filter(|file| file.name.as_str().ends_with(end) && file.sealed);
        let files: Vec<_> = files.collect();
        assert!(files.len() > 20, "{} files are sealed", files.len());
        let file = &files[3];
        let leaf = |copy: usize| {
            let mem = &two.rig.mems[usize::from(file.copies[copy].layout.volumes()[0].0)];
            let mut leaves = mem.image().into_keys();
            let leaf = leaves.find(|leaf| leaf.as_str().starts_with(&format!("o{}", file.id)));
            (mem, leaf.unwrap())
        };
        let ((bad, bad_leaf), (good, good_leaf)) = (leaf(0), leaf(1));
        drop((store, pool));
        for at in (100..file.len).step_by(4096) {
            bad.damage(&bad_leaf, at, |byte| *byte ^= 1);
        }
        let before = good.image()[&good_leaf].to_vec();
        let (pool, store) = two.open();
        assert!(good.image()[&good_leaf][..] == before[..], "the good copy was written");
        let report = two.rig.clock.run(pool.scrub(|_| ())).unwrap();
        assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
        assert!(report.findings[0].elsewhere);
        assert_eq!(two.rig.clock.run(pool.mend(&report)).unwrap(), 1);
        for n in 0..KEYS {
            assert_eq!(two.rig.get(&store, &n.to_be_bytes()), Some(value(n, 5000)), "{n}");
        }
    }
}

#[test]
fn an_opening_after_a_kill_reads_what_one_after_a_close_reads_and_what_was_open() {
    for durability in [Durability::Always, Durability::Never] {
        let two = Two::new(durability);
        let (pool, store) = two.open();
        two.fill(&store);
        // Without a close of the store or of the pool.
        drop((store, pool));
        let before = two.read();
        let (pool, store) = two.open();
        let killed = two.read() - before;
        two.rig.clock.run(async {
            store.close().await.unwrap();
            pool.close().await.unwrap();
        });
        drop((store, pool));
        let before = two.read();
        let (pool, store) = two.open();
        let closed = two.read() - before;
        // The file that was open is compared, scanned for records, and read back for its checksum.
        let open = 6 * two.rig.options.file_bytes;
        assert!(killed <= closed + open, "{killed} bytes after a kill, {closed} after a close");
        assert!(KEYS * 5000 > 4 * open, "most of the store was not open");
        drop((store, pool));
    }
}

/// A write that was given up may still arrive, so the file is not sealed.
#[test]
fn a_file_with_a_write_under_way_is_not_sealed() {
    let two = Two::new(Durability::Always);
    let (pool, store) = two.open();
    two.rig.put(&store, b"a", b"1");
    let slow = Effect::Slow(Duration::from_secs(1));
    let slow = two.plan.inject(FaultRule::new(slow).on(Op::Write).named("o*"));
    two.rig.clock.run(async {
        let mut put = Box::pin(store.put(b"b", Bytes::from_static(b"2"), None));
        // Before it writes, it lets other callers join its group. Polls do not advance the clock.
        for _ in 0..10 {
            assert!(futures_util::poll!(put.as_mut()).is_pending());
        }
    });
    two.plan.lift(slow);
    two.rig.put(&store, b"c", b"3");
    two.rig.clock.run(store.close()).unwrap();
    let files = pool.objects().into_iter().filter(|file| file.name.as_str().ends_with(".seg"));
    let sealed: Vec<_> = files.map(|file| file.sealed).collect();
    assert_eq!(sealed, [false, true]);
}

/// The store on a pool of the volumes that keeps one copy of each object.
fn on_pool(rig: &Rig, placement: impl Placement + 'static) -> Store {
    rig.clock.run(async {
        let members = rig.mems.iter().map(|mem| ::pool::Member::new(mem.label(), mem.clone()));
        let opening = Opening::new(placement).create_if_missing(PoolId(7));
        let pool = Spread::open(members.collect(), opening).await.unwrap();
        let member = vec![Member::new("pool", pool)];
        Store::open(member, rig.options.clone(), rig.clock.clone(), Some(ID)).await.unwrap().0
    })
}

/// A put that found the volume of its file full was refused, and so were those after it.
#[test]
fn puts_go_on_where_the_volume_of_their_file_is_full_and_another_is_not() {
    for durability in [Durability::Always, Durability::Never] {
        let mut rig = Rig::new(1);
        rig.options.durability = durability;
        let sizes = [("s0", CAPACITY / 4), ("s1", 4 * CAPACITY)];
        rig.mems = sizes.map(|(label, size)| Mem::with_capacity(label, size)).into();
        let store = on_pool(&rig, RoundRobin::default());
        let keys = 4 * KEYS;
        (0..keys).for_each(|n| rig.put(&store, &n.to_be_bytes(), &value(n, 5000)));
        let free = rig.clock.run(rig.mems[0].space()).unwrap().free;
        assert!(free < rig.options.file_bytes, "{free} bytes: the small volume was filled");
        rig.clock.run(store.close()).unwrap();
        drop(store);
        let store = on_pool(&rig, RoundRobin::default());
        for n in 0..keys {
            assert_eq!(rig.get(&store, &n.to_be_bytes()), Some(value(n, 5000)), "{n}");
        }
    }
}

/// The room that is left lies on five volumes, and the file that a merge writes on one of them.
#[test]
fn a_nearly_full_pool_never_ends_in_a_dead_end() {
    let mut rig = Rig::new(1);
    let options = &mut rig.options;
    (options.partitions, options.devices, options.file_bytes) = (5, 5, 256 * KIB);
    (options.live, options.rule) = (0.8, Rule::Greedy);
    let mems = (0..5).map(|n| Mem::with_capacity(&format!("s{n}"), 2 * CAPACITY));
    rig.mems = mems.collect();
    let mut store = on_pool(&rig, LeastOverlap::default());
    let keys = 10 * CAPACITY * 8 / 10 / format::record_len(8, 5000) as u64;
    let (mut random, mut newest) = (1u64, vec![0; keys as usize]);
    let wrong_key = |store: &Store, newest: &[u64]| {
        let read = |key: usize| rig.get(store, &(key as u64).to_be_bytes());
        (0..keys as usize).find(|&key| read(key) != Some(value(newest[key], 5000)))
    };
    for n in 0..2 * keys {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = if n < keys { n } else { (random >> 33) % keys };
        newest[key as usize] = n;
        rig.put_when_there_is_room(&store, key, n, 5000);
        if n % 64 == 0 {
            rig.tend(&store);
        }
        if n == keys * 3 / 2 {
            let counts = store.figures().volumes[0].counts;
            assert_eq!(counts.failed, 0);
            assert!(counts.merged > 0);
            // As a process that is killed.
            drop(store);
            store = on_pool(&rig, LeastOverlap::default());
            assert_eq!(wrong_key(&store, &newest), None);
        }
    }
    assert_eq!(store.figures().volumes[0].counts.failed, 0);
    assert_eq!(wrong_key(&store, &newest), None);
}

/// A pool is one volume of the store: its files were merged one after the other, on one of its volumes at a time.
#[test]
fn files_of_several_partitions_are_merged_at_once() {
    let took = |devices| {
        let mut two = Two::new(Durability::Never);
        let options = &mut two.rig.options;
        (options.partitions, options.devices) = (4, devices);
        (options.quota, options.live, options.target) = (CAPACITY * 9 / 8, 0.5, 0.55);
        options.rule = Rule::Greedy;
        let (pool, store) = two.open();
        let put = |n: u64, version: u64| {
            two.rig.put(&store, &n.to_be_bytes(), &value(n + version, 5000));
        };
        (0..KEYS).for_each(|n| put(n, 0));
        (0..KEYS).step_by(3).for_each(|n| put(n, 1));
        let fill = || store.figures().volumes[0].fill;
        assert!(fill() > 0.64, "{}", fill());
        two.plan.inject(FaultRule::new(Effect::Slow(Duration::from_millis(5))));
        let clock = &two.rig.clock;
        let begun = clock.now();
        clock.run(async {
            let emptied = Box::pin(async {
                while fill() > 0.58 {
                    clock.sleep(Duration::from_millis(1)).await;
                }
            });
            select(emptied, Box::pin(store.tend(0))).await;
        });
        let took = clock.now().since(begun);
        two.plan.clear();
        let wrong = |store: &Store| {
            let version = |n: u64| u64::from(n.is_multiple_of(3));
            let read = |n: u64| two.rig.get(store, &n.to_be_bytes());
            (0..KEYS).find(|&n| read(n) != Some(value(n + version(n), 5000)))
        };
        assert_eq!(wrong(&store), None);
        // As a process that is killed.
        drop((store, pool));
        let (_pool, store) = two.open();
        assert_eq!(wrong(&store), None);
        took
    };
    let [one, four] = [1, 4].map(took);
    assert!(four * 3 < one * 2, "{four:?} beside {one:?}");
}
