//! The condition of a `SELECT`, as a pure function over columns.
//!
//! ```text
//!   WHERE ─▶ Filter ─▶ tags(): which sources ─▶ of(a source): Rows ─▶ Tests::times(its columns)
//! ```
//! A condition mixes tags and fields. The store selects sources by their tags; if the condition on tags depends on
//! fields, it selects all candidates. For a given source the tags are known, and only tests of its fields remain.
//!
//! A test of a field gives a set of times: those of the points that pass. A missing value, or one of another kind,
//! passes no test, not even `!=` (as in InfluxDB 1.x), and there is no negation. So rows need not be assembled for a
//! test: AND is the intersection of these sets, OR their union.

use std::collections::BTreeSet;

use engine::series::{Points, Predicate, Test as StoreTest, Value};

use super::fields::{Fields, is_field};
use crate::http::influxql::{Comparison, Condition, Literal, Test};
use crate::http::refusal::Refusal;

/// Tests of tags and fields, joined.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Filter {
    /// Every row passes.
    Every,
    /// A test of the tag with this key.
    Tag(String, StoreTest),
    /// A test of the field with this name.
    Field(String, Test),
    /// All of these pass.
    All(Vec<Filter>),
    /// At least one of these passes.
    Any(Vec<Filter>),
}

/// The condition on the rows of one source.
#[derive(Debug, PartialEq)]
pub(super) enum Rows<'a> {
    /// All rows pass.
    Every,
    /// No row passes.
    Nothing,
    /// Rows pass that satisfy these tests.
    Where(Tests<'a>),
}

/// Tests of fields, joined.
#[derive(Debug, PartialEq)]
pub(super) enum Tests<'a> {
    /// A test of one field.
    Field(&'a str, &'a Test),
    /// All of these pass.
    All(Vec<Tests<'a>>),
    /// At least one of these passes.
    Any(Vec<Tests<'a>>),
}

impl Filter {
    /// The filter of a condition, after time was [split off](super::choose::split). `fields` distinguishes fields from
    /// tags.
    pub(super) fn new(condition: Option<&Condition>, fields: &Fields) -> Result<Self, Refusal> {
        let Some(condition) = condition else { return Ok(Self::Every) };
        let all = |parts: &[Condition]| {
            parts.iter().map(|part| Self::new(Some(part), fields)).collect::<Result<_, _>>()
        };
        Ok(match condition {
            Condition::All(parts) => Self::All(all(parts)?),
            Condition::Any(parts) => Self::Any(all(parts)?),
            Condition::Time(..) => {
                return Err(Refusal::bad("only SELECT and DELETE support time in WHERE"));
            }
            Condition::Test(reference, test) if is_field(reference, fields) => {
                Self::Field(reference.name.clone(), test.clone())
            }
            Condition::Test(reference, test) => {
                let test = match test {
                    Test::Compare(Comparison::Equal, Literal::Text(text)) => {
                        StoreTest::Is(text.clone())
                    }
                    Test::Compare(Comparison::Unequal, Literal::Text(text)) => {
                        StoreTest::IsNot(text.clone())
                    }
                    Test::Like(pattern) => StoreTest::Matches(pattern.compiled().clone()),
                    Test::Unlike(pattern) => StoreTest::MatchesNot(pattern.compiled().clone()),
                    Test::Compare(..) => {
                        return Err(Refusal::bad(format!(
                            "{reference} is a tag or unknown: compare it by = 'text', != 'text', =~ or !~"
                        )));
                    }
                };
                Self::Tag(reference.name.clone(), test)
            }
        })
    }

    /// The necessary condition on tags, independent of fields.
    pub(super) fn tags(&self) -> Predicate {
        let tags = |parts: &[Self]| parts.iter().map(Self::tags).collect::<Vec<_>>();
        match self {
            Self::Every | Self::Field(..) => Predicate::All,
            Self::Tag(key, test) => Predicate::Tag(key.clone(), test.clone()),
            Self::All(parts) => {
                let mut parts = tags(parts);
                parts.retain(|part| *part != Predicate::All);
                match parts.len() {
                    0 => Predicate::All,
                    _ => Predicate::And(parts),
                }
            }
            Self::Any(parts) => {
                let parts = tags(parts);
                if parts.contains(&Predicate::All) { Predicate::All } else { Predicate::Or(parts) }
            }
        }
    }

    /// The remaining filter for sources whose tags satisfy [`Self::tags`].
    pub(super) fn beyond_tags(self) -> Self {
        match self {
            Self::All(mut parts) => {
                parts.retain(Self::has_fields);
                if parts.is_empty() { Self::Every } else { Self::All(parts) }
            }
            other if other.has_fields() => other,
            _ => Self::Every,
        }
    }

    fn has_fields(&self) -> bool {
        let mut fields = BTreeSet::new();
        self.fields(&mut fields);
        !fields.is_empty()
    }

    /// The fields it tests.
    pub(super) fn fields<'a>(&'a self, into: &mut BTreeSet<&'a str>) {
        match self {
            Self::Every | Self::Tag(..) => {}
            Self::Field(name, _) => {
                into.insert(name);
            }
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.fields(into));
            }
        }
    }

    /// The remaining condition for a source: `tag` looks up its tags, `has` says whether it has a field.
    pub(super) fn of<'a, 't>(
        &'a self,
        tag: &impl Fn(&str) -> &'t str,
        has: &impl Fn(&str) -> bool,
    ) -> Rows<'a> {
        let (parts, of_all) = match self {
            Self::Every => return Rows::Every,
            Self::Tag(key, test) if test.passes(tag(key)) => return Rows::Every,
            Self::Tag(..) => return Rows::Nothing,
            Self::Field(name, test) if has(name) => return Rows::Where(Tests::Field(name, test)),
            Self::Field(..) => return Rows::Nothing,
            Self::All(parts) => (parts, true),
            Self::Any(parts) => (parts, false),
        };
        let mut left = Vec::new();
        for part in parts {
            match (part.of(tag, has), of_all) {
                (Rows::Where(tests), _) => left.push(tests),
                (Rows::Every, true) | (Rows::Nothing, false) => {}
                (settled, _) => return settled,
            }
        }
        match (left.len(), of_all) {
            (0, true) => Rows::Every,
            (0, false) => Rows::Nothing,
            (1, _) => left.pop().map_or(Rows::Every, Rows::Where),
            (_, true) => Rows::Where(Tests::All(left)),
            (_, false) => Rows::Where(Tests::Any(left)),
        }
    }
}

