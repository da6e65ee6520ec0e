//! `SELECT`.

use std::fmt;

use super::condition::{Condition, FromWhere};
use super::error::ParseError;
use super::lexer::Token;
use super::names::{Kind, Listed, Quoted, Reference, Source};
use super::parser::Parser;
use super::pattern::Pattern;

/// A query for points or aggregates.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// The columns, at least one.
    pub columns: Vec<Column>,
    /// The measurements, at least one.
    pub from: Vec<Source>,
    /// The condition on points.
    pub filter: Option<Condition>,
    /// The dimensions that rows are grouped by.
    pub group: Vec<Dimension>,
    /// The value of a window without points.
    pub fill: Fill,
    /// Whether the latest come first.
    pub descending: bool,
    /// The most rows of each series.
    pub limit: Option<u64>,
    /// Rows of each series to skip.
    pub offset: Option<u64>,
    /// The most series.
    pub slimit: Option<u64>,
    /// Series to skip.
    pub soffset: Option<u64>,
}

/// One column of the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its expression.
    pub what: Expression,
    /// Its name, if not the default.
    pub alias: Option<String>,
}

/// The definition of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// `"usage"`
    Reference(Reference),
    /// `*`, `*::field`, `*::tag`
    All(Option<Kind>),
    /// Every field whose name matches a pattern.
    Like(Pattern),
    /// `mean("usage")`; the name is in lower case.
    Call(String, Vec<Expression>),
    /// `1`
    Integer(i64),
    /// `1.5`
    Number(f64),
    /// `1h`, in nanoseconds.
    Duration(i64),
    /// Two expressions joined by an operator.
    Both(Box<Expression>, Operator, Box<Expression>),
}

/// An operator between two expressions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Remainder,
}

/// A dimension to group rows by.
#[derive(Clone, Debug, PartialEq)]
pub enum Dimension {
    /// `time(1m)`
    Time(Window),
    /// A tag.
    Tag(String),
    /// All tags.
    All,
    /// All tags whose names match a pattern.
    Like(Pattern),
}

/// Windows of equal length, in nanoseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Window {
    /// The length, above zero.
    pub every: i64,
    /// The offset from the start of 1970.
    pub offset: i64,
}

/// The value of a window without points.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Fill {
    /// Nulls.
    #[default]
    Null,
    /// No row.
    None,
    /// The value of the previous window.
    Previous,
    /// Linear interpolation between the windows around it.
    Linear,
    /// A number.
    Number(f64),
}

impl Operator {
    /// The operator's precedence.
    fn binds(self) -> u8 {
        match self {
            Self::Add | Self::Subtract => 1,
            Self::Multiply | Self::Divide | Self::Remainder => 2,
        }
    }
}

impl Expression {
    /// The expression's precedence; highest without an operator at its top.
    fn binds(&self) -> u8 {
        match self {
            Self::Both(_, operator, _) => operator.binds(),
            _ => 3,
        }
    }
}

impl Select {
    /// The statement after `SELECT`.
    pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Self, ParseError> {
        let mut columns = vec![parser.column()?];
        while parser.takes_sign(",")? {
            columns.push(parser.column()?);
        }
        if parser.sees("INTO") {
            return Err(parser.error("found INTO, which is not supported: answers are not stored"));
        }
        parser.require("FROM")?;
        let from = parser.sources()?;
        let filter = parser.filter()?;
        let group = parser.group()?;
        let fill = parser.fill()?;
        let descending = parser.order()?;
        let mut number = |keyword| {
            if parser.takes(keyword)? { parser.count().map(Some) } else { Ok(None) }
        };
        let limit = number("LIMIT")?;
        let offset = number("OFFSET")?;
        let slimit = number("SLIMIT")?;
        let soffset = number("SOFFSET")?;
        parser.zone()?;
        Ok(Self { columns, from, filter, group, fill, descending, limit, offset, slimit, soffset })
    }
}

