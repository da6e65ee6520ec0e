//! InfluxQL as used by dashboards and client libraries: text to statements, independent of a store.
//!
//! ```text
//! SELECT mean("usage") * 100 FROM "cpu" WHERE "host" =~ /^a/ AND time > now() - 1h
//!   GROUP BY time(1m), "host" fill(none) ORDER BY time DESC LIMIT 10 SLIMIT 5
//! SHOW DATABASES | MEASUREMENTS | TAG KEYS | TAG VALUES | FIELD KEYS | SERIES | RETENTION POLICIES
//! CREATE DATABASE, DROP DATABASE | MEASUREMENT | SERIES, DELETE
//! ```
//!
//! The input is untrusted: text, nesting and the number of statements are bounded. Patterns are compiled here with a
//! bound on their size, and match in linear time. Errors name their place. The caller supplies `now()`. A statement
//! prints as equivalent text.

mod condition;
mod lexer;
mod parser;
mod pattern;
mod select;
mod show;
mod statement;

pub use condition::{Comparison, Condition, Literal, Span, Test};
pub use parser::{ParseError, parse};
pub use pattern::Pattern;
pub use select::{Column, Dimension, Expression, Fill, Kind, Operator, Reference, Select, Window};
pub use show::{KeyTest, Page, Show};
pub use statement::{Keep, Named, Source, Statement};

/// The longest text, in bytes.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;
/// The most statements of one text.
pub const STATEMENTS_MAX: usize = 100;
/// The most nested parentheses and calls.
pub const DEPTH_MAX: usize = 64;
/// The most operators between expressions of one text.
pub const SIGNS_MAX: usize = 500;

#[cfg(test)]
mod tests;
