//! Rows of a source as columns, and the operations on them: sort, append, cut, divide.

use std::collections::HashMap;

use crate::series::Span;
use crate::series::value::{Points, Value, Values};

/// Rows of one source. *Resolved*: times ascend strictly.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::series) struct Table {
    pub(in crate::series) times: Vec<i64>,
    pub(in crate::series) columns: Vec<Column>,
}

/// The values of one field.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::series) struct Column {
    pub(in crate::series) field: u16,
    /// The rows that have a value, in order; `None` for all.
    pub(in crate::series) rows: Option<Vec<u32>>,
    pub(in crate::series) values: Values,
}

impl Column {
    fn row(&self, at: usize) -> u32 {
        self.rows.as_ref().map_or(at as u32, |rows| rows[at])
    }

    /// Lists its rows, even if it has all of them.
    fn spell_out(&mut self) -> &mut Vec<u32> {
        let all = self.values.len() as u32;
        self.rows.get_or_insert_with(|| (0..all).collect())
    }
}

/// A table under construction. A row costs memory for its values only, however many columns there are.
#[derive(Default)]
pub(in crate::series) struct Builder {
    table: Table,
    /// The column of each field.
    columns: HashMap<u16, usize>,
    /// The column expected for the next value: rows mostly have their fields in the same order.
    at: usize,
}

impl Builder {
    /// Begins a row.
    pub(in crate::series) fn row(&mut self, time: i64) {
        self.table.times.push(time);
        self.at = 0;
    }

    /// Adds a value to the row. If a field comes twice, its last value counts.
    pub(in crate::series) fn value(&mut self, field: u16, value: Value<'_>) {
        let row = self.table.times.len() - 1;
        let columns = &mut self.table.columns;
        let column = match columns.get(self.at) {
            Some(column) if column.field == field => self.at,
            _ => *self.columns.entry(field).or_insert_with(|| {
                let rows = (row > 0).then(Vec::new);
                columns.push(Column { field, rows, values: Values::new(value.kind()) });
                columns.len() - 1
            }),
        };
        let into = &mut self.table.columns[column];
        let len = into.values.len();
        if len > 0 && into.row(len - 1) as usize == row {
            into.values.truncate(len - 1);
        } else if into.rows.is_some() || len < row {
            into.spell_out().push(row as u32);
        }
        into.values.push(value);
        self.at = column + 1;
    }

    /// The table, resolved.
    pub(in crate::series) fn resolved(mut self) -> Table {
        self.table.resolve();
        self.table
    }
}

impl Table {
    /// Appends the rows of a later table: where both have a value, the later one counts once the table is resolved.
    pub(in crate::series) fn append(&mut self, later: Self) {
        let shift = self.times.len() as u32;
        let places = self.columns.iter().enumerate().map(|(at, column)| (column.field, at));
        let places: HashMap<u16, usize> = places.collect();
        for column in later.columns {
            let count = column.values.len();
            let rows: Vec<u32> = (0..count).map(|at| column.row(at) + shift).collect();
            match places.get(&column.field) {
                None => self.columns.push(Column { rows: Some(rows), ..column }),
                Some(&mine) => {
                    let mine = &mut self.columns[mine];
                    mine.spell_out().extend(rows);
                    mine.values.extend_from(&column.values, 0..count);
                }
            }
        }
        self.times.extend(later.times);
        let rows = self.times.len();
        for column in &mut self.columns {
            column.rows.take_if(|_| column.values.len() == rows);
            if column.rows.is_none() && column.values.len() < rows {
                column.spell_out();
            }
        }
    }

    /// Sorts rows by time; of rows with equal times, each field keeps its last value.
    pub(in crate::series) fn resolve(&mut self) {
        let rows = self.times.len();
        for column in &mut self.columns {
            if column.rows.is_none() && column.values.len() < rows {
                column.spell_out();
            }
        }
        if !self.times.is_sorted_by(|a, b| a < b) {
            let mut order: Vec<u32> = (0..rows as u32).collect();
            order.sort_by_key(|&row| self.times[row as usize]);
            let mut times: Vec<i64> = Vec::with_capacity(rows);
            let mut target = vec![0; rows];
            for row in order {
                let time = self.times[row as usize];
                if times.last() != Some(&time) {
                    times.push(time);
                }
                target[row as usize] = times.len() - 1;
            }
            self.times = times;
            for column in &mut self.columns {
                let mut order: Vec<(u32, u32)> = (0..column.values.len() as u32)
                    .map(|at| (target[column.row(at as usize) as usize] as u32, at))
                    .collect();
                order.sort_unstable();
                // Of the values of a row, keep the one written last.
                let is_last =
                    |place: usize| order.get(place + 1).is_none_or(|next| next.0 != order[place].0);
                let last = (0..order.len()).filter(|&place| is_last(place));
                let last: Vec<(u32, u32)> = last.map(|place| order[place]).collect();
                column.keep(&last, self.times.len());
            }
        }
        self.columns.sort_by_key(|column| column.field);
    }

    /// Removes points of some fields in an interval; says whether there were any. Stays resolved.
    pub(in crate::series) fn cut(&mut self, fields: impl Fn(u16) -> bool, span: Span) -> bool {
        self.cut_points(|field| fields(field).then_some(move |time| span.contains(time)))
    }

