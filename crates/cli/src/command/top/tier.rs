//! The change of a cache tier between two answers of a server.

use serve::figures::Tier;

/// One tier.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TierRates {
    pub(super) name: String,
    /// The side that has everything.
    pub(super) slow: String,
    /// Whether its fast side is in use.
    pub(super) is_attached: bool,
    /// The share of the bytes read that came from the fast side; `None` if nothing was read.
    pub(super) hits: Option<f64>,
    /// Bytes cached, and those that may be, where that is known.
    pub(super) cached: u64,
    pub(super) size: Option<u64>,
    /// Promotions a second.
    pub(super) promotions: Option<f64>,
    /// Bytes that only the fast side has; `None` if all writes go to the slow side.
    pub(super) dirty: Option<u64>,
    /// Writes a second that stayed on the fast side.
    pub(super) kept: Option<f64>,
    /// Bytes a second written back.
    pub(super) flushed: Option<f64>,
    /// Bytes lost with a fast side.
    pub(super) stale: u64,
}

impl TierRates {
    pub(super) fn between(before: Option<&Tier>, now: &Tier, seconds: Option<f64>) -> Self {
        let more = |of: fn(&Tier) -> u64| Some(of(now).saturating_sub(of(before?)));
        let per_second = |more: Option<u64>| Some(more? as f64 / seconds?);
        let hits = more(|tier| tier.hit_bytes).zip(more(|tier| tier.missed_bytes));
        let hits = hits.filter(|(hit, missed)| hit + missed > 0);
        Self {
            name: now.name.clone(),
            slow: now.slow.clone(),
            is_attached: now.attached,
            hits: hits.map(|(hit, missed)| hit as f64 / (hit + missed) as f64),
            cached: now.cached_bytes,
            size: now.size_bytes,
            promotions: per_second(more(|tier| tier.promotions)),
            dirty: now.keeps_writes.then_some(now.dirty_bytes),
            kept: per_second(more(|tier| tier.kept_writes)),
            flushed: per_second(more(|tier| tier.flushed_bytes)),
            stale: now.stale_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_those_in_between() {
        let before = Tier { hit_bytes: 100, missed_bytes: 900, promotions: 5, ..Tier::default() };
        let now = Tier { hit_bytes: 190, missed_bytes: 910, promotions: 9, ..before.clone() };
        let rates = TierRates::between(Some(&before), &now, Some(2.0));
        assert_eq!((rates.hits, rates.promotions), (Some(0.9), Some(2.0)));
        let idle = TierRates::between(Some(&now), &now, Some(2.0));
        assert_eq!((idle.hits, idle.promotions), (None, Some(0.0)));
        assert_eq!(TierRates::between(None, &now, None).promotions, None);
    }
}
