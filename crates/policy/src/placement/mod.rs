//! The choice of a volume for an object.
//!
//! A policy sees the volumes and tables as they are now and answers with a [`Layout`]; it does not learn whether the
//! pool followed. [`LeastOverlap`] separates tables that are read together. The other four ignore keys and load: they
//! are the baselines of the benches (TANGO).

mod fragment;
mod hash;
mod intervals;
mod least_overlap;
mod losses;
mod round_robin;
mod single;
mod streams;
mod stripe;
mod tables;

use std::fmt;
use std::time::Duration;

pub use fragment::{Code, CodeError, Fragment};
pub use hash::Hash;
pub use least_overlap::{LeastOverlap, Overlaps};
pub use losses::{losses_survived, members_for};
pub use round_robin::RoundRobin;
pub use single::Single;
pub use stripe::{Chunks, Piece, Stripe};
pub use tables::{Keys, OVERLAPS_MAX, Table, Tables};

use crate::intent::Intent;
use crate::units::GIB;

/// A volume's number in its pool: given when it joins, kept while it stays.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct VolumeId(pub u16);

/// A volume's state at one moment, for placement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Which volume.
    pub volume: VolumeId,
    /// Bytes that can still be written.
    pub free: u64,
    /// Its size in bytes.
    pub total: u64,
    /// Whether it answers and takes writes.
    pub healthy: bool,
    /// Operations a second that are paid for; 0 if unknown.
    pub paid: f64,
    /// Its load relative to what is paid for: users' reads, logs and flushes, and the reads expected of objects placed
    /// recently. At 1 it carries as much as it can.
    pub weight: f64,
    /// Bytes being written to it for incomplete objects.
    pub in_flight: u64,
    /// Whether it writes as many bytes a second as it can.
    pub saturated: bool,
    /// What its device usually takes for a read; zero if unknown.
    pub answer: Duration,
}

impl Candidate {
    /// A volume that answers, of unknown load.
    #[must_use]
    pub const fn new(volume: VolumeId, free: u64, total: u64) -> Self {
        Self {
            volume,
            free,
            total,
            healthy: true,
            paid: 0.0,
            weight: 0.0,
            in_flight: 0,
            saturated: false,
            answer: Duration::ZERO,
        }
    }

    /// A volume that does not answer, or takes no writes.
    #[must_use]
    pub const fn away(volume: VolumeId) -> Self {
        Self { healthy: false, ..Self::new(volume, 0, 0) }
    }

    /// Room that no new object may take: manifest and logs grow, and file systems slow down when nearly full. One part
    /// in 64, at most 1 GiB.
    #[must_use]
    pub const fn reserve(&self) -> u64 {
        let share = self.total / 64;
        if share < GIB { share } else { GIB }
    }

    /// Whether an object of `len` bytes may go here.
    #[must_use]
    pub const fn takes(&self, len: u64) -> bool {
        self.healthy && self.free >= len.saturating_add(self.reserve())
    }
}

/// The place of the bytes of one object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Layout {
    /// All on one volume.
    Whole {
        /// That volume.
        volume: VolumeId,
    },
    /// Distributed round robin, chunk by chunk; see [`Chunks`].
    Striped {
        /// Bytes of a chunk. Not zero.
        chunk: u64,
        /// The volumes in round-robin order. At least two, none twice.
        volumes: Vec<VolumeId>,
    },
    /// One fragment of it, on one volume. The others have places of their own.
    Fragment(Fragment),
}

impl Layout {
    /// The volumes that hold a part, in the order of the parts.
    #[must_use]
    pub fn volumes(&self) -> &[VolumeId] {
        match self {
            Self::Whole { volume } => std::slice::from_ref(volume),
            Self::Striped { volumes, .. } => volumes,
            Self::Fragment(Fragment { volume, .. }) => std::slice::from_ref(volume),
        }
    }

    /// The mapping from offsets of what lies here to offsets of its parts. What lies here is the object, or a fragment.
    #[must_use]
    pub fn chunks(&self) -> Chunks {
        match self {
            Self::Whole { .. } | Self::Fragment(_) => Chunks::WHOLE,
            Self::Striped { chunk, volumes } => Chunks::new(*chunk, volumes.len() as u64),
        }
    }

    /// The bytes that lie here of an object of `total` bytes.
    #[must_use]
    pub fn len(&self, total: u64) -> u64 {
        match self {
            Self::Whole { .. } | Self::Striped { .. } => total,
            Self::Fragment(Fragment { index, code, .. }) => {
                code.fragment_len(total, usize::from(*index))
            }
        }
    }

    /// The length of a part of an object of `total` bytes.
    #[must_use]
    pub fn part_len(&self, total: u64, part: usize) -> u64 {
        self.chunks().part_len(self.len(total), part)
    }

    /// The fragment that lies here, if it is one.
    #[must_use]
    pub const fn fragment(&self) -> Option<&Fragment> {
        match self {
            Self::Fragment(fragment) => Some(fragment),
            Self::Whole { .. } | Self::Striped { .. } => None,
        }
    }
}

/// An object that needs a place.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// Its number.
    pub object: u64,
    /// Its creator's knowledge of it.
    pub intent: &'a Intent,
    /// Expected reads a second on its volume.
    pub rate: f32,
}

impl<'a> New<'a> {
    /// An object without expected reads.
    #[must_use]
    pub const fn cold(object: u64, intent: &'a Intent) -> Self {
        Self { object, intent, rate: 0.0 }
    }

    /// Its length in bytes, or the most that it may be; 0 if both are unknown.
    const fn len(&self) -> u64 {
        match (self.intent.len, self.intent.most) {
            (Some(len), _) | (None, Some(len)) => len,
            (None, None) => 0,
        }
    }
}

/// Chooses volumes for new objects.
pub trait Placement: Send {
    /// The place of `new`: only healthy volumes among `candidates` with room for it beside their reserve. An object of
    /// unknown length counts as the most that it may be, or as empty. `tables` are those of the pool, including ones that are being written.
    ///
    /// `None` if no volume fits.
    fn choose(&mut self, new: New<'_>, candidates: &[Candidate], tables: &Tables)
    -> Option<Layout>;
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole { volume } => write!(f, "whole on {volume}"),
            Self::Striped { chunk, volumes } => {
                write!(f, "striped by {} over", crate::units::Bytes(*chunk))?;
                volumes.iter().try_for_each(|volume| write!(f, " {volume}"))
            }
            Self::Fragment(Fragment { volume, index, code, .. }) => {
                write!(f, "fragment {index} of {code} on {volume}")
            }
        }
    }
}

/// The first candidate that takes `len` bytes, looking from position `from` and around.
fn first_from(candidates: &[Candidate], from: usize, len: u64) -> Option<usize> {
    let count = candidates.len();
    (0..count).map(|step| (from + step) % count).find(|&at| candidates[at].takes(len))
}

/// Spreads consecutive ids: the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
const fn mix(id: u64) -> u64 {
    let id = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    id ^ (id >> 31)
}

fn whole(candidate: &Candidate) -> Layout {
    Layout::Whole { volume: candidate.volume }
}

#[cfg(test)]
mod tests;
