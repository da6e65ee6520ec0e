//! The state that all connections of an NBD listener share.

use std::sync::Arc;

use engine::block::BlockDevices;

use super::settings::Settings;
use super::stats::Stats;

/// The devices, and all other state of connections.
pub struct Service {
    /// The settings.
    pub settings: Settings,
    /// The devices that clients may choose from.
    pub devices: Arc<dyn BlockDevices>,
    /// The listener's counters.
    pub stats: Stats,
}

impl Service {
    /// Serves `devices`.
    #[must_use]
    pub fn new(settings: Settings, devices: Arc<dyn BlockDevices>) -> Self {
        Self { settings, devices, stats: Stats::default() }
    }
}
