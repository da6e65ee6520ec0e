//! The condition after `WHERE`.
//!
//! A store takes a span of time separately, so [`Condition::split`] separates time from the rest. That works only if
//! time is joined by `AND`, not `OR`, as in InfluxDB.

use std::fmt;

use super::error::ParseError;
use super::lexer::Token;
use super::names::{Listed, Reference, Source};
use super::parser::Parser;
use super::pattern::Pattern;
use crate::http::time;

/// Tests of tags, fields and time, joined.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// All of these hold.
    All(Vec<Condition>),
    /// At least one of these holds.
    Any(Vec<Condition>),
    /// A comparison of a point's time.
    Time(Comparison, i64),
    /// A test of a tag or a field.
    Test(Reference, Test),
}

/// A test of a tag or a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// A comparison.
    Compare(Comparison, Literal),
    /// `=~`: the pattern matches.
    Like(Pattern),
    /// `!~`: the pattern does not match.
    Unlike(Pattern),
}

/// `=`, `!=`, `<`, `<=`, `>`, `>=`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=` or `<>`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// A literal in a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `'text'`
    Text(String),
    /// `1`
    Integer(i64),
    /// `1.5`
    Number(f64),
    /// `true`
    Boolean(bool),
}

/// Nanoseconds since 1970, both ends included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    /// The first.
    pub from: i64,
    /// The last.
    pub to: i64,
}

impl Span {
    /// The unbounded span.
    pub const ALL: Self = Self { from: i64::MIN, to: i64::MAX };
}

impl Condition {
    /// Separates the span of time from the rest.
    ///
    /// # Errors
    /// The condition on time is not a span.
    pub fn split(self) -> Result<(Span, Option<Self>), String> {
        let mut span = Span::ALL;
        let rest = self.without_time(&mut span)?;
        Ok((span, rest))
    }

    fn without_time(self, span: &mut Span) -> Result<Option<Self>, String> {
        match self {
            Self::Time(comparison, at) => {
                use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Unequal};
                // Overflow means an empty span: no instant lies beyond the first or last.
                let (from, to) = match comparison {
                    Equal => (Some(at), Some(at)),
                    Greater => (at.checked_add(1), Some(i64::MAX)),
                    GreaterOrEqual => (Some(at), Some(i64::MAX)),
                    Less => (Some(i64::MIN), at.checked_sub(1)),
                    LessOrEqual => (Some(i64::MIN), Some(at)),
                    Unequal => {
                        return Err("time != is not supported: select a span with > and <".into());
                    }
                };
                let none = Span { from: i64::MAX, to: i64::MIN };
                let new = from.zip(to).map_or(none, |(from, to)| Span { from, to });
                *span = Span { from: span.from.max(new.from), to: span.to.min(new.to) };
                Ok(None)
            }
            Self::All(parts) => {
                let parts = parts.into_iter().map(|part| part.without_time(span));
                let mut parts: Vec<_> =
                    parts.filter_map(Result::transpose).collect::<Result<_, _>>()?;
                Ok(match parts.len() {
                    0 | 1 => parts.pop(),
                    _ => Some(Self::All(parts)),
                })
            }
            Self::Any(parts) if parts.iter().any(Self::has_time) => {
                Err("time inside of OR is not supported: join it to the other conditions with AND"
                    .into())
            }
            other => Ok(Some(other)),
        }
    }

    fn has_time(&self) -> bool {
        match self {
            Self::Time(..) => true,
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::has_time),
            Self::Test(..) => false,
        }
    }
}

