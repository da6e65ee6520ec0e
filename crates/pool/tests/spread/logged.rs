//! Objects in place on a pool of fragments, whose writes go to a log first: a model in which power fails at any step, and
//! any two of six volumes are lost with it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join, join_all, select};
use policy::placement::{Code, RoundRobin, VolumeId};
use policy::units::{KIB, MIB};
use pool::Member;
use pool::logged::{Logged, Options};
use pool::spread::{Opening, Spread};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::conformance::{self, Blocking};
use volume::heartbeat::{Heartbeat, SILENCE_MAX};
use volume::layer::call::Op;
use volume::layer::crash::{Crash, Power};
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Intent, IoBuf, IoBufMut, Object, Result, Volume, Zeros};

use crate::rig::{IO, POOL, mems, name, read_all};

fn code() -> Code {
    Code::new(4, 2, 8 * KIB).unwrap()
}

fn opening() -> Opening {
    Opening::new(RoundRobin::default()).create_if_missing(POOL).code(code()).allow_away()
}

/// A log so small that it is emptied all the time.
pub(crate) fn small() -> Options {
    Options { limit: 96 * KIB, file_len: 24 * KIB, memory: 16 * KIB, ..Options::default() }
}

pub(crate) async fn open<V: Volume + Clone + 'static>(
    volumes: &[(u16, V)],
    options: Options,
) -> Result<(Spread, Logged)> {
    let members =
        volumes.iter().map(|(number, volume)| Member::new(format!("s{number}"), volume.clone()));
    let pool = Spread::open(members.collect(), opening()).await?;
    let logged = Logged::open(pool.clone(), options).await?;
    Ok((pool, logged))
}

pub(crate) fn numbered<V: Clone>(volumes: &[V]) -> Vec<(u16, V)> {
    (0..).zip(volumes.iter().cloned()).collect()
}

#[test]
fn a_pool_with_a_log_conforms() {
    for limit in [96 * KIB, 64 << 20] {
        conformance::run(|| {
            let volumes = mems(6);
            let options = Options { limit, file_len: limit / 4, memory: 0, ..Options::default() };
            let open = move || {
                let opened = block_on(open(&numbered(&volumes), options));
                Arc::new(opened.unwrap().1) as _
            };
            Box::new(Blocking::reopening(open))
        });
    }
}

pub(crate) fn filled(len: u64, byte: u8) -> IoBuf {
    IoBuf::from(&vec![byte; len as usize][..])
}

/// The bytes of an object's fragments on their volumes.
fn stored(volumes: &[Mem]) -> u64 {
    let images = volumes.iter().flat_map(|mem| mem.image());
    let leaves = images.filter(|(leaf, _)| leaf.as_str().ends_with(".inp"));
    leaves.map(|(_, bytes)| bytes.len() as u64).sum()
}

#[test]
fn an_object_in_place_takes_half_more_than_its_bytes_and_survives_the_loss_of_any_two_volumes() {
    let volumes = mems(6);
    let bytes: Vec<u8> = (0..320 * KIB).map(|at| (at / 512 * 7 % 251) as u8).collect();
    block_on(async {
        let (_, logged) = open(&numbered(&volumes), small()).await.unwrap();
        let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
        object.set_len(320 * KIB).await.unwrap();
        for (nth, part) in bytes.chunks(4096).enumerate() {
            object.write_durable(nth as u64 * 4096, part.into(), IO).await.unwrap();
        }
        let before = logged.figures();
        assert!(before.blocks > 0 && before.rows_recycled > 0, "{before:?}");
        assert!(before.bytes < 2 * 96 * KIB, "{before:?}");
        logged.drain().await.unwrap();
        assert_eq!(logged.figures().blocks, 0);
        drop(object);
        drop(logged);
        assert_eq!(stored(&volumes), 480 * KIB);
        for one in 0..6 {
            for other in one + 1..6 {
                let mut here = numbered(&volumes);
                here.retain(|(number, _)| ![one, other].contains(number));
                let here: Vec<_> = here
                    .iter()
                    .map(|(n, mem)| (*n, Mem::from_image(mem.label(), mem.image())))
                    .collect();
                let (_, logged) = open(&here, small()).await.unwrap();
                let object = logged.open(&name("disk")).await.unwrap();
                assert!(read_all(&*object).await.unwrap() == bytes, "without {one} and {other}");
            }
        }
    });
}

