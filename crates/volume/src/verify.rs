//! Objects in place that only their store can verify.
//!
//! A pool has checksums of objects that never change again, and of logs. It has none of objects that are written in place:
//! their store has. So a store that is open registers a [`Verify`] with its pool, and a scrub of the pool calls it for each
//! object of that store.

use crate::{Name, Pending};

/// A store whose objects are written in place.
pub trait Verify: Send + Sync {
    /// Reads every copy of an object back, by [`Object::read_again`](crate::Object::read_again) with the store's checksums: so
    /// copies with wrong bytes are repaired from others. Users go first. An object that the store does not know, or of
    /// which it has no checksums, has nothing to verify.
    ///
    /// # Errors
    /// `Gone`: it was removed. Any other: it was not read to its end, so try again.
    fn verify<'a>(&'a self, object: &'a Name) -> Pending<'a, Verified>;
}

/// What a store found in one of its objects.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verified {
    /// What no copy has as it was written, in words for the operator.
    pub lost: Vec<String>,
}
