//! Rot in a pool with a code: in fragments of one column, and in copies of one file of the log, up to as many as the code
//! has parity fragments.
//!
//! A fragment rots after all is in place, and a client reads the block at once. Of a fragment of parity, a change of the row in
//! between may add to the rotten bytes: then the parity stays wrong, and more that rots may be too much. What is left
//! rotten is put right before the process ends.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use policy::placement::Code;
use pool::code::Coder;
use pool::spread::ObjectStat;
use pool::{ObjectId, Placed, Spread};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::task::block_on;
use volume::{IoBufMut, Name, Volume};

use super::COPY;
use super::disk::{Disk, SECTOR};
use super::narrow::{BLOCK, EXTENT, kept};
use crate::rows::{Rows, leaf};

/// What the names of the log's files begin with.
const LOG: &str = "pool.log/";

/// What rotted.
#[derive(Default)]
pub(super) struct Spoiled {
    pub(super) spots: RefCell<Vec<Spot>>,
    /// The copies that rot of each file of the log.
    copies: RefCell<BTreeMap<ObjectId, Vec<u64>>>,
    /// Parity that rotted was changed, and not put right.
    pub(super) unfit: Cell<bool>,
}

/// A byte that rotted.
pub(super) struct Spot {
    row: usize,
    leaf: Name,
    offset: u64,
    good: u8,
    bad: u8,
    is_parity: bool,
}

impl Spoiled {
    pub(super) fn is_unfit(&self) -> bool {
        self.unfit.get()
    }

    /// Whether parity rotted, from the spot `first` on.
    pub(super) fn has_parity_from(&self, first: usize) -> bool {
        self.spots.borrow()[first..].iter().any(|spot| spot.is_parity)
    }

    /// Damages a byte of a leaf object; false if it is as it was.
    fn spoil(
        &self,
        rows: &Rows,
        (leaf, offset): (&Name, u64),
        is_parity: bool,
        change: impl Fn(u8) -> u8,
    ) -> bool {
        let found = |row: usize| rows.crashes[row].damage(leaf, offset, &change);
        let spoilt = (0..rows.crashes.len()).find_map(|row| Some((row, found(row)?)));
        let Some((row, good)) = spoilt else { return false };
        let (leaf, bad) = (leaf.clone(), change(good));
        self.spots.borrow_mut().push(Spot { row, leaf, offset, good, bad, is_parity });
        true
    }

    /// Puts right what rotted, from the spot `first` on, where it was not written over.
    pub(super) fn mend_from(&self, rows: &Rows, first: usize) {
        for Spot { row, leaf, offset, good, bad, .. } in self.spots.borrow_mut().drain(first..) {
            rows.crashes[row].damage(&leaf, offset, |byte| if byte == bad { good } else { byte });
        }
    }

    /// A life ends.
    pub(super) fn mend(&self, rows: &Rows) {
        self.mend_from(rows, 0);
    }

    /// Damages a byte of some copies of a file of the log.
    pub(super) fn spoil_log(
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
            spoilt |= self.spoil(rows, (&leaf(file, placed), offset), false, |byte| byte ^ 0x40);
        }
        spoilt.then(|| file.name.clone())
    }

    /// Damages a byte of the fragment that has a sure block, and of others at the same place.
    pub(super) fn spoil_block(
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
            if !self.spoil(rows, (&leaf(object, placed), offset), false, change) {
                continue;
            }
            for _ in 1..count {
                let other = random.random_range(0..code.fragments());
                if let Some(placed) = fragment_of(object, other).filter(|_| other != fragment) {
                    let is_parity = other >= code.data();
                    self.spoil(rows, (&leaf(object, placed), offset), is_parity, |byte| byte ^ 1);
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
pub(super) fn fits(object: &ObjectStat, rows: &Rows) -> Option<bool> {
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
