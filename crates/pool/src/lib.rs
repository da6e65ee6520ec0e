//! Several volumes as one: the only crate that knows that there are several.
//!
//! A pool is itself a [`volume::Volume`], so pools nest. [`spread`] puts each object on one volume, or
//! striped over several, and keeps names in a manifest of its own on the volumes; nothing in it is
//! particular to local files. Its bytes are described in `docs/format/`. [`cache`] keeps what is read
//! of its objects, and [`mover`] spreads those that are read a lot.

pub mod cache;
mod header;
mod leaf;
mod manifest;
pub mod mover;
mod seats;
pub mod spread;

pub use header::PoolId;
pub use leaf::{Kind, ObjectId};
pub use manifest::Placed;
pub use seats::Member;
pub use spread::Spread;