#[test]
fn the_pool_alone_takes_no_write_of_it_and_makes_no_fragment_before_its_log_was_read() {
    let volumes = numbered(&mems(7));
    block_on(async {
        let (_, logged) = open(&volumes[..6], small()).await.unwrap();
        let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
        object.write_durable(0, filled(64 * KIB, 1), IO).await.unwrap();
        drop((object, logged));
        let members = volumes[1..6].iter().map(|(n, v)| Member::new(format!("s{n}"), v.clone()));
        let pool = Spread::open(members.collect(), opening()).await.unwrap();
        let object = pool.open(&name("disk")).await.unwrap();
        let refused = object.write_at(0, filled(512, 2), IO).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        drop(object);
        pool.add_volume(Member::new("s6", volumes[6].1.clone())).await.unwrap();
        let repaired = pool.repair(IO, |_| ()).await.unwrap();
        assert!(repaired.short.iter().any(|(name, _)| name.as_str() == "disk"), "{repaired:?}");
        let logged = Logged::open(pool.clone(), small()).await.unwrap();
        let repaired = pool.repair(IO, |_| ()).await.unwrap();
        assert!(repaired.short.is_empty(), "{repaired:?}");
        let object = logged.open(&name("disk")).await.unwrap();
        assert!(read_all(&*object).await.unwrap() == vec![1; 64 << 10]);
    });
}

#[test]
fn bytes_that_rot_in_a_fragment_are_computed_from_the_others_and_written_again() {
    let volumes = mems(6);
    block_on(async {
        let (pool, logged) = open(&numbered(&volumes), small()).await.unwrap();
        let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
        object.write_durable(0, filled(64 * KIB, 7), IO).await.unwrap();
        logged.drain().await.unwrap();
        // Something newer beside it, in the log.
        object.write_durable(4 * KIB, filled(4 * KIB, 8), IO).await.unwrap();
        let damaged = async |index: usize| {
            let object = pool.objects().into_iter().find(|o| o.name.as_str() == "disk").unwrap();
            let fragment =
                object.copies.iter().filter_map(|placed| placed.layout.fragment().copied());
            let volume =
                fragment.clone().find(|own| usize::from(own.index) == index).unwrap().volume;
            let mem = &volumes[usize::from(volume.0)];
            let leaf =
                mem.image().into_keys().find(|leaf| leaf.as_str().ends_with(".inp")).unwrap();
            mem.open(&leaf).await.unwrap()
        };
        damaged(0).await.write_at(100, filled(50, 0xff), IO).await.unwrap();
        // One of the sources is damaged, too.
        damaged(1).await.write_at(0, filled(4096, 0xee), IO).await.unwrap();
        let check = Arc::new(|bytes: &[u8]| {
            bytes[..4096].iter().all(|&b| b == 7) && bytes[4096..].iter().all(|&b| b == 8)
        });
        let read = object.read_at(0, IoBufMut::zeroed(8192), IO).await.unwrap();
        assert!(!check(&read));
        let read = object.read_again(0, IoBufMut::zeroed(8192), IO, check.clone()).await.unwrap();
        assert!(check(&read));
        let read = object.read_at(0, IoBufMut::zeroed(8192), IO).await.unwrap();
        assert!(check(&read), "it was not written again");
        assert_eq!(pool.damage().left, 0);
    });
}

