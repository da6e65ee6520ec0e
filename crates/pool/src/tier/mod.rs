//! A cache of hot ranges of a metered volume on a fast one that may be lost at any time.
//!
//! ```text
//!   [`Tier`] ── TierObject ──┬──────────────▶ slow   the truth: every acknowledged change, all logs
//!                            │ map, route
//!                            └── slab ──────▶ fast   places of one page each, given to pages of any units
//!                  queue ─▶ fills ──▲                journal: checkpoint and doubts
//! ```
//! Written through, every change is made on the slow volume as if there were no tier: the fast volume holds clean copies, and
//! never gives older bytes than the slow one. Written back, writes to objects in place stay on the fast volume until a flush
//! ([`Writes`]). `docs/adr/0037-cache-tier.md` and `docs/adr/0039-write-back.md` have the rules.
//!
//! A unit is a range of an object, 1 MiB by default, of which any pages may be on the fast volume. [`Admit`] says which units
//! are worth room, by default those read again ([`Lazy`]); `policy::cache` says which lose it: the pages of a unit that
//! were read seldom, or all.

mod accesses;
mod admit;
mod back;
mod background;
mod bits;
mod dirty;
mod fast;
mod figures;
mod fills;
mod flush;
mod frames;
mod identity;
mod journal;
mod lazy;
mod map;
mod object;
mod opening;
mod options;
mod pins;
mod places;
mod promotion;
mod reads;
mod record;
mod route;
mod rule;
mod shared;
mod slab;
mod stale;
mod sums;
mod table;
#[expect(clippy::module_inception, reason = "the door of the module has its name")]
mod tier;
mod track;
mod turns;
mod uses;

pub use admit::{Admission, Admit, Always};
pub use dirty::{Marks, dirty_marks};
pub use figures::Figures;
pub use lazy::Lazy;
pub use opening::has_newest;
pub use options::{Options, Writes};
pub use rule::Promotion;
pub use tier::Tier;
