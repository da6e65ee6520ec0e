//! The state of the manifest after all changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use policy::placement::{Layout, VolumeId};
use volume::{Error, ErrorKind, Name, Result};

use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::copies::{Copies, Placed, Places};
use crate::manifest::record::{Committed, Record};

/// Names, their objects, and the ids that were issued. Every object has a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct State {
    names: BTreeMap<Name, ObjectId>,
    objects: BTreeMap<ObjectId, Stored>,
    /// The objects with a copy on each volume.
    on: BTreeMap<VolumeId, BTreeSet<ObjectId>>,
    /// The objects with the same places, counted: there are far fewer places than objects.
    tallies: BTreeMap<Places, Tally>,
    /// The ids that this manifest issued, or may have issued.
    issued: std::ops::Range<u64>,
    /// Numbers below this were given to volumes, or may have been given.
    volume_ids: u16,
    draining: BTreeSet<VolumeId>,
    /// No change since the pool was closed.
    closed: bool,
}

/// One object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Stored {
    pub(crate) kind: Kind,
    pub(crate) copies: Copies,
    /// `None` for a log that was never synced.
    pub(crate) committed: Option<Committed>,
    /// A log that never changes again.
    is_sealed_log: bool,
    /// Its names, in order; at least one.
    names: Vec<Name>,
}

/// A number of objects, and their bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

/// The first bytes of an object, and what they must be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Checked {
    /// How many bytes.
    pub(crate) len: u64,
    /// Their xxh3-64.
    pub(crate) checksum: u64,
}

impl Stored {
    /// Its length in bytes; of a log that is not sealed, that of its first sync or of its checksum.
    pub(crate) fn len(&self) -> u64 {
        self.committed.map_or(0, |committed| committed.len)
    }

    fn places(&self) -> Places {
        self.copies.places()
    }

    /// The number of its names.
    pub(crate) fn links(&self) -> u32 {
        self.names.len() as u32
    }

    /// The first of its names.
    pub(crate) fn name(&self) -> Option<&Name> {
        self.names.first()
    }

    fn add_name(&mut self, name: &Name) {
        if let Err(at) = self.names.binary_search(name) {
            self.names.insert(at, name.clone());
        }
    }

    fn remove_name(&mut self, name: &Name) {
        if let Ok(at) = self.names.binary_search(name) {
            self.names.remove(at);
        }
    }
}

/// Copies that the manifest no longer lists: their bytes can be removed once that is durable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Dead {
    pub(crate) id: ObjectId,
    pub(crate) kind: Kind,
    pub(crate) copies: Copies,
    /// Whether the object lost its last name; if not, its other copies remain.
    pub(crate) whole: bool,
}

impl Dead {
    /// One copy.
    pub(crate) fn copy(id: ObjectId, kind: Kind, placed: Placed) -> Self {
        Self { id, kind, copies: Copies::only(placed), whole: false }
    }
}

impl Stored {
    /// Whether a leaf object of this kind, of copy `number`, belongs on this volume.
    fn is_at(&self, kind: Kind, number: u64, volume: VolumeId) -> bool {
        let placed = self.copies.get(number);
        self.kind == kind && placed.is_some_and(|placed| placed.is_on(volume))
    }

    /// Whether it has a checksum of all its bytes: then it never changes again.
    pub(crate) fn is_sealed(&self) -> bool {
        (self.kind != Kind::Log || self.is_sealed_log) && self.checked().is_some()
    }

    /// How many of its first bytes a checksum covers, and the checksum: all bytes unless it is a log that is not
    /// sealed.
    pub(crate) fn checked(&self) -> Option<Checked> {
        let Committed { len, checksum } = self.committed?;
        Some(Checked { len, checksum: checksum? })
    }

    /// Whether the planner of copies handles it: a sealed table that is not striped.
    pub(crate) fn is_plain(&self) -> bool {
        let whole = |placed: &Placed| matches!(placed.layout, Layout::Whole { .. });
        self.kind == Kind::Table && self.is_sealed() && self.copies.iter().all(whole)
    }