/// The plan of a change leaves fragments out that are missing, so those kept their old bytes, and were believed once their
/// volume was back.
#[test]
fn a_fragment_that_was_away_while_its_row_changed_is_not_used_when_it_is_back() {
    for away in 0..6 {
        let volumes = numbered(&mems(6));
        block_on(async {
            let (pool, logged) = open(&volumes, small()).await.unwrap();
            let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
            object.write_durable(0, filled(64 * KIB, 1), IO).await.unwrap();
            logged.drain().await.unwrap();
            drop((object, logged));
            let fragments = pool.objects().into_iter().find(|o| o.name.as_str() == "disk").unwrap();
            let fragments =
                fragments.copies.iter().filter_map(|placed| placed.layout.fragment().copied());
            let index = fragments.clone().find(|own| own.volume.0 == away).unwrap().index;
            pool.close().await.unwrap();
            let here: Vec<_> = volumes.iter().filter(|(n, _)| *n != away).cloned().collect();
            let (pool, logged) = open(&here, small()).await.unwrap();
            let object = logged.open(&name("disk")).await.unwrap();
            object.write_durable(0, filled(4 * KIB, 2), IO).await.unwrap();
            logged.drain().await.unwrap();
            drop((object, logged));
            pool.close().await.unwrap();
            let (pool, logged) = open(&volumes, small()).await.unwrap();
            let stat = pool.objects().into_iter().find(|o| o.name.as_str() == "disk").unwrap();
            // The first fragment and those of parity changed.
            let is_used = stat.copies.iter().any(|p| p.layout.volumes().contains(&VolumeId(away)));
            assert_eq!(is_used, (1..4).contains(&index), "fragment {index}: {:?}", stat.copies);
            let object = logged.open(&name("disk")).await.unwrap();
            let read = read_all(&*object).await.unwrap();
            assert!(read[..4096].iter().all(|&b| b == 2) && read[4096..].iter().all(|&b| b == 1));
            let repaired = pool.repair(IO, |_| ()).await.unwrap();
            assert!(repaired.short.is_empty(), "{repaired:?}");
            assert_eq!(repaired.made, u64::from(!is_used));
        });
    }
}

/// Writes waited until a file of the log could go. With a block in each row, that is when all rows are in place.
#[test]
fn a_write_into_a_full_log_waits_for_a_few_rows_and_not_for_all() {
    const ROW: u64 = 32 * KIB;
    const ROWS: u64 = 256;
    let (clock, plan, mems) = (Clock::simulated(), FaultPlan::new(0), mems(6));
    let fault = |mem: &Mem| Arc::new(Fault::new(mem.clone(), mem.label(), &plan, &clock));
    let volumes: Vec<_> = mems.iter().map(fault).collect();
    let options = Options { limit: MIB, file_len: MIB / 2, ..Options::default() };
    clock.run(async {
        let (_pool, logged) = open(&numbered(&volumes), options).await.unwrap();
        let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
        object.set_len(ROWS * ROW).await.unwrap();
        object.sync(IO).await.unwrap();
        plan.inject(Rule::new(Effect::Slow(Duration::from_millis(1))));
        for row in 0.. {
            if logged.figures().bytes >= options.limit {
                break;
            }
            let at = row % ROWS * ROW;
            object.write_durable(at, filled(4 * KIB, 1), IO).await.unwrap();
        }
        assert!(logged.figures().blocks > 64, "{:?}", logged.figures());
        assert_eq!(logged.figures().waits, 0);
        let began = clock.now();
        let write = async {
            object.write_durable(0, filled(4 * KIB, 2), IO).await.unwrap();
            clock.now().since(began)
        };
        let recycled = async {
            logged.drain().await.unwrap();
            clock.now().since(began)
        };
        let (recycled, written) = join(recycled, write).await;
        assert!(written * 4 < recycled, "the write took {written:?} of {recycled:?}");
        assert_eq!(logged.figures().waits, 1);
        let read = object.read_at(0, IoBufMut::zeroed(4 << 10), IO).await.unwrap();
        assert!(read.iter().all(|&byte| byte == 2));
    });
}

