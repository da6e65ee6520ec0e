//! InfluxDB's line protocol: bytes to points, independent of sockets and stores.
//!
//! ```text
//! cpu,host=a,region=eu\ west usage=0.5,count=3i,note="two\nlines" 1700000000000000000
//! ---------- head ---------- ------------- fields ---------------- --- timestamp ---
//! ```
//!
//! This is the hot path of every writer, so a line is parsed once and never copied: fields are ranges in the line, text
//! is unescaped on access, and the head is parsed only when it is new to the caller ([`Head::parse`]). The input is
//! untrusted, so a decoder holds at most one unfinished line of bounded length; a mistake invalidates only its line.
//!
//! The rules are those of InfluxDB 1.x (`models/points.go`), which clients are tested with: a backslash
//! escapes a comma, a blank or an equals sign outside of strings and a quote or a backslash inside of
//! them, and stands for itself before anything else; a line ends at a line feed that is not inside of a
//! string. Unlike there, text is UTF-8.

mod decoder;
mod field;
mod head;
mod parse;
mod precision;
mod problem;
mod text;

pub use decoder::{Decoder, Line};
pub use field::{Field, Value};
pub use head::{Head, Tag, Tags, split};
pub use precision::Precision;
pub use problem::{BadLine, Problem};

#[cfg(test)]
mod tests;
