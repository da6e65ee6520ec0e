//! Users' load on volumes.

use std::collections::HashMap;
use std::sync::Arc;

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
            let below = devices.below(&label);
            if !below.is_empty() {
                let granted = granted.entry(id).or_default();
                loads.push((id, used(&below, before.get(&id), granted)));
            }
        }
        before = granted;
        loads
    })
}

/// Users' demand since the last call, a second ago: granted operations and waiting ones. `before` is their total grant
/// at that call; sets `granted` to the current one.
fn used(below: &[Arc<Device>], before: Option<&u64>, granted: &mut u64) -> f64 {
    let (mut queued, mut paid) = (0, Some(0));
    *granted = 0;
    for device in below {
        let meter = device.gate().meter();
        let users = &meter.classes[Class::Foreground.index()];
        *granted += users.spent.ops;
        queued += users.queued;
        paid = paid.zip(meter.contract.paid_iops()).map(|(all, one)| all + one);
    }
    let demand = granted.saturating_sub(before.copied().unwrap_or(0)) + queued;
    paid.map_or(0.0, |paid| demand as f64 / paid.max(1) as f64)
}
