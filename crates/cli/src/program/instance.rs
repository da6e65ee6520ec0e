//! The limits of the machine, divided anew each second among the volumes in use.

use std::time::Duration;

use plimsoll::volumes::Device;
use policy::contract::instance::Use;
use policy::contract::{Contract, Limit};
use volume::layer::gate::Meter;

use super::Program;

/// Time between two divisions.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// The use of a part from which on a volume may need more.
const SHORT: f64 = 0.9;

/// The smallest change of a part that is worth one: a gate forgets what it is observing when its terms change.
const CHANGE: f64 = 0.1;

impl Program {
    /// Divides the machine's limits among the volumes in use, by what each took in the last second. Without limits each
    /// gets its contract again: a reload may have taken them away.
    pub(crate) fn divide_instance(&self) {
        let settings = self.settings.lock();
        let volumes: Vec<_> = settings.in_use().collect();
        let devices: Vec<_> = volumes.iter().map(|of| self.stores.device(&of.name)).collect();
        let meters: Vec<_> = devices.iter().map(|of| Some(of.as_ref()?.gate().meter())).collect();
        let contracts: Vec<_> = volumes.iter().map(|volume| &volume.contract).collect();
        // A volume that is away needs nothing now.
        let used: Vec<_> =
            meters.iter().map(|of| of.as_ref().map_or_else(Use::default, used)).collect();
        let parts = settings.instance.limits().divide_by_use(&contracts, &used);
        let changes = meters.iter().zip(&parts);
        let changes = changes.filter_map(|(of, part)| Some(change(&of.as_ref()?.contract, part)));
        if changes.fold(0.0, f64::max) < CHANGE {
            return;
        }
        let here = |(part, of)| Some((part, Option::as_deref(of)?));
        let changed: Vec<(&Contract, &Device)> =
            parts.iter().zip(&devices).filter_map(here).collect();
        // First what is lowered, so that the parts never exceed the machine.
        for (part, device) in &changed {
            device.set_at_most(&lowered(&device.gate().meter().contract, part));
        }
        changed.iter().for_each(|(part, device)| device.set_at_most(part));
    }
}

fn used(meter: &Meter) -> Use {
    let waits = meter.classes.iter().any(|class| class.queued > 0);
    Use { spent: meter.last_second, is_short: waits || meter.used >= SHORT }
}

/// The terms `to`, without what is more than now.
fn lowered(from: &Contract, to: &Contract) -> Contract {
    if from.limits.len() != to.limits.len() {
        return to.clone();
    }
    let limits = from.limits.iter().zip(&to.limits).map(|(from, to)| Limit {
        rate_per_sec: from.rate_per_sec.min(to.rate_per_sec),
        depth: from.depth.min(to.depth),
        ..*to
    });
    Contract { limits: limits.collect(), ..to.clone() }
}

/// The largest change of a rate, as a part of it.
fn change(from: &Contract, to: &Contract) -> f64 {
    if from.limits.len() != to.limits.len() {
        return f64::INFINITY;
    }
    let changes = from.limits.iter().zip(&to.limits).map(|(from, to)| {
        from.rate_per_sec.abs_diff(to.rate_per_sec) as f64 / from.rate_per_sec.max(1) as f64
    });
    changes.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use policy::contract::Counted;

    use super::*;

    #[test]
    fn a_change_is_the_largest_of_any_rate() {
        let of = |rates: &[u64]| {
            let limit = |&rate_per_sec| Limit { counts: Counted::Ops, rate_per_sec, depth: 1 };
            Contract { limits: rates.iter().map(limit).collect(), ..Contract::unlimited() }
        };
        assert_eq!(change(&of(&[100, 1000]), &of(&[100, 1000])), 0.0);
        assert_eq!(change(&of(&[100, 1000]), &of(&[75, 1100])), 0.25);
        assert_eq!(change(&of(&[100]), &of(&[100, 50])), f64::INFINITY);
        assert_eq!(lowered(&of(&[100, 1000]), &of(&[75, 1100])), of(&[75, 1000]));
        assert_eq!(lowered(&of(&[100]), &of(&[90, 50])), of(&[90, 50]));
    }
}
