//! The tables of a pool: their keys, levels and volumes.
//!
//! The code that makes, moves, copies and removes tables reports them here; the data is only as good as its reports. A
//! table that was never described is included, and overlaps nothing.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::VolumeId;
use super::intervals::{NIL, Nodes, Slot};
use crate::inherit::{Made, position};
use crate::intent::{Family, KeyRange};

/// The most tables of a level to look at for one decision. A wider range covers about as many on each volume, and a
/// decision must not take longer with more data.
pub const OVERLAPS_MAX: usize = 128;

/// A range of keys, both ends inclusive, in the order of their bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Keys<'a> {
    /// The smallest key.
    pub first: &'a [u8],
    /// The largest key.
    pub last: &'a [u8],
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Table<'a> {
    /// The object's number.
    pub object: u64,
    /// The key space of its keys.
    pub family: &'a Family,
    /// Its level, if known.
    pub level: Option<u8>,
    /// The keys it covers, if known.
    pub keys: Option<Keys<'a>>,
    /// Its length in bytes.
    pub len: u64,
    /// The volumes with a copy or a part of it. Reads are assumed to spread evenly.
    pub on: &'a [VolumeId],
    /// Reads a second that reach a volume.
    pub rate: f32,
    /// Whether it is the input of a compaction, and will soon be gone.
    pub leaving: bool,
}

/// All tables of a pool. Takes some hundred bytes for each, plus its keys.
#[derive(Debug, Default)]
pub struct Tables {
    nodes: Nodes<Entry>,
    slots: BTreeMap<u64, Slot>,
    families: BTreeMap<Family, u32>,
    groups: Vec<Group>,
}

/// The tables of a family.
#[derive(Debug)]
struct Group {
    family: Family,
    tables: usize,
    /// The roots of its levels. None of the treaps is empty.
    levels: BTreeMap<u8, Slot>,
    flushed: Flushed,
}

/// The heat that newly flushed tables will reach. The newest table holds what was written last, so it is read as its
/// predecessor was, which is colder or gone by then.
#[derive(Debug, Default)]
struct Flushed {
    /// The highest rate of a table of level 0 since the newest one was begun.
    best: f32,
    /// The same from before, fading.
    before: f32,
}

impl Flushed {
    fn rate(&self) -> f32 {
        self.best.max(self.before / 2.0)
    }

    fn begin(&mut self) {
        *self = Self { best: 0.0, before: self.rate() };
    }
}

#[derive(Debug, Default)]
struct Entry {
    on: Places,
    len: u64,
    rate: f32,
    group: u32,
    level: Option<u8>,
    has_keys: bool,
    leaving: bool,
}

/// Nearly always one volume.
#[derive(Debug)]
enum Places {
    One(VolumeId),
    Several(Box<[VolumeId]>),
}

impl Tables {
    /// Adds a table that exists or is being written. Replaces an earlier entry of it.
    pub fn insert(&mut self, table: Table<'_>) {
        self.remove(table.object);
        self.enter(table, true);
    }

    /// Adds a table. Counts a flush once, when its keys are known.
    fn enter(&mut self, table: Table<'_>, is_new: bool) {
        let keys = table.keys.filter(|keys| keys.first <= keys.last);
        let Keys { first, last } = keys.unwrap_or(Keys { first: &[], last: &[] });
        let group = self.group(table.family);
        let entry = Entry {
            on: table.on.into(),
            len: table.len,
            rate: table.rate,
            group,
            level: table.level,
            has_keys: keys.is_some(),
            leaving: table.leaving,
        };
        let slot = self.nodes.add(table.object, first, last, entry);
        self.slots.insert(table.object, slot);
        let group = &mut self.groups[group as usize];
        group.tables += 1;
        if is_new && table.level == Some(0) && keys.is_some() {
            group.flushed.begin();
        }
        self.link(slot);
    }

    /// Sets the family, level and keys of a table. Its other fields stay.
    pub fn describe(
        &mut self,
        object: u64,
        family: &Family,
        level: Option<u8>,
        keys: Option<Keys<'_>>,
    ) {
        let Some(known) = self.take(object) else { return };
        let Entry { on, len, rate, .. } = known;
        let is_new = known.level != Some(0) || !known.has_keys;
        let table = Table { object, family, level, keys, len, on: &on, rate, leaving: false };
        self.enter(table, is_new);
    }

    /// Moves a table to another level, with the same bytes.
    pub fn set_level(&mut self, object: u64, level: u8) {
        let Some(&slot) = self.slots.get(&object) else { return };
        if self.nodes.value(slot).level != Some(level) {
            self.unlinked(slot).level = Some(level);
            self.link(slot);
        }
    }

    /// Sets the length of a table when it is complete.
    pub fn set_len(&mut self, object: u64, len: u64) {
        if let Some(entry) = self.entry(object) {
            entry.len = len;
        }
    }

    /// Sets whether a table is the input of a compaction.
    pub fn set_leaving(&mut self, object: u64, leaving: bool) {
        if let Some(entry) = self.entry(object) {
            entry.leaving = leaving;
        }
    }

