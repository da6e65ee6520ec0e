//! Aggregation of points over windows of time: a pure function over the points of any number of series.
//!
//! ```text
//!   points ─▶ Aggregation::add ─▶ a state for each window that has points ─▶ finish: windows, filled
//! ```
//! Windows begin at multiples of their length since 1970, shifted by an offset, as with InfluxQL's `GROUP BY time()`.
//! Points may come in any order and from several series of one kind.

use std::collections::BTreeMap;

use super::{Error, Kind, Points, Result, Scalar, Span, Value};

/// The aggregate of a window's points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// Their number.
    Count,
    /// The arithmetic mean.
    Mean,
    /// The sum: of integers an integer, which stops at the largest there is.
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The value of the earliest.
    First,
    /// The value of the latest.
    Last,
    /// The standard deviation of a sample; nothing for a single point.
    Stddev,
    /// The smallest value that at least this percentage of values do not exceed, 0 to 100, by nearest rank.
    Percentile(f64),
}

/// Windows of time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Windows {
    /// The times that count.
    pub span: Span,
    /// Their length in nanoseconds; `None` for one window over the whole span.
    pub every: Option<i64>,
    /// The offset of their starts.
    pub offset: i64,
}

impl Windows {
    /// The window of a time, by its start. The first one may begin before the span.
    #[must_use]
    pub fn start(&self, time: i64) -> i64 {
        match self.every {
            None => self.span.from,
            Some(every) => {
                let (time, offset) = (i128::from(time), i128::from(self.offset));
                let start = time - (time - offset).rem_euclid(i128::from(every));
                i64::try_from(start).unwrap_or(i64::MIN)
            }
        }
    }

    /// The start of the next window.
    fn end(&self, start: i64) -> i64 {
        match self.every {
            None => self.span.to,
            // The range of times cuts the very first window.
            Some(every) if start == i64::MIN => {
                let rest =
                    (-i128::from(i64::MIN) + i128::from(self.offset)).rem_euclid(i128::from(every));
                start.saturating_add(if rest == 0 { every } else { rest as i64 })
            }
            Some(every) => start.saturating_add(every),
        }
    }
}

/// The value of a window without points.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Fill {
    /// The window is left out.
    #[default]
    None,
    /// No value; a count is 0.
    Null,
    /// The value of the last window before it that has one.
    Previous,
    /// Interpolated between the nearest windows with values; no value outside of them.
    Linear,
    /// This value.
    Value(f64),
}

/// A window and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// The start of the window.
    pub start: i64,
    /// `None` where the window has no value.
    pub value: Option<Scalar>,
}

/// How many windows an answer may have, and how many values percentiles may hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Windows, filled ones included.
    pub windows: usize,
    /// Values held for percentiles.
    pub values: usize,
}

impl Default for Limits {
    /// A million windows, and 16 million values.
    fn default() -> Self {
        Self { windows: 1_000_000, values: 16_000_000 }
    }
}

/// An aggregation in progress.
#[derive(Debug)]
pub struct Aggregation {
    function: Function,
    kind: Kind,
    windows: Windows,
    limits: Limits,
    states: BTreeMap<i64, State>,
    remembered: usize,
}

impl Aggregation {
    /// Starts an aggregation of points of one kind.
    ///
    /// # Errors
    /// `Invalid`: the function does not apply to the kind, a percentile is not from 0 to 100, or windows have no
    /// length.
    pub fn new(function: Function, kind: Kind, windows: Windows, limits: Limits) -> Result<Self> {
        let is_any = matches!(function, Function::Count | Function::First | Function::Last);
        if !is_any && !kind.is_number() {
            return Err(Error::Invalid(format!(
                "unsupported {} input type: {kind}",
                name(function)
            )));
        }
        if let Function::Percentile(percent) = function
            && !(0.0..=100.0).contains(&percent)
        {
            return Err(Error::Invalid(format!("percentile {percent}: give 0 to 100")));
        }
        if windows.every.is_some_and(|every| every <= 0) {
            return Err(Error::Invalid("windows need a length of at least 1 ns".into()));
        }
        Ok(Self { function, kind, windows, limits, states: BTreeMap::new(), remembered: 0 })
    }

