//! The cache tiers of the program: their figures, and what the admin listener does with them.

use std::collections::{BTreeMap, HashMap};

use plimsoll::volumes::CacheTier;
use policy::units::Bytes;
use serve::admin::tiers::Tier;
use serve::admin::{Error, TierHealth};
use serve::figures;
use volume::Name;

use super::Program;
use super::stores::Opened;
use super::volumes::store_error;

/// Devices and other objects that the health names at most.
const OWNERS_MAX: usize = 8;

impl Program {
    pub(super) fn tier_figures(&self) -> Vec<figures::Tier> {
        let mut tiers = Vec::new();
        for Opened { name, pool, .. } in self.stores.pools() {
            tiers.extend(pool.tiers().into_iter().map(|tier| shown(name, tier)));
        }
        tiers
    }

    pub(super) fn attach(&self, name: &str) -> Result<Tier, Error> {
        let _one_at_a_time = self.changing.lock();
        let tier = self.tier(name)?;
        tier.attach().map_err(|error| store_error(&error))?;
        tracing::info!("tier {name} uses {}, which is empty", tier.fast());
        Ok(answer(tier))
    }

    pub(super) fn detach(&self, name: &str) -> Result<Tier, Error> {
        let _one_at_a_time = self.changing.lock();
        let tier = self.tier(name)?;
        let before = tier.figures().flushed_bytes;
        tier.detach().map_err(|error| store_error(&error))?;
        tracing::info!("tier {name} does not use {} any more", tier.fast());
        let flushed_bytes = tier.figures().flushed_bytes - before;
        Ok(Tier { flushed_bytes, ..answer(tier) })
    }

    pub(super) fn lose(&self, name: &str) -> Result<Tier, Error> {
        let _one_at_a_time = self.changing.lock();
        let tier = self.tier(name)?;
        let lost_bytes = tier.lose().map_err(|error| store_error(&error))?;
        tracing::warn!("tier {name} gave up {} with {lost_bytes} bytes", tier.fast());
        Ok(Tier { lost_bytes, ..answer(tier) })
    }

    /// It may take long, and other changes need not wait for it.
    pub(super) fn flush(&self, name: &str) -> Result<Tier, Error> {
        let tier = self.tier(name)?;
        let flushed_bytes = tier.flush().map_err(|error| store_error(&error))?;
        Ok(Tier { flushed_bytes, ..answer(tier) })
    }

    /// The health of each tier; `is_silent` says of one that no volume of its fast side answers.
    pub(super) fn tiers_health(
        &self,
        is_silent: impl Fn(&CacheTier) -> bool,
    ) -> BTreeMap<String, TierHealth> {
        let tiers = self.stores.pools().flat_map(|root| root.pool.tiers());
        let health = |tier: &CacheTier| {
            let (name, fast, slow) = (tier.name(), tier.fast(), tier.slow());
            let silent = || {
                // Until the tier finds out by itself.
                is_silent(tier).then(|| {
                    format!("tier {name}: {fast} does not answer; {slow} serves all reads once it is given up")
                })
            };
            let mut problems: Vec<_> = tier.problem().or_else(silent).into_iter().collect();
            problems.extend(tier.unflushed());
            let stale = tier.stale();
            let stale_bytes = stale.iter().map(|(_, bytes)| bytes).sum();
            problems.extend((stale_bytes > 0).then(|| self.lost(tier, &stale, stale_bytes)));
            let attached = tier.is_attached() && !is_silent(tier);
            TierHealth { attached, stale_bytes, problems }
        };
        tiers.map(|tier| (tier.name().to_owned(), health(tier))).collect()
    }

    /// What was lost with a fast side, and what to do.
    fn lost(&self, tier: &CacheTier, stale: &[(Name, u64)], bytes: u64) -> String {
        let pool = self.stores.pools().find_map(|root| root.pool.with_member(tier.name()));
        let names: HashMap<_, _> = pool
            .map(|pool| pool.objects().into_iter().map(|stat| (stat.id, stat.name)).collect())
            .unwrap_or_default();
        let mut owners: Vec<_> = stale
            .iter()
            .map(|(leaf, _)| {
                let object = pool::object_of(leaf).and_then(|id| names.get(&id)).unwrap_or(leaf);
                let device = self.block().and_then(|store| store.device_of(object));
                device.map_or_else(|| object.to_string(), |device| format!("device {device}"))
            })
            .collect();
        owners.sort_unstable();
        owners.dedup();
        let more = owners.len().saturating_sub(OWNERS_MAX);
        owners.truncate(OWNERS_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "tier {}: the newest of {} was only on a fast side that is lost, of {}{more}: reads of these bytes fail until they are \
             written. Restore them from a backup, or write or discard them",
            tier.name(),
            Bytes(bytes),
            owners.join(", ")
        )
    }

    fn tier(&self, name: &str) -> Result<&CacheTier, Error> {
        let tiers: Vec<_> = self.pools()?.iter().flat_map(|root| root.pool.tiers()).collect();
        let known: Vec<_> = tiers.iter().map(|tier| tier.name()).collect();
        let told = match &known[..] {
            [] => format!("tier {name}: no pool in use has layout = \"tiered\""),
            _ => {
                format!("tier {name}: none of that name is in use; there are {}", known.join(", "))
            }
        };
        tiers.into_iter().find(|tier| tier.name() == name).ok_or(Error::NotFound(told))
    }
}

fn answer(tier: &CacheTier) -> Tier {
    Tier {
        name: tier.name().to_owned(),
        fast: tier.fast().to_owned(),
        slow: tier.slow().to_owned(),
        attached: tier.is_attached(),
        dirty_bytes: tier.figures().dirty_bytes,
        ..Tier::default()
    }
}

fn shown(pool: &str, tier: &CacheTier) -> figures::Tier {
    let counted = tier.figures();
    figures::Tier {
        pool: pool.to_owned(),
        name: tier.name().to_owned(),
        fast: tier.fast().to_owned(),
        slow: tier.slow().to_owned(),
        attached: tier.is_attached(),
        hit_bytes: counted.hit_bytes,
        missed_bytes: counted.missed_bytes,
        promotions: counted.promotions,
        promoted_bytes: counted.promoted_bytes,
        inherited_bytes: counted.inherited_bytes,
        promotions_dropped: counted.promotions_dropped,
        evictions: counted.evictions,
        policy: counted.policy.map_or("", |policy| policy.name()).into(),
        trims: counted.trims,
        deferred_pages: counted.deferred_pages,
        doubts: counted.doubts,
        appends: counted.appends,
        checkpoints: counted.checkpoints,
        detached: counted.detached,
        cached_bytes: counted.cached_bytes,
        size_bytes: tier.size(),
        keeps_writes: tier.keeps_writes(),
        dirty_bytes: counted.dirty_bytes,
        dirty_age_s: counted.dirty_age.map(|age| age.as_secs_f64()),
        stale_bytes: counted.stale_bytes,
        kept_writes: counted.kept_writes,
        kept_bytes: counted.kept_bytes,
        written_through_bytes: counted.written_through,
        flush_writes: counted.flush_writes,
        flushed_bytes: counted.flushed_bytes,
        flushes_failed: counted.flushes_failed,
        flush: counted.flush.name().into(),
    }
}