impl Parser<'_> {
    fn column(&mut self) -> Result<Column, ParseError> {
        let what = self.sum()?;
        let alias = if self.takes("AS")? { Some(self.name("a name")?) } else { None };
        Ok(Column { what, alias })
    }

    fn sum(&mut self) -> Result<Expression, ParseError> {
        self.chain(&[("+", Operator::Add), ("-", Operator::Subtract)], |parser| {
            parser.chain(
                &[("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)],
                Self::expression,
            )
        })
    }

    /// A left-associative chain of operators.
    fn chain(
        &mut self,
        signs: &[(&str, Operator)],
        part: impl Fn(&mut Self) -> Result<Expression, ParseError>,
    ) -> Result<Expression, ParseError> {
        let mut left = part(self)?;
        loop {
            let Token::Sign(sign) = self.token else { return Ok(left) };
            let found = signs.iter().find(|(name, _)| *name == sign);
            let Some((_, operator)) = found else { return Ok(left) };
            // Each operator nests the result one level deeper.
            self.deeper()?;
            self.advance()?;
            left = Expression::Both(Box::new(left), *operator, Box::new(part(self)?));
        }
    }

    fn expression(&mut self) -> Result<Expression, ParseError> {
        if self.takes_sign("(")? {
            let inside = self.nested(Self::sum)?;
            self.require_sign(")")?;
            return Ok(inside);
        }
        if self.takes_sign("*")? {
            return Ok(Expression::All(self.cast()?));
        }
        if self.token == Token::Sign("/") {
            return self.pattern().map(Expression::Like);
        }
        let negative = self.takes_sign("-")?;
        if let Some(number) = self.number(negative)? {
            return Ok(number);
        }
        if negative {
            self.deeper()?;
            let negated = self.nested(Self::expression)?;
            let minus = Box::new(Expression::Integer(-1));
            return Ok(Expression::Both(minus, Operator::Multiply, Box::new(negated)));
        }
        let is_word = matches!(self.token, Token::Word(_));
        let name = self.name("a field, a function, * or a number")?;
        if is_word && self.takes_sign("(")? {
            let mut arguments = Vec::new();
            while !self.takes_sign(")")? {
                if !arguments.is_empty() {
                    self.require_sign(",")?;
                }
                arguments.push(self.nested(Self::sum)?);
            }
            return Ok(Expression::Call(name.to_lowercase(), arguments));
        }
        Ok(Expression::Reference(Reference { name, kind: self.cast()? }))
    }

    fn number(&mut self, negative: bool) -> Result<Option<Expression>, ParseError> {
        let sign = if negative { -1 } else { 1 };
        let number = match self.token {
            Token::Integer(number) => {
                let number = i64::try_from(i128::from(number) * i128::from(sign));
                Expression::Integer(number.map_err(|_| self.error("found a number out of range"))?)
            }
            Token::Number(number) => Expression::Number(if negative { -number } else { number }),
            Token::Duration(nanos) => Expression::Duration(sign * nanos),
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some(number))
    }

    fn group(&mut self) -> Result<Vec<Dimension>, ParseError> {
        let mut group = Vec::new();
        if self.takes("GROUP")? {
            self.require("BY")?;
            group.push(self.dimension()?);
            while self.takes_sign(",")? {
                group.push(self.dimension()?);
            }
        }
        let windows = group.iter().filter(|by| matches!(by, Dimension::Time(_))).count();
        if windows > 1 {
            return Err(self.error("found time() twice in GROUP BY, expected it once at most"));
        }
        Ok(group)
    }

    fn dimension(&mut self) -> Result<Dimension, ParseError> {
        if self.takes_sign("*")? {
            self.cast()?;
            return Ok(Dimension::All);
        }
        if self.token == Token::Sign("/") {
            return self.pattern().map(Dimension::Like);
        }
        let is_word = matches!(self.token, Token::Word(_));
        let name = self.name("time(), the name of a tag, * or a /pattern/")?;
        if !(is_word && name.eq_ignore_ascii_case("time") && self.takes_sign("(")?) {
            self.cast()?;
            return Ok(Dimension::Tag(name));
        }
        let Token::Duration(every) = self.token else {
            return Err(self.expected("a duration such as 1m"));
        };
        if every == 0 {
            return Err(self.error("found a window of length 0"));
        }
        self.advance()?;
        let offset = if self.takes_sign(",")? { self.window_offset()? } else { 0 };
        self.require_sign(")")?;
        Ok(Dimension::Time(Window { every, offset: offset.rem_euclid(every) }))
    }

    fn window_offset(&mut self) -> Result<i64, ParseError> {
        // An offset of `now()`: windows end now.
        if self.takes("now")? {
            self.require_sign("(")?;
            self.require_sign(")")?;
            return Ok(self.now);
        }
        let negative = self.takes_sign("-")?;
        let offset = match self.token {
            Token::Duration(nanos) => nanos,
            Token::Integer(0) => 0,
            _ => return Err(self.expected("a duration such as 1m")),
        };
        self.advance()?;
        Ok(if negative { -offset } else { offset })
    }

    fn fill(&mut self) -> Result<Fill, ParseError> {
        if !self.takes("fill")? {
            return Ok(Fill::default());
        }
        self.require_sign("(")?;
        let negative = self.takes_sign("-")?;
        let fill = match self.number(negative)? {
            // Not exact for large 64-bit numbers, which are not used as fill values.
            Some(Expression::Integer(number)) => Fill::Number(number as f64),
            Some(Expression::Number(number)) => Fill::Number(number),
            None if !negative && self.takes("null")? => Fill::Null,
            None if !negative && self.takes("none")? => Fill::None,
            None if !negative && self.takes("previous")? => Fill::Previous,
            None if !negative && self.takes("linear")? => Fill::Linear,
            _ => return Err(self.expected("null, none, previous, linear or a number")),
        };
        self.require_sign(")")?;
        Ok(fill)
    }

    /// Whether the latest come first.
    fn order(&mut self) -> Result<bool, ParseError> {
        if !self.takes("ORDER")? {
            return Ok(false);
        }
        self.require("BY")?;
        if !self.takes("time")? && self.token != Token::Name("time".into()) {
            return Err(self.expected("time, the only order that is supported"));
        }
        if self.token == Token::Name("time".into()) {
            self.advance()?;
        }
        if self.takes("DESC")? {
            return Ok(true);
        }
        self.takes("ASC")?;
        Ok(false)
    }

    /// `tz('UTC')`: the only zone, since windows must have equal lengths.
    fn zone(&mut self) -> Result<(), ParseError> {
        if !self.takes("tz")? {
            return Ok(());
        }
        self.require_sign("(")?;
        match &self.token {
            Token::Text(zone) if matches!(zone.as_str(), "UTC" | "Etc/UTC" | "GMT") => {}
            _ => return Err(self.expected("'UTC', the only time zone that is supported")),
        }
        self.advance()?;
        self.require_sign(")")
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        })
    }
}

