//! What the filter hears of accesses. Hits wait in a batch, so that a hit takes no other lock than that of the map.

use std::ops::Range;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use policy::promote::Period;
use policy::purpose::{Io, Origin};
use policy::time::Instant;
use volume::Clock;

use super::admit::Admit;

/// Hits that wait at most.
const BATCH: usize = 64;

/// A hit in a unit.
pub(super) struct Hit {
    pub(super) object: u32,
    /// When the unit got its place.
    pub(super) promoted: Period,
    /// The bytes of the request; empty if the filter heard of it at another of its units.
    pub(super) request: Range<u64>,
}

/// Hits that the filter did not hear of yet, in order.
#[derive(Default)]
pub(super) struct Batch(Vec<Hit>);

/// The filter and the time. Lock it after the map.
pub(super) struct Accesses {
    admit: Mutex<Box<dyn Admit>>,
    clock: Clock,
}

/// The filter, which has heard of every hit.
pub(super) struct Telling<'a> {
    pub(super) admit: MutexGuard<'a, Box<dyn Admit>>,
    pub(super) now: Instant,
}

impl Batch {
    pub(super) fn with_room() -> Self {
        Self(Vec::with_capacity(BATCH))
    }
}

impl Accesses {
    pub(super) fn new(admit: Box<dyn Admit>, clock: Clock) -> Self {
        Self { admit: Mutex::new(admit), clock }
    }

    /// Ready after `wait`.
    pub(super) fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Unpin {
        self.clock.sleep(wait)
    }

    /// Adds a hit to the batch; the filter hears of a full one.
    pub(super) fn hit(&self, batch: &mut Batch, hit: Hit) {
        batch.0.push(hit);
        if batch.0.len() >= BATCH {
            drop(self.tell(batch));
        }
    }

    /// Tells the filter of the hits before, so that it hears of everything in order.
    pub(super) fn tell(&self, batch: &mut Batch) -> Telling<'_> {
        let (mut admit, now) = (self.admit.lock(), self.clock.now());
        for hit in batch.0.drain(..) {
            if !hit.request.is_empty() {
                admit.request(hit.object, &hit.request);
            }
            admit.hit(hit.promoted, now);
        }
        Telling { admit, now }
    }

    /// Lets the filter adjust.
    pub(super) fn adjust(&self) {
        let adjusted = self.admit.lock().adjust(self.clock.now());
        if let Some(adjusted) = adjusted {
            tracing::debug!(?adjusted, "the filter of a tier adjusts");
        }
    }
}

/// Whether a request counts as an access: a user asks, or a store opens. Compactions, copies and scrubs read everything
/// once.
pub(super) const fn counts(io: Io) -> bool {
    matches!(io.origin, Origin::UserRead | Origin::UserWrite | Origin::UserChange | Origin::Open)
}
