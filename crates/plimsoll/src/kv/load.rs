//! How much of their volumes users take.

use std::collections::HashMap;

use policy::purpose::Class;
use pool::spread::{Spread, VolumeStat};

use super::keeper::Loads;
use crate::volumes::{Device, Devices};

/// Asks the gates of a pool's volumes.
pub(super) fn of(devices: &Devices, pool: &Spread) -> Loads {
    let (devices, pool) = (devices.clone(), pool.clone());
    let mut before = HashMap::new();
    Box::new(move || {
        let mut granted = HashMap::new();
        let mut loads = Vec::new();
        for VolumeStat { id, label, .. } in pool.volumes() {
            let Some(device) = devices.get(&label) else { continue };
            loads.push((id, used(&device, before.get(&id), granted.entry(id).or_default())));
        }
        before = granted;
        loads
    })
}

/// What users took since the last time, a second ago, and what they wait for. `before` is what they had
/// been granted then, `granted` becomes what they have by now.
fn used(device: &Device, before: Option<&u64>, granted: &mut u64) -> f64 {
    let meter = device.gate().meter();
    let users = &meter.classes[Class::Foreground.index()];
    *granted = users.spent.ops;
    let demand = granted.saturating_sub(before.copied().unwrap_or(0)) + users.queued;
    meter.contract.paid_iops().map_or(0.0, |paid| demand as f64 / paid.max(1) as f64)
}
