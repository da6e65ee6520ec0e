//! Which units are worth a place on the fast volume.

use std::ops::Range;

use policy::promote::{Access, Adjustment, Period};
use policy::time::Instant;

/// What the filter says about a read that missed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// Leave it where it is.
    Bypass,
    /// Install those of the pages that were read before, or whose room is taken already.
    Again,
    /// Install the pages that were read.
    Pages,
    /// Install the pages that were read, and promote the rest of the unit.
    Unit,
}

/// Decides on promotions. The tier reports every access of a user, in order and under a lock: answers must be fast.
///
/// A request is one call of [`Admit::request`], then one call for each unit that it touches.
pub trait Admit: Send {
    /// A request for `bytes` of an object begins; `object` is the object's number for as long as the tier is open. Returns
    /// whether it continues a sequential run.
    fn request(&mut self, object: u32, bytes: &Range<u64>) -> bool {
        let _ = (object, bytes);
        false
    }

    /// Whether a write of `bytes` belongs to a bulk load, which users hardly read soon, and which the slow volume takes in as few
    /// operations as a flush would. The tier asks this before it calls [`Admit::request`]. By default no.
    fn is_bulk(&self, object: u32, bytes: &Range<u64>) -> bool {
        let _ = (object, bytes);
        false
    }

    /// An access to a unit that has no place. The answer counts for reads.
    fn missed(&mut self, access: Access, now: Instant) -> Admission;

    /// An access to a unit that has a place, which the slow volume serves: a write, or a read of pages that are missing.
    /// The answer counts for reads. By default it installs the pages unless the request continues a run.
    fn unserved(&mut self, access: Access, now: Instant) -> Admission {
        let _ = now;
        if access.sequential { Admission::Bypass } else { Admission::Pages }
    }

    /// Whether room that is free is worth every read but those that continue a run: it is taken from nobody. By default no.
    fn fills_room(&self) -> bool {
        false
    }

    /// A read that the fast volume serves, of a unit that got its place in this period.
    fn hit(&mut self, promoted: Period, now: Instant) {
        let _ = (promoted, now);
    }

    /// A unit got a place. Returns the current period.
    fn promoted(&mut self, unit: u64) -> Period {
        let _ = unit;
        Period::default()
    }

    /// Adjusts to what promotions brought. Called every few seconds.
    fn adjust(&mut self, now: Instant) -> Option<Adjustment> {
        let _ = now;
        None
    }
}

/// Admits the pages of every read: demand caching.
#[derive(Clone, Copy, Debug, Default)]
pub struct Always;

impl Admit for Always {
    fn missed(&mut self, _: Access, _: Instant) -> Admission {
        Admission::Pages
    }
}
