//! Rows of a source as columns, and the three things done to them: sorted, put together, cut.

use crate::series::Span;
use crate::series::value::{Points, Value, Values};

/// Rows of one source. *Resolved*: times ascend, and no two rows have the same one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::series) struct Table {
    pub(in crate::series) times: Vec<i64>,
    pub(in crate::series) columns: Vec<Column>,
}

/// The values of one field.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::series) struct Column {
    pub(in crate::series) field: u16,
    /// Which rows have one, in order; none for all of them.
    pub(in crate::series) rows: Option<Vec<u32>>,
    pub(in crate::series) values: Values,
}

impl Column {
    fn row(&self, at: usize) -> u32 {
        self.rows.as_ref().map_or(at as u32, |rows| rows[at])
    }

    /// Says which rows it has, if that was all.
    fn spell_out(&mut self) -> &mut Vec<u32> {
        let all = self.values.len() as u32;
        self.rows.get_or_insert_with(|| (0..all).collect())
    }
}

impl Table {
    /// Adds the values of a row that was added to the times just before. A field that comes twice has
    /// its last value.
    pub(in crate::series) fn push(&mut self, at: usize, field: u16, value: Value<'_>) -> usize {
        let row = self.times.len() - 1;
        // Rows have their fields in the same order, mostly.
        let column = match self.columns.get(at) {
            Some(column) if column.field == field => at,
            _ => match self.columns.iter().position(|column| column.field == field) {
                Some(found) => found,
                None => {
                    let rows = (row > 0).then(Vec::new);
                    let values = Values::new(value.kind());
                    self.columns.push(Column { field, rows, values });
                    self.columns.len() - 1
                }
            },
        };
        let into = &mut self.columns[column];
        let len = into.values.len();
        if len > 0 && into.row(len - 1) as usize == row {
            into.values.truncate(len - 1);
        } else if into.rows.is_some() || len < row {
            into.spell_out().push(row as u32);
        }
        into.values.push(value);
        column + 1
    }

    /// Appends the rows of a later table: where both have a value, that of the later one counts once
    /// the table is resolved.
    pub(in crate::series) fn append(&mut self, later: Self) {
        let shift = self.times.len() as u32;
        for column in later.columns {
            let count = column.values.len();
            let rows: Vec<u32> = (0..count).map(|at| column.row(at) + shift).collect();
            match self.columns.iter_mut().find(|mine| mine.field == column.field) {
                None => self.columns.push(Column { rows: Some(rows), ..column }),
                Some(mine) => {
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

    /// Sorts rows by time; of rows at one time each field has its last value.
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
                // A value for each row of the result: the last one that was written.
                let mut chosen = vec![u32::MAX; self.times.len()];
                for at in 0..column.values.len() {
                    chosen[target[column.row(at) as usize]] = at as u32;
                }
                column.take(&chosen);
            }
        }
        self.columns.sort_by_key(|column| column.field);
    }

    /// Takes away what of the fields lies in an interval; says whether there was anything. Stays resolved.
    pub(in crate::series) fn cut(&mut self, fields: impl Fn(u16) -> bool, span: Span) -> bool {
        let mut was_there = false;
        for column in self.columns.iter_mut().filter(|column| fields(column.field)) {
            let mut chosen = vec![u32::MAX; self.times.len()];
            let before = column.values.len();
            for at in 0..before {
                let row = column.row(at) as usize;
                if !span.contains(self.times[row]) {
                    chosen[row] = at as u32;
                }
            }
            column.take(&chosen);
            was_there |= column.values.len() < before;
        }
        if was_there {
            self.columns.retain(|column| !column.values.is_empty());
            self.drop_empty_rows();
        }
        was_there
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

    /// The points of each of some fields, in the order of the rows; none where there is no such column.
    pub(in crate::series) fn points(mut self, fields: &[u16]) -> Vec<Option<Points>> {
        let mut found = Vec::with_capacity(fields.len());
        for (n, &field) in fields.iter().enumerate() {
            let at = self.columns.iter().position(|column| column.field == field);
            let column = at.map(|at| self.columns.swap_remove(at));
            found.push(column.map(|column| {
                let times = match &column.rows {
                    // The last one has no other to leave them to.
                    None if n + 1 == fields.len() => std::mem::take(&mut self.times),
                    None => self.times.clone(),
                    Some(rows) => rows.iter().map(|&row| self.times[row as usize]).collect(),
                };
                Points { times, values: column.values }
            }));
        }
        found
    }

    /// Divides it by where each row belongs; the parts are in order, and resolved if it is.
    pub(in crate::series) fn split(mut self, at: usize) -> (Self, Self) {
        let mut behind = Self { times: self.times.split_off(at), columns: Vec::new() };
        for column in &mut self.columns {
            let count = (0..column.values.len())
                .take_while(|&value| (column.row(value) as usize) < at)
                .count();
            let mut values = Values::new(column.values.kind());
            values.extend_from(&column.values, count..column.values.len());
            column.values.truncate(count);
            let rows = column.rows.as_mut().map(|rows| {
                rows.split_off(count).into_iter().map(|row| row - at as u32).collect::<Vec<_>>()
            });
            let rows = rows.filter(|rows| rows.len() < behind.times.len());
            column.rows.take_if(|rows| rows.len() == at);
            if !values.is_empty() {
                behind.columns.push(Column { field: column.field, rows, values });
            }
        }
        self.columns.retain(|column| !column.values.is_empty());
        (self, behind)
    }
}

impl Column {
    /// Keeps the chosen values: for each row one, or none.
    fn take(&mut self, chosen: &[u32]) {
        let mut values = Values::new(self.values.kind());
        let mut rows = Vec::new();
        for (row, &at) in chosen.iter().enumerate().filter(|&(_, &at)| at != u32::MAX) {
            values.extend_from(&self.values, at as usize..at as usize + 1);
            rows.push(row as u32);
        }
        self.values = values;
        self.rows = (rows.len() < chosen.len()).then_some(rows);
    }
}
