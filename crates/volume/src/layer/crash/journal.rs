//! What a device holds for certain, and what it may also hold.

use std::collections::BTreeMap;
use std::ops::Range;

use rand::{Rng, RngExt};

use crate::mem::{Born, Image};
use crate::{IoBuf, Name};

const PAGE: u64 = 4096;
const SECTOR: u64 = 512;

/// Identifies an object for as long as it may come back; a reused name gets another.
pub(super) type Id = u64;

/// A change of an object that is not synced yet.
pub(super) enum Change {
    Write {
        offset: u64,
        data: IoBuf,
    },
    /// A write that is durable, behind others that are not.
    Durable {
        offset: u64,
        data: IoBuf,
    },
    SetLen(u64),
}

/// A change of a name's object that is not durable yet.
enum Naming {
    Created(Id),
    Removed(Id),
}

impl Naming {
    const fn id(&self) -> Id {
        match self {
            Self::Created(id) | Self::Removed(id) => *id,
        }
    }

    /// The object of the name afterwards.
    const fn target(&self) -> Option<Id> {
        match self {
            Self::Created(id) => Some(*id),
            Self::Removed(_) => None,
        }
    }
}

/// One object behind the page cache.
#[derive(Default)]
struct Stored {
    durable: Vec<u8>,
    changes: Vec<Change>,
    born: Born,
}

/// The durable state of a volume, and every change since.
#[derive(Default)]
pub(super) struct Journal {
    names: BTreeMap<Name, Id>,
    renaming: BTreeMap<Name, Vec<Naming>>,
    /// Every object that has a name in some survivor.
    objects: BTreeMap<Id, Stored>,
    ids: Id,
}

impl Journal {
    /// A journal of `image`, all of it durable.
    pub(super) fn of(image: Image, born: &BTreeMap<Name, Born>) -> Self {
        let mut journal = Self::default();
        for (name, durable) in image {
            let born = born.get(&name).copied().unwrap_or_default();
            let id = journal.new_object(Stored { durable, changes: Vec::new(), born });
            journal.names.insert(name, id);
        }
        journal
    }

    pub(super) fn create(&mut self, name: &Name, born: Born) -> Id {
        let id = self.new_object(Stored { born, ..Stored::default() });
        self.renaming.entry(name.clone()).or_default().push(Naming::Created(id));
        id
    }

    pub(super) fn remove(&mut self, name: &Name) {
        let id = self.id(name);
        self.renaming.entry(name.clone()).or_default().push(Naming::Removed(id));
    }

    /// The object of `name` in the running machine.
    pub(super) fn id(&self, name: &Name) -> Id {
        let latest = self.renaming.get(name).and_then(|namings| namings.last());
        latest
            .map_or_else(|| self.names.get(name).copied(), Naming::target)
            .expect("the live volume has an object of this name")
    }

    /// A durable byte of a live object, and whether an unsynced change covers it or cuts it off.
    pub(super) fn durable_byte(&mut self, name: &Name, offset: u64) -> Option<(&mut u8, bool)> {
        let object = self.objects.get_mut(&self.id(name))?;
        let changes = |change: &Change| match change {
            Change::Write { offset: from, data } | Change::Durable { offset: from, data } => {
                (*from..from + data.len() as u64).contains(&offset)
            }
            Change::SetLen(len) => *len <= offset,
        };
        let is_covered = object.changes.iter().any(changes);
        Some((object.durable.get_mut(index(offset))?, is_covered))
    }

    pub(super) fn change(&mut self, id: Id, change: Change) {
        // An object that has a name in no survivor needs no journal.
        if let Some(object) = self.objects.get_mut(&id) {
            object.changes.push(change);
        }
    }