/// Until then the log was left alone up to seven eighths of its limit, and a crest of writes found it nearly full.
#[test]
fn blocks_go_in_place_from_a_quarter_of_the_log_on() {
    let (clock, mems) = (Clock::simulated(), mems(6));
    let options = Options { limit: MIB, file_len: 64 * KIB, ..Options::default() };
    clock.run(async {
        let (_pool, logged) = open(&numbered(&mems), options).await.unwrap();
        let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
        let heartbeat = Heartbeat::new("in place", SILENCE_MAX, &clock);
        let users = async {
            for block in 0.. {
                if logged.figures().bytes >= options.limit / 4 * 3 {
                    break;
                }
                object.write_durable(block * 4 * KIB, filled(4 * KIB, 1), IO).await.unwrap();
            }
            clock.sleep(Duration::from_secs(1)).await;
        };
        beside(users, logged.run(&clock, &heartbeat)).await;
        let figures = logged.figures();
        assert!(figures.bytes <= options.limit / 4, "{figures:?}");
        assert!(figures.bytes >= options.limit / 8, "more than was asked for: {figures:?}");
        assert_eq!(figures.waits, 0);
    });
}

/// A write that found no room brought a whole file in place by itself, or waited until the background task had slept.
#[test]
fn writes_into_a_full_log_wait_for_the_background_task_and_not_long() {
    const ROW: u64 = 32 * KIB;
    const ROWS: u64 = 4096;
    let (clock, plan, mems) = (Clock::simulated(), FaultPlan::new(0), mems(6));
    let fault = |mem: &Mem| Arc::new(Fault::new(mem.clone(), mem.label(), &plan, &clock));
    let volumes: Vec<_> = mems.iter().map(fault).collect();
    let options = Options { limit: 4 * MIB, file_len: MIB / 4, ..Options::default() };
    clock.run(async {
        let (_pool, logged) = open(&numbered(&volumes), options).await.unwrap();
        let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
        object.set_len(ROWS * ROW).await.unwrap();
        object.sync(IO).await.unwrap();
        plan.inject(Rule::new(Effect::Slow(Duration::from_millis(1))));
        let heartbeat = Heartbeat::new("in place", SILENCE_MAX, &clock);
        let users = join_all((0..16).map(async |user| {
            let mut longest = Duration::ZERO;
            for nth in 0..400 {
                // All over the object: each block has a row of its own.
                let at = (user + nth * 16) * 1021 % ROWS * ROW;
                let began = clock.now();
                object.write_durable(at, filled(4 * KIB, 1), IO).await.unwrap();
                longest = longest.max(clock.now().since(began));
            }
            longest
        }));
        let longest =
            beside(users, logged.run(&clock, &heartbeat)).await.into_iter().max().unwrap();
        let figures = logged.figures();
        assert!(figures.waits > 100, "the log was never full: {figures:?}");
        assert!(longest < Duration::from_millis(100), "a write took {longest:?}");
    });
}

/// Of a few hot blocks nothing goes in place: they are appended again, and the log stays within its limit. The values that come
/// back after a crash are the last ones, whatever was appended again beside the writes.
#[test]
fn hot_blocks_stay_in_the_log_and_none_of_their_older_values_comes_back() {
    const BLOCKS: u64 = 40;
    const WRITERS: u64 = 4;
    let mut moved = 0;
    for seed in 0..10 {
        let (clock, power, plan) = (Clock::simulated(), Power::new(), FaultPlan::new(seed));
        let disks: Vec<_> = mems(6).into_iter().map(|mem| Crash::new(mem, &power)).collect();
        let slow = |(n, disk): (usize, &Crash)| {
            Arc::new(Fault::new(disk.clone(), &format!("s{n}"), &plan, &clock))
        };
        let volumes: Vec<_> = disks.iter().enumerate().map(slow).collect();
        let options = Options { limit: MIB, file_len: 64 * KIB, memory: 0, ..Options::default() };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let last = clock.run(async {
            let (_pool, logged) = open(&numbered(&volumes), options).await.unwrap();
            let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
            object.write_durable(0, filled(BLOCKS * 4 * KIB, 0), IO).await.unwrap();
            plan.inject(Rule::new(Effect::Slow(Duration::from_millis(1))));
            let heartbeat = Heartbeat::new("in place", SILENCE_MAX, &clock);
            let count = random.random_range(100..300);
            let users = join_all((0..WRITERS).map(async |writer| {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed << 8 | writer);
                let mut last = BTreeMap::new();
                for nth in 0..count {
                    let block = random.random_range(0..BLOCKS / WRITERS) * WRITERS + writer;
                    let byte = 1 + (nth % 250) as u8;
                    object.write_durable(block * 4 * KIB, filled(4 * KIB, byte), IO).await.unwrap();
                    last.insert(block, byte);
                }
                last
            }));
            let last = beside(users, logged.run(&clock, &heartbeat)).await;
            let figures = logged.figures();
            assert!(figures.bytes <= options.limit / 2 * 3, "{figures:?}");
            moved += figures.blocks_moved;
            last.into_iter().flatten().collect::<BTreeMap<_, _>>()
        });
        power.cut();
        let left = disks.iter().map(|disk| disk.survivor(random.next_u64()));
        let left: Vec<_> = (0..).zip(left).collect();
        block_on(async {
            let (_pool, logged) = open(&left, options).await.unwrap();
            let read = read_all(&*logged.open(&name("disk")).await.unwrap()).await.unwrap();
            for (nth, block) in (0..).zip(read.chunks(4096)) {
                let byte = last.get(&nth).copied().unwrap_or(0);
                assert!(block.iter().all(|b| *b == byte), "seed {seed}: block {nth} is older");
            }
        });
    }
    assert!(moved > 200, "{moved}");
}

