//! Halves the counts of reads of keys as often as cache tiers halve those of pages, so that the two compare.

use std::sync::Arc;

use policy::key_counts::KeyCounts;

use super::Db;
use crate::volumes::Pool;

/// Looks at the tiers of a pool, which a store is on.
pub(super) struct Halving {
    pool: Arc<Pool>,
    counts: Arc<KeyCounts>,
    /// Generations of a tier, on average, at the last look.
    seen: u64,
}

impl Halving {
    /// `None` if the store counts no reads.
    pub(super) fn of(db: &Db, pool: &Arc<Pool>) -> Option<Self> {
        let counts = Arc::clone(db.key_counts()?);
        Some(Self { pool: Arc::clone(pool), counts, seen: 0 })
    }

    /// Halves the counts if a generation of the tiers has ended, or if they cannot tell more keys apart.
    pub(super) fn look(&mut self) {
        let tiers = self.pool.tiers();
        let all: u64 = tiers.iter().map(|tier| u64::from(tier.figures().generation)).sum();
        let now = all / (tiers.len() as u64).max(1);
        if now > self.seen || self.counts.is_full() {
            self.counts.halve();
        }
        // A new fast volume begins at 0.
        self.seen = now;
    }
}
