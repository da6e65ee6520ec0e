//! The health of the program: whether its stores serve, and which volumes answer.

use std::collections::{BTreeMap, BTreeSet};

use engine::health::StoreHealth;
use policy::placement::VolumeId;
use serve::admin::Health;
use volume::Space;

use super::Program;

impl Program {
    /// Checks every volume and every store. Waits for a volume at most as long as [`Probes`] do.
    ///
    /// [`Probes`]: super::probe::Probes
    pub(super) fn look(&self) -> Health {
        let spaces = self.spaces();
        let mut health = Health::default();
        for away in self.store.devices().away() {
            health.volumes.insert(away.name.clone(), Some(away.to_string()));
        }
        for (name, space) in &spaces {
            let problem = space.as_ref().err().map(|why| format!("volume {name}: {why}"));
            health.volumes.insert(name.clone(), problem);
        }
        let silent = |name: &str| spaces.get(name).is_some_and(Result::is_err);
        let pool = self.store.pool();
        let silent: BTreeSet<VolumeId> = pool
            .volumes()
            .into_iter()
            .filter(|volume| silent(&volume.label))
            .map(|volume| volume.id)
            .collect();
        health.stores.insert("kv".into(), self.kv_health(&silent));
        if let Some(points) = &self.points {
            health.stores.insert("series".into(), points.health());
        }
        health
    }

    /// The space on each volume, or its problem. Waits a bounded time.
    pub(super) fn spaces(&self) -> BTreeMap<String, Result<Space, String>> {
        let points = self.points.iter().flat_map(|points| points.devices().here());
        let devices: Vec<_> = self.store.devices().here().into_iter().chain(points).collect();
        self.probes.spaces(&devices, &self.clock)
    }

    fn kv_health(&self, silent: &BTreeSet<VolumeId>) -> StoreHealth {
        let copies = self.store.pool().redundancy(silent);
        let copies_short = copies.short + copies.doubtful;
        let mut health = StoreHealth { copies_short, reads_refused: None, ..self.store.health() };
        if copies.unreadable > 0 {
            health.reads_refused = Some(format!(
                "{} objects have no copy that can be read: bring their volumes back; \
                 `plimsoll volume list` names the volumes",
                copies.unreadable
            ));
        }
        health
    }
}