    /// Sets how hot a table is.
    pub fn set_rate(&mut self, object: u64, rate: f32) {
        let Some(entry) = self.entry(object) else { return };
        entry.rate = rate;
        if entry.level == Some(0) {
            let group = entry.group as usize;
            let flushed = &mut self.groups[group].flushed;
            flushed.best = flushed.best.max(rate);
        }
    }

    /// Sets the volumes of a table.
    pub fn set_places(&mut self, object: u64, on: &[VolumeId]) {
        if let Some(entry) = self.entry(object) {
            entry.on = on.into();
        }
    }

    /// Removes a table; does nothing if it is unknown.
    pub fn remove(&mut self, object: u64) {
        self.take(object);
    }

    /// The number of tables.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no tables.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The most bytes of memory it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // A node of the standard library's B-tree has five to eleven entries and little overhead.
        const PER_SLOT: usize = (size_of::<u64>() + size_of::<Slot>()) * 11 / 5 + 4;
        let several: usize = self.iter().map(|table| table.on.len()).filter(|&n| n > 1).sum();
        self.nodes.bytes() + self.slots.len() * PER_SLOT + several * size_of::<VolumeId>()
    }

    /// The table with this number.
    #[must_use]
    pub fn get(&self, object: u64) -> Option<Table<'_>> {
        self.slots.get(&object).map(|&slot| self.table(slot))
    }

    /// All tables, by number.
    pub fn iter(&self) -> impl Iterator<Item = Table<'_>> {
        self.slots.values().map(|&slot| self.table(slot))
    }

    /// The next level below `level` that has tables of the family.
    #[must_use]
    pub fn next_level(&self, family: &Family, level: u8) -> Option<u8> {
        let levels = self.levels(family)?;
        levels.range(level.checked_add(1)?..).next().map(|(&level, _)| level)
    }

    /// The next level above `level` that has tables of the family.
    #[must_use]
    pub fn previous_level(&self, family: &Family, level: u8) -> Option<u8> {
        self.levels(family)?.range(..level).next_back().map(|(&level, _)| level)
    }

    /// Passes the tables of a level that overlap `keys` to `visit`, by ascending first keys, at most [`OVERLAPS_MAX`]
    /// of them.
    pub fn overlapping<'a>(
        &'a self,
        family: &Family,
        level: u8,
        keys: Keys<'_>,
        mut visit: impl FnMut(Table<'a>),
    ) {
        let root = self.levels(family).and_then(|levels| levels.get(&level));
        let mut left = OVERLAPS_MAX;
        self.nodes.overlapping(root.copied().unwrap_or(NIL), keys.first, keys.last, &mut |slot| {
            visit(self.table(slot));
            left -= 1;
            left > 0
        });
    }

    /// The expected heat of a new table with these keys, made of tables of `levels`. If some of those are leaving, it
    /// is made of these.
    #[must_use]
    pub fn inherited(
        &self,
        family: &Family,
        keys: Keys<'_>,
        levels: RangeInclusive<u8>,
        made: Made,
    ) -> f32 {
        if levels.is_empty() {
            return 0.0;
        }
        // Of all tables, and of those that leave.
        let (mut of_all, mut of_leaving) = (Inherited::default(), Inherited::default());
        let roots = self.levels(family).into_iter().flat_map(|roots| roots.range(levels.clone()));
        for (&level, _) in roots {
            self.overlapping(family, level, keys, |table| {
                of_all.add(&table, keys);
                if table.leaving {
                    of_leaving.add(&table, keys);
                }
            });
        }
        if of_leaving.tables > 0.0 { of_leaving.rate(made) } else { of_all.rate(made) }
    }

    /// The expected heat of the next flushed table: the highest that the last one reached.
    #[must_use]
    pub fn flushed(&self, family: &Family) -> f32 {
        self.families.get(family).map_or(0.0, |&group| self.groups[group as usize].flushed.rate())
    }

    fn levels(&self, family: &Family) -> Option<&BTreeMap<u8, Slot>> {
        let group = self.families.get(family)?;
        Some(&self.groups[*group as usize].levels)
    }

    fn table(&self, slot: Slot) -> Table<'_> {
        let entry = self.nodes.value(slot);
        let (first, last) = self.nodes.keys(slot);
        Table {
            object: self.nodes.object(slot),
            family: &self.groups[entry.group as usize].family,
            level: entry.level,
            keys: entry.has_keys.then_some(Keys { first, last }),
            len: entry.len,
            on: &entry.on,
            rate: entry.rate,
            leaving: entry.leaving,
        }
    }

    fn entry(&mut self, object: u64) -> Option<&mut Entry> {
        self.slots.get(&object).map(|&slot| self.nodes.value_mut(slot))
    }

    /// The group of a family, created if needed.
    fn group(&mut self, family: &Family) -> u32 {
        if let Some(&group) = self.families.get(family) {
            return group;
        }
        let flushed = Flushed::default();
        let new = Group { family: family.clone(), tables: 0, levels: BTreeMap::new(), flushed };
        // Families come and go; their numbers are reused.
        let at = match self.groups.iter().position(|group| group.tables == 0) {
            Some(at) => {
                self.families.remove(&self.groups[at].family);
                self.groups[at] = new;
                at
            }
            None => {
                self.groups.push(new);
                self.groups.len() - 1
            }
        };
        let at = u32::try_from(at).expect("fewer than 2^32 families");
        self.families.insert(family.clone(), at);
        at
    }

    /// Links a table into its level, if that is known.
    fn link(&mut self, slot: Slot) {
        let Entry { level: Some(level), has_keys: true, group, .. } = *self.nodes.value(slot)
        else {
            return;
        };
        let root = self.groups[group as usize].levels.entry(level).or_insert(NIL);
        *root = self.nodes.insert(*root, slot);
    }

    /// A table's entry, unlinked from its level.
    fn unlinked(&mut self, slot: Slot) -> &mut Entry {
        if let Entry { level: Some(level), has_keys: true, group, .. } = *self.nodes.value(slot) {
            let levels = &mut self.groups[group as usize].levels;
            let root = levels.get_mut(&level).expect("a table is where it was put");
            *root = self.nodes.remove(*root, slot);
            if *root == NIL {
                levels.remove(&level);
            }
        }
        self.nodes.value_mut(slot)
    }

    fn take(&mut self, object: u64) -> Option<Entry> {
        let slot = self.slots.remove(&object)?;
        let entry = std::mem::take(self.unlinked(slot));
        self.nodes.free(slot);
        self.groups[entry.group as usize].tables -= 1;
        Some(entry)
    }
}

