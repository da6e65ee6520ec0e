//! Rot in a pool with a code: in fragments of one column, and in copies of one file of the log, up to as many as the code
//! has parity fragments.
//!
//! A fragment rots after all is in place, and a client reads the block at once. A change of the row in between computes new
//! parity from rotten bytes: then the parity stays wrong, and only bytes that are there are safe. What is left rotten is put
//! right before the process ends.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use engine::block::BlockDevices;
use engine::block::store::Store;
use policy::placement::Code;
use pool::code::Coder;
use pool::logged::Logged;
use pool::spread::ObjectStat;
use pool::{Kind, ObjectId, Placed, Spread};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::task::block_on;
use volume::{IoBufMut, Name, Volume};

use super::COPY;
use super::client::Client;
use super::coded::Coded;
use super::disk::{Disk, SECTOR, islands};
use super::narrow::{BLOCK, EXTENT, kept};
use super::world::World;
use crate::rows::{Rows, leaf};

/// What the names of the log's files begin with.
const LOG: &str = "pool.log/";

/// What rotted.
#[derive(Default)]
pub(super) struct Spoiled {
    spots: RefCell<Vec<Spot>>,
    /// The copies that rot of each file of the log.
    copies: RefCell<BTreeMap<ObjectId, Vec<u64>>>,
    /// Parity was computed from rotten bytes.
    unfit: Cell<bool>,
}

/// A byte that rotted.
struct Spot {
    row: usize,
    leaf: Name,
    offset: u64,
    good: u8,
    bad: u8,
}

impl Spoiled {
    pub(super) fn is_unfit(&self) -> bool {
        self.unfit.get()
    }

    /// Damages a byte of a leaf object; false if it is as it was.
    fn spoil(&self, rows: &Rows, leaf: &Name, offset: u64, change: impl Fn(u8) -> u8) -> bool {
        let found = |row: usize| rows.crashes[row].damage(leaf, offset, &change);
        let spoilt = (0..rows.crashes.len()).find_map(|row| Some((row, found(row)?)));
        let Some((row, good)) = spoilt else { return false };
        let (leaf, bad) = (leaf.clone(), change(good));
        self.spots.borrow_mut().push(Spot { row, leaf, offset, good, bad });
        true
    }

    /// Puts right what rotted, from the spot `first` on, where it was not written over.
    fn mend_from(&self, rows: &Rows, first: usize) {
        for Spot { row, leaf, offset, good, bad } in self.spots.borrow_mut().drain(first..) {
            rows.crashes[row].damage(&leaf, offset, |byte| if byte == bad { good } else { byte });
        }
    }

    /// A life ends.
    pub(super) fn mend(&self, rows: &Rows) {
        self.mend_from(rows, 0);
    }

    /// Damages a byte of some copies of a file of the log.
    fn spoil_log(
        &self,
        code: Code,
        pool: &Spread,
        rows: &Rows,
        random: &mut Xoshiro256PlusPlus,
    ) -> Option<Name> {
        let mut files = pool.objects();
        files.retain(|object| object.name.as_str().starts_with(LOG));
        if files.is_empty() {
            return None;
        }
        let file = &files[random.random_range(0..files.len())];
        let mut copies = self.copies.borrow_mut();
        let rotting = copies.entry(file.id).or_insert_with(|| {
            let mut all: Vec<_> = file.copies.iter().map(|placed| placed.number).collect();
            while all.len() > code.parity() {
                all.remove(random.random_range(0..all.len()));
            }
            all
        });
        let offset = random.random_range(0..80_000);
        let mut spoilt = false;
        for placed in file.copies.iter().filter(|placed| rotting.contains(&placed.number)) {
            spoilt |= self.spoil(rows, &leaf(file, placed), offset, |byte| byte ^ 0x40);
        }
        spoilt.then(|| file.name.clone())
    }

    /// Damages a byte of the fragment that has a sure block, and of others at the same place.
    fn spoil_block(
        &self,
        (code, disk): (Code, &Disk),
        block: u64,
        objects: &[ObjectStat],
        rows: &Rows,
        random: &mut Xoshiro256PlusPlus,
    ) -> Option<ObjectId> {
        let ends = format!("/{:08x}", block / EXTENT);
        let sector = random.random_range(0..BLOCK / SECTOR) * SECTOR;
        // Where the device's number is, which is never zero.
        let (fragment, offset) = code.chunks().locate(kept(block % EXTENT) + sector + 13);
        let (mark, count) = (disk.mark(), random.random_range(1..=code.parity()));
        for object in objects.iter().filter(|object| object.name.as_str().ends_with(&ends)) {
            let Some(placed) = fragment_of(object, fragment) else { continue };
            let change = |byte| if byte == mark { mark ^ 0x80 } else { byte };
            if !self.spoil(rows, &leaf(object, placed), offset, change) {
                continue;
            }
            for _ in 1..count {
                let other = random.random_range(0..code.fragments());
                if let Some(placed) = fragment_of(object, other).filter(|_| other != fragment) {
                    self.spoil(rows, &leaf(object, placed), offset, |byte| byte ^ 1);
                }
            }
            return Some(object.id);
        }
        None
    }
}

fn fragment_of(object: &ObjectStat, index: usize) -> Option<&Placed> {
    let is_it =
        |placed: &&Placed| placed.layout.fragment().is_some_and(|own| own.index as usize == index);
    object.copies.iter().find(is_it)
}

/// Whether the parity of an object fits its data; `None` if it lacks a fragment.
fn fits(object: &ObjectStat, rows: &Rows) -> Option<bool> {
    let code = object.copies.first()?.layout.fragment()?.code;
    let mut fragments = Vec::new();
    for index in 0..code.fragments() {
        let leaf = leaf(object, fragment_of(object, index)?);
        let found = rows.crashes.iter().find_map(|crash| block_on(crash.open(&leaf)).ok())?;
        let len = found.len() as usize;
        let bytes = block_on(found.read_at(0, IoBufMut::zeroed(len), COPY));
        fragments.push(bytes.expect("the power is on").to_vec());
    }
    let longest = fragments.iter().map(Vec::len).max()?;
    fragments.iter_mut().for_each(|fragment| fragment.resize(longest, 0));
    let (data, parity) = fragments.split_at(code.data());
    let data: Vec<_> = data.iter().map(|fragment| &fragment[..]).collect();
    let mut expected = vec![vec![0; longest]; code.parity()];
    let mut out: Vec<_> = expected.iter_mut().map(|bytes| &mut bytes[..]).collect();
    let coder = Coder::new(code.data(), code.parity()).expect("its numbers are within bounds");
    coder.encode(&data, &mut out).expect("all have one length");
    Some(parity == expected)
}

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
        coded.spoiled.mend_from(&rows, first);
        // A change of the row may be under way.
        let mut is_fit = false;
        for _ in 0..5 {
            logged.drain().await.expect("no volume fails");
            let objects = pool.objects();
            let object = objects.iter().find(|object| object.id == id);
            is_fit = object.is_none_or(|object| fits(object, &rows) == Some(true));
            if is_fit {
                break;
            }
        }
        if !is_fit {
            world.sim.note("rot", format_args!("! parity was computed from rotten bytes"));
            coded.spoiled.unfit.set(true);
        }
    }
}

fn reader(world: &Rc<World>, disk: &Rc<Disk>, random: &Xoshiro256PlusPlus) -> Client {
    let (world, disk) = (Rc::clone(world), Rc::clone(disk));
    Client { world, disk, random: random.clone(), hot: 0 }
}
