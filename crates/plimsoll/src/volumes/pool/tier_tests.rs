//! A pool whose member is a tier, over volumes in memory.

use policy::contract::Contract;
use policy::purpose::{Io, Origin, Step};
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::mem::Mem;
use volume::{ErrorKind, Intent, IoBuf, IoBufMut, Name, Object, Volume as _};

use super::*;
use crate::volumes::{Device, Writes};

const IO: Io = Io::new(Origin::UserRead, Step::Data);
const SIZE: u64 = 16 << 20;

fn volume(mem: &Mem) -> Volume {
    Volume::other(mem.label(), mem.clone(), Contract::unlimited())
}

fn tiering() -> Tiering {
    Tiering::default().size(SIZE)
}

/// A pool over the tier `cached`.
fn over(fast: impl Into<Side>, slow: impl Into<Side>) -> PoolBuilder {
    Pool::builder().tier("cached", fast, slow, tiering())
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Stores objects of a megabyte each, of which every page names its object.
fn store(pool: &Pool, objects: u8) {
    for n in 0..objects {
        let data = IoBuf::from(&vec![n; 1 << 20][..]);
        let (name, io) = (name(&format!("table-{n}")), Io::new(Origin::UserWrite, Step::Data));
        block_on(pool.write_whole(&name, &Intent::DATA, data, io)).unwrap();
    }
}

fn check(pool: &Pool, objects: u8) {
    for n in 0..objects {
        let object = block_on(pool.open_handle(&name(&format!("table-{n}")))).unwrap();
        let read = block_on(object.read_at(0, IoBufMut::zeroed(1 << 20), IO)).unwrap();
        assert!(*read == vec![n; 1 << 20][..], "table {n}");
    }
}

/// Reads everything until the tier gives all of it from its fast side.
fn warm(pool: &Pool, objects: u8) {
    let tiers = pool.tiers();
    let cached = || tiers[0].figures().cached_bytes >= u64::from(objects) << 20;
    // The thread of the tier installs what was read.
    while !cached() {
        check(pool, objects);
        std::thread::yield_now();
    }
}

/// The bytes of a read of everything that the slow side gave.
fn missed(pool: &Pool, objects: u8) -> u64 {
    let before = pool.tiers()[0].figures().missed_bytes;
    check(pool, objects);
    pool.tiers()[0].figures().missed_bytes - before
}

fn names(devices: &[Arc<Device>]) -> Vec<&str> {
    devices.iter().map(|device| device.name()).collect()
}

#[test]
fn a_tier_is_a_member_whose_slow_side_counts() {
    let mems = ["nvme", "ebs"].map(Mem::new);
    let pool = over(volume(&mems[0]), volume(&mems[1])).open().unwrap();
    let devices = pool.devices();
    assert_eq!(names(&devices.here()), ["ebs", "nvme"]);
    assert_eq!(names(&devices.holding()), ["ebs"]);
    // Whose load is the member's for the mover, for placement and for the prefetcher.
    assert_eq!(names(&devices.below("cached")), ["ebs"]);
    let places = devices.places();
    assert!(places.iter().all(|(way, _)| *way == ["cached"]), "{:?}", places[0].0);
    let tasks: Vec<_> = pool.tasks().into_iter().map(|task| task.task).collect();
    assert!(tasks.contains(&"filling tier cached".to_owned()), "{tasks:?}");
    store(&pool, 4);
    warm(&pool, 4);
    assert_eq!(missed(&pool, 4), 0);
    assert_eq!(pool.tiers()[0].problem(), None);
    pool.close().unwrap();
}

#[test]
fn a_restart_is_warm_and_goes_on_without_the_fast_side() {
    let mems = ["nvme", "ebs"].map(Mem::new);
    let pool = over(volume(&mems[0]), volume(&mems[1])).open().unwrap();
    store(&pool, 4);
    warm(&pool, 4);
    pool.close().unwrap();
    let pool = over(volume(&mems[0]), volume(&mems[1])).open().unwrap();
    assert_eq!(missed(&pool, 4), 0, "it is warm");
    pool.close().unwrap();
    // Empty, as a cloud's local device is after a stop of its machine.
    let pool = over(volume(&Mem::new("nvme")), volume(&mems[1])).open().unwrap();
    assert!(pool.tiers()[0].is_attached());
    assert_eq!(missed(&pool, 4), 4 << 20);
    pool.close().unwrap();
    // The directory is missing.
    let missing = Volume::directory("nvme", "/nowhere/at/all", Contract::unlimited());
    let pool = over(missing, volume(&mems[1])).open().unwrap();
    let problem = pool.tiers()[0].problem().expect("it is not in use");
    assert!(problem.contains("volume nvme is away") && problem.contains("ebs"), "{problem}");
    assert_eq!(pool.devices().away().len(), 1);
    check(&pool, 4);
    store_more(&pool);
    pool.close().unwrap();
    // The old one comes back: what it has does not count.
    let pool = over(volume(&mems[0]), volume(&mems[1])).open().unwrap();
    assert!(pool.tiers()[0].is_attached());
    assert_eq!(missed(&pool, 4), 4 << 20);
    pool.close().unwrap();
}

fn store_more(pool: &Pool) {
    let data = IoBuf::from(&[7; 100][..]);
    let io = Io::new(Origin::UserWrite, Step::Data);
    block_on(pool.write_whole(&name("another"), &Intent::DATA, data, io)).unwrap();
}

#[test]
fn the_cache_of_another_tier_is_left_alone() {
    let mems = ["nvme", "ebs", "other"].map(Mem::new);
    let pool = over(volume(&mems[0]), volume(&mems[1])).open().unwrap();
    store(&pool, 2);
    warm(&pool, 2);
    pool.close().unwrap();
    let other = over(volume(&mems[0]), volume(&mems[2])).open().unwrap();
    other.close().unwrap();
    let other = over(volume(&mems[0]), volume(&mems[2])).open().unwrap();
    let problem = other.tiers()[0].problem().expect("it is the cache of ebs");
    assert!(problem.contains("another slow volume"), "{problem}");
    store(&other, 2);
    check(&other, 2);
    other.close().unwrap();
    let pool = over(volume(&mems[0]), volume(&mems[1])).open().unwrap();
    assert_eq!(missed(&pool, 2), 0, "it is warm still");
    pool.close().unwrap();
}

#[test]
fn a_fast_side_that_fails_is_given_up_and_attached_again_empty() {
    let (plan, clock) = (FaultPlan::new(0), Clock::real());
    let mems = ["nvme", "ebs"].map(Mem::new);
    let fault = Fault::new(mems[0].clone(), "nvme", &plan, &clock);
    let nvme = Volume::other("nvme", fault, Contract::unlimited());
    let pool = over(nvme, volume(&mems[1])).open().unwrap();
    store(&pool, 4);
    warm(&pool, 4);
    let [tier] = &pool.tiers()[..] else { panic!("one tier") };
    let error = tier.attach().expect_err("it is in use").to_string();
    assert!(error.contains("in use already"), "{error}");
    let dead = plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume("nvme"));
    check(&pool, 4);
    let problem = tier.problem().expect("it failed");
    assert!(problem.contains("plimsoll tier attach cached"), "{problem}");
    assert_eq!(tier.figures().detached, 1);
    assert!(tier.attach().is_err(), "it fails still");
    check(&pool, 4);
    plan.lift(dead);
    tier.attach().unwrap();
    assert_eq!(tier.problem(), None);
    assert_eq!(missed(&pool, 4), 4 << 20, "it is empty");
    warm(&pool, 4);
    tier.detach().unwrap();
    let problem = tier.problem().expect("it is detached");
    assert!(problem.contains("by an administrator"), "{problem}");
    check(&pool, 4);
    pool.close().unwrap();
}

