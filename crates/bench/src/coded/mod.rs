//! Outcomes of `bench coded`: one store on pools that keep copies, and on one that keeps fragments of an erasure code.
//!
//! ```text
//! Cell: a case ── Side: one scheme, perhaps without some volumes ── Run ─┬─ Loaded: what the load cost and left
//!                                                                        ├─ closed: as fast as the threads ask
//!                                                                        ├─ Offered: at one rate for all schemes
//!                                                                        └─ Rebuilt: a lost volume is replaced meanwhile
//! ```
//!
//! The loads are those of [`spread`](crate::spread). The question is what the same durability costs: room, operations of
//! volumes, and latency, also while volumes are away. The program opens stores and has the rows.

mod figures;
mod run;

pub use figures::sound;
pub use run::{Counted, Loaded, Offered, Rebuilt, Room, Run};

/// A case, measured under every scheme.
pub type Cell = crate::compare::Cell<Run>;
