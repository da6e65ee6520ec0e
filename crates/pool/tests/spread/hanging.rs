//! Volumes that hang instead of failing, below a limit on each call: in virtual time, with two copies on three volumes.
//! The pool goes on as if the volume had failed, after one limit; late writes do no harm.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use policy::migrate::{Policy, Terms};
use policy::placement::RoundRobin;
use policy::time::Instant;
use pool::Member;
use pool::mover::Mover;
use pool::spread::{Opening, Spread};
use volume::layer::call::Op;
use volume::layer::deadline::{Deadline, GRACE, LIMIT, PATIENCE};
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, Intent, IoBuf, Name, Result, Volume};

use crate::copying::{COPY, places};
use crate::rig::{IO, POOL, get, mems, name, put};

/// Longer than the mover waits for a volume.
const HANG: Duration = Duration::from_secs(1000);

/// Every call that a volume may hang in; `None`: all of them.
const CALLS: [Option<Op>; 9] = [
    None,
    Some(Op::Create),
    Some(Op::Open),
    Some(Op::Remove),
    Some(Op::Space),
    Some(Op::Read),
    Some(Op::Write),
    Some(Op::SetLen),
    Some(Op::Sync),
];

struct Rig {
    clock: Clock,
    plan: FaultPlan,
    mems: Vec<Mem>,
    volumes: Vec<Deadline>,
}

fn opening() -> Opening {
    Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(2).allow_away()
}

impl Rig {
    fn new() -> Self {
        let (clock, plan, mems) = (Clock::simulated(), FaultPlan::new(0), mems(3));
        let volume = |mem: &Mem| {
            let fault = Fault::new(mem.clone(), mem.label(), &plan, &clock);
            Deadline::new(fault, mem.label(), LIMIT, clock.clone())
        };
        Self { volumes: mems.iter().map(volume).collect(), clock, plan, mems }
    }

    async fn open(&self) -> Result<Spread> {
        let members = self.mems.iter().zip(&self.volumes);
        let members = members.map(|(mem, volume)| Member::new(mem.label(), volume.clone()));
        Spread::open(members.collect(), opening()).await
    }

    fn hang(&self, volume: usize, op: Option<Op>) {
        let rule = Rule::new(Effect::Slow(HANG)).volume(self.mems[volume].label());
        self.plan.inject(match op {
            Some(op) => rule.on(op),
            None => rule,
        });
    }

    /// Runs `work` beside the pool's mover.
    async fn beside_mover<T>(&self, pool: &Spread, work: impl Future<Output = T>) -> T {
        let terms = Terms::default();
        let mover = Mover::new(pool.clone(), self.clock.clone(), Policy::Level, terms);
        match select(pin!(work), pin!(mover.run(Vec::new))).await {
            Either::Left((done, _)) => done,
            Either::Right(((), _)) => unreachable!("a mover runs until it is dropped"),
        }
    }

    /// The names and bytes on these volumes alone, without any limit.
    fn found(&self, which: &[usize]) -> BTreeMap<String, Vec<u8>> {
        let mems =
            which.iter().map(|&i| Mem::from_image(self.mems[i].label(), self.mems[i].image()));
        let members = mems.map(|mem| Member::new(mem.label().to_owned(), mem)).collect();
        block_on(async {
            let pool = Spread::open(members, opening()).await.unwrap();
            let mut found = BTreeMap::new();
            for listed in pool.list().await.unwrap() {
                let text = listed.name.to_string();
                let bytes = get(&pool, &text).await.unwrap();
                found.insert(text, bytes);
            }
            found
        })
    }
}

/// What users did, and what they must find.
#[derive(Default)]
struct Users {
    written: BTreeMap<String, Vec<u8>>,
    round: u8,
}

impl Users {
    /// Writes some of everything and reads all of it; no call may fail.
    async fn work(&mut self, pool: &Spread, context: &str) {
        self.round += 1;
        let fill = |len: usize| vec![self.round; len];
        let table = format!("t{}", self.round);
        put(pool, &table, &fill(3000)).await.unwrap_or_else(|e| panic!("{context}: {e}"));
        self.written.insert(table, fill(3000));
        let done = async {
            let open = async |text: &str, intent: &Intent| match pool.contains(&name(text)) {
                true => pool.open(&name(text)).await,
                false => pool.create(&name(text), intent).await,
            };
            let log = open("a.log", &Intent::LOG).await?;
            let at = log.len();
            log.write_at(at, IoBuf::from(&fill(100)[..]), IO).await?;
            log.sync(IO).await?;
            // The same range each time: an older write must not show.
            let data = open("data", &Intent::DATA).await?;
            data.write_at(0, IoBuf::from(&fill(500)[..]), IO).await?;
            data.sync(IO).await?;
            data.set_len(400).await?;
            data.sync(IO).await?;
            let moved: Name = name(&format!("moved{}", self.round));
            put(pool, "moving", &fill(10)).await?;
            pool.rename(&name("moving"), &moved).await?;
            pool.flush().await
        };
        done.await.unwrap_or_else(|e: volume::Error| panic!("{context}: {e}"));
        self.written.entry("a.log".into()).or_default().extend(fill(100));
        self.written.insert("data".into(), fill(400));
        self.written.insert(format!("moved{}", self.round), fill(10));
        assert!(pool.room().await.writable > 0, "{context}");
        for (text, bytes) in &self.written {
            let found = get(pool, text).await.unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_eq!(found, *bytes, "{context}: {text}");
        }
    }
}

