//! Values of fields, their kinds, and columns of them.

use std::fmt;
use std::sync::Arc;

use super::Span;

/// The kind of a field's values: fixed for each field of a measurement by the first value written.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Kind {
    /// A double.
    Float = 0,
    /// A signed integer.
    Integer = 1,
    /// An unsigned integer.
    Unsigned = 2,
    /// True or false.
    Boolean = 3,
    /// Text in UTF-8.
    Text = 4,
}

impl Kind {
    /// The kind of this stored number.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Float, Self::Integer, Self::Unsigned, Self::Boolean, Self::Text]
            .into_iter()
            .find(|&kind| kind as u8 == byte)
    }

    /// Whether its values have means and sums.
    #[must_use]
    pub fn is_number(self) -> bool {
        matches!(self, Self::Float | Self::Integer | Self::Unsigned)
    }
}

/// InfluxDB's names.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Float => "float",
            Self::Integer => "integer",
            Self::Unsigned => "unsigned",
            Self::Boolean => "boolean",
            Self::Text => "string",
        })
    }
}

/// A borrowed value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// See [`Kind::Float`].
    Float(f64),
    /// See [`Kind::Integer`].
    Integer(i64),
    /// See [`Kind::Unsigned`].
    Unsigned(u64),
    /// See [`Kind::Boolean`].
    Boolean(bool),
    /// See [`Kind::Text`].
    Text(&'a str),
}

impl Value<'_> {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Float(_) => Kind::Float,
            Self::Integer(_) => Kind::Integer,
            Self::Unsigned(_) => Kind::Unsigned,
            Self::Boolean(_) => Kind::Boolean,
            Self::Text(_) => Kind::Text,
        }
    }

    /// The nearest double; `None` for values that are no numbers.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::Float(value) => Some(value),
            Self::Integer(value) => Some(value as f64),
            Self::Unsigned(value) => Some(value as f64),
            Self::Boolean(_) | Self::Text(_) => None,
        }
    }

    /// The same value, owned.
    #[must_use]
    pub fn to_scalar(&self) -> Scalar {
        match *self {
            Self::Float(value) => Scalar::Float(value),
            Self::Integer(value) => Scalar::Integer(value),
            Self::Unsigned(value) => Scalar::Unsigned(value),
            Self::Boolean(value) => Scalar::Boolean(value),
            Self::Text(value) => Scalar::Text(value.into()),
        }
    }
}

/// One value that owns its text.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// See [`Kind::Float`].
    Float(f64),
    /// See [`Kind::Integer`].
    Integer(i64),
    /// See [`Kind::Unsigned`].
    Unsigned(u64),
    /// See [`Kind::Boolean`].
    Boolean(bool),
    /// See [`Kind::Text`].
    Text(Arc<str>),
}

impl Scalar {
    /// The value it owns.
    #[must_use]
    pub fn as_value(&self) -> Value<'_> {
        match self {
            Self::Float(value) => Value::Float(*value),
            Self::Integer(value) => Value::Integer(*value),
            Self::Unsigned(value) => Value::Unsigned(*value),
            Self::Boolean(value) => Value::Boolean(*value),
            Self::Text(value) => Value::Text(value),
        }
    }
}

/// A column of values of one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// See [`Kind::Float`].
    Float(Vec<f64>),
    /// See [`Kind::Integer`].
    Integer(Vec<i64>),
    /// See [`Kind::Unsigned`].
    Unsigned(Vec<u64>),
    /// See [`Kind::Boolean`].
    Boolean(Vec<bool>),
    /// See [`Kind::Text`]. Equal texts of a block share their bytes.
    Text(Vec<Arc<str>>),
}

/// Evaluates the same expression for a column of any kind.
macro_rules! each {
    ($values:expr, $column:ident => $do:expr) => {
        match $values {
            Values::Float($column) => $do,
            Values::Integer($column) => $do,
            Values::Unsigned($column) => $do,
            Values::Boolean($column) => $do,
            Values::Text($column) => $do,
        }
    };
}