    /// Whether the pool need not compare its copies after a crash. They are equal if it is sealed, or if it is a table that was
    /// synced, whose bytes past the committed length are cut off. If it is in place, its store has the ranges in doubt
    /// aligned.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_sealed()
            || self.kind == Kind::InPlace
            || (self.kind == Kind::Table && self.committed.is_some())
    }
}

impl Dead {
    /// Every leaf object of the copies, and its volume.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = (VolumeId, Leaf)> {
        let (id, kind) = (self.id, self.kind);
        self.copies.iter().flat_map(move |placed| {
            let leaf = Leaf::Object { id, kind, copy: placed.number };
            placed.layout.volumes().iter().map(move |&volume| (volume, leaf))
        })
    }
}

/// The manifest's verdict on a leaf object that was found on a volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// It belongs there.
    Wanted,
    /// The manifest issued its number and does not need it: it may be removed.
    Issued,
    /// The manifest never put it there.
    Foreign,
}

impl State {
    /// Every id is below this; no pool ever gets there by creating objects.
    pub(crate) const ID_MAX: u64 = 1 << 63;

    /// The state of a new pool: empty, with no id issued.
    pub(crate) const fn new() -> Self {
        Self {
            names: BTreeMap::new(),
            objects: BTreeMap::new(),
            on: BTreeMap::new(),
            tallies: BTreeMap::new(),
            issued: 1..1,
            volume_ids: 0,
            draining: BTreeSet::new(),
            closed: false,
        }
    }

    /// The verdict on a leaf object of this object, kind and copy that was found on `volume`.
    pub(crate) fn verdict(&self, id: ObjectId, kind: Kind, copy: u64, volume: VolumeId) -> Verdict {
        // Copies' numbers are issued like objects'; the first copy is number 0.
        let issued = self.issued.contains(&id.0) && (copy == 0 || self.issued.contains(&copy));
        match self.object(id) {
            Some(object) if object.is_at(kind, copy, volume) => Verdict::Wanted,
            // The object or copy exists, but elsewhere or with another kind: not the pool's own doing.
            Some(object) if object.kind != kind || object.copies.get(copy).is_some() => {
                Verdict::Foreign
            }
            _ if issued => Verdict::Issued,
            _ => Verdict::Foreign,
        }
    }

    /// Whether the manifest has no object on `volume`.
    pub(crate) fn is_empty_of(&self, volume: VolumeId) -> bool {
        self.count_on(volume) == 0
    }

    /// The number of objects with a copy on `volume`.
    pub(crate) fn count_on(&self, volume: VolumeId) -> u64 {
        self.on.get(&volume).map_or(0, |on| on.len() as u64)
    }