/// The points of a column at any of `times`, which are in the same order.
pub(super) fn at(points: &Points, times: &[i64], descending: bool) -> Points {
    let mut found = Points::new(points.values.kind());
    let mut times = Times { rest: times, descending };
    for (time, value) in points.iter() {
        if times.has(time) {
            found.push(time, value);
        }
    }
    found
}

/// A sorted list of times, traversed once.
struct Times<'a> {
    rest: &'a [i64],
    descending: bool,
}

impl Times<'_> {
    /// Whether `time` is in the list; calls must come in the list's order.
    fn has(&mut self, time: i64) -> bool {
        let is_before = |other: i64| if self.descending { other > time } else { other < time };
        let before = self.rest.iter().take_while(|&&other| is_before(other)).count();
        self.rest = &self.rest[before..];
        self.rest.first() == Some(&time)
    }
}

impl<'a> Tests<'a> {
    /// The fields they test.
    pub(super) fn fields(&self, into: &mut BTreeSet<&'a str>) {
        match self {
            Self::Field(name, _) => {
                into.insert(name);
            }
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.fields(into));
            }
        }
    }

    /// The times at which they pass, in the order of the columns that `column` looks up.
    pub(super) fn times<'p>(
        &self,
        column: &impl Fn(&str) -> Option<&'p Points>,
        descending: bool,
    ) -> Vec<i64> {
        match self {
            Self::Field(name, test) => column(name).map_or_else(Vec::new, |points| {
                let passing = points.iter().filter(|(_, value)| passes(test, *value));
                passing.map(|(time, _)| time).collect()
            }),
            Self::All(parts) => {
                let mut parts = parts.iter();
                let first = parts.next().map(|part| part.times(column, descending));
                parts.fold(first.unwrap_or_default(), |mut left, part| {
                    if !left.is_empty() {
                        let right = part.times(column, descending);
                        let mut right = Times { rest: &right, descending };
                        left.retain(|&time| right.has(time));
                    }
                    left
                })
            }
            Self::Any(parts) => {
                let mut times = Vec::new();
                for part in parts {
                    times.extend(part.times(column, descending));
                }
                // The parts are sorted, so a stable sort only merges them.
                if descending {
                    times.sort_by(|a, b| b.cmp(a));
                } else {
                    times.sort();
                }
                times.dedup();
                times
            }
        }
    }
}