impl Values {
    /// An empty column.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Float => Self::Float(Vec::new()),
            Kind::Integer => Self::Integer(Vec::new()),
            Kind::Unsigned => Self::Unsigned(Vec::new()),
            Kind::Boolean => Self::Boolean(Vec::new()),
            Kind::Text => Self::Text(Vec::new()),
        }
    }

    /// The kind of its values.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Float(_) => Kind::Float,
            Self::Integer(_) => Kind::Integer,
            Self::Unsigned(_) => Kind::Unsigned,
            Self::Boolean(_) => Kind::Boolean,
            Self::Text(_) => Kind::Text,
        }
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        each!(self, column => column.len())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at a position.
    ///
    /// # Panics
    /// If there is none at this position.
    #[must_use]
    pub fn get(&self, at: usize) -> Value<'_> {
        match self {
            Self::Float(column) => Value::Float(column[at]),
            Self::Integer(column) => Value::Integer(column[at]),
            Self::Unsigned(column) => Value::Unsigned(column[at]),
            Self::Boolean(column) => Value::Boolean(column[at]),
            Self::Text(column) => Value::Text(&column[at]),
        }
    }

    /// Appends a value.
    ///
    /// # Panics
    /// If it is of another kind: the store checks kinds when it accepts points.
    pub fn push(&mut self, value: Value<'_>) {
        match (self, value) {
            (Self::Float(column), Value::Float(value)) => column.push(value),
            (Self::Integer(column), Value::Integer(value)) => column.push(value),
            (Self::Unsigned(column), Value::Unsigned(value)) => column.push(value),
            (Self::Boolean(column), Value::Boolean(value)) => column.push(value),
            (Self::Text(column), Value::Text(value)) => column.push(value.into()),
            (column, value) => panic!("a {} in a column of {}s", value.kind(), column.kind()),
        }
    }

    /// Appends values of another column of the same kind.
    pub(crate) fn extend_from(&mut self, other: &Self, range: std::ops::Range<usize>) {
        match (self, other) {
            (Self::Float(into), Self::Float(from)) => into.extend_from_slice(&from[range]),
            (Self::Integer(into), Self::Integer(from)) => into.extend_from_slice(&from[range]),
            (Self::Unsigned(into), Self::Unsigned(from)) => into.extend_from_slice(&from[range]),
            (Self::Boolean(into), Self::Boolean(from)) => into.extend_from_slice(&from[range]),
            (Self::Text(into), Self::Text(from)) => into.extend_from_slice(&from[range]),
            (into, from) => panic!("{}s in a column of {}s", from.kind(), into.kind()),
        }
    }

    /// Keeps the first `len` values.
    pub fn truncate(&mut self, len: usize) {
        each!(self, column => column.truncate(len));
    }

    /// Reverses the order.
    pub fn reverse(&mut self) {
        each!(self, column => column.reverse());
    }
}

/// Points of one series, in the order they were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    /// Nanoseconds since 1970.
    pub times: Vec<i64>,
    /// One value for each time.
    pub values: Values,
}

impl Points {
    /// Empty.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self { times: Vec::new(), values: Values::new(kind) }
    }

    /// The number of points.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Appends a point.
    ///
    /// # Panics
    /// As for [`Values::push`].
    pub fn push(&mut self, time: i64, value: Value<'_>) {
        self.times.push(time);
        self.values.push(value);
    }

    /// Keeps the first `len` points.
    pub fn truncate(&mut self, len: usize) {
        self.times.truncate(len);
        self.values.truncate(len);
    }

    /// Removes the points of an interval.
    pub(crate) fn cut(&mut self, span: Span) {
        if !self.times.iter().any(|&time| span.contains(time)) {
            return;
        }
        let mut kept = Self::new(self.values.kind());
        for (time, value) in self.iter().filter(|(time, _)| !span.contains(*time)) {
            kept.push(time, value);
        }
        *self = kept;
    }

    /// Reverses the order.
    pub fn reverse(&mut self) {
        self.times.reverse();
        self.values.reverse();
    }

    /// The points, one by one.
    pub fn iter(&self) -> impl Iterator<Item = (i64, Value<'_>)> {
        self.times.iter().enumerate().map(|(at, &time)| (time, self.values.get(at)))
    }
}
