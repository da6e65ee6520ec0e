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
//!
//! ```text
//! lexer (text to tokens) -> parser (what all statements share) -> condition -> select, show -> statement
//! ```

mod condition;
mod error;
mod lexer;
mod names;
mod parser;
mod pattern;
mod select;
mod show;
mod statement;

pub use condition::{Comparison, Condition, Literal, Span, Test};
pub use error::ParseError;
pub use names::{Kind, Named, Reference, Source};
pub use parser::{DEPTH_MAX, SIGNS_MAX};
pub use pattern::Pattern;
pub use select::{Column, Dimension, Expression, Fill, Operator, Select, Window};
pub use show::{KeyTest, Page, Show};
pub use statement::{Keep, STATEMENTS_MAX, Statement, TEXT_BYTES_MAX, parse};

#[cfg(test)]
mod tests;
