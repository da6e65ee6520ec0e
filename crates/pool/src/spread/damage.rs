//! Bytes that are not what was written: which copies have any, and whether another could answer.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use volume::ErrorKind;

use super::body::{Body, Replica};
use super::{Inner, Spread};
use crate::leaf::ObjectId;

/// How many copies are remembered as damaged, and as read through.
const KNOWN_MAX: usize = 4096;

/// Damage that was found since a pool was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Damage {
    /// Copies with bytes that are missing or not what was written, each counted once.
    pub found: u64,
    /// How often another copy gave what a damaged one did not, or took its place.
    pub repaired: u64,
}

impl Damage {
    /// Whether there is damage that no other copy made good.
    #[must_use]
    pub const fn is_left(&self) -> bool {
        self.found > self.repaired
    }
}

/// What is counted of it.
#[derive(Default)]
pub(super) struct Damages {
    found: AtomicU64,
    repaired: AtomicU64,
    /// Copies that were told of.
    told: Mutex<Known>,
    /// Single copies that were read through because what was read of them made no sense.
    read_through: Mutex<Known>,
}

/// Copies, by object and number; all are forgotten when there are [`KNOWN_MAX`].
#[derive(Default)]
struct Known(BTreeSet<(ObjectId, u64)>);

impl Known {
    /// Adds one; says whether it is new.
    fn add(&mut self, copy: (ObjectId, u64)) -> bool {
        if self.0.len() >= KNOWN_MAX {
            self.0.clear();
        }
        self.0.insert(copy)
    }
}

impl Spread {
    /// Damage that reads, scrubs and those who distrusted what they read found since the pool was opened.
    #[must_use]
    pub fn damage(&self) -> Damage {
        let Damages { found, repaired, .. } = &self.0.damages;
        Damage { found: found.load(Ordering::Relaxed), repaired: repaired.load(Ordering::Relaxed) }
    }
}

impl Inner {
    /// A copy has bytes that are not what was written. Logged once for each.
    pub(super) fn tell_damage(&self, body: &Body, replica: &Replica, why: &str) {
        if !self.damages.told.lock().add((body.id, replica.number)) {
            return;
        }
        self.damages.found.fetch_add(1, Ordering::Relaxed);
        let (name, id, labels) = (&body.name, body.id, replica.labels());
        tracing::error!("{name} (object {id}) on volume {labels} is damaged: {why}");
    }

    /// Whether a single copy is yet to be read through: only the first caller is told so.
    pub(super) fn begin_reading_through(&self, id: ObjectId, number: u64) -> bool {
        self.damages.read_through.lock().add((id, number))
    }

    /// It could not be read now: the next caller tries again.
    pub(super) fn give_up_reading_through(&self, id: ObjectId, number: u64) {
        self.damages.read_through.lock().0.remove(&(id, number));
    }

    /// [`Inner::tell_damage`] of a read that failed, if it shows damage.
    pub(super) fn tell_if_damage(&self, body: &Body, number: u64, e: &volume::Error) {
        if e.kind() == ErrorKind::Corrupt
            && let Some(replica) = body.replica(number)
        {
            self.tell_damage(body, &replica, &e.to_string());
        }
    }

    /// Another copy made good what one did not give.
    pub(super) fn tell_repaired(&self) {
        self.damages.repaired.fetch_add(1, Ordering::Relaxed);
    }
}
