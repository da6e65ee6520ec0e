//! The health of the program: whether its stores serve, and which volumes answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::health::StoreHealth;
use plimsoll::volumes::{Device, Devices, Pool};
use pool::spread::Redundancy;
use serve::admin::Health;

use super::Program;
use super::probe::Spaces;
use super::stores::{BLOCK, KV, SERIES};

impl Program {
    /// Checks every volume and every store, and writes a page to each volume now and then. Waits for a volume at most as
    /// long as [`Probes`] do.
    ///
    /// [`Probes`]: super::probe::Probes
    pub(super) fn look(&self) -> Health {
        self.probes.write_pages(&self.stores.here(), &self.clock);
        let spaces = self.spaces();
        let mut health = Health::default();
        for away in self.stores.away() {
            health.volumes.insert(away.name.clone(), Some(away.to_string()));
        }
        for (name, space) in &spaces {
            let problem = space.as_ref().err().map(|why| format!("volume {name}: {why}"));
            health.volumes.insert(name.clone(), problem);
        }
        let silent = |name: &str| spaces.get(name).is_some_and(Result::is_err);
        for (pool, store) in self.stores.closed_pools() {
            let failed = self.stores.failed().into_iter().find(|(name, _)| *name == store);
            let why = failed.map_or_else(|| "it is being opened".into(), |(_, why)| why);
            for volume in self.leaves_of(pool) {
                let problem = format!("volume {volume}: its pool {pool} is not open: {why}");
                health.volumes.insert(volume, Some(problem));
            }
        }
        health.tiers = self.tiers_health(|tier| {
            let fast = tier.cache().holding();
            !fast.is_empty() && fast.iter().all(|device| silent(device.name()))
        });
        let redundancy_of = |pool: &Pool| {
            let volumes = pool.volumes().into_iter();
            // One that is a pool or a tier is silent if all is that has its objects.
            let is_silent = |label: &str| {
                let below = pool.devices().below(label);
                !below.is_empty() && below.iter().all(|device| silent(device.name()))
            };
            let silent = volumes.filter(|volume| is_silent(&volume.label)).map(|volume| volume.id);
            let mut redundancy = pool.redundancy(&silent.collect());
            redundancy.short += pool.short_below();
            redundancy
        };
        let redundancies: BTreeMap<_, _> =
            self.stores.pools().map(|root| (root.name, redundancy_of(root.pool))).collect();
        let on = |store| redundancies.get(self.stores.pool_of(store)?.name).copied();
        if let Some(store) = self.kv() {
            // The pool knows better than the last look of its mover.
            let mut own = StoreHealth { reads_refused: None, ..store.health() };
            own.writes_refused = own.writes_refused.or(no_answer(store.devices(), &spaces));
            health.stores.insert(KV.into(), on_pool(own, on(KV)));
        }
        if let Some(store) = self.series() {
            let mut own = store.health();
            own.writes_refused = own.writes_refused.or(no_answer(store.devices(), &spaces));
            own.damaged += store.pool().map_or(0, |pool| pool.damage().left);
            health.stores.insert(SERIES.into(), on_pool(own, on(SERIES)));
        }
        if let Some(store) = self.block() {
            let mut own = StoreHealth { reads_refused: None, ..store.health() };
            let pool = store.pool();
            own.writes_refused = own.writes_refused.or(no_answer(pool.devices(), &spaces));
            own.damaged += pool.damage().left;
            health.stores.insert(BLOCK.into(), on_pool(own, on(BLOCK)));
        }
        for (name, why) in self.stores.failed() {
            let why = Some(format!("it is not open, and is tried again every ten seconds: {why}"));
            let closed = StoreHealth {
                writes_refused: why.clone(),
                reads_refused: why,
                ..StoreHealth::default()
            };
            health.stores.insert(name.into(), closed);
        }
        health
    }

    /// The names of the volumes below a pool of the settings.
    fn leaves_of(&self, pool: &str) -> Vec<String> {
        let settings = self.settings.lock();
        let leaves = settings.pool(pool).map(|pool| pool.leaves(&settings.pools));
        leaves.into_iter().flatten().map(str::to_owned).collect()
    }

    /// The space on each volume, or its problem. Waits a bounded time.
    pub(super) fn spaces(&self) -> Spaces {
        self.probes.spaces(&self.stores.here(), &self.clock)
    }
}

/// Why a store on these volumes takes no writes, if none of them answers.
fn no_answer(devices: &Devices, spaces: &Spaces) -> Option<String> {
    let here = devices.holding();
    let silent = |device: &Arc<Device>| spaces.get(device.name()).is_some_and(Result::is_err);
    (!here.is_empty() && here.iter().all(silent))
        .then(|| "none of its volumes answers: see their problems".into())
}

/// The health of a store, with that of the pool it is on.
fn on_pool(health: StoreHealth, redundancy: Option<Redundancy>) -> StoreHealth {
    let Some(redundancy) = redundancy else { return health };
    let unreadable = redundancy.unreadable;
    let reads_refused = (unreadable > 0).then(|| {
        format!(
            "{unreadable} objects have no copy that can be read: bring their volumes back; \
             `plimsoll volume list` names the volumes"
        )
    });
    let reads_refused = reads_refused.or(health.reads_refused);
    StoreHealth { copies_short: redundancy.lacking(), reads_refused, ..health }
}
