//! The fields of a line.

use std::borrow::Cow;
use std::ops::Range;

use super::text::{unescape_name, unescape_string};

/// A name and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Field<'a> {
    /// The name, unescaped.
    pub name: Cow<'a, str>,
    /// Its value.
    pub value: Value<'a>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// `1`, `1.5`, `-1e6`: finite.
    Float(f64),
    /// `1i`.
    Integer(i64),
    /// `1u`.
    Unsigned(u64),
    /// `t`, `true`, `F`, …
    Boolean(bool),
    /// `"text"`, unescaped.
    String(Cow<'a, str>),
}

/// The place of a field in its line.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) name: Range<u32>,
    pub(super) name_is_escaped: bool,
    pub(super) value: Held,
}

/// A value, or its place in the line.
#[derive(Clone, Debug)]
pub(super) enum Held {
    Float(f64),
    Integer(i64),
    Unsigned(u64),
    Boolean(bool),
    String { text: Range<u32>, is_escaped: bool },
}

impl Place {
    pub(super) fn field<'a>(&self, line: &'a str) -> Field<'a> {
        let slice = |range: &Range<u32>| &line[range.start as usize..range.end as usize];
        let name = slice(&self.name);
        Field {
            name: if self.name_is_escaped { unescape_name(name) } else { Cow::Borrowed(name) },
            value: match &self.value {
                Held::Float(value) => Value::Float(*value),
                Held::Integer(value) => Value::Integer(*value),
                Held::Unsigned(value) => Value::Unsigned(*value),
                Held::Boolean(value) => Value::Boolean(*value),
                Held::String { text, is_escaped: false } => {
                    Value::String(Cow::Borrowed(slice(text)))
                }
                Held::String { text, is_escaped: true } => {
                    Value::String(unescape_string(slice(text)))
                }
            },
        }
    }
}