#[test]
fn a_volume_that_hangs_for_ever_costs_one_limit_and_nothing_else() {
    for op in CALLS {
        for hanging in 0..3 {
            let context = format!("volume {hanging} hangs in {op:?}");
            let (rig, mut users) = (Rig::new(), Users::default());
            rig.clock.run(async {
                let pool = rig.open().await.unwrap();
                users.work(&pool, &context).await;
                rig.hang(hanging, op);
                for _ in 0..3 {
                    users.work(&pool, &context).await;
                }
                pool.close().await.unwrap_or_else(|e| panic!("{context}: {e}"));
            });
            let most = LIMIT + GRACE + 10 * PATIENCE;
            let took = rig.clock.now().since(Instant::ZERO);
            assert!(took <= most, "{context}: {took:?}");
            let others: Vec<_> = (0..3).filter(|&other| other != hanging).collect();
            assert_eq!(rig.found(&others), users.written, "{context}: the others have all");
            assert_eq!(rig.found(&[0, 1, 2]), users.written, "{context}: none shows older bytes");
        }
    }
}

#[test]
fn late_calls_of_a_volume_that_recovers_do_no_harm() {
    for op in CALLS {
        for hanging in 0..3 {
            let context = format!("volume {hanging} hung in {op:?}");
            let (rig, mut users) = (Rig::new(), Users::default());
            rig.clock.run(async {
                let pool = rig.open().await.unwrap();
                let work = async {
                    users.work(&pool, &context).await;
                    rig.hang(hanging, op);
                    users.work(&pool, &context).await;
                    users.work(&pool, &context).await;
                    rig.plan.clear();
                    rig.clock.sleep(2 * HANG).await;
                    assert_eq!(rig.volumes[hanging].silent_for(), None, "{context}");
                    users.work(&pool, &context).await;
                };
                rig.beside_mover(&pool, work).await;
                let repaired = pool.repair(COPY, |_| ()).await.unwrap();
                assert_eq!(repaired.short, [], "{context}");
                for text in users.written.keys() {
                    assert!(places(&pool, text).await.len() >= 2, "{context}: {text}");
                }
                assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, [], "{context}");
                pool.close().await.unwrap();
            });
            for gone in 0..3 {
                let which: Vec<_> = (0..3).filter(|&other| other != gone).collect();
                assert_eq!(rig.found(&which), users.written, "{context}: without {gone}");
            }
        }
    }
}

/// A write to the only copy of a log came late, after a second copy was made without it. The pool closed in order, so the
/// next opening compared nothing, and a store that went on behind the late bytes lost them with the longer copy.
#[test]
fn a_late_write_to_a_single_copy_does_not_outlast_the_copies_made_of_it() {
    for appends in [false, true] {
        let rig = Rig::new();
        rig.clock.run(async {
            let pool = rig.open().await.unwrap();
            let log = pool.create(&name("a.log"), &Intent::LOG).await.unwrap();
            log.write_at(0, IoBuf::from(&b"acknowledged"[..]), IO).await.unwrap();
            log.sync(IO).await.unwrap();
            let stat = pool.stat(&name("a.log")).await.unwrap();
            pool.drop_copy(stat.id, stat.copies[1].layout.volumes()[0]).await.unwrap();
            let on = stat.copies[0].layout.volumes()[0];
            let late = Rule::new(Effect::Slow(HANG)).volume(&format!("s{on}")).named("o*");
            rig.plan.inject(late.on(Op::Write));
            log.write_at(12, IoBuf::from(&b" late"[..]), IO).await.unwrap_err();
            rig.plan.clear();
            pool.repair(COPY, |_| ()).await.unwrap();
            assert_eq!(places(&pool, "a.log").await.len(), 2);
            rig.clock.sleep(2 * HANG).await;
            if appends {
                log.write_at(12, IoBuf::from(&b"!"[..]), IO).await.unwrap();
                log.sync(IO).await.unwrap();
            }
            pool.close().await.unwrap();
        });
        let acknowledged: &[u8] = if appends { b"acknowledged!" } else { b"acknowledged" };
        let leaves = rig.mems.iter().flat_map(Mem::image);
        let leaves = leaves
            .filter(|(name, _)| name.as_str().starts_with('o') && name.as_str().ends_with(".log"));
        let leaves: Vec<_> = leaves.map(|(_, bytes)| bytes).collect();
        assert_eq!(leaves, [acknowledged; 2]);
    }
}

/// The mover asks volumes for their space; it waited with a volume that hangs, and repaired nothing.
#[test]
fn the_mover_restores_copies_while_a_volume_hangs() {
    for hanging in 0..3 {
        let (rig, mut users) = (Rig::new(), Users::default());
        rig.clock.run(async {
            let pool = rig.open().await.unwrap();
            users.work(&pool, "before").await;
            rig.hang(hanging, None);
            let work = async {
                rig.clock.sleep(Terms::default().silence_max + Duration::from_secs(300)).await;
            };
            rig.beside_mover(&pool, work).await;
            let gone = pool.volume_id(rig.mems[hanging].label()).unwrap();
            assert_eq!(pool.redundancy(&[gone].into()).short, 0, "volume {hanging} hangs");
        });
    }
}