/// The opening repeated the change, found no bytes of it for the new fragment, and dropped that: too few were left.
#[test]
fn a_fragment_that_was_made_after_a_change_of_a_row_counts_when_the_change_is_repeated() {
    let volumes = numbered(&mems(7));
    block_on(async {
        let (pool, logged) = open(&volumes[..6], small()).await.unwrap();
        let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
        object.write_durable(0, filled(64 * KIB, 1), IO).await.unwrap();
        logged.drain().await.unwrap();
        let stat = pool.objects().into_iter().find(|o| o.name.as_str() == "disk").unwrap();
        let fragments = stat.copies.iter().filter_map(|placed| placed.layout.fragment().copied());
        let of = |index: u8| fragments.clone().find(|own| own.index == index).unwrap().volume.0;
        let (first, second, parity) = (of(0), of(1), of(4));
        drop((object, logged));
        pool.close().await.unwrap();
        let without = |gone: &[u16], of: &[(u16, Mem)]| -> Vec<(u16, Mem)> {
            of.iter().filter(|(n, _)| !gone.contains(n)).cloned().collect()
        };
        let (pool, logged) = open(&without(&[parity], &volumes[..6]), small()).await.unwrap();
        let object = logged.open(&name("disk")).await.unwrap();
        object.write_durable(32 * KIB, filled(4 * KIB, 2), IO).await.unwrap();
        // It brings the row in place, and leaves the record of that in the log.
        object.set_len(60 * KIB).await.unwrap();
        pool.add_volume(Member::new("s6", volumes[6].1.clone())).await.unwrap();
        assert_eq!(pool.repair(IO, |_| ()).await.unwrap().made, 1);
        // The process dies, and two volumes with it.
        drop((object, logged, pool));
        let here = without(&[parity, first, second], &volumes);
        let (_pool, logged) = open(&here, small()).await.unwrap();
        let object = logged.open(&name("disk")).await.unwrap();
        let read = read_all(&*object).await.unwrap();
        let expected = |at: usize| if (32 << 10..36 << 10).contains(&at) { 2 } else { 1 };
        assert!(
            read.len() == 60 << 10 && read.iter().enumerate().all(|(at, &b)| b == expected(at))
        );
    });
}

