use policy::contract::Contract;
use pool::spread::VolumeState;
use volume::ErrorKind;
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::mem::Mem;

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