    /// Adds points; ignores those outside the span.
    ///
    /// # Errors
    /// `Invalid`: there are more windows or values than the limits allow.
    ///
    /// # Panics
    /// If the points are of another kind.
    pub fn add(&mut self, points: &Points) -> Result<()> {
        assert_eq!(points.values.kind(), self.kind, "an aggregation of one kind");
        let mut at = 0;
        while at < points.len() {
            let time = points.times[at];
            if !self.windows.span.contains(time) {
                at += 1;
                continue;
            }
            let start = self.windows.start(time);
            let end = self.windows.end(start).min(self.windows.span.to);
            let from = start.max(self.windows.span.from);
            let run = points.times[at..].iter().take_while(|&&time| from <= time && time < end);
            let until = at + run.count();
            let state =
                self.states.entry(start).or_insert_with(|| State::new(self.function, self.kind));
            for at in at..until {
                state.add(points.times[at], points.values.get(at));
            }
            if matches!(self.function, Function::Percentile(_)) {
                self.remembered += until - at;
            }
            if self.states.len() > self.limits.windows {
                return Err(too_many("windows", self.limits.windows));
            }
            if self.remembered > self.limits.values {
                return Err(too_many("values for a percentile", self.limits.values));
            }
            at = until;
        }
        Ok(())
    }

    /// The windows of the span, in order.
    ///
    /// # Errors
    /// `Invalid`: filling would give more windows than the limits allow: ask for a shorter interval, or longer windows.
    pub fn finish(self, fill: Fill) -> Result<Vec<Window>> {
        let function = self.function;
        let value = |state: State| state.value(function);
        if fill == Fill::None || self.windows.span.is_empty() {
            let ended = self.states.into_iter();
            return Ok(ended.map(|(start, state)| Window { start, value: value(state) }).collect());
        }
        let mut filled = Vec::new();
        let mut states = self.states;
        let mut start = self.windows.start(self.windows.span.from);
        loop {
            if filled.len() == self.limits.windows {
                return Err(too_many("windows", self.limits.windows));
            }
            let value = match states.remove(&start) {
                Some(state) => value(state),
                None => None,
            };
            filled.push(Window { start, value });
            let next = self.windows.end(start);
            if next >= self.windows.span.to || next <= start {
                break;
            }
            start = next;
        }
        let kind = output(function, self.kind);
        fill_in(&mut filled, fill, function, kind);
        Ok(filled)
    }
}

/// The kind of a function's result for points of a kind.
#[must_use]
pub fn output(function: Function, kind: Kind) -> Kind {
    match function {
        Function::Count => Kind::Integer,
        Function::Mean | Function::Stddev => Kind::Float,
        _ => kind,
    }
}

fn name(function: Function) -> &'static str {
    match function {
        Function::Count => "count",
        Function::Mean => "mean",
        Function::Sum => "sum",
        Function::Min => "min",
        Function::Max => "max",
        Function::First => "first",
        Function::Last => "last",
        Function::Stddev => "stddev",
        Function::Percentile(_) => "percentile",
    }
}

fn too_many(what: &str, max: usize) -> Error {
    Error::Invalid(format!("more than {max} {what}: ask for a shorter interval or longer windows"))
}

fn fill_in(windows: &mut [Window], fill: Fill, function: Function, kind: Kind) {
    match fill {
        Fill::None => {}
        Fill::Null => {
            if function == Function::Count {
                for window in windows.iter_mut().filter(|window| window.value.is_none()) {
                    window.value = Some(Scalar::Integer(0));
                }
            }
        }
        Fill::Previous => {
            let mut last = None;
            for window in windows {
                match &window.value {
                    Some(value) => last = Some(value.clone()),
                    None => window.value = last.clone(),
                }
            }
        }
        Fill::Value(value) => {
            for window in windows.iter_mut().filter(|window| window.value.is_none()) {
                window.value = of_kind(value, kind);
            }
        }
        Fill::Linear => fill_lines(windows, kind),
    }
}

fn fill_lines(windows: &mut [Window], kind: Kind) {
    let known = |window: &Window| window.value.as_ref().and_then(|value| value.as_value().as_f64());
    let mut left: Option<(usize, f64)> = None;
    for at in 0..windows.len() {
        let Some(here) = known(&windows[at]) else { continue };
        if let Some((from, there)) = left {
            for (step, window) in windows[from + 1..at].iter_mut().enumerate() {
                let share = (step + 1) as f64 / (at - from) as f64;
                window.value = of_kind(there + (here - there) * share, kind);
            }
        }
        left = Some((at, here));
    }
}