/// The copier held the claim of a piece's rows over its own I/O, which may wait long in its class.
#[test]
fn a_row_changes_while_the_copier_of_a_lost_fragment_waits() {
    let (clock, plan, mems) = (Clock::simulated(), FaultPlan::new(0), mems(7));
    let fault = |mem: &Mem| Arc::new(Fault::new(mem.clone(), mem.label(), &plan, &clock));
    let volumes: Vec<_> = mems.iter().map(fault).collect();
    clock.run(async {
        let (pool, logged) = open(&numbered(&volumes[1..]), small()).await.unwrap();
        let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
        object.write_durable(0, filled(64 * KIB, 1), IO).await.unwrap();
        logged.drain().await.unwrap();
        let id = crate::copying::id_of(&pool, "disk").await;
        let lost = pool.volume_id("s0").unwrap();
        pool.drop_copy(id, lost).await.unwrap();
        const SLOW: Duration = Duration::from_secs(5);
        let slow = Rule::new(Effect::Slow(SLOW)).volume(mems[1].label());
        plan.inject(slow.on(Op::Write).named("*.inp"));
        let repair = async { pool.repair(IO, |_| ()).await.unwrap() };
        let users = async {
            clock.sleep(SLOW / 2).await;
            let began = clock.now();
            object.write_durable(4 * KIB, filled(4 * KIB, 2), IO).await.unwrap();
            logged.drain().await.unwrap();
            clock.now().since(began)
        };
        let (repaired, took) = join(repair, users).await;
        assert_eq!(repaired.made, 1);
        assert!(took < SLOW / 4, "{took:?}");
    });
}

/// Runs `users` to their end while `work` goes on.
async fn beside<T>(users: impl Future<Output = T>, work: impl Future<Output = ()>) -> T {
    match select(pin!(users), pin!(work)).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => unreachable!("it runs for ever"),
    }
}

pub(crate) const SECTOR: u64 = 512;

/// What each sector may hold.
pub(crate) struct Model {
    pub(crate) sectors: Vec<Sector>,
}

#[derive(Clone, Default)]
pub(crate) struct Sector {
    /// What it holds now: one of these.
    now: BTreeSet<u32>,
    /// What it may hold after the power failed.
    kept: BTreeSet<u32>,
}

impl Sector {
    /// It holds this, durably.
    pub(crate) fn of(tag: u32) -> Self {
        Self { now: BTreeSet::from([tag]), kept: BTreeSet::from([tag]) }
    }
}

impl Model {
    fn touched(&mut self, range: &Range<u64>) -> &mut [Sector] {
        &mut self.sectors[(range.start / SECTOR) as usize..(range.end / SECTOR) as usize]
    }

    /// Writes of these under way together ended.
    pub(crate) fn written(&mut self, writes: &[(Range<u64>, u32, bool)], acknowledged: bool) {
        let mut seen: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); self.sectors.len()];
        let mut durable = vec![false; self.sectors.len()];
        for (range, tag, is_durable) in writes {
            for at in range.start / SECTOR..range.end / SECTOR {
                seen[at as usize].insert(*tag);
                durable[at as usize] |= is_durable;
            }
        }
        for ((sector, tags), durable) in self.sectors.iter_mut().zip(seen).zip(durable) {
            if tags.is_empty() {
                continue;
            }
            sector.kept.extend(&tags);
            match acknowledged {
                // A durable write came after what was there, and before or after the others.
                true if durable => (sector.now, sector.kept) = (tags.clone(), tags),
                true => sector.now = tags,
                false => sector.now.extend(tags),
            }
        }
    }

    pub(crate) fn synced(&mut self) {
        self.sectors.iter_mut().for_each(|sector| sector.kept = sector.now.clone());
    }

    /// What was read is there, and stays, unless the power failed meanwhile.
    pub(crate) fn read(&mut self, range: &Range<u64>, bytes: &[u8], context: &str) {
        let (first, sectors) = (range.start / SECTOR, self.touched(range));
        for ((at, sector), bytes) in (first..).zip(sectors).zip(bytes.chunks(SECTOR as usize)) {
            let tag = tag_of(bytes, &format!("{context}: sector {at}"));
            assert!(
                sector.now.contains(&tag),
                "{context}: sector {at} has {tag}, not of {:?}",
                sector.now
            );
            sector.now = BTreeSet::from([tag]);
        }
    }

    pub(crate) fn crashed(&mut self) {
        self.sectors.iter_mut().for_each(|sector| sector.now = sector.kept.clone());
    }
}

pub(crate) fn sectors_of(range: &Range<u64>, tag: u32) -> IoBuf {
    let tags = (0..(range.end - range.start) / 4).flat_map(|_| tag.to_le_bytes());
    IoBuf::from(&tags.collect::<Vec<_>>()[..])
}