/// One operand.
fn side(f: &mut fmt::Formatter<'_>, side: &Expression, apart: bool) -> fmt::Result {
    if apart { write!(f, "({side})") } else { write!(f, "{side}") }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reference(reference) => reference.fmt(f),
            Self::All(None) => f.write_str("*"),
            Self::All(Some(kind)) => write!(f, "*::{}", kind.name()),
            Self::Like(pattern) => pattern.fmt(f),
            Self::Call(name, arguments) => write!(f, "{name}({})", Listed(arguments)),
            Self::Integer(number) => number.fmt(f),
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Duration(nanos) => write!(f, "{nanos}ns"),
            // Prints parentheses only where the meaning requires them, so that the output is never nested more deeply
            // than the input.
            Self::Both(left, operator, right) => {
                side(f, left, left.binds() < operator.binds())?;
                write!(f, " {operator} ")?;
                side(f, right, right.binds() <= operator.binds())
            }
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.fmt(f)?;
        self.alias.as_ref().map_or(Ok(()), |alias| write!(f, " AS {}", Quoted(alias)))
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(Window { every, offset: 0 }) => write!(f, "time({every}ns)"),
            Self::Time(Window { every, offset }) => write!(f, "time({every}ns, {offset}ns)"),
            Self::Tag(name) => Quoted(name).fmt(f),
            Self::All => f.write_str("*"),
            Self::Like(pattern) => pattern.fmt(f),
        }
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SELECT {}", Listed(&self.columns))?;
        FromWhere(&self.from, self.filter.as_ref()).fmt(f)?;
        if !self.group.is_empty() {
            write!(f, " GROUP BY {}", Listed(&self.group))?;
        }
        match self.fill {
            Fill::Null => {}
            Fill::None => f.write_str(" fill(none)")?,
            Fill::Previous => f.write_str(" fill(previous)")?,
            Fill::Linear => f.write_str(" fill(linear)")?,
            Fill::Number(number) => write!(f, " fill({number:?})")?,
        }
        if self.descending {
            f.write_str(" ORDER BY time DESC")?;
        }
        for (keyword, number) in [
            ("LIMIT", self.limit),
            ("OFFSET", self.offset),
            ("SLIMIT", self.slimit),
            ("SOFFSET", self.soffset),
        ] {
            number.map_or(Ok(()), |number| write!(f, " {keyword} {number}"))?;
        }
        Ok(())
    }
}
