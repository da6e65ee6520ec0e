//! Replaying batches of the write-ahead log while a store is opened.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use policy::time::Instant;

use super::catalogue::{Grown, Restored};
use super::rows;
use super::shapes::Order;
use super::state::SeriesState;
use super::wal::{take_bytes, take_text, take_u32};
use crate::series::Kind;
use crate::series::batch::{take_value, take_varint};

/// The fields of a shape and their kinds.
type Columns = Vec<(u16, Kind)>;

/// The meaning of a segment's numbers.
#[derive(Default)]
pub(super) struct Numbers {
    /// The measurement and the columns of each shape; no measurement if it was dropped.
    shapes: BTreeMap<u32, (Option<u32>, Columns)>,
    /// Deleted sources whose tags belong to others now.
    replaced: BTreeSet<u32>,
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
            numbers.shapes.insert(number, (is_there.then_some(measurement), columns));
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
        let mut grown = Grown::default();
        let done = self.replay_rows(from, segment, numbers, &mut grown, now);
        self.catalogue.settle(grown);
        done?;
        if !client.is_empty() {
            self.sessions.add(&client, sequence, now);
        }
        Some(())
    }

    fn replay_rows(
        &mut self,
        from: &mut &[u8],
        segment: u32,
        numbers: &Numbers,
        grown: &mut Grown,
        now: Instant,
    ) -> Option<()> {
        let mut shapes: HashMap<u32, (u32, Option<Order>)> = HashMap::new();
        while !from.is_empty() {
            let source = take_u32(from)?;
            let (number, time) = rows::take_head(from)?;
            let (measurement, columns) = numbers.shapes.get(&number)?;
            let values = *from;
            for &(_, kind) in columns {
                take_value(from, kind)?;
            }
            let values = &values[..values.len() - from.len()];
            let Some(measurement) = *measurement else { continue };
            if numbers.replaced.contains(&source) {
                continue;
            }
            if !self.catalogue.has_source(source) {
                return None;
            }
            let before = self.catalogue.shape_bytes;
            let found = shapes
                .entry(number)
                .or_insert_with(|| self.catalogue.shape_of(measurement, columns));
            self.memory += self.catalogue.shape_bytes - before;
            let (shape, order) = (found.0, &found.1);
            let mut row = Vec::new();
            match order {
                None => rows::put(&mut row, shape, time, values),
                Some(order) => {
                    let kinds = columns.iter().map(|&(_, kind)| kind);
                    rows::put_ordered(&mut row, shape, time, values, kinds, order)?;
                }
            }
            let set = self.catalogue.shapes[shape as usize].set;
            self.catalogue.extend(source, set, grown);
            let database = self.catalogue.measurements.get(&measurement)?.database;
            let mut all = self.catalogue.databases.values_mut();
            if let Some(facts) = all.find(|facts| facts.id == database) {
                facts.newest = facts.newest.max(time);
            }
            self.catalogue.shapes[shape as usize].rows += 1;
            self.append(source, &row, segment, now);
        }
        Some(())
    }
}
