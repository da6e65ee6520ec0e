//! How much of their volumes users take.

use policy::placement::VolumeId;
use policy::purpose::Class;
use pool::spread::Spread;

use super::keeper::Loads;
use crate::volumes::{Devices, SharedGate};

/// Asks the gates of a pool's volumes.
pub(super) fn of(devices: &Devices, pool: &Spread) -> Loads {
    let gate = |label: &str| {
        let device = devices.here().iter().find(|device| device.name() == label)?;
        Some(device.shared_gate())
    };
    let volumes = pool.volumes().filter_map(|(id, label)| Some(Volume::new(id, gate(label)?)));
    let mut volumes: Vec<_> = volumes.collect();
    Box::new(move || volumes.iter_mut().map(|volume| (volume.id, volume.used())).collect())
}

struct Volume {
    id: VolumeId,
    gate: SharedGate,
    /// Operations users had been granted when it was last asked.
    granted: u64,
}

impl Volume {
    fn new(id: VolumeId, gate: SharedGate) -> Self {
        Self { id, gate, granted: 0 }
    }

    /// What users took since the last time, a second ago, and what they wait for.
    fn used(&mut self) -> f64 {
        let meter = self.gate.meter();
        let users = &meter.classes[Class::Foreground.index()];
        let granted = std::mem::replace(&mut self.granted, users.spent.ops);
        let demand = users.spent.ops.saturating_sub(granted) + users.queued;
        meter.contract.paid_iops().map_or(0.0, |paid| demand as f64 / paid.max(1) as f64)
    }
}
