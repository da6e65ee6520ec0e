//! Replaying batches of the write-ahead log while a store is opened.

use std::collections::{BTreeSet, HashMap};

use policy::time::Instant;

use super::catalogue::{Grown, Restored};
use super::extent::Extent;
use super::rows;
use super::shapes::Order;
use super::state::SeriesState;
use super::wal::{take_bytes, take_text, take_u32};
use crate::series::Kind;
use crate::series::batch::take_varint;

/// The meaning of a segment's numbers.
#[derive(Default)]
pub(super) struct Numbers {
    shapes: HashMap<u32, Meaning>,
    /// Deleted sources whose tags belong to others now.
    replaced: BTreeSet<u32>,
}

/// The meaning of a shape's number.
struct Meaning {
    /// `None` if it was dropped.
    measurement: Option<u32>,
    columns: Vec<(u16, Kind)>,
    extent: Extent,
}

/// A shape's number in a batch.
struct Used<'a> {
    number: u32,
    meaning: &'a Meaning,
    /// Looked up for the first row.
    shape: Option<UsedShape>,
}

struct UsedShape {
    shape: u32,
    order: Option<Order>,
    set: u32,
    database: u32,
    /// The latest time of its rows.
    newest: i64,
}

impl SeriesState {
    /// Replays a batch of the log. `None` if it is inconsistent.
    pub(super) fn replay(
        &mut self,
        mut body: &[u8],
        segment: u32,
        numbers: &mut Numbers,
        now: Instant,
    ) -> Option<()> {
        let from = &mut body;
        let client = take_text(from)?.to_string();
        let sequence = take_varint(from)?;
        for _ in 0..take_varint(from)? {
            let (number, measurement) = (take_u32(from)?, take_u32(from)?);
            let (database, name) = (take_u32(from)?, take_text(from)?);
            let mut is_there = self.catalogue.databases.values().any(|facts| facts.id == database);
            if is_there {
                is_there = self.catalogue.define_measurement(measurement, database, name);
            }
            let mut columns = Vec::new();
            for _ in 0..take_varint(from)? {
                let field = u16::try_from(take_varint(from)?).ok()?;
                let (&kind, rest) = from.split_first()?;
                *from = rest;
                let kind = Kind::from_byte(kind)?;
                let name = take_text(from)?;
                if is_there && !self.catalogue.define_field(measurement, field, name, kind) {
                    return None;
                }
                columns.push((field, kind));
            }
            let extent = Extent::of(columns.iter().map(|&(_, kind)| kind));
            let measurement = is_there.then_some(measurement);
            numbers.shapes.insert(number, Meaning { measurement, columns, extent });
        }
        for _ in 0..take_varint(from)? {
            let (source, measurement) = (take_u32(from)?, take_u32(from)?);
            let tags = take_bytes(from)?;
            if self.catalogue.measurements.contains_key(&measurement) {
                match self.catalogue.restore_source(source, measurement, tags) {
                    Restored::Known => {
                        numbers.replaced.remove(&source);
                    }
                    Restored::Replaced => {
                        numbers.replaced.insert(source);
                    }
                    Restored::Nonsense => return None,
                }
            }
        }
        let (mut used, mut grown) = (Vec::new(), Grown::default());
        let done = self.replay_rows(from, segment, numbers, &mut used, &mut grown, now);
        self.catalogue.settle(grown);
        for shape in used.into_iter().filter_map(|used| used.shape) {
            let mut all = self.catalogue.databases.values_mut();
            if let Some(facts) = all.find(|facts| facts.id == shape.database) {
                facts.newest = facts.newest.max(shape.newest);
            }
        }
        done?;
        if !client.is_empty() {
            self.sessions.add(&client, sequence, now);
        }
        Some(())
    }

    fn replay_rows<'a>(
        &mut self,
        from: &mut &[u8],
        segment: u32,
        numbers: &'a Numbers,
        all: &mut Vec<Used<'a>>,
        grown: &mut Grown,
        now: Instant,
    ) -> Option<()> {
        let mut positions: HashMap<u32, usize> = HashMap::new();
        // Rows of one shape mostly come together.
        let mut at = usize::MAX;
        let mut row = Vec::new();
        while !from.is_empty() {
            let source = take_u32(from)?;
            let (number, time) = rows::take_head(from)?;
            if all.get(at).is_none_or(|used| used.number != number) {
                at = match positions.get(&number) {
                    Some(&at) => at,
                    None => {
                        let meaning = numbers.shapes.get(&number)?;
                        positions.insert(number, all.len());
                        all.push(Used { number, meaning, shape: None });
                        all.len() - 1
                    }
                };
            }
            let Used { meaning, shape: used, .. } = &mut all[at];
            let values = meaning.extent.take(from)?;
            let Some(measurement) = meaning.measurement else { continue };
            if numbers.replaced.contains(&source) {
                continue;
            }
            if !self.catalogue.has_source(source) {
                return None;
            }
            let used = match used {
                Some(used) => used,
                none => none.insert(self.find_shape(measurement, &meaning.columns)?),
            };
            row.clear();
            match &used.order {
                None => rows::put(&mut row, used.shape, time, values),
                Some(order) => {
                    let kinds = meaning.columns.iter().map(|&(_, kind)| kind);
                    rows::put_ordered(&mut row, used.shape, time, values, kinds, order)?;
                }
            }
            self.catalogue.extend(source, used.set, grown);
            used.newest = used.newest.max(time);
            self.catalogue.shapes[used.shape as usize].rows += 1;
            self.append(source, &row, segment, now);
        }
        Some(())
    }

    /// The shape of rows with these columns. `None` if a later record dropped their measurement.
    fn find_shape(&mut self, measurement: u32, columns: &[(u16, Kind)]) -> Option<UsedShape> {
        let database = self.catalogue.measurements.get(&measurement)?.database;
        let before = self.catalogue.shape_bytes;
        let (shape, order) = self.catalogue.shape_of(measurement, columns);
        self.memory += self.catalogue.shape_bytes - before;
        let set = self.catalogue.shapes[shape as usize].set;
        Some(UsedShape { shape, order, set, database, newest: i64::MIN })
    }
}