fn tag_of(sector: &[u8], context: &str) -> u32 {
    let tags: BTreeSet<_> =
        sector.chunks(4).map(|tag| u32::from_le_bytes(tag.try_into().unwrap())).collect();
    assert_eq!(tags.len(), 1, "{context} is torn: {tags:?}");
    tags.into_iter().next().unwrap()
}

/// Runs writes, reads and the rest until the power fails, loses up to two volumes with it, opens the pool again, and goes on.
fn run(seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let len = SECTOR * random.random_range(100..400u64);
    let mut model = Model { sectors: vec![Sector::default(); (len / SECTOR) as usize] };
    model.sectors.fill(Sector::of(0));
    let mut tag = 0;
    let mut volumes: Vec<(u16, Mem)> = numbered(&mems(6));
    let mut next_volume = 6;
    block_on(async {
        let (_, logged) = open(&volumes, small()).await.unwrap();
        let object = logged.create(&name("disk"), &Intent::IN_PLACE).await.unwrap();
        object.set_len(len).await.unwrap();
        object.sync(IO).await.unwrap();
    });
    for life in 0..4 {
        let power = Power::new();
        let crash: Vec<_> = volumes
            .iter()
            .map(|(n, mem)| (*n, Crash::new(Mem::from_image(mem.label(), mem.image()), &power)))
            .collect();
        let context = format!("seed {seed}, life {life}");
        // The opening can be cut off, too.
        let steps = if random.random_bool(0.2) { 60 } else { 1500 };
        power.cut_after(random.random_range(0..steps));
        block_on(async {
            let opened = open(&crash, small()).await;
            let (pool, logged) = match opened {
                Ok(opened) => opened,
                Err(e) => {
                    assert!(power.is_off(), "{context}: {e}");
                    return;
                }
            };
            let object = match logged.open(&name("disk")).await {
                Ok(object) => object,
                Err(e) => {
                    assert!(power.is_off(), "{context}: {e}");
                    return;
                }
            };
            live(&mut random, &mut model, &mut tag, (&pool, &logged, &*object), &power, &context)
                .await;
        });
        power.cut();
        model.crashed();
        let survivors: Vec<_> =
            crash.iter().map(|(n, v)| (*n, v.survivor(random.next_u64()))).collect();
        volumes = survivors;
        let lost = random.random_range(0..=2);
        for _ in 0..lost {
            let at = random.random_range(0..volumes.len());
            volumes.remove(at);
        }
        block_on(async {
            let (pool, logged) =
                open(&volumes, small()).await.unwrap_or_else(|e| panic!("{context}: {e}"));
            let object = logged.open(&name("disk")).await.unwrap();
            let all = read_all(&*object).await.unwrap_or_else(|e| panic!("{context}: {e}"));
            model.read(&(0..len), &all, &context);
            // What was read after a crash is not undone by the next one.
            object.sync(IO).await.unwrap();
            model.synced();
            let here: BTreeSet<_> = volumes.iter().map(|(n, _)| VolumeId(*n)).collect();
            for gone in 0..next_volume {
                if !here.contains(&VolumeId(gone)) {
                    let _ = pool.remove_lost(VolumeId(gone), false).await;
                }
            }
            for _ in 0..lost {
                let mem = Mem::new(&format!("s{next_volume}"));
                pool.add_volume(Member::new(format!("s{next_volume}"), mem.clone())).await.unwrap();
                volumes.push((next_volume, mem));
                next_volume += 1;
            }
            let repaired = pool.repair(IO, |_| ()).await.unwrap();
            assert!(repaired.short.is_empty(), "{context}: {repaired:?}");
            let all = read_all(&*object).await.unwrap();
            model.read(&(0..len), &all, &context);
            if random.random_bool(0.3) {
                logged.drain().await.unwrap();
                assert_parity(&pool, &volumes, &context).await;
            }
            pool.close().await.unwrap();
        });
    }
}

