//! The manifest of a pool.

mod copies;
pub(crate) mod headers;
pub(crate) mod journal;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod state;

pub use copies::Placed;
pub(crate) use copies::{Copies, held};
pub(crate) use record::{Begin, Committed, Record};
pub(crate) use state::{Checked, Dead, State, Stored, gone};
