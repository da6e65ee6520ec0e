//! Which units are worth a place on the fast volume.

use std::ops::Range;

/// What the filter says about a read that missed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// Leave it where it is.
    Bypass,
    /// Install the pages that were read.
    Pages,
    /// Install the pages that were read, and promote the rest of the unit.
    Unit,
}

/// Decides on promotions. The tier reports every access of a user, under a lock: answers must be fast.
pub trait Admit: Send {
    /// A read of `bytes` in a unit missed. `object` and `extent` name the unit for as long as the tier is open; the bytes are
    /// counted from the beginning of the object.
    fn missed(&mut self, object: u32, extent: u32, bytes: Range<u64>) -> Admission;

    /// An access in a unit that is on the fast volume.
    fn hit(&mut self, object: u32, extent: u32, bytes: Range<u64>) {
        let _ = (object, extent, bytes);
    }

    /// Pages of a unit were installed.
    fn promoted(&mut self, object: u32, extent: u32) {
        let _ = (object, extent);
    }
}

/// Admits the pages of every read: demand caching.
#[derive(Clone, Copy, Debug, Default)]
pub struct Always;

impl Admit for Always {
    fn missed(&mut self, _: u32, _: u32, _: Range<u64>) -> Admission {
        Admission::Pages
    }
}
