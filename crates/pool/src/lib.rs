//! Several volumes as one: the only crate that knows that there are several.
//!
//! A pool is itself a [`volume::Volume`], so pools nest. [`spread`] puts each object on one volume, or
//! stripes it over several, and keeps names in its own manifest on the volumes; it works on any kind of
//! volume. `docs/format/` describes its bytes. [`cache`] keeps reads of its objects in memory, and
//! [`mover`] copies hot ones to other volumes, and [`scrubber`] reads all of them back now and then.

pub mod cache;
pub mod code;
mod header;
mod journal;
mod leaf;
pub mod logged;
mod manifest;
mod members;
pub mod mover;
pub mod scrubber;
pub mod spread;
pub mod tier;

pub use header::PoolId;
pub use leaf::{Kind, ObjectId, object_of};
pub use manifest::Placed;
pub use members::Member;
pub use spread::Spread;
pub use tier::Tier;
