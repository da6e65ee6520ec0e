//! Bits that rot: in one copy of a block, and in one copy of a page of checksums.
//!
//! Blocks rot only where their checksum is known: in weather without failures, after they were written or read in the
//! same life. A crash leaves blocks in doubt, and the store then has no checksum that could tell which copy is good. So
//! rotten bits are put right before the process dies, unless the store was closed. Where an object has one copy, a
//! reader of a rotten block gets `Corrupt`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use pool::ObjectId;
use pool::spread::ObjectStat;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::task::block_on;
use volume::{Name, Volume};

use super::disk::{Disk, SECTOR};
use super::narrow::{BLOCK, EXTENT, REGION, SLOT, kept};
use crate::rows::{Rows, leaf};

/// The bytes of a page of checksums that mean something.
const PAGE: u64 = 32 + 4096;

/// What rots, and rotted.
#[derive(Default)]
pub(super) struct Rot {
    spots: RefCell<Vec<Spot>>,
    /// Devices with a block whose only copy rotted in this life, or before and still is.
    alone: RefCell<BTreeSet<String>>,
    /// Objects with one copy, of which a page of checksums rotted: their blocks cannot be verified any more.
    unverified: RefCell<BTreeSet<ObjectId>>,
}

/// A byte that rotted. It stays known after a change of its block: a crash may undo that one.
struct Spot {
    disk: String,
    block: Range<u64>,
    object: ObjectId,
    offset: u64,
    good: u8,
    bad: u8,
    alone: bool,
}

impl Rot {
    /// Whether a reader of a device may get `Corrupt`.
    pub(super) fn may_lack(&self, disk: &str) -> bool {
        self.alone.borrow().contains(disk)
    }

    /// Nothing rotted that was not put right.
    pub(super) fn is_empty(&self) -> bool {
        self.spots.borrow().is_empty()
    }

    /// A life begins.
    pub(super) fn begin_life(&self) {
        let still = self.spots.borrow();
        let still = still.iter().filter(|spot| spot.alone).map(|spot| spot.disk.clone());
        *self.alone.borrow_mut() = still.collect();
    }

    /// Puts right what rotted. The power is on.
    pub(super) fn mend(&self, rows: &Rows) {
        for spot in self.spots.borrow_mut().drain(..) {
            let begins = format!("o{}.", spot.object);
            let copies = format!("o{}-", spot.object);
            for crash in &rows.crashes {
                let listed = block_on(crash.list()).expect("the power is on");
                let names = listed.into_iter().map(|object| object.name);
                let is_copy = |name: &Name| {
                    name.as_str().starts_with(&begins) || name.as_str().starts_with(&copies)
                };
                for name in names.filter(is_copy) {
                    let mend = |byte| if byte == spot.bad { spot.good } else { byte };
                    crash.damage(&name, spot.offset, mend);
                }
            }
        }
    }

    /// Damages a byte of one copy of a sure block.
    pub(super) fn spoil_block(
        &self,
        disk: &Disk,
        block: Range<u64>,
        objects: &[ObjectStat],
        rows: &Rows,
        random: &mut Xoshiro256PlusPlus,
    ) -> bool {
        if self.spots.borrow().iter().any(|spot| spot.disk == disk.name && spot.block == block) {
            return false;
        }
        let ends = format!("/{:08x}", block.start / EXTENT);
        for object in objects.iter().filter(|object| object.name.as_str().ends_with(&ends)) {
            let alone = object.copies.len() == 1;
            if alone && self.unverified.borrow().contains(&object.id) {
                continue;
            }
            let sector = random.random_range(0..BLOCK / SECTOR) * SECTOR;
            // Where the device's number is, which is never zero: so no write changes it, but one of zeros.
            let offset = kept(block.start % EXTENT + sector + 13);
            let mark = disk.mark();
            let bad = mark ^ 0x80;
            let change = |byte| if byte == mark { bad } else { byte };
            let placed = &object.copies[random.random_range(0..object.copies.len())];
            let row = usize::from(placed.layout.volumes()[0].0);
            if rows.crashes[row].damage(&leaf(object, placed), offset, change).is_some() {
                let (disk, object) = (disk.name.clone(), object.id);
                if alone {
                    self.alone.borrow_mut().insert(disk.clone());
                }
                let spot = Spot { disk, block, object, offset, good: mark, bad, alone };
                self.spots.borrow_mut().push(spot);
                return true;
            }
        }
        false
    }

    /// Damages a byte of one copy of a page of checksums.
    pub(super) fn spoil_page(
        &self,
        object: &ObjectStat,
        rows: &Rows,
        random: &mut Xoshiro256PlusPlus,
    ) {
        if object.copies.len() == 1 {
            if self.spots.borrow().iter().any(|spot| spot.object == object.id) {
                return;
            }
            self.unverified.borrow_mut().insert(object.id);
        }
        let region = random.random_range(0..EXTENT / REGION);
        let offset = kept(EXTENT + region * SLOT + random.random_range(0..PAGE));
        let placed = &object.copies[random.random_range(0..object.copies.len())];
        let row = usize::from(placed.layout.volumes()[0].0);
        rows.crashes[row].damage(&leaf(object, placed), offset, |byte| byte ^ 1);
    }
}
