//! Users' load on volumes.

use std::collections::HashMap;

use policy::purpose::Class;
use pool::spread::{Spread, VolumeStat};

use super::cache_sizer::Loads;
use crate::volumes::{Device, Devices};

/// Reads the meters of the gates of a pool's volumes.
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

/// Users' demand since the last call, a second ago: granted operations and waiting ones. `before` is their total grant
/// at that call; sets `granted` to the current one.
fn used(device: &Device, before: Option<&u64>, granted: &mut u64) -> f64 {
    let meter = device.gate().meter();
    let users = &meter.classes[Class::Foreground.index()];
    *granted = users.spent.ops;
    let demand = granted.saturating_sub(before.copied().unwrap_or(0)) + users.queued;
    meter.contract.paid_iops().map_or(0.0, |paid| demand as f64 / paid.max(1) as f64)
}
