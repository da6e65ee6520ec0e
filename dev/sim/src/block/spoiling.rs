//! Fragments and files of the log rot while clients read and write.

use std::rc::Rc;
use std::time::Duration;

use engine::block::BlockDevices;
use engine::block::store::Store;
use pool::logged::Logged;
use pool::{Kind, Spread};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::client::Client;
use super::coded::Coded;
use super::disk::{Disk, SECTOR, islands};
use super::narrow::BLOCK;
use super::spoil::fits;
use super::world::World;
use crate::rows::Rows;

impl Coded {
    /// Demands that every object in place has all of its fragments, and that its parity fits its data. All is in place, and
    /// no volume fails.
    pub(super) fn must_fit(&self, pool: &Spread, rows: &Rows) {
        let mut objects = pool.objects();
        objects.retain(|object| object.kind == Kind::InPlace);
        for object in objects {
            let fits = fits(&object, rows);
            let name = &object.name;
            assert!(fits.is_some(), "{name}: fragments are missing: {:?}", object.copies);
            let is_fine = fits == Some(true) || self.spoiled.is_unfit();
            assert!(is_fine, "{name}: its parity does not fit its data: {:?}", object.copies);
        }
    }
}

/// Fragments and the log rot now and then.
pub(super) async fn decay(
    world: Rc<World>,
    store: Store,
    (pool, logged): (Spread, Logged),
    rows: Rows,
    mut random: Xoshiro256PlusPlus,
) {
    let Some(coded) = &world.coded else { return };
    for _ in 0..random.random_range(1..12) {
        world.sim.clock().sleep(Duration::from_micros(random.random_range(0..30_000))).await;
        if world.finishes.get() {
            return;
        }
        if random.random_bool(0.5) {
            if let Some(name) = coded.spoiled.spoil_log(coded.code, &pool, &rows, &mut random) {
                world.sim.note("rot", format_args!("! {name}"));
            }
            continue;
        }
        let disks = world.disks.borrow().clone();
        if disks.is_empty() {
            continue;
        }
        let disk = Rc::clone(&disks[random.random_range(0..disks.len())]);
        let Ok(device) = BlockDevices::open(&store, &disk.name).await else { continue };
        let islands = islands(device.geometry().size);
        let island = &islands[random.random_range(0..islands.len())];
        let blocks = (island.end - island.start) / BLOCK;
        let from = island.start + random.random_range(0..blocks) * BLOCK;
        let block = from..from + BLOCK;
        if device.flush().await.is_err() {
            continue;
        }
        let (mut reader, seed) = (reader(&world, &disk, &random), random.random_bool(0.9));
        reader.read(&*device, block.clone()).await;
        if seed {
            logged.drain().await.expect("no volume fails");
        }
        if !disk.is_sure(&block) {
            continue;
        }
        let first = coded.spoiled.spots.borrow().len();
        let rotten = (coded.code, &*disk);
        let objects = pool.objects();
        let id = coded.spoiled.spoil_block(rotten, from, &objects, &rows, &mut random);
        let Some(id) = id else { continue };
        world.sim.note("rot", format_args!("! {} sector {}", disk.name, from / SECTOR));
        reader.read(&*device, block).await;
        let has_parity = coded.spoiled.has_parity_from(first);
        coded.spoiled.mend_from(&rows, first);
        let fit = || {
            let objects = pool.objects();
            let object = objects.iter().find(|object| object.id == id);
            object.is_none_or(|object| fits(object, &rows) == Some(true))
        };
        // A change of the row may be under way.
        let mut is_fit = false;
        for _ in 0..5 {
            logged.drain().await.expect("no volume fails");
            is_fit = fit();
            if is_fit {
                break;
            }
        }
        if !is_fit {
            let is_known = has_parity || coded.spoiled.is_unfit();
            assert!(is_known, "{}: parity was computed from rotten data", disk.name);
            world.sim.note("rot", format_args!("! parity that rotted was changed"));
            coded.spoiled.unfit.set(true);
        }
    }
}

fn reader(world: &Rc<World>, disk: &Rc<Disk>, random: &Xoshiro256PlusPlus) -> Client {
    let (world, disk) = (Rc::clone(world), Rc::clone(disk));
    Client { world, disk, random: random.clone(), hot: 0 }
}
