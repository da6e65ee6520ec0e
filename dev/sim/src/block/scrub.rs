//! Scrubs of the extents, beside clients, weather and rot.

use std::rc::Rc;
use std::time::Duration;

use pool::Spread;
use pool::spread::Problem;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::weather::Weather;
use super::world::World;

/// Scrubs now and then. Its draws have a stream of their own for each life.
///
/// Not where fragments rot: the other fragments of a column that rots may have blocks without a checksum, and a scrub takes
/// their bytes for good.
pub(super) async fn scrub(world: Rc<World>, pool: Spread) {
    let stream = world.sim.random(&format!("scrub {}", world.tick())).random();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(stream);
    let fragments_rot = world.coded.is_some() && world.weather.get() == Weather::Rot;
    let passes = if fragments_rot { 0 } else { random.random_range(0..4) };
    for _ in 0..passes {
        world.sim.clock().sleep(Duration::from_micros(random.random_range(0..60_000))).await;
        if world.finishes.get() {
            return;
        }
        pass(&world, &pool).await;
    }
}

/// Scrubs every extent. Other objects have nothing to do with devices.
async fn pass(world: &World, pool: &Spread) {
    let mut pass = pool.begin_scrub();
    while let Some(object) = pool.next_to_scrub(&pass) {
        pass.passed(&object);
        let name = object.name().as_str();
        if !name.starts_with("block/") || !pool.can_scrub(&object) {
            continue;
        }
        let findings = pool.scrub_object(&object).await;
        if !findings.is_empty() {
            world.sim.note("scrub", format_args!(". {name}: {findings:?}"));
        }
        for found in &findings {
            let lacks = world.disks.borrow().iter().any(|disk| world.rot.may_lack(&disk.name));
            let is_lost = matches!(found.problem, Problem::Lost(_));
            let is_fine = !is_lost || lacks || world.may_fail() || world.may_refuse();
            assert!(is_fine, "a scrub: {found:?}");
        }
    }
}
