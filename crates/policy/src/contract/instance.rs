//! Instance limits: a cloud machine limits all its volumes together, and volumes bought for more than that never reach
//! their own limits (Calcspar, ATC 2023).
//!
//! A gate knows one volume. So the instance's limits are divided among the volumes, and each gate enforces its volume's part.
//! First without knowing how they are used:
//!
//! ```text
//!   sustained       every volume's smallest rate; where the sum is too much, in proportion
//!   the rest        to those that burst, in proportion to how much faster they can go
//! ```
//!
//! Then anew each second, by use: a volume that needs less than this part leaves up to half of it to the others. The parts
//! together never exceed the instance, and a volume that needs all of its part has it a second later at the latest
//! (docs/adr/0013-instance-limits-are-divided.md).

use super::{Contract, Cost, Counted, Limit};
use crate::units::KIB;

/// The first tokens of each volume, if it bought that many; the rest is divided.
const OPS_MIN: u64 = 1;
const BYTES_MIN: u64 = 256 * KIB;

/// A volume that does nothing keeps its first part divided by this.
const KEPT: u64 = 2;

/// How much more than it took in the last second a volume may take in the next one without waiting.
const HEADROOM: f64 = 1.5;

/// How a volume was used in the last second.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Use {
    /// What was let through.
    pub spent: Cost,
    /// Requests wait, or all of its part was taken: it may need any amount.
    pub is_short: bool,
}

/// The limits of an instance for all its volumes together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Instance {
    /// Operations a second; `None` where they are not limited. Each operation of a volume counts as one of the
    /// instance.
    pub ops_per_sec: Option<u64>,
    /// Bytes a second; `None` where they are not limited.
    pub bytes_per_sec: Option<u64>,
}

impl Instance {
    /// The contracts for the gates of volumes with these `contracts`, in the same order.
    ///
    /// Of each kind their sum never exceeds the instance's limit, bursts included, and none exceeds its volume's own.
    /// They are unchanged if the volumes together cannot exceed the instance. A volume without a limit of a kind counts
    /// as bought for an equal part of the instance's limit, with bursts up to all of it.
    ///
    /// Less than one token a second for each volume cannot be divided; each volume then gets one.
    #[must_use]
    pub fn divide(&self, contracts: &[&Contract]) -> Vec<Contract> {
        self.divided(contracts, parts)
    }

    /// The same by how each was `used`, in the same order. Each volume has half of its part of [`Instance::divide`] in any
    /// case, and all of it if it uses it; what is left goes to those that need more.
    #[must_use]
    pub fn divide_by_use(&self, contracts: &[&Contract], used: &[Use]) -> Vec<Contract> {
        self.divided(contracts, |contracts, counts, most, least| {
            by_use(contracts, used, counts, most, least)
        })
    }

    fn divided(
        &self,
        contracts: &[&Contract],
        parts: impl Fn(&[&Contract], Counted, u64, u64) -> Vec<u64>,
    ) -> Vec<Contract> {
        let mut divided: Vec<Contract> = contracts.iter().map(|&of| of.clone()).collect();
        let kinds = [
            (Counted::Ops, self.ops_per_sec, OPS_MIN),
            (Counted::Bytes, self.bytes_per_sec, BYTES_MIN),
        ];
        for (counts, most, least) in kinds {
            let Some(most) = most else { continue };
            for (contract, part) in divided.iter_mut().zip(parts(contracts, counts, most, least)) {
                lower(contract, counts, part);
            }
        }
        divided
    }
}

/// The rates of a volume.
#[derive(Clone, Copy, Debug)]
struct Speed {
    lasting: u64,
    /// The rate of a burst; not below `lasting`.
    highest: u64,
}

impl Speed {
    fn of(contract: &Contract, counts: Counted, most: u64, equal: u64) -> Self {
        let lasting = least(contract, counts, true).unwrap_or(equal);
        // Only its credits limit such a volume, so it can burst to everything.
        let highest = least(contract, counts, false).unwrap_or(most).max(lasting);
        Self { lasting, highest }
    }
}

/// The smallest rate of a kind; the sum for reads and writes that are counted apart.
fn least(contract: &Contract, counts: Counted, with_credits: bool) -> Option<u64> {
    let of = |counts: Counted| {
        let limits = contract.limits.iter().filter(|limit| limit.counts == counts);
        let limits = limits.filter(|limit| with_credits || !limit.is_credits());
        limits.map(|limit| limit.rate_per_sec).min()
    };
    let [reads, writes] = if counts.is_ops() {
        [Counted::ReadOps, Counted::WriteOps]
    } else {
        [Counted::ReadBytes, Counted::WriteBytes]
    };
    let apart = of(reads).zip(of(writes)).map(|(reads, writes)| reads.saturating_add(writes));
    of(counts).into_iter().chain(apart).min()
}