/// Whether a value passes a test; one of another kind passes none. Booleans and texts compare for equality only. All of
/// this is as in InfluxDB 1.x.
fn passes(test: &Test, value: Value<'_>) -> bool {
    let equal = |comparison: Comparison, equal: bool| match comparison {
        Comparison::Equal => equal,
        Comparison::Unequal => !equal,
        _ => false,
    };
    let (comparison, literal) = match test {
        Test::Like(pattern) => return matches!(value, Value::Text(text) if pattern.is_in(text)),
        Test::Unlike(pattern) => return matches!(value, Value::Text(text) if !pattern.is_in(text)),
        Test::Compare(comparison, literal) => (*comparison, literal),
    };
    match (literal, value) {
        (Literal::Text(wanted), Value::Text(text)) => equal(comparison, wanted == text),
        (Literal::Boolean(wanted), Value::Boolean(truth)) => equal(comparison, *wanted == truth),
        (Literal::Integer(wanted), Value::Integer(number)) => comparison.holds(number.cmp(wanted)),
        (Literal::Integer(wanted), Value::Unsigned(number)) => {
            comparison.holds(i128::from(number).cmp(&i128::from(*wanted)))
        }
        (Literal::Integer(wanted), Value::Float(number)) => {
            let order = number.partial_cmp(&(*wanted as f64));
            order.is_some_and(|order| comparison.holds(order))
        }
        (Literal::Number(wanted), number) => {
            let order = number.as_f64().and_then(|number| number.partial_cmp(wanted));
            order.is_some_and(|order| comparison.holds(order))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::http::influxql::{Pattern, Statement, parse};
    use engine::series::{Kind, Scalar};

    const FIELDS: [(&str, Kind); 3] = [("f", Kind::Float), ("i", Kind::Integer), ("s", Kind::Text)];

    fn fields() -> Fields {
        FIELDS.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect()
    }

    fn filter(text: &str) -> Filter {
        let statements = parse(&format!("SELECT f FROM m WHERE {text}"), 0).expect(text);
        let Statement::Select(select) = &statements[0] else { panic!("{text}") };
        Filter::new(select.filter.as_ref(), &fields()).expect(text)
    }

    #[test]
    fn sources_are_chosen_by_what_tags_alone_can_tell() {
        let tag = |value: &str| Predicate::Tag("h".into(), StoreTest::Is(value.into()));
        for (text, tags, beyond) in [
            ("h = 'a'", tag("a"), false),
            ("h = 'a' AND f > 1", Predicate::And(vec![tag("a")]), true),
            ("h = 'a' OR f > 1", Predicate::All, true),
            (
                "h = 'a' AND f > 1 OR h = 'b' AND i = 1",
                Predicate::Or(vec![Predicate::And(vec![tag("a")]), Predicate::And(vec![tag("b")])]),
                true,
            ),
            ("f > 1 AND i = 1", Predicate::All, true),
            ("h = 'a' AND h = 'b'", Predicate::And(vec![tag("a"), tag("b")]), false),
        ] {
            let filter = filter(text);
            assert_eq!(filter.tags(), tags, "{text}");
            assert_eq!(filter.beyond_tags() != Filter::Every, beyond, "{text}");
        }
    }

    #[test]
    fn a_source_is_asked_only_what_its_tags_leave_open() {
        let filter = filter("h = 'a' OR h = 'b' AND f > 1 OR h = 'c' AND x::field > 1");
        let of = |host: &'static str, has: bool| filter.of(&|_| host, &|name| has && name == "f");
        assert_eq!(of("a", true), Rows::Every);
        assert!(matches!(of("b", true), Rows::Where(Tests::Field("f", _))));
        assert_eq!(of("b", false), Rows::Nothing);
        assert_eq!(of("c", true), Rows::Nothing);
        assert_eq!(of("d", true), Rows::Nothing);
    }

    #[test]
    fn values_of_another_kind_pass_no_test() {
        let (text, truth) = (Value::Text("red"), Value::Boolean(true));
        let (float, integer) = (Value::Float(1.5), Value::Integer(1 << 53 | 1));
        let unsigned = Value::Unsigned(u64::MAX);
        for (test, value, wanted) in [
            ("x = 'red'", text, true),
            ("x != 'blue'", text, true),
            ("x > 'a'", text, false),
            ("x =~ /e/", text, true),
            ("x !~ /e/", text, false),
            ("x != 1", text, false),
            ("x = true", truth, true),
            ("x <> false", truth, true),
            ("x > false", truth, false),
            ("x = 'true'", truth, false),
            ("x !~ /e/", truth, false),
            ("x > 1", float, true),
            ("x = 1.5", float, true),
            ("x != '1.5'", float, false),
            ("x =~ /1/", float, false),
            ("x = 9007199254740993", integer, true),
            ("x = 9007199254740992", integer, false),
            // As in InfluxDB, compared as floats.
            ("x = 9007199254740992.0", integer, true),
            ("x > -1", unsigned, true),
            ("x > 9223372036854775807", unsigned, true),
            ("x < 1e19", unsigned, false),
        ] {
            let statements = parse(&format!("SELECT x FROM m WHERE {test}"), 0).expect(test);
            let Statement::Select(select) = &statements[0] else { panic!("{test}") };
            let Some(Condition::Test(_, test)) = &select.filter else { panic!("{test}") };
            assert_eq!(passes(test, value), wanted, "{test:?} of {value:?}");
        }
    }

    /// A row: the values of fields, by their index in [`FIELDS`].
    type Row = [Option<Scalar>; 3];

    fn row() -> impl Strategy<Value = Row> {
        let number = || prop::option::of(-2..3_i64);
        (number(), number(), number()).prop_map(|(f, i, s)| {
            [
                f.map(|number| Scalar::Float(number as f64 / 2.0)),
                i.map(Scalar::Integer),
                s.map(|number| {
                    Scalar::Text(["red", "green", "", "blue", "e"][(number + 2) as usize].into())
                }),
            ]
        })
    }

    fn any_filter() -> impl Strategy<Value = Filter> {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Unequal};
        let comparison =
            prop::sample::select(vec![Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Unequal]);
        let literal = prop_oneof![
            (-2..3_i64).prop_map(Literal::Integer),
            (-2..3_i64).prop_map(|number| Literal::Number(number as f64 / 2.0)),
            prop::sample::select(vec!["red", "", "e"]).prop_map(|text| Literal::Text(text.into())),
        ];
        let pattern = || Pattern::new("e").expect("a pattern");
        let test = prop_oneof![
            4 => (comparison, literal).prop_map(|(comparison, of)| Test::Compare(comparison, of)),
            1 => Just(Test::Like(pattern())),
            1 => Just(Test::Unlike(pattern())),
        ];
        let field = prop::sample::select(vec!["f", "i", "s", "nothing"]);
        let value = prop::sample::select(vec!["a", "b"]);
        let leaf = prop_oneof![
            4 => (field, test).prop_map(|(name, test)| Filter::Field(name.into(), test)),
            1 => value.clone().prop_map(|value| Filter::Tag("h".into(), StoreTest::Is(value.into()))),
            1 => value.prop_map(|value| Filter::Tag("h".into(), StoreTest::IsNot(value.into()))),
        ];
        leaf.prop_recursive(4, 20, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 1..4).prop_map(Filter::All),
                vec(inner, 1..4).prop_map(Filter::Any),
            ]
        })
    }

    /// The reference: one row at a time.
    fn naive(filter: &Filter, host: &str, row: &Row) -> bool {
        match filter {
            Filter::Every => true,
            Filter::Tag(_, test) => test.passes(host),
            Filter::Field(name, test) => FIELDS
                .iter()
                .position(|(other, _)| other == name)
                .and_then(|at| row[at].as_ref())
                .is_some_and(|value| passes(test, value.as_value())),
            Filter::All(parts) => parts.iter().all(|part| naive(part, host, row)),
            Filter::Any(parts) => parts.iter().any(|part| naive(part, host, row)),
        }
    }

    proptest! {
        #[test]
        fn columns_give_the_times_that_rows_do(
            filter in any_filter(),
            rows in btree_map(0..60_i64, row(), 0..40),
            descending: bool,
        ) {
            let mut rows: Vec<_> = rows.into_iter().collect();
            if descending {
                rows.reverse();
            }
            let columns: Vec<Points> = FIELDS.iter().enumerate().map(|(at, (_, kind))| {
                let mut points = Points::new(*kind);
                for (time, row) in &rows {
                    row[at].iter().for_each(|value| points.push(*time, value.as_value()));
                }
                points
            }).collect();
            let column = |name: &str| {
                let at = FIELDS.iter().position(|(other, _)| *other == name)?;
                Some(&columns[at])
            };
            for host in ["a", "b", ""] {
                let wanted = rows.iter().filter(|(_, row)| naive(&filter, host, row));
                let wanted: Vec<i64> = wanted.map(|(time, _)| *time).collect();
                if !wanted.is_empty() {
                    prop_assert!(filter.tags().holds(&|_| host), "its source is chosen");
                }
                let beyond = filter.clone().beyond_tags();
                if !filter.tags().holds(&|_| host) {
                    continue;
                }
                let times = match beyond.of(&|_| host, &|name| column(name).is_some()) {
                    Rows::Nothing => Vec::new(),
                    Rows::Every => rows.iter().map(|(time, _)| *time).collect(),
                    Rows::Where(tests) => tests.times(&column, descending),
                };
                prop_assert_eq!(&times, &wanted);
                for (at, points) in columns.iter().enumerate() {
                    let kept = super::at(points, &times, descending);
                    let there = rows.iter().filter(|(time, row)| wanted.contains(time) && row[at].is_some());
                    prop_assert_eq!(kept.times, there.map(|(time, _)| *time).collect::<Vec<_>>());
                }
            }
        }
    }
}
