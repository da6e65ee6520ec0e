//! Points that count: fields of a source, read side by side as far as conditions need it.
//!
//! Cursors give points in pieces that need not end at the same time. A step goes to where the first of them
//! ends, so that what is known of a time is known of all fields:
//!
//! ```text
//!   usage   ──────────┤─────────────      f > 1 decides which times of usage count,
//!   f       ────┤───────────┤───────      and is not shown
//!           step │step│ step │
//! ```
//! No more than a piece of each field is in memory.

use std::collections::{BTreeSet, HashMap};

use engine::series::{Cursor, Info, Kind, Points, Scan};

use super::Asked;
use super::filter::{Filter, Part, Rows, Tests};
use crate::http::refusal::Refusal;

/// Series of one source, by their order.
pub(super) type Source<'a> = Vec<&'a Info>;

/// Series by their sources.
pub(super) fn sources(series: &[Info]) -> Vec<Source<'_>> {
    let mut places: HashMap<&[_], usize> = HashMap::new();
    let mut sources: Vec<Source<'_>> = Vec::new();
    for info in series {
        let place = *places.entry(&info.tags[..]).or_insert(sources.len());
        if place == sources.len() {
            sources.push(Vec::new());
        }
        sources[place].push(info);
    }
    sources
}

/// A walk over some fields of a source.
pub(super) struct Walk<'a> {
    tests: Option<Tests<'a>>,
    /// Those that are wanted first, then those that are only asked about.
    columns: Vec<Column<'a>>,
    wanted: usize,
    descending: bool,
}

struct Column<'a> {
    field: &'a str,
    cursor: Box<dyn Cursor>,
    /// The last piece that was read.
    points: Points,
    /// The first of it that was not given yet.
    at: usize,
    ended: bool,
}

impl<'a> Walk<'a> {
    /// A walk over the `wanted` series of a source, which has others that the filter may ask about. None if
    /// nothing of them can count.
    pub(super) fn new(
        asked: &Asked<'_>,
        filter: &'a Filter,
        source: &[&'a Info],
        wanted: &[&'a Info],
        scan: Scan,
    ) -> Option<Self> {
        let first = wanted.first()?;
        let tests = match filter
            .of(&|key| first.tag(key), &|field| source.iter().any(|info| *info.field == *field))
        {
            Rows::Nothing => return None,
            Rows::Every => None,
            Rows::Where(tests) => Some(tests),
        };
        let mut tested = BTreeSet::new();
        // What passes is known only once it is read.
        let mut limit = scan.limit;
        if let Some(tests) = &tests {
            tests.fields(&mut tested);
            limit = usize::MAX;
        }
        let others = source.iter().filter(|info| {
            tested.contains(&*info.field) && wanted.iter().all(|wanted| wanted.id != info.id)
        });
        let columns = wanted.iter().chain(others).map(|info| {
            let cursor = asked.store.read(info.id, Scan { limit, ..scan });
            Column::new(&info.field, info.kind, cursor)
        });
        let columns = columns.collect();
        Some(Self { tests, columns, wanted: wanted.len(), descending: scan.descending })
    }

    /// The next points of each wanted field, in their order; perhaps none of any of them. None at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Points>>, Refusal> {
        for column in &mut self.columns {
            column.fill().await?;
        }
        let (wanted, descending) = (self.wanted, self.descending);
        if self.columns[..wanted].iter().all(|column| column.ended) {
            return Ok(None);
        }
        let ends = self.columns.iter().filter_map(|column| column.points.times.last());
        let end = if descending { ends.max() } else { ends.min() };
        let end = *end.expect("one has not ended");
        let parts = self.columns.iter().map(|column| column.until(end, descending));
        let parts: Vec<Part<'_>> = parts.collect();
        let ends: Vec<usize> = parts.iter().map(|part| part.range.end).collect();
        let passing = self.tests.as_ref().map(|tests| {
            let columns = &self.columns;
            let find = |field: &str| columns.iter().position(|column| column.field == field);
            let times = tests.times(&|field| Some(parts[find(field)?].clone()), descending);
            let wanted = parts.iter().take(wanted).cloned();
            wanted.map(|part| part.at(&times, descending)).collect()
        });
        drop(parts);
        let found = passing.unwrap_or_else(|| {
            let wanted = self.columns.iter_mut().take(wanted).zip(&ends);
            wanted.map(|(column, &end)| column.take(end)).collect()
        });
        for (column, end) in self.columns.iter_mut().zip(ends) {
            column.at = end.min(column.points.len());
        }
        Ok(Some(found))
    }
}

impl<'a> Column<'a> {
    fn new(field: &'a str, kind: Kind, cursor: Box<dyn Cursor>) -> Self {
        Self { field, cursor, points: Points::new(kind), at: 0, ended: false }
    }

