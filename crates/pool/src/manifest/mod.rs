//! The manifest of a pool.

pub(crate) mod headers;
pub(crate) mod journal;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod state;

pub use record::Placed;
pub(crate) use record::{Begin, Committed, Copies, Record};
pub(crate) use state::{Checked, Dead, State, Stored, gone};