#[test]
fn the_sides_of_a_tier_may_be_pools() {
    let mems = ["n1", "n2", "s1", "s2"].map(Mem::new);
    let of = |mems: &[Mem]| Pool::builder().volumes(mems.iter().map(volume)).copies(2);
    let fast = |mems: &[Mem]| {
        let one = Pool::builder().volumes(mems.iter().map(volume));
        Side::Pool("fast".into(), one)
    };
    let open = |mems: &[Mem]| over(fast(&mems[..2]), Side::Pool("slow".into(), of(&mems[2..])));
    let pool = open(&mems).open().unwrap();
    assert_eq!(names(&pool.devices().holding()), ["s1", "s2"]);
    let below: Vec<_> = pool.all_below().into_iter().map(|(name, _)| name).collect();
    assert_eq!(below, ["slow", "fast"]);
    assert!(pool.with_member("n1").is_some() && pool.with_member("s2").is_some());
    store(&pool, 4);
    warm(&pool, 4);
    pool.close().unwrap();
    let pool = open(&mems).open().unwrap();
    assert_eq!(missed(&pool, 4), 0, "it is warm");
    pool.close().unwrap();
    // A pool of the fast side whose volumes are blank is made anew.
    let lost = [Mem::new("n1"), Mem::new("n2"), mems[2].clone(), mems[3].clone()];
    let pool = open(&lost).open().unwrap();
    check(&pool, 4);
    pool.close().unwrap();
}

/// A pool on a plain volume gets a tier: its member has another name from then on.
#[test]
fn a_pool_that_was_on_the_slow_volume_opens_over_a_tier() {
    let mems = ["nvme", "ebs"].map(Mem::new);
    let pool = Pool::builder().volume(volume(&mems[1])).open().unwrap();
    store(&pool, 2);
    pool.close().unwrap();
    let pool = over(volume(&mems[0]), volume(&mems[1])).open().unwrap();
    check(&pool, 2);
    let labels: Vec<_> = pool.volumes().into_iter().map(|volume| volume.label).collect();
    assert_eq!(labels, ["cached"]);
    pool.close().unwrap();
}

