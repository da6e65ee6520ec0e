//! The task that lets bits rot in a life of the store.

use std::rc::Rc;
use std::time::Duration;

use engine::block::BlockDevices;
use engine::block::store::Store;
use pool::Spread;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::client::Client;
use super::disk::{SECTOR, islands};
use super::narrow::BLOCK;
use super::weather::Weather;
use super::world::World;
use crate::rows::Rows;

/// Bits rot now and then.
pub(super) async fn decay(
    world: Rc<World>,
    store: Store,
    pool: Spread,
    rows: Rows,
    mut random: Xoshiro256PlusPlus,
) {
    assert_eq!(world.weather.get(), Weather::Rot, "elsewhere good copies are dropped");
    for _ in 0..random.random_range(1..12) {
        world.sim.clock().sleep(Duration::from_micros(random.random_range(0..30_000))).await;
        if world.finishes.get() {
            return;
        }
        let disks = world.disks.borrow().clone();
        if disks.is_empty() {
            continue;
        }
        let disk = Rc::clone(&disks[random.random_range(0..disks.len())]);
        if random.random_bool(0.3) {
            let mut objects = pool.objects();
            // Tables and marks have other names.
            objects.retain(|object| object.name.as_str().ends_with("/00000000"));
            if !objects.is_empty() {
                let object = &objects[random.random_range(0..objects.len())];
                world.sim.note("rot", format_args!("! a page of checksums of {}", object.name));
                world.rot.spoil_page(object, &rows, &mut random);
            }
            continue;
        }
        let Ok(device) = BlockDevices::open(&store, &disk.name).await else { continue };
        let islands = islands(device.geometry().size);
        let island = &islands[random.random_range(0..islands.len())];
        let blocks = (island.end - island.start) / BLOCK;
        let from = island.start + random.random_range(0..blocks) * BLOCK;
        let block = from..from + BLOCK;
        if device.flush().await.is_err() {
            continue;
        }
        let mut reader = Client {
            world: Rc::clone(&world),
            disk: Rc::clone(&disk),
            random: random.clone(),
            hot: 0,
        };
        reader.read(&*device, block.clone()).await;
        if disk.is_sure(&block)
            && world.rot.spoil_block(&disk, block.clone(), &pool.objects(), &rows, &mut random)
        {
            let number = block.start / SECTOR;
            world.sim.note("rot", format_args!("! {} sector {number}", disk.name));
        }
    }
}