fn of_kind(value: f64, kind: Kind) -> Option<Scalar> {
    match kind {
        Kind::Float => Some(Scalar::Float(value)),
        Kind::Integer => Some(Scalar::Integer(value as i64)),
        Kind::Unsigned => Some(Scalar::Unsigned(value as u64)),
        Kind::Boolean | Kind::Text => None,
    }
}

/// The running aggregate of one window.
#[derive(Debug)]
enum State {
    Count(u64),
    Mean(f64, u64),
    Sum(Scalar),
    /// The point with the extreme value or time.
    One(Option<(i64, Scalar)>, Pick),
    /// Welford's: number, mean, sum of squares of differences from it.
    Spread(u64, f64, f64),
    All(Vec<Scalar>),
}

#[derive(Clone, Copy, Debug)]
enum Pick {
    Least,
    Greatest,
    Earliest,
    Latest,
}

impl State {
    fn new(function: Function, kind: Kind) -> Self {
        match function {
            Function::Count => Self::Count(0),
            Function::Mean => Self::Mean(0.0, 0),
            Function::Sum => Self::Sum(of_kind(0.0, kind).unwrap_or(Scalar::Float(0.0))),
            Function::Min => Self::One(None, Pick::Least),
            Function::Max => Self::One(None, Pick::Greatest),
            Function::First => Self::One(None, Pick::Earliest),
            Function::Last => Self::One(None, Pick::Latest),
            Function::Stddev => Self::Spread(0, 0.0, 0.0),
            Function::Percentile(_) => Self::All(Vec::new()),
        }
    }

    fn add(&mut self, time: i64, value: Value<'_>) {
        let number = || value.as_f64().unwrap_or(f64::NAN);
        match self {
            Self::Count(count) => *count += 1,
            Self::Mean(sum, count) => {
                *sum += number();
                *count += 1;
            }
            Self::Sum(sum) => match (sum, value) {
                (Scalar::Float(sum), _) => *sum += number(),
                (Scalar::Integer(sum), Value::Integer(value)) => *sum = sum.saturating_add(value),
                (Scalar::Unsigned(sum), Value::Unsigned(value)) => *sum = sum.saturating_add(value),
                _ => unreachable!("an aggregation of one kind"),
            },
            Self::One(one, pick) => {
                let takes = one.as_ref().is_none_or(|(at, best)| {
                    let best = best.as_value();
                    match pick {
                        Pick::Least => less(value, best) || same(value, best) && time < *at,
                        Pick::Greatest => less(best, value) || same(value, best) && time < *at,
                        Pick::Earliest => time < *at,
                        Pick::Latest => time >= *at,
                    }
                });
                if takes {
                    *one = Some((time, value.to_scalar()));
                }
            }
            Self::Spread(count, mean, squares) => {
                *count += 1;
                let off = number() - *mean;
                *mean += off / *count as f64;
                *squares += off * (number() - *mean);
            }
            Self::All(values) => values.push(value.to_scalar()),
        }
    }

    fn value(self, function: Function) -> Option<Scalar> {
        match self {
            Self::Count(count) => Some(Scalar::Integer(i64::try_from(count).unwrap_or(i64::MAX))),
            Self::Mean(sum, count) => (count > 0).then(|| Scalar::Float(sum / count as f64)),
            Self::Sum(sum) => Some(sum),
            Self::One(one, _) => one.map(|(_, value)| value),
            Self::Spread(count, _, squares) => {
                (count > 1).then(|| Scalar::Float((squares / (count - 1) as f64).sqrt()))
            }
            Self::All(mut values) => {
                let Function::Percentile(percent) = function else { return None };
                values.sort_by(|a, b| {
                    let (a, b) = (a.as_value(), b.as_value());
                    if less(a, b) {
                        std::cmp::Ordering::Less
                    } else if less(b, a) {
                        std::cmp::Ordering::Greater
                    } else {
                        std::cmp::Ordering::Equal
                    }
                });
                // InfluxDB's rule: floor(n * p / 100 + 0.5), and no value below rank 1.
                let rank = (values.len() as f64 * percent / 100.0 + 0.5).floor() as usize;
                rank.checked_sub(1).and_then(|at| values.into_iter().nth(at))
            }
        }
    }
}

/// Whether one number is below another of the same kind. NaN is below all others.
fn less(a: Value<'_>, b: Value<'_>) -> bool {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a < b,
        (Value::Unsigned(a), Value::Unsigned(b)) => a < b,
        (Value::Float(a), Value::Float(b)) => a < b || a.is_nan() && !b.is_nan(),
        _ => false,
    }
}

