//! The common part of rows with the same fields.

use std::sync::Arc;

use crate::series::Kind;

/// The fields of rows, in the order of the first such row. Exists while buffers have such rows.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) measurement: u32,
    pub(super) columns: Arc<[(u16, Kind)]>,
    pub(super) set: u32,
    /// The latest segment of the log that defines it.
    pub(super) logged_in: u32,
    /// How many rows of it are in no block yet.
    pub(super) rows: usize,
}

/// The position in a row of each column of its shape, where the row has another order.
pub(super) type Order = Box<[u32]>;
