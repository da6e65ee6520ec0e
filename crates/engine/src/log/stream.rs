//! The stream that a record is written to.

use policy::merge::Group;

use super::format::Layout;

/// Selects an open file: each stream has at most one.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Stream {
    /// The volume, by its position.
    pub(super) member: usize,
    pub(super) layout: Layout,
    pub(super) group: Group,
    /// Whether it takes copies of merges, which are kept apart so that they do not delay puts.
    pub(super) copies: bool,
}