    /// The objects with a copy on `volume`, from after `after` on, in order. Visits no others.
    pub(crate) fn objects_on(
        &self,
        volume: VolumeId,
        after: Option<ObjectId>,
    ) -> impl Iterator<Item = ObjectId> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let on = self.on.get(&volume).into_iter();
        on.flat_map(move |on| on.range((from, Bound::Unbounded)).copied())
    }

    /// The number of objects with the same places, and their bytes, for all places. Visits no object.
    pub(crate) fn tallies(&self) -> impl Iterator<Item = (&Places, Tally)> {
        self.tallies.iter().map(|(places, tally)| (places, *tally))
    }

    fn count(&mut self, places: Places, len: u64) {
        let tally = self.tallies.entry(places).or_default();
        tally.objects += 1;
        tally.bytes += len;
    }

    fn discount(&mut self, places: &Places, len: u64) {
        if let Some(tally) = self.tallies.get_mut(places) {
            tally.objects -= 1;
            tally.bytes -= len;
            if tally.objects == 0 {
                self.tallies.remove(places);
            }
        }
    }

    /// Changes an object, and counts it where it belongs then.
    fn change<T>(
        &mut self,
        id: ObjectId,
        change: impl FnOnce(&mut Stored) -> Result<T>,
    ) -> Result<T> {
        let stored = self.objects.get_mut(&id).ok_or_else(|| gone(id))?;
        let (places, len) = (stored.places(), stored.len());
        let changed = change(stored);
        let (places_now, len_now) = (stored.places(), stored.len());
        if (&places, len) != (&places_now, len_now) {
            self.discount(&places, len);
            self.count(places_now, len_now);
        }
        changed
    }

    fn put_on(&mut self, id: ObjectId, volumes: impl IntoIterator<Item = VolumeId>) {
        for volume in volumes {
            self.on.entry(volume).or_default().insert(id);
        }
    }

    /// Removes copies `gone` of an object from `on`; `left` are the volumes of its other copies.
    fn take_off(&mut self, id: ObjectId, gone: &Copies, left: &BTreeSet<VolumeId>) {
        for volume in gone.volumes().filter(|volume| !left.contains(volume)) {
            if let Some(on) = self.on.get_mut(&volume) {
                on.remove(&id);
                if on.is_empty() {
                    self.on.remove(&volume);
                }
            }
        }
    }

    /// The volumes that are being drained.
    pub(crate) const fn draining(&self) -> &BTreeSet<VolumeId> {
        &self.draining
    }

    /// Numbers below this were given to volumes, or may have been given.
    pub(crate) const fn volume_ids(&self) -> u16 {
        self.volume_ids
    }

    /// Whether there was no change since the pool was closed.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// The object of this name.
    pub(crate) fn id(&self, name: &Name) -> Option<ObjectId> {
        self.names.get(name).copied()
    }

    pub(crate) fn object(&self, id: ObjectId) -> Option<&Stored> {
        self.objects.get(&id)
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = (ObjectId, &Stored)> {
        self.objects.iter().map(|(&id, stored)| (id, stored))
    }

    /// The objects after `after`, in the order of their ids. Visits no others.
    pub(crate) fn objects_after(
        &self,
        after: Option<ObjectId>,
    ) -> impl Iterator<Item = (ObjectId, &Stored)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.objects.range((from, Bound::Unbounded)).map(|(&id, stored)| (id, stored))
    }

    /// Every name that begins with `prefix`, in order.
    pub(crate) fn names<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a Name, ObjectId)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let names = self.names.range::<str, _>(from).map(|(name, &id)| (name, id));
        names.take_while(move |(name, _)| name.as_str().starts_with(prefix))
    }

    /// The ids that this manifest issued, or may have issued.
    pub(crate) fn issued(&self) -> std::ops::Range<u64> {
        self.issued.clone()
    }

    /// Applies an edit: all of its records or, on error, none. Returns the copies that it removed.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `Invalid`, `Gone`: the edit does not fit the state.
    pub(crate) fn apply(&mut self, edit: &[Record]) -> Result<Vec<Dead>> {
        match edit {
            [] => Ok(Vec::new()),
            // One record is atomic by itself.
            [record] => Ok(self.apply_one(record)?.into_iter().collect()),
            // Edits of several records are rare: applying them to a copy is cheap enough.
            several => {
                let mut next = self.clone();
                let mut dead = Vec::new();
                for record in several {
                    dead.extend(next.apply_one(record)?);
                }
                *self = next;
                Ok(dead)
            }
        }
    }

    fn apply_one(&mut self, record: &Record) -> Result<Option<Dead>> {
        self.closed = *record == Record::Close;
        match record {
            Record::Lease { from, upto } => self.lease(*from, *upto)?,
            Record::Create { id, kind, copies, committed, name } => {
                let (kind, copies, committed) = (*kind, copies.clone(), *committed);
                let stored = Stored {
                    kind,
                    copies,
                    committed,
                    is_sealed_log: false,
                    names: vec![name.clone()],
                };
                self.create(*id, name, stored)?;
            }
            Record::Commit { id, committed } => {
                self.change(*id, |stored| {
                    stored.committed = Some(*committed);
                    Ok(())
                })?;
            }
            Record::Unlink { name } => {
                let id = self.names.remove(name).ok_or_else(|| not_found(name))?;
                return Ok(self.release(id, name));
            }
            Record::Rename { from, to } => {
                let id = self.id(from).ok_or_else(|| not_found(from))?;
                if from != to {
                    self.names.remove(from);
                    let replaced = self.names.insert(to.clone(), id);
                    // The replaced object loses the name first: it may be the renamed object itself.
                    let dead = replaced.and_then(|replaced| self.release(replaced, to));
                    if let Some(stored) = self.objects.get_mut(&id) {
                        stored.add_name(to);
                        stored.remove_name(from);
                    }
                    return Ok(dead);
                }
            }
            Record::Link { from, to } => {
                let id = self.id(from).ok_or_else(|| not_found(from))?;
                self.must_be_free(to)?;
                let stored = self.objects.get_mut(&id).ok_or_else(|| gone(id))?;
                stored.add_name(to);
                self.names.insert(to.clone(), id);
            }
            Record::RenamePrefix { from, to } => self.rename_prefix(from, to)?,
            Record::Close => {}
            Record::AddCopy { id, placed } => self.add_copy(*id, placed)?,
            Record::DropCopy { id, number } => {
                let (kind, copies, left) = self.change(*id, |stored| {
                    let dropped = stored.copies.remove(*number).ok_or_else(|| {
                        invalid(format!("object {id}: copy {number} is not one of several"))
                    })?;
                    let left = stored.copies.volumes().collect();
                    Ok((stored.kind, Copies::of([dropped]), left))
                })?;
                copies.iter().for_each(|gone| self.take_off(*id, gone, &left));
                return Ok(copies.map(|copies| Dead { id: *id, kind, copies, whole: false }));
            }
            Record::Recode { id, copies } => return self.recode(*id, copies).map(Some),
            Record::Seal { id } => {
                let stored = self.objects.get_mut(id).ok_or_else(|| gone(*id))?;
                stored.is_sealed_log = true;
            }
            Record::VolumeIds { from } => self.volume_ids = self.volume_ids.max(*from),
            Record::Drain { volume, drains: true } => {
                self.draining.insert(*volume);
            }
            Record::Drain { volume, drains: false } => {
                self.draining.remove(volume);
            }
        }
        Ok(None)
    }

    fn add_copy(&mut self, id: ObjectId, placed: &Placed) -> Result<()> {
        let is_issued = placed.number > 0 && placed.number < self.issued.end;
        self.change(id, |stored| {
            if !is_issued {
                let what = format!("object {id}: copy {} was never issued", placed.number);
                return Err(invalid(what));
            }
            if stored.copies.get(placed.number).is_some() {
                return Err(invalid(format!("object {id}: there is a copy {}", placed.number)));
            }
            if placed.code() != stored.copies.code() {
                let what = format!(
                    "object {id}: its copies are not of the kind of copy {}",
                    placed.number
                );
                return Err(invalid(what));
            }
            stored.copies.add(placed.clone());
            Ok(())
        })?;
        self.put_on(id, placed.layout.volumes().iter().copied());
        Ok(())
    }

    /// Puts fragments in the place of all copies, which are returned.
    fn recode(&mut self, id: ObjectId, copies: &Copies) -> Result<Dead> {
        let issued = 1..self.issued.end;
        let (kind, old) = self.change(id, |stored| {
            let is_new = |placed: &Placed| {
                issued.contains(&placed.number) && stored.copies.get(placed.number).is_none()
            };
            let fits = stored.is_sealed() && stored.copies.code().is_none();
            if !fits || copies.code().is_none() || !copies.iter().all(is_new) {
                return Err(invalid(format!("object {id}: it cannot get these fragments")));
            }
            Ok((stored.kind, std::mem::replace(&mut stored.copies, copies.clone())))
        })?;
        self.take_off(id, &old, &copies.volumes().collect());
        self.put_on(id, copies.volumes());
        Ok(Dead { id, kind, copies: old, whole: false })
    }

    fn lease(&mut self, from: u64, upto: u64) -> Result<()> {
        let goes_on = from >= self.issued.start && upto >= self.issued.end;
        if from > upto || upto > Self::ID_MAX || !goes_on {
            return Err(invalid(format!("ids {from} to {upto} after {:?}", self.issued)));
        }
        self.issued = from..upto;
        Ok(())
    }

    fn create(&mut self, id: ObjectId, name: &Name, stored: Stored) -> Result<()> {
        self.must_be_free(name)?;
        if id.0 >= self.issued.end {
            return Err(invalid(format!("{name}: id {id} was never issued")));
        }
        if self.objects.contains_key(&id) {
            return Err(invalid(format!("{name}: id {id} is used already")));
        }
        self.names.insert(name.clone(), id);
        self.put_on(id, stored.copies.volumes());
        self.count(stored.places(), stored.len());
        self.objects.insert(id, stored);
        Ok(())
    }

    fn rename_prefix(&mut self, from: &Name, to: &Name) -> Result<()> {
        if from == to {
            return Ok(());
        }
        let (old, new) = (format!("{from}/"), format!("{to}/"));
        if new.starts_with(&old) {
            return Err(invalid(format!("{from} cannot become a part of itself, {to}")));
        }
        if let Some((taken, _)) = self.names(&new).next() {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("{from} cannot become {to}: there is {taken}"),
            ));
        }
        let mut renamed = Vec::new();
        for (name, id) in self.names(&old) {
            let rest = &name.as_str()[old.len()..];
            renamed.push((name.clone(), Name::new(&format!("{new}{rest}"))?, id));
        }
        for (name, new, id) in &renamed {
            self.names.remove(name);
            if let Some(stored) = self.objects.get_mut(id) {
                stored.remove_name(name);
                stored.add_name(new);
            }
        }
        self.names.extend(renamed.into_iter().map(|(_, name, id)| (name, id)));
        Ok(())
    }

    /// Removes a name of `id`; returns its copies if it was the last.
    fn release(&mut self, id: ObjectId, name: &Name) -> Option<Dead> {
        let stored = self.objects.get_mut(&id)?;
        stored.remove_name(name);
        if !stored.names.is_empty() {
            return None;
        }
        let stored = self.objects.remove(&id)?;
        self.discount(&stored.places(), stored.len());
        let Stored { kind, copies, .. } = stored;
        self.take_off(id, &copies, &BTreeSet::new());
        Some(Dead { id, kind, copies, whole: true })
    }

    fn must_be_free(&self, name: &Name) -> Result<()> {
        if self.names.contains_key(name) {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("{name}: an object of this name exists already"),
            ));
        }
        Ok(())
    }

    /// Records that turn a new state into this one.
    pub(crate) fn snapshot(&self) -> impl Iterator<Item = Record> {
        let lease = Record::Lease { from: self.issued.start, upto: self.issued.end };
        let ids = (self.volume_ids > 0).then_some(Record::VolumeIds { from: self.volume_ids });
        let drains = |&volume: &VolumeId| Record::Drain { volume, drains: true };
        let volumes = ids.into_iter().chain(self.draining.iter().map(drains));
        let mut first_names = HashMap::new();
        let names = self.names.iter().flat_map(move |(name, &id)| {
            if let Some(first) = first_names.get(&id) {
                return [Some(Record::Link { from: Name::clone(first), to: name.clone() }), None];
            }
            first_names.insert(id, name.clone());
            let Some(object) = self.objects.get(&id) else { return [None, None] };
            let Stored { kind, copies, committed, is_sealed_log, .. } = object.clone();
            let create = Record::Create { id, kind, copies, committed, name: name.clone() };
            [Some(create), is_sealed_log.then_some(Record::Seal { id })]
        });
        let names = names.flatten();
        // Last, because any later record clears the mark of a clean close.
        let closed = self.closed.then_some(Record::Close);
        std::iter::once(lease).chain(volumes).chain(names).chain(closed)
    }
}

