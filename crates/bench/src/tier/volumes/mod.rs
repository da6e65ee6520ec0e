//! `bench tier --rows`: a cache tier beside the volumes that it is made of, in virtual time.
//!
//! ```text
//! Load: which bytes ── closed loop or offered rate ── Target ─┬─ an object of a tier, or of one volume
//!                                                             └─ Demand: whole objects promoted by every miss
//! Cell: a case ── Side: one arm ── Run: what clients got, and what the volumes were charged meanwhile
//! ```
//!
//! The program opens the volumes and has the rows.

mod demand;
mod figures;
mod load;
mod run;
mod target;

pub use demand::Demand;
pub use figures::sound;
pub use load::{Answers, Chosen, Load, Offer, Wave, beside, stamped};
pub use run::{Counted, Dirty, Run};
pub use target::{Durable, Target};

/// A case, measured under every arm.
pub type Cell = crate::compare::Cell<Run>;