    /// Removes the points of each field at the times that `gone` selects for it; says whether there were any. Stays
    /// resolved.
    pub(in crate::series) fn cut_points<G: Fn(i64) -> bool>(
        &mut self,
        gone: impl Fn(u16) -> Option<G>,
    ) -> bool {
        let mut was_there = false;
        for column in &mut self.columns {
            let Some(is_gone) = gone(column.field) else { continue };
            let before = column.values.len();
            let stays = (0..before as u32).map(|at| (column.row(at as usize), at));
            let stays = stays.filter(|(row, _)| !is_gone(self.times[*row as usize]));
            let stays: Vec<(u32, u32)> = stays.collect();
            if stays.len() < before {
                column.keep(&stays, self.times.len());
                was_there = true;
            }
        }
        if was_there {
            self.columns.retain(|column| !column.values.is_empty());
            self.drop_empty_rows();
        }
        was_there
    }

    /// The times at which a column has values.
    pub(in crate::series) fn times_of(&self, column: &Column) -> impl Iterator<Item = i64> {
        (0..column.values.len()).map(|at| self.times[column.row(at) as usize])
    }

    fn drop_empty_rows(&mut self) {
        let mut used = vec![false; self.times.len()];
        for column in &self.columns {
            (0..column.values.len()).for_each(|at| used[column.row(at) as usize] = true);
        }
        let mut next = 0;
        let target: Vec<u32> = used
            .iter()
            .map(|&used| {
                next += u32::from(used);
                next.saturating_sub(1)
            })
            .collect();
        for column in &mut self.columns {
            let mut rows: Vec<u32> =
                (0..column.values.len()).map(|at| target[column.row(at) as usize]).collect();
            column.rows = (rows.len() < next as usize).then(|| std::mem::take(&mut rows));
        }
        let mut at = 0;
        self.times.retain(|_| {
            at += 1;
            used[at - 1]
        });
    }

    /// The points of each of some fields, in the order of the rows; `None` where there is no such column.
    pub(in crate::series) fn points(mut self, fields: &[u16]) -> Vec<Option<Points>> {
        let columns = std::mem::take(&mut self.columns).into_iter();
        let mut columns: HashMap<u16, Column> =
            columns.map(|column| (column.field, column)).collect();
        let mut found = Vec::with_capacity(fields.len());
        for (n, &field) in fields.iter().enumerate() {
            found.push(columns.remove(&field).map(|column| {
                let times = match &column.rows {
                    // The last field takes the times instead of a copy.
                    None if n + 1 == fields.len() => std::mem::take(&mut self.times),
                    None => self.times.clone(),
                    Some(rows) => rows.iter().map(|&row| self.times[row as usize]).collect(),
                };
                Points { times, values: column.values }
            }));
        }
        found
    }

    /// Divides the rows before each of these places, which ascend and lie inside the table. The parts are in order, and
    /// resolved if the table is.
    pub(in crate::series) fn divide(self, places: &[usize]) -> Vec<Self> {
        let bound = |part: usize| if part == 0 { 0 } else { places[part - 1] };
        let end = |part: usize| places.get(part).copied().unwrap_or(self.times.len());
        let part = |part: usize| Self {
            times: self.times[bound(part)..end(part)].to_vec(),
            columns: Vec::new(),
        };
        let mut parts: Vec<Self> = (0..=places.len()).map(part).collect();
        for column in &self.columns {
            let mut at = 0;
            while at < column.values.len() {
                let part = places.partition_point(|&place| place <= column.row(at) as usize);
                let (from, to) = (bound(part), end(part));
                let until = match &column.rows {
                    None => to.min(column.values.len()),
                    Some(rows) => at + rows[at..].partition_point(|&row| (row as usize) < to),
                };
                let mut values = Values::new(column.values.kind());
                values.extend_from(&column.values, at..until);
                let rows = column.rows.as_ref().map(|rows| &rows[at..until]);
                let rows = rows.filter(|rows| rows.len() < to - from);
                let rows = rows.map(|rows| rows.iter().map(|&row| row - from as u32).collect());
                parts[part].columns.push(Column { field: column.field, rows, values });
                at = until;
            }
        }
        parts
    }

    /// Splits the columns into two halves, each with the rows that it has values for.
    pub(in crate::series) fn halve_columns(mut self) -> [Self; 2] {
        let behind = self.columns.split_off(self.columns.len() / 2);
        let mut behind = Self { times: self.times.clone(), columns: behind };
        self.drop_empty_rows();
        behind.drop_empty_rows();
        [self, behind]
    }
}

impl Column {
    /// Keeps some values, given as (row, index); rows ascend.
    fn keep(&mut self, kept: &[(u32, u32)], of_rows: usize) {
        let mut values = Values::new(self.values.kind());
        for &(_, at) in kept {
            values.extend_from(&self.values, at as usize..at as usize + 1);
        }
        self.values = values;
        self.rows = (kept.len() < of_rows).then(|| kept.iter().map(|(row, _)| *row).collect());
    }
}