async fn live(
    random: &mut Xoshiro256PlusPlus,
    model: &mut Model,
    tag: &mut u32,
    (pool, logged, object): (&Spread, &Logged, &dyn Object),
    power: &Power,
    context: &str,
) {
    let len = model.sectors.len() as u64;
    let range = |random: &mut Xoshiro256PlusPlus, most: u64| {
        let from = random.random_range(0..len);
        let count = random.random_range(1..=most).min(len - from);
        let whole = random.random_bool(0.5) && from / 8 * 8 + 8 <= len;
        let sectors = if whole { from / 8 * 8..from / 8 * 8 + 8 } else { from..from + count };
        sectors.start * SECTOR..sectors.end * SECTOR
    };
    for step in 0.. {
        let context = format!("{context}, step {step}");
        let failed = match random.random_range(0..100) {
            0..60 => {
                let count = if random.random_bool(0.3) { random.random_range(2..5) } else { 1 };
                let mut writes = Vec::new();
                for _ in 0..count {
                    *tag += 1;
                    writes.push((range(random, 24), *tag, random.random_bool(0.7)));
                }
                let done = writes.iter().map(async |(range, tag, durable)| {
                    let data = sectors_of(range, *tag);
                    match durable {
                        true => object.write_durable(range.start, data, IO).await,
                        false => object.write_at(range.start, data, IO).await,
                    }
                });
                let done: Result<Vec<()>> = join_all(done).await.into_iter().collect();
                model.written(&writes, done.is_ok());
                done.map(drop)
            }
            60..65 => {
                let range = range(random, 100);
                let done = object.zero(range.start, range.end - range.start, Zeros::Free, IO).await;
                model.written(&[(range, 0, false)], done.is_ok());
                done
            }
            65..75 => {
                let done = object.sync(IO).await;
                if done.is_ok() {
                    model.synced();
                }
                done
            }
            75..78 => logged.drain().await,
            78..80 => pool.flush().await,
            _ => {
                let range = range(random, 60);
                let into = IoBufMut::zeroed((range.end - range.start) as usize);
                match object.read_at(range.start, into, IO).await {
                    Ok(read) => {
                        model.read(&range, &read, &context);
                        Ok(())
                    }
                    Err(e) => Err(e),
                }
            }
        };
        if let Err(e) = failed {
            assert!(power.is_off(), "{context}: {e}");
            return;
        }
        if step > 120 {
            return;
        }
    }
}

/// Compares each parity with the encoding of the data.
pub(crate) async fn assert_parity(pool: &Spread, volumes: &[(u16, Mem)], context: &str) {
    let object = pool.objects().into_iter().find(|o| o.name.as_str() == "disk").unwrap();
    let mut fragments = vec![Vec::new(); code().fragments()];
    for placed in &object.copies {
        let own = placed.layout.fragment().unwrap();
        let (_, mem) = volumes.iter().find(|(n, _)| *n == own.volume.0).unwrap();
        let leaves = mem.image().into_iter().filter(|(leaf, _)| leaf.as_str().ends_with(".inp"));
        let (_, bytes) = leaves.max_by_key(|(_, bytes)| bytes.len()).unwrap();
        fragments[usize::from(own.index)] = bytes.to_vec();
    }
    let longest = fragments.iter().map(Vec::len).max().unwrap();
    fragments.iter_mut().for_each(|fragment| fragment.resize(longest, 0));
    let (data, parity) = fragments.split_at(4);
    let data: Vec<_> = data.iter().map(|fragment| &fragment[..]).collect();
    let mut expected = vec![vec![0; longest]; 2];
    let mut out: Vec<_> = expected.iter_mut().map(|bytes| &mut bytes[..]).collect();
    pool::code::Coder::new(4, 2).unwrap().encode(&data, &mut out).unwrap();
    assert!(parity == expected, "{context}: parity does not fit the data");
}

/// The seeds of the variable `SEEDS`, as first + count; else some.
pub(crate) fn seeds(some: u64) -> Range<u64> {
    let Ok(seeds) = std::env::var("SEEDS") else { return 0..some };
    let (first, count) = seeds.split_once('+').unwrap();
    let (first, count): (u64, u64) = (first.parse().unwrap(), count.parse().unwrap());
    first..first + count
}

#[test]
fn power_fails_at_any_step_and_two_volumes_are_lost_with_it() {
    seeds(60).for_each(run);
}
