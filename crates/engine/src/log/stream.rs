//! Which file a record goes to.

use policy::merge::Group;

use super::format::Layout;

/// Which files records go to: one is open at a time for each.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Stream {
    /// The volume, by its position.
    pub(super) seat: usize,
    pub(super) layout: Layout,
    pub(super) group: Group,
    /// Of copies that merges make; they are not in the way of those who wait for a put.
    pub(super) copies: bool,
}
