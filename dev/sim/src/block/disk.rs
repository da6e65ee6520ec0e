//! A device as its clients know it: a history for each sector that they write.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::history::{History, Keeps, Moment, Stamp};
use super::narrow::{BLOCK, EXTENT, MARGIN, REGION};

/// What has a history, in bytes: a crash leaves it old or new as a whole.
pub(super) const SECTOR: u64 = 512;
/// The most extents of a device.
const EXTENTS: u64 = 4;

/// A device over all lives of the store.
pub(super) struct Disk {
    pub(super) name: String,
    serial: u64,
    /// The sizes that it may have, in bytes, the last one acknowledged first.
    pub(super) sizes: RefCell<Vec<u64>>,
    /// A deletion was asked for, and not acknowledged.
    pub(super) is_going: Cell<bool>,
    /// How often a change of the size began or ended: odd while one is under way.
    pub(super) resizes: Cell<u64>,
    sectors: RefCell<BTreeMap<u64, History>>,
}

impl Disk {
    pub(super) fn new(serial: u64, size: u64) -> Self {
        let mut sectors = BTreeMap::new();
        for island in islands(EXTENTS * EXTENT) {
            let numbers = island.start / SECTOR..island.end / SECTOR;
            sectors.extend(numbers.map(|number| (number, History::zeros())));
        }
        Self {
            name: format!("disk-{serial}"),
            serial,
            sizes: RefCell::new(vec![size]),
            is_going: Cell::new(false),
            resizes: Cell::new(0),
            sectors: RefCell::new(sectors),
        }
    }

    /// Draws a size, mostly one that ends near a border.
    pub(super) fn any_size(random: &mut Xoshiro256PlusPlus) -> u64 {
        let base = random.random_range(0..EXTENTS - 1) * EXTENT;
        match random.random_range(0..4) {
            0 => base + EXTENT,
            1 => base + REGION,
            2 => base + random.random_range(1..=MARGIN / BLOCK) * BLOCK,
            _ => base + REGION + random.random_range(1..=MARGIN / BLOCK) * BLOCK,
        }
    }

    /// Where a sector's bytes belong: they say so.
    fn place(&self, sector: u64) -> u64 {
        (self.serial + 1) << 40 | sector
    }

    /// The byte of [`Disk::place`] that says the device.
    pub(super) const fn mark(&self) -> u8 {
        (self.serial + 1) as u8
    }

    /// The bytes of a write.
    pub(super) fn bytes(&self, range: &Range<u64>, stamp: Stamp) -> Vec<u8> {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        for sector in range.start / SECTOR..range.end / SECTOR {
            bytes.extend_from_slice(&sector_of(stamp, self.place(sector)));
        }
        bytes
    }

    /// A change of a range begins. Zero stands for zeros.
    pub(super) fn begin(&self, range: &Range<u64>, stamp: Stamp, now: Moment) {
        self.each(range, |_, history| history.begin(stamp, now));
    }

    /// The change that began at `begun` ends.
    pub(super) fn end(&self, range: &Range<u64>, begun: Moment, now: Moment, ended: Ended) {
        self.each(range, |sector, history| match ended {
            Ended::Acknowledged { durable } => {
                if let Err(why) = history.acknowledge(begun, now, durable) {
                    panic!("{} sector {sector}: {why}", self.name);
                }
            }
            Ended::Unknown => history.give_up(begun, now),
        });
    }

    /// A read has given these bytes.
    pub(super) fn found(&self, range: &Range<u64>, bytes: &[u8], begun: Moment, now: Moment) {
        assert_eq!(bytes.len() as u64, range.end - range.start, "{}: a short read", self.name);
        self.each(range, |sector, history| {
            let at = (sector * SECTOR - range.start) as usize;
            let bytes = &bytes[at..at + SECTOR as usize];
            let stamp = Stamp::from_le_bytes(*bytes.first_chunk().expect("a sector is longer"));
            let wanted = match stamp {
                0 => [0; SECTOR as usize],
                _ => sector_of(stamp, self.place(sector)),
            };
            assert!(
                bytes == wanted,
                "{} sector {sector}: bytes that were never written: {:02x?}",
                self.name,
                &bytes[..16]
            );
            if let Err(why) = history.found(stamp, begun, now) {
                panic!("{} sector {sector}: {why}", self.name);
            }
        });
    }

    /// What a range has for certain is not zeros, and is under no change.
    pub(super) fn is_sure(&self, range: &Range<u64>) -> bool {
        let mut sure = true;
        self.each(range, |_, history| sure &= history.sure().is_some_and(|stamp| stamp != 0));
        sure
    }

    /// Zeros were read where a hole is.
    pub(super) fn found_hole(&self, range: &Range<u64>, begun: Moment, now: Moment) {
        self.each(range, |sector, history| {
            if let Err(why) = history.found(0, begun, now) {
                panic!("{} sector {sector} in a hole: {why}", self.name);
            }
        });
    }

    pub(super) fn flushed(&self, begun: Moment) {
        self.sectors.borrow_mut().values_mut().for_each(|history| history.flushed(begun));
    }

    pub(super) fn not_flushed(&self) {
        self.sectors.borrow_mut().values_mut().for_each(History::not_flushed);
    }

    pub(super) fn die(&self, keeps: Keeps, now: Moment) {
        self.sectors.borrow_mut().values_mut().for_each(|history| history.die(keeps, now));
    }

    /// The store says which of the sizes it has. What is behind it was cut off.
    pub(super) fn settle_size(&self, size: u64) {
        let sizes = &mut *self.sizes.borrow_mut();
        assert!(sizes.contains(&size), "{}: {size} bytes, not one of {sizes:?}", self.name);
        *sizes = vec![size];
        // A change that the end of the process cut off is over.
        self.resizes.set(self.resizes.get().next_multiple_of(2));
        let cut = size / SECTOR..;
        for history in self.sectors.borrow_mut().range_mut(cut).map(|(_, history)| history) {
            *history = History::zeros();
        }
    }

    fn each(&self, range: &Range<u64>, mut what: impl FnMut(u64, &mut History)) {
        let numbers = range.start / SECTOR..range.end / SECTOR;
        for (&number, history) in self.sectors.borrow_mut().range_mut(numbers) {
            what(number, history);
        }
    }
}

/// The end of a change.
#[derive(Clone, Copy)]
pub(super) enum Ended {
    Acknowledged { durable: bool },
    Unknown,
}

fn sector_of(stamp: Stamp, place: u64) -> [u8; SECTOR as usize] {
    let mut sector = [0; SECTOR as usize];
    for pair in sector.chunks_exact_mut(16) {
        pair[..8].copy_from_slice(&stamp.to_le_bytes());
        pair[8..].copy_from_slice(&place.to_le_bytes());
    }
    sector
}

/// The ranges of a device of this size in which clients write: around borders of regions and extents.
pub(super) fn islands(size: u64) -> Vec<Range<u64>> {
    let mut islands = Vec::new();
    for base in (0..=size).step_by(EXTENT as usize) {
        let around = |border: u64| border.saturating_sub(MARGIN)..border + MARGIN;
        islands.extend([
            around(base),
            around(base + REGION),
            base + 2 * REGION - MARGIN..base + 2 * REGION,
            base + EXTENT - REGION..base + EXTENT - REGION + MARGIN,
        ]);
    }
    islands.iter_mut().for_each(|island| island.end = island.end.min(size));
    islands.retain(|island| island.start < island.end);
    islands
}