fn not_found(name: &Name) -> Error {
    Error::new(ErrorKind::NotFound, format!("{name}: no such object"))
}

/// The error for an object that the manifest does not have.
pub(crate) fn gone(id: ObjectId) -> Error {
    Error::new(ErrorKind::Gone, format!("object {id} was removed"))
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use policy::placement::Layout;
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn create(id: u64, text: &str) -> Record {
        Record::Create {
            id: ObjectId(id),
            kind: Kind::Data,
            copies: Copies::one(Layout::Whole { volume: VolumeId(0) }),
            committed: Some(Committed { len: id * 10, checksum: None }),
            name: name(text),
        }
    }

    fn state(objects: &[(u64, &str)]) -> State {
        let mut state = State::new();
        state.apply(&[Record::Lease { from: 1, upto: 100 }]).unwrap();
        for (id, text) in objects {
            state.apply(&[create(*id, text)]).unwrap();
        }
        state
    }

    fn shown(state: &State) -> Vec<(String, u64)> {
        state.names("").map(|(name, id)| (name.to_string(), id.0)).collect()
    }

    fn ids(dead: Vec<Dead>) -> Vec<u64> {
        dead.into_iter().map(|dead| dead.id.0).collect()
    }

    #[test]
    fn what_lies_on_a_volume_is_known_without_looking_at_the_rest() {
        let whole =
            |number, volume| Placed { number, layout: Layout::Whole { volume: VolumeId(volume) } };
        let mut state = state(&[(1, "a"), (2, "b"), (3, "c")]);
        let on = |state: &State, volume, after: Option<u64>| -> Vec<u64> {
            let objects = state.objects_on(VolumeId(volume), after.map(ObjectId));
            objects.map(|id| id.0).collect()
        };
        assert_eq!(on(&state, 0, None), [1, 2, 3]);
        assert_eq!(on(&state, 0, Some(1)), [2, 3]);
        let (id, placed) = (ObjectId(2), whole(50, 1));
        state.apply(&[Record::AddCopy { id, placed }]).unwrap();
        assert_eq!((on(&state, 1, None), state.count_on(VolumeId(1))), (vec![2], 1));
        state.apply(&[Record::DropCopy { id, number: 0 }]).unwrap();
        assert_eq!(on(&state, 0, None), [1, 3]);
        state.apply(&[Record::Link { from: name("a"), to: name("0") }]).unwrap();
        assert_eq!(state.object(ObjectId(1)).unwrap().name(), Some(&name("0")));
        state.apply(&[Record::Unlink { name: name("0") }]).unwrap();
        assert_eq!(state.object(ObjectId(1)).unwrap().name(), Some(&name("a")));
        state.apply(&[Record::Unlink { name: name("b") }]).unwrap();
        assert!(state.is_empty_of(VolumeId(1)) && !state.is_empty_of(VolumeId(0)));
        state.apply(&[Record::Rename { from: name("a"), to: name("c") }]).unwrap();
        assert_eq!(on(&state, 0, None), [1]);
        assert_eq!(state.object(ObjectId(1)).unwrap().name(), Some(&name("c")));
    }

    /// The tallies, counted object by object.
    fn counted(state: &State) -> BTreeMap<Places, Tally> {
        let mut tallies: BTreeMap<Places, Tally> = BTreeMap::new();
        for (_, stored) in state.objects() {
            let tally = tallies.entry(stored.places()).or_default();
            tally.objects += 1;
            tally.bytes += stored.len();
        }
        tallies
    }

    #[test]
    fn tallies_follow_every_edit() {
        let mut state = state(&[(1, "a"), (2, "b"), (3, "c")]);
        let id = ObjectId(2);
        let placed = |number, volumes: &[u16]| Placed {
            number,
            layout: match *volumes {
                [volume] => Layout::Whole { volume: VolumeId(volume) },
                _ => Layout::Striped {
                    chunk: 4096,
                    volumes: volumes.iter().map(|&volume| VolumeId(volume)).collect(),
                },
            },
        };
        let edits = [
            Record::AddCopy { id, placed: placed(50, &[1]) },
            Record::AddCopy { id, placed: placed(51, &[2, 3]) },
            Record::Commit { id, committed: Committed { len: 7, checksum: None } },
            Record::Commit { id: ObjectId(1), committed: Committed { len: 99, checksum: None } },
            Record::DropCopy { id, number: 0 },
            Record::Link { from: name("b"), to: name("d") },
            Record::Unlink { name: name("b") },
            Record::Rename { from: name("a"), to: name("c") },
            Record::DropCopy { id, number: 50 },
        ];
        assert_eq!(state.tallies, counted(&state));
        for edit in &edits {
            state.apply(std::slice::from_ref(edit)).unwrap();
            assert_eq!(state.tallies, counted(&state), "{edit:?}");
        }
        // Refused edits count nothing.
        for edit in [
            Record::DropCopy { id, number: 51 },
            Record::AddCopy { id, placed: placed(500, &[1]) },
            Record::AddCopy { id: ObjectId(70), placed: placed(52, &[1]) },
        ] {
            assert!(state.apply(&[edit]).is_err());
            assert_eq!(state.tallies, counted(&state));
        }
        state.apply(&[Record::Unlink { name: name("d") }]).unwrap();
        state.apply(&[Record::Unlink { name: name("c") }]).unwrap();
        assert_eq!(state.tallies, BTreeMap::new());
    }

    #[test]
    fn a_rename_replaces_at_once() {
        let mut state = state(&[(1, "a"), (2, "b")]);
        let rename = |from, to| [Record::Rename { from: name(from), to: name(to) }];
        assert_eq!(ids(state.apply(&rename("a", "b")).unwrap()), [2]);
        assert_eq!(shown(&state), [("b".into(), 1)]);
        assert_eq!(ids(state.apply(&rename("b", "b")).unwrap()), Vec::<u64>::new());
        let missing = state.apply(&rename("a", "b")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn an_object_lives_while_a_name_refers_to_it() {
        let mut state = state(&[(1, "a"), (2, "b")]);
        let link = |from, to| [Record::Link { from: name(from), to: name(to) }];
        state.apply(&link("a", "c")).unwrap();
        assert_eq!(state.apply(&link("a", "b")).unwrap_err().kind(), ErrorKind::AlreadyExists);
        let unlink = |text| [Record::Unlink { name: name(text) }];
        assert_eq!(ids(state.apply(&unlink("a")).unwrap()), Vec::<u64>::new());
        // The second name is replaced by a rename.
        let replace = [Record::Rename { from: name("b"), to: name("c") }];
        assert_eq!(ids(state.apply(&replace).unwrap()), [1]);
    }

    #[test]
    fn a_prefix_is_a_directory_not_a_beginning() {
        let all = [(1, "d/a"), (2, "d/b/c"), (3, "d-x"), (4, "dd/a"), (5, "e")];
        let mut state = state(&all);
        let rename = |from, to| [Record::RenamePrefix { from: name(from), to: name(to) }];
        state.apply(&rename("d", "new/d")).unwrap();
        let expected = [("d-x", 3), ("dd/a", 4), ("e", 5), ("new/d/a", 1), ("new/d/b/c", 2)];
        assert_eq!(shown(&state), expected.map(|(name, id)| (name.to_owned(), id)));
        let taken = state.apply(&rename("dd", "new")).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        let inside = state.apply(&rename("new", "new/x")).unwrap_err();
        assert_eq!(inside.kind(), ErrorKind::Invalid);
        let long = "l".repeat(199);
        assert_eq!(state.apply(&rename("dd", &long)).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(shown(&state).len(), 5);
    }

    #[test]
    fn an_edit_is_made_whole_or_not_at_all() {
        let mut state = state(&[(1, "a"), (2, "b")]);
        let before = state.clone();
        let edit = [
            Record::Unlink { name: name("a") },
            Record::Link { from: name("b"), to: name("c") },
            Record::Unlink { name: name("nothing") },
        ];
        assert!(state.apply(&edit).is_err());
        assert_eq!(state, before);
        assert_eq!(ids(state.apply(&edit[..2]).unwrap()), [1]);
    }

    #[test]
    fn ids_are_used_once_and_only_when_issued() {
        let mut state = state(&[(1, "a")]);
        assert!(state.apply(&[create(1, "b")]).is_err());
        assert!(state.apply(&[create(100, "b")]).is_err());
        assert!(state.apply(&[Record::Lease { from: 1, upto: 50 }]).is_err());
        state.apply(&[Record::Lease { from: 1, upto: 101 }]).unwrap();
        state.apply(&[create(100, "b")]).unwrap();
    }

    #[test]
    fn a_log_is_sealed_by_a_record_of_its_own_and_stays_so_in_a_snapshot() {
        let mut state = state(&[]);
        let create = Record::Create {
            id: ObjectId(1),
            kind: Kind::Log,
            copies: Copies::one(Layout::Whole { volume: VolumeId(0) }),
            committed: None,
            name: name("a.log"),
        };
        let id = ObjectId(1);
        let is_sealed = |state: &State| state.object(id).unwrap().is_sealed();
        state.apply(&[create]).unwrap();
        let committed = Committed { len: 5, checksum: Some(7) };
        state.apply(&[Record::Commit { id, committed }]).unwrap();
        assert!(!is_sealed(&state) && !state.object(id).unwrap().is_settled());
        state.apply(&[Record::Seal { id }]).unwrap();
        state.apply(&[Record::Link { from: name("a.log"), to: name("b.log") }]).unwrap();
        assert!(is_sealed(&state) && state.object(id).unwrap().is_settled());
        let mut again = State::new();
        for record in state.snapshot() {
            again.apply(&[record]).unwrap();
        }
        assert_eq!(again, state);
        let gone = state.apply(&[Record::Seal { id: ObjectId(2) }]).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::Gone);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Create(&'static str),
        Unlink(&'static str),
        Rename(&'static str, &'static str),
        Link(&'static str, &'static str),
        RenamePrefix(&'static str, &'static str),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        const NAMES: [&str; 6] = ["a", "d/a", "d/b", "e/a", "e/f/a", "b"];
        const PREFIXES: [&str; 4] = ["d", "e", "e/f", "g"];
        let name = || prop::sample::select(&NAMES);
        let prefix = || prop::sample::select(&PREFIXES);
        prop_oneof![
            3 => name().prop_map(Step::Create),
            2 => name().prop_map(Step::Unlink),
            1 => (name(), name()).prop_map(|(a, b)| Step::Rename(a, b)),
            1 => (name(), name()).prop_map(|(a, b)| Step::Link(a, b)),
            1 => (prefix(), prefix()).prop_map(|(a, b)| Step::RenamePrefix(a, b)),
        ]
    }

    impl Step {
        fn record(&self, id: u64) -> Record {
            let pair = |from: &str, to: &str| (name(from), name(to));
            match self {
                Self::Create(text) => create(id, text),
                Self::Unlink(text) => Record::Unlink { name: name(text) },
                Self::Rename(from, to) => {
                    let (from, to) = pair(from, to);
                    Record::Rename { from, to }
                }
                Self::Link(from, to) => {
                    let (from, to) = pair(from, to);
                    Record::Link { from, to }
                }
                Self::RenamePrefix(from, to) => {
                    let (from, to) = pair(from, to);
                    Record::RenamePrefix { from, to }
                }
            }
        }

        /// Applies the step to a plain map; false if it is refused.
        fn model(&self, map: &mut BTreeMap<String, u64>, id: u64) -> bool {
            match *self {
                Self::Create(name) => {
                    if map.contains_key(name) {
                        return false;
                    }
                    map.insert(name.into(), id);
                }
                Self::Unlink(name) => return map.remove(name).is_some(),
                Self::Rename(from, to) => {
                    let Some(id) = map.remove(from) else { return false };
                    map.insert(to.into(), id);
                }
                Self::Link(from, to) => {
                    let (Some(&id), false) = (map.get(from), map.contains_key(to)) else {
                        return false;
                    };
                    map.insert(to.into(), id);
                }
                Self::RenamePrefix(from, to) => {
                    let (old, new) = (format!("{from}/"), format!("{to}/"));
                    if from == to {
                        return true;
                    }
                    if new.starts_with(&old) || map.keys().any(|name| name.starts_with(&new)) {
                        return false;
                    }
                    let rename = |(name, id): (String, u64)| match name.strip_prefix(&old) {
                        Some(rest) => (format!("{new}{rest}"), id),
                        None => (name, id),
                    };
                    *map = std::mem::take(map).into_iter().map(rename).collect();
                }
            }
            true
        }
    }

    proptest! {
        #[test]
        fn names_behave_like_a_map_and_a_snapshot_is_the_state(
            steps in prop::collection::vec(any_step(), 0..40),
        ) {
            let mut state = state(&[]);
            let mut map = BTreeMap::new();
            for (id, step) in (1..).zip(&steps) {
                let dead = state.apply(&[step.record(id)]);
                let before: BTreeSet<_> = map.values().copied().collect();
                prop_assert_eq!(step.model(&mut map, id), dead.is_ok(), "{:?}", step);
                let after: BTreeSet<_> = map.values().copied().collect();
                let gone: Vec<_> = before.difference(&after).copied().collect();
                prop_assert_eq!(ids(dead.unwrap_or_default()), gone);
            }
            prop_assert_eq!(shown(&state), Vec::from_iter(map));
            let mut again = State::new();
            for record in state.snapshot() {
                again.apply(&[record]).unwrap();
            }
            prop_assert_eq!(again, state);
        }
    }
}