/// The heat that a new table inherits: [`crate::inherit`] for tables of one block each, without allocation.
#[derive(Default)]
struct Inherited {
    rate: f64,
    /// The number of tables between its keys.
    tables: f64,
}

impl Inherited {
    fn add(&mut self, old: &Table<'_>, keys: Keys<'_>) {
        let share = old.keys.map_or(0.0, |old| keys.share_of(old));
        self.rate += f64::from(old.rate) * share;
        self.tables += share;
    }

    fn rate(&self, made: Made) -> f32 {
        let rate = match made {
            Made::Merged => self.rate,
            Made::Flushed => self.rate / self.tables.max(1.0),
        };
        rate as f32
    }
}

impl Keys<'_> {
    /// Whether the ranges overlap.
    #[must_use]
    pub fn overlaps(&self, other: Keys<'_>) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The part of `other` inside this range, from 0 to 1, if its keys are spread evenly.
    #[must_use]
    pub fn share_of(&self, other: Keys<'_>) -> f64 {
        if other.first == other.last {
            return if self.overlaps(other) { 1.0 } else { 0.0 };
        }
        position(self.last, other.first, other.last) - position(self.first, other.first, other.last)
    }
}

impl<'a> From<&'a KeyRange> for Keys<'a> {
    fn from(range: &'a KeyRange) -> Self {
        Self { first: &range.first, last: &range.last }
    }
}

impl Default for Places {
    fn default() -> Self {
        Self::Several(Box::default())
    }
}

impl From<&[VolumeId]> for Places {
    fn from(on: &[VolumeId]) -> Self {
        match on {
            [only] => Self::One(*only),
            several => Self::Several(several.into()),
        }
    }
}

impl std::ops::Deref for Places {
    type Target = [VolumeId];

    fn deref(&self) -> &[VolumeId] {
        match self {
            Self::One(only) => std::slice::from_ref(only),
            Self::Several(several) => several,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_flushed_is_as_hot_as_the_last_one_was_at_its_hottest() {
        const KEYS: Keys<'static> = Keys { first: b"a", last: b"b" };
        let family = Family("f".into());
        let mut tables = Tables::default();
        let insert = |tables: &mut Tables, object: u64, level: u8| {
            tables.insert(Table {
                object,
                family: &family,
                level: Some(level),
                keys: Some(KEYS),
                len: 1,
                on: &[VolumeId(0)],
                rate: 0.0,
                leaving: false,
            });
        };
        assert_eq!(tables.flushed(&family), 0.0);
        insert(&mut tables, 1, 0);
        insert(&mut tables, 2, 1);
        for (object, rate) in [(1, 30.0), (1, 80.0), (1, 20.0), (2, 500.0)] {
            tables.set_rate(object, rate);
        }
        assert_eq!(tables.flushed(&family), 80.0);
        tables.remove(1);
        assert_eq!(tables.flushed(&family), 80.0, "it went into the next level");
        insert(&mut tables, 3, 0);
        assert_eq!(tables.flushed(&family), 40.0, "it has no reads yet");
        tables.set_rate(3, 60.0);
        assert_eq!(tables.flushed(&family), 60.0);
        // A new description does not make it a new table.
        tables.describe(3, &family, Some(0), Some(KEYS));
        assert_eq!(tables.flushed(&family), 60.0);
    }
}