    /// Reads on if all that was read is given.
    async fn fill(&mut self) -> Result<(), Refusal> {
        while self.at == self.points.len() && !self.ended {
            self.at = 0;
            match self.cursor.next().await? {
                Some(points) => self.points = points,
                None => {
                    self.points = Points::new(self.points.values.kind());
                    self.ended = true;
                }
            }
        }
        Ok(())
    }

    /// What is not given yet, up to a time.
    fn until(&self, end: i64, descending: bool) -> Part<'_> {
        let is_in = |time: &i64| if descending { *time >= end } else { *time <= end };
        let count = self.points.times[self.at..].partition_point(is_in);
        Part { points: &self.points, range: self.at..self.at + count }
    }

    /// What is not given yet, up to a place.
    fn take(&mut self, end: usize) -> Points {
        let mut taken = Points::new(self.points.values.kind());
        if (self.at, end) == (0, self.points.len()) {
            std::mem::swap(&mut taken, &mut self.points);
            return taken;
        }
        for at in self.at..end {
            taken.push(self.points.times[at], self.points.values.get(at));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use engine::series::{Pending, Value};
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::http::influxql::{Comparison, Literal, Test};

    /// Points in pieces.
    struct Pieces(VecDeque<Points>);

    impl Cursor for Pieces {
        fn next(&mut self) -> Pending<'_, Option<Points>> {
            let next = self.0.pop_front();
            Box::pin(async move { Ok(next) })
        }
    }

    fn pieces(points: &[(i64, i64)], lengths: &[usize]) -> Box<dyn Cursor> {
        let (mut left, mut pieces) = (points, VecDeque::new());
        let mut lengths = lengths.iter().cycle();
        while !left.is_empty() {
            let (now, later) = left.split_at(left.len().min(*lengths.next().expect("a cycle")));
            let mut piece = Points::new(Kind::Integer);
            now.iter().for_each(|&(time, value)| piece.push(time, Value::Integer(value)));
            pieces.push_back(piece);
            left = later;
        }
        Box::new(Pieces(pieces))
    }

    type Values = std::collections::BTreeMap<i64, i64>;

    fn walked(
        tests: Option<Tests<'_>>,
        columns: &[Values; 3],
        lengths: &[Vec<usize>; 3],
        descending: bool,
    ) -> Vec<Vec<(i64, i64)>> {
        let open = |at: usize| {
            let mut points: Vec<_> =
                columns[at].iter().map(|(&time, &value)| (time, value)).collect();
            if descending {
                points.reverse();
            }
            Column::new(["a", "b", "c"][at], Kind::Integer, pieces(&points, &lengths[at]))
        };
        let mut walk = Walk { tests, columns: (0..3).map(open).collect(), wanted: 2, descending };
        let mut found = vec![Vec::new(); 2];
        while let Some(step) = volume::task::block_on(walk.next()).expect("it is read") {
            assert_eq!(step.len(), 2);
            for (into, points) in found.iter_mut().zip(step) {
                into.extend(points.iter().map(|(time, value)| match value {
                    Value::Integer(number) => (time, number),
                    other => panic!("{other:?}"),
                }));
            }
        }
        found
    }

    proptest! {
        #[test]
        fn pieces_of_any_length_give_the_same(
            columns in [(); 3].map(|()| btree_map(0..50_i64, 0..4_i64, 0..30)),
            lengths in [(); 3].map(|()| vec(1..9_usize, 1..5)),
            descending: bool,
        ) {
            let test = |wanted| Test::Compare(Comparison::Greater, Literal::Integer(wanted));
            let (b, c) = (test(1), test(2));
            let tests = Tests::Any(vec![Tests::Field("b", &b), Tests::Field("c", &c)]);
            let holds = |time: &i64| {
                columns[1].get(time).is_some_and(|&value| value > 1)
                    || columns[2].get(time).is_some_and(|&value| value > 2)
            };
            let all = walked(None, &columns, &lengths, descending);
            let some = walked(Some(tests), &columns, &lengths, descending);
            for at in 0..2 {
                let mut wanted: Vec<_> = columns[at].clone().into_iter().collect();
                if descending {
                    wanted.reverse();
                }
                prop_assert_eq!(&all[at], &wanted);
                wanted.retain(|(time, _)| holds(time));
                prop_assert_eq!(&some[at], &wanted);
            }
        }
    }
}
