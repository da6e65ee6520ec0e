//! What fails while the store lives.

/// The failures in a life of the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Weather {
    Calm,
    /// As many volumes fail, or are lost, as a code has parity fragments: no call fails.
    Few,
    /// Volumes fail, hang and come back.
    Storm,
    /// Changes fail on one volume, for moments.
    Flicker,
    /// No volume fails, but bits rot in copies.
    Rot,
}
