//! Messages between a data server and the parity servers of its group.
//!
//! A transport may lose, delay, repeat and reorder them.

use std::ops::Range;

use super::index::Report;
use super::record::{Group, Piece, Request, Version};

/// Whom a message is about: one data strip, in one view.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Subject {
    /// The view of the sender. A receiver in another view ignores the message.
    pub view: u64,
    /// The group.
    pub group: Group,
    /// The data strip, from 0.
    pub strip: usize,
}

/// From a data server to a parity server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ask {
    /// Log a new value.
    Log {
        /// The version of the write.
        version: Version,
        /// All lower versions of the strip are in place, or were discarded.
        below: Version,
        /// The client's request.
        request: Request,
        /// The value.
        piece: Piece,
        /// Values before the write, where the data server knows that the parity server has none.
        originals: Vec<Piece>,
    },
    /// Log the values before a write, as [`Answer::NeedOriginal`] asked.
    Original {
        /// The write.
        version: Version,
        /// The values.
        pieces: Vec<Piece>,
    },
    /// All lower versions of the strip are in place, or were discarded.
    Below(Version),
    /// The parity server forgets a write that the data server did not acknowledge.
    Discard(Version),
    /// What do you have of the strip?
    Report,
}

/// From a parity server to a data server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The new value and the one before are durable.
    Logged {
        /// The write.
        version: Version,
        /// Changes when the parity server forgets base values of the group.
        epoch: u64,
    },
    /// The new value is durable, and the value before it is needed in these ranges.
    NeedOriginal {
        /// The write.
        version: Version,
        /// Where no value before it is known: ascending.
        gaps: Vec<Range<u64>>,
    },
    /// The journal is full: nothing was logged. Merges are under way.
    Busy(Version),
    /// The write is forgotten, durably.
    Discarded(Version),
    /// Which versions are complete? A merge waits for it.
    AskBelow,
    /// What the parity server has of the strip.
    Report(Report),
}