/// Each volume's part of `most` tokens a second: their sum is at most `most`, but each gets at least one.
fn parts(contracts: &[&Contract], counts: Counted, most: u64, least: u64) -> Vec<u64> {
    let (speeds, equal) = speeds(contracts, counts, most);
    let least = least.min(equal);
    let first = speeds.iter().map(|speed| speed.lasting.min(least)).collect();
    let lasting = raise(first, speeds.iter().map(|speed| speed.lasting), most);
    raise(lasting, speeds.iter().map(|speed| speed.highest), most)
}

/// [`parts`] anew: first half of it, then all of it for those that use it, then more for those that need more, and the rest as
/// before.
fn by_use(
    contracts: &[&Contract],
    used: &[Use],
    counts: Counted,
    most: u64,
    least: u64,
) -> Vec<u64> {
    let (speeds, equal) = speeds(contracts, counts, most);
    let fixed = parts(contracts, counts, most, least);
    let least = least.min(equal);
    let wanted = speeds.iter().zip(used).map(|(speed, used)| match used.is_short {
        true => speed.highest,
        false => {
            let spent = (used.spent.of(counts) as f64 * HEADROOM).ceil();
            (spent as u64).min(speed.highest)
        }
    });
    let wanted: Vec<u64> = wanted.collect();
    let kept = fixed.iter().map(|&part| (part / KEPT).max(least.min(part))).collect::<Vec<_>>();
    let due = |at: usize| wanted[at].clamp(kept[at], fixed[at]);
    let due: Vec<u64> = (0..fixed.len()).map(due).collect();
    let raised = raise(kept, due.iter().copied(), most);
    let needed = raised.iter().zip(&wanted).map(|(&part, &wanted)| wanted.max(part));
    let needed: Vec<u64> = needed.collect();
    let raised = raise(raised, needed.iter().copied(), most);
    let before = raised.iter().zip(&fixed).map(|(&part, &fixed)| fixed.max(part));
    let before: Vec<u64> = before.collect();
    raise(raised, before.iter().copied(), most)
}

/// The rates of each volume, and the equal part of each.
fn speeds(contracts: &[&Contract], counts: Counted, most: u64) -> (Vec<Speed>, u64) {
    let equal = (most / (contracts.len() as u64).max(1)).max(1);
    let speeds = contracts.iter().map(|contract| Speed::of(contract, counts, most, equal));
    (speeds.collect(), equal)
}

/// Raises `parts` towards `wanted` with the rest of `most`, in proportion to what each lacks.
fn raise(mut parts: Vec<u64>, wanted: impl Iterator<Item = u64> + Clone, most: u64) -> Vec<u64> {
    let has = sum(parts.iter().copied());
    let lacks = sum(wanted.clone()) - has;
    let spare = u128::from(most).saturating_sub(has).min(lacks);
    if lacks == 0 {
        return parts;
    }
    let mut left = spare;
    for (part, wanted) in parts.iter_mut().zip(wanted.clone()) {
        // Both factors fit into a u64.
        let more = u128::from(wanted - *part) * spare / lacks;
        left -= more;
        *part += u64::try_from(more).expect("at most the lacking part, a u64");
    }
    // Rounding loses less than one token for each part that still lacks some.
    for (part, wanted) in parts.iter_mut().zip(wanted) {
        if left > 0 && *part < wanted {
            *part += 1;
            left -= 1;
        }
    }
    parts
}

fn sum(numbers: impl Iterator<Item = u64>) -> u128 {
    numbers.map(u128::from).sum()
}

/// Limits `contract` to `part` tokens a second. Credits keep their depth: a limit beside them bounds the rate of
/// spending.
fn lower(contract: &mut Contract, counts: Counted, part: u64) {
    if least(contract, counts, false).is_some_and(|highest| highest <= part) {
        return;
    }
    let is_kept = |limit: &Limit| limit.counts == counts && !limit.is_credits();
    let has_one = contract.limits.iter().any(is_kept);
    for limit in contract.limits.iter_mut().filter(|limit| limit.counts == counts) {
        let is_credits = limit.is_credits();
        limit.rate_per_sec = limit.rate_per_sec.min(part);
        if !is_credits {
            limit.depth = limit.depth.min(part);
        }
    }
    if !has_one {
        // At the end, because a budget whose terms change matches limits of one kind by position.
        contract.limits.push(Limit { counts, rate_per_sec: part, depth: part });
    }
}

#[cfg(test)]
mod tests;