#[test]
fn a_tier_without_its_slow_side_is_away() {
    let mems = ["nvme", "b"].map(Mem::new);
    let gone = || Volume::directory("ebs", "/nowhere/at/all", Contract::unlimited());
    let alone = over(volume(&mems[0]), gone()).open();
    let error = alone.err().expect("nothing is here").to_string();
    assert!(error.contains("volume cached is away") && error.contains("ebs"), "{error}");
    let slow = Mem::new("ebs");
    let both = |slow| over(volume(&mems[0]), slow).volume(volume(&mems[1])).copies(2);
    let pool = both(volume(&slow)).open().unwrap();
    store(&pool, 2);
    pool.close().unwrap();
    let pool = both(gone()).open().unwrap();
    check(&pool, 2);
    pool.close().unwrap();
}

/// An object in place, of which a page stays on the fast side.
fn keep_back(pool: &Pool) {
    let object = block_on(pool.create(&name("disk"), &Intent::IN_PLACE)).unwrap();
    let io = Io::new(Origin::UserWrite, Step::Data);
    let put = |len: usize, byte: u8| {
        block_on(object.write_durable(0, IoBuf::from(&vec![byte; len][..]), io)).unwrap();
    };
    put(1 << 20, 1);
    block_on(object.sync(io)).unwrap();
    put(4096, 2);
}

#[test]
fn writes_stay_only_on_a_side_that_survives_as_many_losses_as_the_slow_one() {
    let mems = ["n1", "n2", "s1", "s2"].map(Mem::new);
    let copies = |name: &str, mems: &[Mem], copies| {
        let pool = Pool::builder().volumes(mems.iter().map(volume)).copies(copies);
        Side::Pool(name.into(), pool)
    };
    let open = |fast: Side, writes| {
        let slow = copies("slow", &mems[2..], 2);
        Pool::builder().tier("cached", fast, slow, tiering().writes(writes)).open()
    };
    let refused =
        open(copies("fast", &mems[..2], 1), Writes::Back).err().expect("it may lose more");
    let told = refused.to_string();
    for part in ["tier cached", "fast, which survives the loss of 0", "survives 1", "2 copies"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    open(copies("fast", &mems[..2], 1), Writes::Through).unwrap().close().unwrap();
    // Two of three volumes lost leave a copy of each object, but no majority for the manifest.
    let many: Vec<_> = (0..10).map(|at| Mem::new(&format!("m{at}"))).collect();
    let of_many = |count: usize| {
        let slow = copies("slow", &many[5..], 3);
        let tiering = tiering().writes(Writes::Back);
        Pool::builder().tier("cached", copies("fast", &many[..count], 3), slow, tiering).open()
    };
    let told = of_many(3).err().expect("it may lose more").to_string();
    for part in ["survives the loss of 1", "survives 2", "3 copies on 5 volumes or more"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    of_many(5).unwrap().close().unwrap();
    let pool = open(copies("fast", &[Mem::new("m1"), Mem::new("m2")], 2), Writes::Back).unwrap();
    keep_back(&pool);
    let [tier] = &pool.tiers()[..] else { panic!("one tier") };
    assert_eq!(tier.figures().dirty_bytes, 4096);
    assert_eq!(tier.flush().unwrap(), 4096);
    pool.close().unwrap();
}

#[test]
fn a_detach_that_cannot_flush_names_the_way_to_force_it() {
    let (plan, clock) = (FaultPlan::new(0), Clock::real());
    let (nvme, ebs) = (Mem::new("nvme"), Mem::new("ebs"));
    let fault = Fault::new(ebs.clone(), "ebs", &plan, &clock);
    let slow = Volume::other("ebs", fault, Contract::unlimited());
    let tiering = tiering().writes(Writes::Back);
    let pool = Pool::builder().tier("cached", volume(&nvme), slow, tiering).open().unwrap();
    keep_back(&pool);
    let [tier] = &pool.tiers()[..] else { panic!("one tier") };
    let full = plan.inject(Rule::new(Effect::Fail(ErrorKind::OutOfSpace)).named("*.inp"));
    let told = tier.detach().expect_err("the slow side takes nothing").to_string();
    assert!(told.contains("4 KiB are only on nvme") && told.contains("--lost"), "{told}");
    assert!(tier.is_attached());
    let told = tier.unflushed().expect("a flush failed");
    assert!(
        told.contains("dirty bytes of 1 units") && told.contains("tier flush cached"),
        "{told}"
    );
    plan.lift(full);
    assert_eq!(tier.lose().unwrap(), 4096);
    assert!(!tier.is_attached());
    let [(_, bytes)] = tier.stale()[..] else { panic!("one object: {:?}", tier.stale()) };
    assert_eq!(bytes, 4096);
    pool.close().unwrap();
}
