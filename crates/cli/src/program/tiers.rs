//! The cache tiers of the program: their figures, and what the admin listener does with them.

use plimsoll::volumes::CacheTier;
use serve::admin::Error;
use serve::admin::tiers::Tier;
use serve::figures;

use super::Program;
use super::stores::Opened;
use super::volumes::store_error;

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
        tier.detach().map_err(|error| store_error(&error))?;
        tracing::info!("tier {name} does not use {} any more", tier.fast());
        Ok(answer(tier))
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
        promotions_dropped: counted.promotions_dropped,
        evictions: counted.evictions,
        doubts: counted.doubts,
        appends: counted.appends,
        checkpoints: counted.checkpoints,
        detached: counted.detached,
        cached_bytes: counted.cached_bytes,
        size_bytes: tier.size(),
    }
}
