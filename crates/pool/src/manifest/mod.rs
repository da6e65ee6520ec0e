//! The manifest of a pool.

pub(crate) mod frame;
pub(crate) mod journal;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod state;

pub(crate) use record::{Begin, Committed, Record};
pub(crate) use state::{Dead, State, Stored};
