use policy::contract::Contract;
use policy::purpose::{Io, Origin, Step};
use pool::spread::VolumeState;
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::mem::Mem;
use volume::{ErrorKind, Intent, IoBuf, IoBufMut, Name};

use super::*;

#[test]
fn a_volume_whose_header_cannot_be_read_keeps_no_pool_from_starting() {
    let (plan, clock) = (FaultPlan::new(0), Clock::real());
    let mems = ["v0", "v1", "v2"].map(Mem::new);
    let open = || {
        let volumes = mems.iter().map(|mem| {
            let fault = Fault::new(mem.clone(), mem.label(), &plan, &clock);
            Volume::other(mem.label(), fault, Contract::unlimited())
        });
        Pool::builder().volumes(volumes).copies(2).open().unwrap()
    };
    let id = open().id();
    let header = Rule::new(Effect::Fail(ErrorKind::Io)).on(Op::Read).named("pool.header");
    plan.inject(header.volume("v2"));
    let pool = open();
    let states: Vec<_> = pool.volumes().into_iter().map(|volume| volume.state).collect();
    assert_eq!(states, [VolumeState::Active, VolumeState::Active, VolumeState::Away]);
    assert_eq!(pool.id(), id);
    // What `/health` shows.
    let [away] = &pool.devices().away()[..] else { panic!("{:?}", pool.devices().away()) };
    let said = away.to_string();
    assert!(said.starts_with("volume v2 is away: v2: read pool.header"), "{said}");
    let here: Vec<_> = pool.devices().here().iter().map(|d| d.name().to_owned()).collect();
    assert_eq!(here, ["v0", "v1"]);
}

/// Two pools of two volumes each, below one that keeps two copies.
fn tree(mems: &[Mem]) -> PoolBuilder {
    let volume = |mem: &Mem| Volume::other(mem.label(), mem.clone(), Contract::unlimited());
    let of = |mems: &[Mem]| Pool::builder().volumes(mems.iter().map(volume));
    Pool::builder().pool("left", of(&mems[..2])).pool("right", of(&mems[2..])).copies(2)
}

const IO: Io = Io::new(Origin::UserWrite, Step::Data);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

#[test]
fn a_pool_of_pools_finds_its_volumes_and_their_pools() {
    let mems = ["a", "b", "c", "d"].map(Mem::new);
    let pool = tree(&mems).open().unwrap();
    let names = |devices: Vec<Arc<crate::volumes::Device>>| -> Vec<_> {
        devices.iter().map(|device| device.name().to_owned()).collect()
    };
    assert_eq!(names(pool.devices().here()), ["a", "b", "c", "d"]);
    assert_eq!(names(pool.devices().below("right")), ["c", "d"]);
    assert_eq!(pool.devices().places()[2].0, ["right"]);
    assert!(pool.with_member("c").unwrap().volume_id("d").is_some());
    assert!(pool.with_member("e").is_none());
    assert_eq!(pool.tasks().len(), 3 * 5);
    let new = Mem::new("e");
    let new = Volume::other("e", new, Contract::unlimited());
    pool.with_member("a").unwrap().add_volume(&new).unwrap();
    assert_eq!(names(pool.devices().below("left")), ["a", "b", "e"]);
    pool.close().unwrap();
}

/// Each copy is in another pool, where it has a checksum of its own.
#[test]
fn whole_objects_are_whole_in_each_pool_below() {
    let mems = ["a", "b", "c", "d"].map(Mem::new);
    let pool = tree(&mems).open().unwrap();
    let data = IoBuf::from(&[7; 10_000][..]);
    block_on(pool.write_whole(&name("table"), &Intent::DATA, data, IO)).unwrap();
    for (_, below) in pool.below() {
        let report = block_on(below.spread().scrub(|_| ())).unwrap();
        // It, and the manifest of the pool above.
        assert_eq!((report.objects, report.findings.len()), (2, 0), "{report:?}");
        assert!(report.bytes >= 10_000, "it is read back: {report:?}");
    }
    pool.close().unwrap();
    // One of the pools is gone.
    let gone = [mems[0].clone(), mems[1].clone(), Mem::new("c"), Mem::new("d")];
    drop(tree(&gone).open().err().expect("blank volumes are no members of the pool"));
    let left = Pool::builder().volumes(
        mems[..2].iter().map(|mem| Volume::other(mem.label(), mem.clone(), Contract::unlimited())),
    );
    let alone = Pool::builder().pool("left", left);
    drop(alone.open().err().expect("a pool that is not named is no reason to go on without it"));
    let pool = tree(&mems).open().unwrap();
    let object = block_on(pool.spread().open_handle(&name("table"))).unwrap();
    let read = block_on(volume::Object::read_at(&object, 0, IoBufMut::zeroed(10_000), IO)).unwrap();
    assert_eq!(*read, [7; 10_000]);
}
