//! The state that all connections of an NBD listener share.

use std::sync::Arc;

use engine::block::BlockDevices;

use super::budget::Budget;
use super::leases::Leases;
use super::settings::Settings;
use super::stats::Stats;
use super::wire::CacheEpoch;
use super::writers::Writers;

/// The devices, and all other state of connections.
pub struct Service {
    /// The settings.
    pub settings: Settings,
    /// The devices that clients may choose from.
    pub devices: Arc<dyn BlockDevices>,
    /// The listener's counters.
    pub stats: Stats,
    pub(super) cache_epoch: CacheEpoch,
    pub(super) leases: Arc<Leases>,
    pub(super) writers: Arc<Writers>,
    pub(super) budget: Budget,
}

impl Service {
    /// Serves `devices`. `cache_epoch` must differ from that of an earlier service if the devices may have lost acknowledged
    /// changes in between. Changes that were not flushed are lost when the machine restarts, so the id of its boot will
    /// do. Where every acknowledged change is durable, a constant will do.
    #[must_use]
    pub fn new(
        settings: Settings,
        devices: Arc<dyn BlockDevices>,
        cache_epoch: CacheEpoch,
    ) -> Self {
        let (stats, leases) = (Stats::default(), Arc::default());
        let budget = Budget::new(settings.all_payload_bytes_max);
        let writers = Writers::new(Arc::clone(&devices));
        Self { budget, settings, devices, stats, cache_epoch, leases, writers }
    }

    /// Ends the connections of a device whose lease was released. Call it after a release by an operator.
    pub fn end_released(&self, name: &str) {
        self.writers.end_released(name);
    }

    /// The bytes of payloads that all connections hold now.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        self.budget.held()
    }
}
