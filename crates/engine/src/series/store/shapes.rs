//! What rows of the same fields have in common.

use std::sync::Arc;

use crate::series::Kind;

/// The fields of rows, in the order of the first of them. It is there while rows of it are in buffers.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) measurement: u32,
    pub(super) columns: Arc<[(u16, Kind)]>,
    pub(super) set: u32,
    pub(super) told: u32,
    /// How many rows of it are in no block yet.
    pub(super) rows: usize,
}

/// Which field of a row each column of its shape is, where the row has them in another order.
pub(super) type Order = Box<[u32]>;