fn same(a: Value<'_>, b: Value<'_>) -> bool {
    !less(a, b) && !less(b, a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(of: &[(i64, f64)]) -> Points {
        let mut points = Points::new(Kind::Float);
        for &(time, value) in of {
            points.push(time, Value::Float(value));
        }
        points
    }

    fn windows(from: i64, to: i64, every: i64) -> Windows {
        Windows { span: Span { from, to }, every: Some(every), offset: 0 }
    }

    fn run(function: Function, of: &[(i64, f64)], windows: Windows, fill: Fill) -> Vec<Window> {
        let mut aggregation =
            Aggregation::new(function, Kind::Float, windows, Limits::default()).unwrap();
        for chunk in of.chunks(2) {
            aggregation.add(&points(chunk)).unwrap();
        }
        aggregation.finish(fill).unwrap()
    }

    fn numbers(windows: &[Window]) -> Vec<(i64, Option<f64>)> {
        let number = |window: &Window| window.value.as_ref().and_then(|v| v.as_value().as_f64());
        windows.iter().map(|window| (window.start, number(window))).collect()
    }

    const SIX: [(i64, f64); 6] = [(-3, 9.0), (0, 1.0), (1, 4.0), (2, 2.0), (12, 8.0), (30, 5.0)];

    #[test]
    fn each_function_gives_what_it_says() {
        let ten = windows(0, 10, 10);
        let cases = [
            (Function::Count, 3.0),
            (Function::Mean, 7.0 / 3.0),
            (Function::Sum, 7.0),
            (Function::Min, 1.0),
            (Function::Max, 4.0),
            (Function::First, 1.0),
            (Function::Last, 2.0),
            (Function::Percentile(50.0), 2.0),
            (Function::Percentile(100.0), 4.0),
        ];
        for (function, wanted) in cases {
            let got = numbers(&run(function, &SIX, ten, Fill::None));
            assert_eq!(got, [(0, Some(wanted))], "{function:?}");
        }
        let spread = numbers(&run(Function::Stddev, &SIX, ten, Fill::None))[0].1.unwrap();
        assert!((spread - (7.0f64 / 3.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn windows_without_points_are_filled_as_asked() {
        let wanted: [(Fill, &[Option<f64>]); 5] = [
            (Fill::None, &[Some(7.0), Some(8.0), Some(5.0)]),
            (Fill::Null, &[Some(7.0), Some(8.0), None, Some(5.0)]),
            (Fill::Previous, &[Some(7.0), Some(8.0), Some(8.0), Some(5.0)]),
            (Fill::Linear, &[Some(7.0), Some(8.0), Some(6.5), Some(5.0)]),
            (Fill::Value(-1.0), &[Some(7.0), Some(8.0), Some(-1.0), Some(5.0)]),
        ];
        for (fill, wanted) in wanted {
            let got = numbers(&run(Function::Sum, &SIX, windows(0, 40, 10), fill));
            assert_eq!(got.iter().map(|(_, value)| *value).collect::<Vec<_>>(), wanted, "{fill:?}");
        }
    }

    #[test]
    fn windows_before_1970_begin_at_multiples_too() {
        let of = windows(-100, 100, 10);
        assert_eq!((of.start(-1), of.start(-10), of.start(9)), (-10, -10, 0));
        assert_eq!(Windows { offset: 3, ..of }.start(2), -7);
        assert_eq!(of.start(i64::MIN), i64::MIN);
        let ends = of.end(i64::MIN);
        assert_eq!((ends.rem_euclid(10), ends - i64::MIN), (0, 8));
    }

    #[test]
    fn the_order_of_points_does_not_matter() {
        let mut turned = SIX;
        turned.reverse();
        for function in [Function::First, Function::Last, Function::Max, Function::Percentile(30.0)]
        {
            let of = windows(-10, 40, 10);
            assert_eq!(run(function, &SIX, of, Fill::Null), run(function, &turned, of, Fill::Null));
        }
    }

    #[test]
    fn more_windows_than_allowed_are_refused() {
        let limits = Limits { windows: 3, values: 2 };
        let all = |function| {
            let of = windows(0, 40, 10);
            Aggregation::new(function, Kind::Float, of, limits).unwrap()
        };
        assert!(all(Function::Sum).finish(Fill::Null).is_err());
        assert!(all(Function::Percentile(5.0)).add(&points(&SIX)).is_err());
        assert!(Aggregation::new(Function::Sum, Kind::Text, windows(0, 9, 3), limits).is_err());
    }
}
