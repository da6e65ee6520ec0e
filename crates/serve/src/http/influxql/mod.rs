//! InfluxQL, as far as dashboards and client libraries speak it: text to statements. No store.
//!
//! ```text
//! SELECT mean("usage") * 100 FROM "cpu" WHERE "host" =~ /^a/ AND time > now() - 1h
//!   GROUP BY time(1m), "host" fill(none) ORDER BY time DESC LIMIT 10 SLIMIT 5
//! SHOW DATABASES | MEASUREMENTS | TAG KEYS | TAG VALUES | FIELD KEYS | SERIES | RETENTION POLICIES
//! CREATE DATABASE, DROP DATABASE | MEASUREMENT | SERIES, DELETE
//! ```
//!
//! Strangers write it: text, nesting and the number of statements are bounded, patterns are compiled
//! here (they match in time linear in what they look at) with a bound on their size, and what is not
//! understood is named with its place. `now()` is handed in. A statement shows as text that means the
//! same.

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
/// How deep parentheses and calls may lie in each other.
pub const DEPTH_MAX: usize = 64;
/// The most signs between expressions of one text.
pub const SIGNS_MAX: usize = 500;

#[cfg(test)]
mod tests;