impl Comparison {
    fn of(sign: &str) -> Option<Self> {
        Some(match sign {
            "=" => Self::Equal,
            "!=" | "<>" => Self::Unequal,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    /// The comparison with its sides exchanged.
    fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }

    /// Whether operands in this order satisfy it.
    #[must_use]
    pub fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::Unequal => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// One side of a comparison.
enum Side {
    Reference(Reference),
    Literal(Literal),
    /// A duration, or the result of arithmetic with `now()`, in nanoseconds.
    Nanos(i64),
}

impl Parser<'_> {
    /// `WHERE` and its condition, if present.
    pub(super) fn filter(&mut self) -> Result<Option<Condition>, ParseError> {
        if self.takes("WHERE")? { self.any().map(Some) } else { Ok(None) }
    }

    fn any(&mut self) -> Result<Condition, ParseError> {
        self.joined("OR", Condition::Any, |parser| parser.joined("AND", Condition::All, Self::test))
    }

    fn joined(
        &mut self,
        by: &str,
        join: fn(Vec<Condition>) -> Condition,
        part: impl Fn(&mut Self) -> Result<Condition, ParseError>,
    ) -> Result<Condition, ParseError> {
        let first = part(self)?;
        if !self.sees(by) {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.takes(by)? {
            parts.push(part(self)?);
        }
        Ok(join(parts))
    }

    fn test(&mut self) -> Result<Condition, ParseError> {
        if self.takes_sign("(")? {
            let inside = self.nested(Self::any)?;
            self.require_sign(")")?;
            return Ok(inside);
        }
        let left = self.side()?;
        let Token::Sign(sign) = self.token else {
            return Err(self.expected("=, !=, <, <=, >, >=, =~ or !~"));
        };
        if let ("=~" | "!~", Side::Reference(reference)) = (sign, &left) {
            let reference = reference.clone();
            self.advance()?;
            let pattern = self.pattern()?;
            let like = if sign == "=~" { Test::Like } else { Test::Unlike };
            return Ok(Condition::Test(reference, like(pattern)));
        }
        let Some(comparison) = Comparison::of(sign) else {
            return Err(self.expected("=, !=, <, <=, >, >=, =~ or !~"));
        };
        self.advance()?;
        let right = self.side()?;
        let (reference, comparison, value) = match (left, right) {
            (Side::Reference(reference), value) => (reference, comparison, value),
            (value, Side::Reference(reference)) => (reference, comparison.turned(), value),
            _ => return Err(self.error("found two values, expected the name of a tag or a field")),
        };
        if reference.is_time() {
            let instant = match value {
                Side::Nanos(nanos) | Side::Literal(Literal::Integer(nanos)) => Some(nanos),
                Side::Literal(Literal::Text(text)) => time::parse(&text),
                _ => None,
            };
            let expected = "a time: '2026-01-31T09:30:00Z', 1700000000s or now() - 1h";
            let instant = instant.ok_or_else(|| self.error(&format!("expected {expected}")))?;
            return Ok(Condition::Time(comparison, instant));
        }
        match value {
            Side::Literal(value) => {
                Ok(Condition::Test(reference, Test::Compare(comparison, value)))
            }
            Side::Nanos(_) => {
                Err(self.error("found a duration, which can be compared only with time"))
            }
            Side::Reference(_) => {
                Err(self.error("found two names, expected a value: 'text', 1, 1.5 or true"))
            }
        }
    }

    /// A name or a value, with durations added or subtracted if it is a time.
    fn side(&mut self) -> Result<Side, ParseError> {
        let mut side = self.atom()?;
        loop {
            let sign = match self.token {
                Token::Sign("+") => 1,
                Token::Sign("-") => -1,
                _ => return Ok(side),
            };
            let nanos = match side {
                Side::Nanos(nanos) | Side::Literal(Literal::Integer(nanos)) => Some(nanos),
                Side::Literal(Literal::Text(text)) => time::parse(&text),
                _ => None,
            };
            let Some(nanos) = nanos else {
                return Err(self.error("found arithmetic, which is supported only with time"));
            };
            self.advance()?;
            let more = match self.token {
                Token::Duration(nanos) => nanos,
                Token::Integer(nanos) => i64::try_from(nanos).unwrap_or(i64::MAX),
                _ => return Err(self.expected("a duration such as 1h30m")),
            };
            let sum = nanos.checked_add(sign * more);
            side = Side::Nanos(sum.ok_or_else(|| self.error("found a time out of range"))?);
            self.advance()?;
        }
    }

    fn atom(&mut self) -> Result<Side, ParseError> {
        if self.takes_sign("(")? {
            let inside = self.nested(Self::side)?;
            self.require_sign(")")?;
            return Ok(inside);
        }
        let negative = self.takes_sign("-")?;
        let sign = if negative { -1 } else { 1 };
        let side = match &self.token {
            Token::Integer(number) => {
                let number = i128::from(*number) * i128::from(sign);
                let number = i64::try_from(number);
                Side::Literal(Literal::Integer(
                    number.map_err(|_| self.error("found a number out of range"))?,
                ))
            }
            Token::Number(number) => {
                Side::Literal(Literal::Number(if negative { -number } else { *number }))
            }
            Token::Duration(nanos) => Side::Nanos(sign * nanos),
            Token::Text(text) if !negative => Side::Literal(Literal::Text(text.clone())),
            Token::Word(word) if !negative => {
                let truth = match word.to_ascii_lowercase().as_str() {
                    "true" => Some(true),
                    "false" => Some(false),
                    "now" => {
                        let name = Reference { name: word.clone(), kind: None };
                        self.advance()?;
                        if self.takes_sign("(")? {
                            self.require_sign(")")?;
                            return Ok(Side::Nanos(self.now));
                        }
                        return Ok(Side::Reference(name));
                    }
                    _ => None,
                };
                match truth {
                    Some(truth) => Side::Literal(Literal::Boolean(truth)),
                    None => return self.reference().map(Side::Reference),
                }
            }
            Token::Name(_) if !negative => return self.reference().map(Side::Reference),
            _ => return Err(self.expected("a name, 'text', a number, true or false")),
        };
        self.advance()?;
        Ok(side)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "=",
            Self::Unequal => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        })
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => {
                let text = text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
                write!(f, "'{text}'")
            }
            Self::Integer(number) => number.fmt(f),
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Boolean(truth) => truth.fmt(f),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // AND binds more tightly than OR, so it needs no parentheses inside OR.
        let joined = |f: &mut fmt::Formatter<'_>, parts: &[Self], by: &str, in_or: bool| {
            for (n, part) in parts.iter().enumerate() {
                let by = if n == 0 { "" } else { by };
                match part {
                    Self::Any(_) => write!(f, "{by}({part})")?,
                    Self::All(_) if !in_or => write!(f, "{by}({part})")?,
                    _ => write!(f, "{by}{part}")?,
                }
            }
            Ok(())
        };
        match self {
            Self::All(parts) => joined(f, parts, " AND ", false),
            Self::Any(parts) => joined(f, parts, " OR ", true),
            Self::Time(comparison, at) => write!(f, "time {comparison} {at}"),
            Self::Test(reference, Test::Like(pattern)) => write!(f, "{reference} =~ {pattern}"),
            Self::Test(reference, Test::Unlike(pattern)) => write!(f, "{reference} !~ {pattern}"),
            Self::Test(reference, Test::Compare(comparison, value)) => {
                write!(f, "{reference} {comparison} {value}")
            }
        }
    }
}

/// `FROM` and `WHERE`, each if nonempty.
pub(super) struct FromWhere<'a>(pub(super) &'a [Source], pub(super) Option<&'a Condition>);

impl fmt::Display for FromWhere<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() {
            write!(f, " FROM {}", Listed(self.0))?;
        }
        self.1.map_or(Ok(()), |filter| write!(f, " WHERE {filter}"))
    }
}
