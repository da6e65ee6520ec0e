//! What a parity server's journal records. The bytes of a record are the shell's.

use std::ops::Range;
use std::sync::Arc;

/// A group of `m` data strips and their parity strips.
pub type Group = u32;

/// The place of a record in the order of a journal. The first is 1.
pub type Lsn = u64;

/// The version of a write to a strip: it grows with each write, also over restarts of the data server, since each restart
/// is a new view.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version {
    /// The view that the data server had when it took the write.
    pub view: u64,
    /// Counts the writes of the strip in that view, from 1.
    pub number: u64,
}

/// A request of a client. A repetition has the same one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Request {
    /// Who asks.
    pub client: u64,
    /// Grows with each request of the client.
    pub number: u64,
}

/// Bytes of a range of a strip.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Piece {
    /// Offset of the first byte in the strip.
    pub start: u64,
    /// The bytes.
    pub bytes: Arc<[u8]>,
}

impl Piece {
    /// The bytes from offset `start`.
    #[must_use]
    pub fn new(start: u64, bytes: &[u8]) -> Self {
        Self { start, bytes: bytes.into() }
    }

    /// Where the bytes are in the strip.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }

    /// The bytes of a range.
    ///
    /// # Panics
    /// When the piece does not have all of it.
    #[must_use]
    pub fn slice(&self, range: &Range<u64>) -> &[u8] {
        &self.bytes[(range.start - self.start) as usize..(range.end - self.start) as usize]
    }
}

/// A record of a journal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Its place in the journal.
    pub lsn: Lsn,
    /// The group it belongs to.
    pub group: Group,
    /// The data strip it belongs to.
    pub strip: usize,
    /// What it says.
    pub body: Body,
}

/// What a record says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Body {
    /// D: a new value.
    Data {
        /// The version of the write.
        version: Version,
        /// All writes of the strip with a lower version are in place, or were discarded.
        below: Version,
        /// The request of the client, to answer a repetition after a restart of the data server.
        request: Request,
        /// The value.
        piece: Piece,
    },
    /// O: the value that a range had before the write of `version`, while the parity strip on disk counts that value.
    Original {
        /// The write that needed it.
        version: Version,
        /// The value, in ranges.
        pieces: Vec<Piece>,
    },
    /// V: a write that was not acknowledged never happened.
    Discard {
        /// The write.
        version: Version,
    },
}

impl Body {
    /// The value of a range that lies in one piece of the payload.
    #[must_use]
    pub fn value(&self, range: &Range<u64>) -> Option<&[u8]> {
        let pieces = match self {
            Self::Data { piece, .. } => std::slice::from_ref(piece),
            Self::Original { pieces, .. } => pieces,
            Self::Discard { .. } => &[],
        };
        let has =
            |piece: &&Piece| piece.range().start <= range.start && range.end <= piece.range().end;
        pieces.iter().find(has).map(|piece| piece.slice(range))
    }

    /// Bytes of the payload.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        match self {
            Self::Data { piece, .. } => piece.bytes.len() as u64,
            Self::Original { pieces, .. } => pieces.iter().map(|it| it.bytes.len() as u64).sum(),
            Self::Discard { .. } => 0,
        }
    }
}

/// The header of a parity strip. It changes in one atomic step with the strip: the strip is written out of place and the
/// header flips to it, or the new strip is in the journal first. A change of parity that is repeated would cancel itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Header {
    /// The strip counts all data records of the group up to this one (M).
    pub merged: Lsn,
    /// The strip was computed from the data strips when this was the last record: older records of the group are void.
    pub encoded: Lsn,
    /// By data strip: all lower versions are complete. Empty in a new group. Bases are forgotten by this, not by what memory
    /// knows: a server that forgot a version and that it was complete would seem to lack it.
    pub below: Vec<Version>,
}