    /// Makes durable: the object's bytes and length, its name, and every earlier removal of other objects.
    pub(super) fn sync(&mut self, id: Id) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.settle();
        }
        self.settle_names(id);
    }

    /// Makes durable: these bytes, the length that they need, the object's name, and every earlier removal of others.
    pub(super) fn write_durable(&mut self, id: Id, offset: u64, data: IoBuf) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.changes.push(Change::Durable { offset, data });
            if object.changes.iter().all(|change| matches!(change, Change::Durable { .. })) {
                object.settle();
            }
        }
        self.settle_names(id);
    }

    fn settle_names(&mut self, id: Id) {
        let settles = |naming: &Naming| match naming {
            Naming::Created(created) => *created == id,
            Naming::Removed(removed) => *removed != id,
        };
        let mut still_renaming = BTreeMap::new();
        for (name, mut namings) in std::mem::take(&mut self.renaming) {
            if let Some(last) = namings.iter().rposition(settles) {
                let settled: Vec<_> = namings.drain(..=last).collect();
                self.settle_name(&name, &settled, &namings);
            }
            if !namings.is_empty() {
                still_renaming.insert(name, namings);
            }
        }
        self.renaming = still_renaming;
    }

    /// One possible state after a crash, and what was said of its objects.
    pub(super) fn survivor(&self, rng: &mut impl Rng) -> (Image, BTreeMap<Name, Born>) {
        let luck = Luck::draw(rng);
        let mut image = Image::new();
        let mut born = BTreeMap::new();
        let mut survive = |name: &Name, id: Option<Id>, rng: &mut _| {
            if let Some(id) = id {
                image.insert(name.clone(), self.objects[&id].survivor(luck, rng));
                born.insert(name.clone(), self.objects[&id].born);
            }
        };
        for (name, &id) in &self.names {
            if !self.renaming.contains_key(name) {
                survive(name, Some(id), rng);
            }
        }
        for (name, namings) in &self.renaming {
            // Changes of one name are ordered: a name is one entry in a directory.
            let kept = luck.count(namings.len(), rng);
            let id = match kept.checked_sub(1) {
                Some(last) => namings[last].target(),
                None => self.names.get(name).copied(),
            };
            survive(name, id, rng);
        }
        (image, born)
    }

    fn new_object(&mut self, object: Stored) -> Id {
        self.ids += 1;
        self.objects.insert(self.ids, object);
        self.ids
    }

    /// `settled` became durable, `pending` did not: drops objects that neither can lead to.
    fn settle_name(&mut self, name: &Name, settled: &[Naming], pending: &[Naming]) {
        let target = settled.last().and_then(Naming::target);
        let old = match target {
            Some(id) => self.names.insert(name.clone(), id),
            None => self.names.remove(name),
        };
        for id in settled.iter().map(Naming::id).chain(old) {
            let reachable = target == Some(id) || pending.iter().any(|n| n.target() == Some(id));
            if !reachable {
                self.objects.remove(&id);
            }
        }
    }
}

impl Stored {
    fn settle(&mut self) {
        for change in self.changes.drain(..) {
            match change {
                Change::Write { offset, data } | Change::Durable { offset, data } => {
                    put(&mut self.durable, offset, &data);
                }
                Change::SetLen(len) => self.durable.resize(index(len), 0),
            }
        }
    }

    fn survivor(&self, luck: Luck, rng: &mut impl Rng) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        // Every length that the running machine showed since the last sync.
        let mut len = bytes.len() as u64;
        let mut lens = vec![len];
        for change in &self.changes {
            match change {
                Change::Write { data, .. } if data.is_empty() => {}
                Change::Write { offset, data } => {
                    len = len.max(offset + data.len() as u64);
                    for page in pieces(*offset, data, PAGE) {
                        if luck.keeps(rng) {
                            page.survive(&mut bytes, rng);
                        }
                    }
                }
                Change::Durable { offset, data } => {
                    put(&mut bytes, *offset, data);
                    len = len.max(offset + data.len() as u64);
                    // No earlier length is left that would cut it off.
                    lens.retain(|&earlier| earlier >= offset + data.len() as u64);
                }
                Change::SetLen(to) => {
                    len = *to;
                    if luck.keeps(rng) {
                        bytes.resize(index(len), 0);
                    }
                }
            }
            lens.push(len);
        }
        if !self.changes.is_empty() && rng.random() {
            bytes.resize(index(lens[rng.random_range(0..lens.len())]), 0);
        }
        bytes
    }
}

/// The probability that a change survives. Drawn once for each survivor, so that few seeds include all, nothing and
/// nearly nothing even with many changes.
#[derive(Clone, Copy)]
struct Luck(f64);

impl Luck {
    fn draw(rng: &mut impl Rng) -> Self {
        Self(match rng.random_range(0..8) {
            0 => 0.0,
            1 => 1.0,
            _ => rng.random(),
        })
    }

    fn keeps(self, rng: &mut impl Rng) -> bool {
        rng.random_bool(self.0)
    }

    /// How many of `all` ordered changes survive.
    fn count(self, all: usize, rng: &mut impl Rng) -> usize {
        (0..all).filter(|_| self.keeps(rng)).count()
    }
}

/// A part of a write that lies within one page or one sector.
struct Piece<'a> {
    offset: u64,
    data: &'a [u8],
}

impl Piece<'_> {
    /// Survives: whole, or torn between its sectors.
    fn survive(&self, bytes: &mut Vec<u8>, rng: &mut impl Rng) {
        let torn = rng.random_ratio(1, 4);
        for sector in pieces(self.offset, self.data, SECTOR).filter(|_| !torn || rng.random()) {
            put(bytes, sector.offset, sector.data);
        }
    }
}

/// Cuts a write at the multiples of `unit`.
fn pieces(offset: u64, data: &[u8], unit: u64) -> impl Iterator<Item = Piece<'_>> {
    let mut rest: Range<usize> = 0..data.len();
    std::iter::from_fn(move || {
        let at = offset + rest.start as u64;
        let end = rest.end.min(rest.start + index(unit - at % unit));
        let piece = Piece { offset: at, data: &data[rest.start..end] };
        rest.start = end;
        (!piece.data.is_empty()).then_some(piece)
    })
}

fn put(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let range = index(offset)..index(offset) + data.len();
    bytes.resize(bytes.len().max(range.end), 0);
    bytes[range].copy_from_slice(data);
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("offsets within memory fit an address")
}
