//! The model of a user of a pool: names and their bytes.

use std::collections::{BTreeMap, BTreeSet};

use pool::ObjectId;

use super::op::Op;

/// How a life of the pool ended, the worse one last.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Death {
    /// The process crashed and the machine did not: all written bytes are there.
    Process,
    /// The power went off: any part of the unsynced bytes is lost.
    Power,
}

/// The contents of a user's directory.
pub(super) type Found = BTreeMap<String, Seen>;

/// The object under one name.
pub(super) struct Seen {
    pub(super) id: ObjectId,
    pub(super) is_sealed: bool,
    pub(super) bytes: Vec<u8>,
}

/// The work of one user, as plain maps.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    names: BTreeMap<String, u32>,
    objects: BTreeMap<u32, Bytes>,
    /// Names that were removed without waiting for a device, and whose removal is not durable yet.
    undone: BTreeMap<String, u32>,
    issued: u32,
}

#[derive(Clone, Debug)]
struct Bytes {
    is_log: bool,
    /// Whether it was written whole, and never changes again.
    is_sealed: bool,
    /// All bytes, with those of unacknowledged writes.
    all: Vec<u8>,
    /// The number of acknowledged bytes.
    acked: usize,
    /// The number of synced bytes.
    synced: usize,
}

impl Model {
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.names.keys()
    }

    /// The bytes under a name while the pool runs.
    pub(super) fn bytes(&self, name: &str) -> Option<&[u8]> {
        Some(&self.objects[self.names.get(name)?].all)
    }

    /// Whether an object may be appended to: it was not written whole.
    pub(super) fn may_grow(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|id| !self.objects[id].is_sealed)
    }

    /// Applies an acknowledged operation.
    pub(super) fn done(&mut self, op: &Op) {
        self.begin(op);
        match op {
            Op::Put { name, .. } | Op::Append { name, .. } | Op::Sync { name } => {
                let object = self.object(name);
                object.acked = object.all.len();
                if !matches!(op, Op::Append { .. }) {
                    object.synced = object.all.len();
                }
            }
            _ => {}
        }
        if op.makes_names_durable() {
            self.undone.clear();
        }
    }

    /// Applies an unacknowledged operation.
    fn begin(&mut self, op: &Op) {
        match op {
            Op::WriteWhole { name, bytes } => self.add(name, bytes, bytes.len(), true),
            Op::Put { name, bytes } => {
                // A log has its name before its bytes; other objects get both at their sync.
                let there = if name.ends_with(".log") { 0 } else { bytes.len() };
                self.add(name, bytes, there, false);
            }
            Op::Append { name, bytes } => self.object(name).all.extend_from_slice(bytes),
            Op::Sync { .. } | Op::Flush => {}
            Op::Rename { from, to } => {
                let id = self.names.remove(from).expect("it is there");
                self.names.insert(to.clone(), id);
            }
            Op::Link { from, to } => {
                let id = self.names[from];
                self.names.insert(to.clone(), id);
            }
            Op::Remove { name } => {
                self.names.remove(name);
            }
            Op::RemoveSoon { name } => {
                let id = self.names.remove(name).expect("it is there");
                self.undone.insert(name.clone(), id);
            }
            Op::RenameDirectory { from, to } => {
                let names = std::mem::take(&mut self.names);
                let renamed = names.into_iter().map(|(name, id)| {
                    let rest = name.strip_prefix(from).filter(|rest| rest.starts_with('/'));
                    (rest.map(|rest| format!("{to}{rest}")).unwrap_or(name), id)
                });
                self.names = renamed.collect();
            }
        }
    }

    fn add(&mut self, name: &str, bytes: &[u8], there: usize, is_sealed: bool) {
        self.issued += 1;
        let is_log = name.ends_with(".log");
        let all = bytes.to_vec();
        let object = Bytes { is_log, is_sealed, all, acked: there, synced: there };
        self.objects.insert(self.issued, object);
        self.names.insert(name.into(), self.issued);
    }

    fn object(&mut self, name: &str) -> &mut Bytes {
        self.objects.get_mut(&self.names[name]).expect("a name stands for an object")
    }

    /// Whether `found` is possible after a crash with `under_way` unanswered.
    pub(super) fn explains(
        &self,
        under_way: Option<&Op>,
        death: Death,
        found: &Found,
    ) -> Result<(), String> {
        let without = self.matches(death, found);
        let (Err(without), Some(op)) = (&without, under_way) else { return without };
        let mut with = self.clone();
        with.begin(op);
        let with = with.matches(death, found);
        with.map_err(|with| format!("without {op:?}: {without}; with it: {with}"))
    }

    fn matches(&self, death: Death, found: &Found) -> Result<(), String> {
        let mut ids: BTreeMap<u32, ObjectId> = BTreeMap::new();
        for (name, id) in &self.names {
            let Some(seen) = found.get(name) else {
                return Err(format!("{name} is lost"));
            };
            let matches = self.objects[id].matches(death, &seen.bytes);
            matches.map_err(|why| format!("{name} {why}"))?;
            if ids.insert(*id, seen.id).is_some_and(|other| other != seen.id) {
                return Err(format!("{name} is no longer linked"));
            }
        }
        if ids.values().collect::<BTreeSet<_>>().len() < ids.len() {
            return Err("two objects became one".into());
        }
        for (name, seen) in found {
            if self.names.contains_key(name) {
                continue;
            }
            match self.undone.get(name) {
                Some(id) if death == Death::Power => {
                    let matches = self.objects[id].matches(death, &seen.bytes);
                    matches.map_err(|why| format!("old {name} {why}"))?;
                }
                _ => return Err(format!("{name} is back, or was never acknowledged")),
            }
        }
        Ok(())
    }

    /// The model of the objects found after a crash, which are durable from now on.
    pub(super) fn of(found: &Found) -> Self {
        let mut model = Self::default();
        let mut known = BTreeMap::new();
        for (name, seen) in found {
            match known.get(&seen.id) {
                Some(&id) => {
                    model.names.insert(name.clone(), id);
                }
                None => {
                    model.add(name, &seen.bytes, seen.bytes.len(), seen.is_sealed);
                    known.insert(seen.id, model.issued);
                }
            }
        }
        model
    }
}

impl Bytes {
    fn matches(&self, death: Death, found: &[u8]) -> Result<(), String> {
        let sure = if self.is_log && death == Death::Process { self.acked } else { self.synced };
        if found.len() < sure || found.len() > self.all.len() {
            let (least, most) = (sure, self.all.len());
            return Err(format!("has {} bytes instead of {least} to {most}", found.len()));
        }
        if found[..sure] != self.all[..sure] {
            return Err("has other bytes".into());
        }
        Ok(())
    }
}
