//! What is told to a tier when it is opened.

use std::time::Duration;

use policy::cache::Kind;
use policy::promote::Budget;
use policy::units::{KIB, MIB};
use policy::valve::Thresholds;
use volume::{Error, ErrorKind, Result};

use super::map::Size;
use super::route::PAGE;

/// Units that may have pages on the fast volume at a time, for each one that fits it as a whole. So pages may be as scattered
/// as to be a sixteenth of their units.
const SCATTERED: u64 = 16;

/// Units that may have pages on any fast volume with as many places.
const ENTRIES_MIN: u64 = 1024;

/// Units that a checkpoint looks at while readers wait, about half a millisecond.
const AT_ONCE: u32 = 512;

/// How a tier uses its fast volume.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a unit: a power of two from 64 KiB to 64 MiB. 1 MiB by default. Smaller ones take more memory for the same
    /// pages; of larger ones more is in doubt after one write, until the next checkpoint.
    pub unit: u64,
    /// Bytes of the fast volume to use.
    pub bytes: u64,
    /// Which units are evicted first. Clock2Q+ by default.
    pub eviction: Kind,
    /// Bytes a second that installs write to the fast volume at most, and read from the slow one where whole units are
    /// promoted. 100 MiB/s by default. More warms the cache sooner, and leaves less to users.
    pub promotion_bytes_per_sec: u64,
    /// Installs that run at a time at most. 2 by default.
    pub promotion_copies: u32,
    /// Bytes that may wait for their installation in memory. 16 MiB by default.
    pub queue_bytes: u64,
    /// Time between checkpoints. 30 s by default. A crash empties the units that were written since the last one, and those that
    /// were promoted since then.
    pub checkpoint_every: Duration,
    /// The identity of a slow volume that has none yet: a random number.
    pub identity: u64,
    /// Takes a fast volume that belongs to another slow one, and empties it.
    pub take_foreign: bool,
    /// An opening fails that would lose dirty bytes, because the fast volume which has them is not here. Else they are stale
    /// from then on. Unset by default.
    pub refuses_loss: bool,
    /// Where writes to objects in place go. To both volumes by default.
    pub writes: Writes,
    /// When dirty units are written back, and when no more pages become dirty.
    pub thresholds: Thresholds,
    /// Time between looks at the load of the slow volume, and at what is dirty. 1 s by default.
    pub valve_every: Duration,
}

/// Where a write goes first.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Writes {
    /// To the slow volume. What was kept back before is written back.
    #[default]
    Through,
    /// A write to an object in place stays on the fast volume, which must not be lost: until a flush it has the only copy.
    Back,
}

impl Options {
    /// The defaults, with `bytes` of the fast volume. `identity` is a random number.
    #[must_use]
    pub const fn new(bytes: u64, identity: u64) -> Self {
        Self {
            unit: MIB,
            bytes,
            eviction: Kind::Auto,
            promotion_bytes_per_sec: 100 * MIB,
            promotion_copies: Budget::COPIES,
            queue_bytes: 16 * MIB,
            checkpoint_every: Duration::from_secs(30),
            identity,
            take_foreign: false,
            refuses_loss: false,
            writes: Writes::Through,
            thresholds: Thresholds::DEFAULT,
            valve_every: Duration::from_secs(1),
        }
    }

    /// The units that fit the fast volume if all their pages are there.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.bytes / self.unit
    }

    /// The units that may have pages on the fast volume at a time: 16 for each one that fits it as a whole, at least 1024 and
    /// at most one for each page.
    #[must_use]
    pub fn entries(&self) -> u32 {
        let scattered = self.units().saturating_mul(SCATTERED).max(ENTRIES_MIN);
        u32::try_from(scattered).unwrap_or(u32::MAX).min(self.places())
    }

    pub(super) fn places(&self) -> u32 {
        u32::try_from(self.bytes / PAGE).unwrap_or(u32::MAX - 1)
    }

    /// Bytes that may be dirty at most.
    pub(super) fn dirty_max(&self) -> u64 {
        (f64::from(self.places()) * PAGE as f64 * self.thresholds.dirty_max) as u64
    }

    pub(super) fn size(&self) -> Size {
        let (places, entries) = (self.places(), self.entries());
        let pages = (self.unit / PAGE) as u32;
        Size { places, entries, pages, at_once: AT_ONCE }
    }

    pub(super) fn check(&self) -> Result<()> {
        let fits = self.unit.is_power_of_two() && (64 * KIB..=64 * MIB).contains(&self.unit);
        if !fits || self.units() < 2 {
            let what = format!(
                "a tier of units of {} bytes on {} bytes: a unit is a power of two from 64 KiB to 64 MiB, and there must be \
                 room for two",
                self.unit, self.bytes
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(())
    }
}
