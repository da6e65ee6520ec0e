//! The reserves of a pool's stores on its devices: room that other programs cannot take, restored after its use.

use pool::spread::Spread;
use volume::Volume as _;
use volume::task::block_on;

use crate::volumes::Devices;

/// A device's reserve is at most this part of its file system, 1/5.
const DEVICE_SHARE: u64 = 5;

/// Moves the reserve of each device towards an equal part of what the stores of `pool` keep.
pub(super) fn set_aside(pool: &Spread, devices: &Devices) {
    let reserve = pool.reserve();
    if reserve == 0 {
        // No store has entered yet: the reserve of the last run stays for them.
        return;
    }
    let here = devices.holding();
    let part = reserve / here.len().max(1) as u64;
    for device in here {
        // A volume that does not answer now is away, or answers later.
        if let Ok(space) = block_on(device.gate().space()) {
            device.set_reserve(part.min(space.total / DEVICE_SHARE));
        }
    }
}
