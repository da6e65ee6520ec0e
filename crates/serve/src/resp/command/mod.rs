//! The commands: what one is, the families that implement them, and the table of all.
//!
//! ```text
//! words (numbers, options) -> row (what a command is) -> strings, hashes, keys, … -> table (all commands, by name)
//! ```

mod catalogue;
mod client;
mod connection;
mod hashes;
mod keys;
mod row;
mod scan;
mod server;
mod sorted_sets;
mod strings;
mod table;
mod transactions;
mod words;

pub(super) use row::{Call, Command, Control, Data, Failure, Run};
pub(super) use table::{Found, find, table};
