//! Devices for the stacks.

use std::ops::Range;
use std::time::Duration;

use policy::contract::{Contract, Counted, Latency, Limit, Percentiles};
use policy::units::MIB;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// A device that is fast enough for short runs, and slow enough that users wait for each other: limits of
/// `iops` operations of at most `op_bytes_max` and of `mib` MiB a second, and up to 1 ms for each operation.
pub(crate) fn any_contract(
    random: &mut Xoshiro256PlusPlus,
    iops: Range<u64>,
    mib: Range<u64>,
    op_bytes_max: u64,
) -> Contract {
    let iops = random.random_range(iops);
    let bytes = random.random_range(mib.start * MIB..mib.end * MIB);
    let limit = |counts, rate| Limit { counts, rate_per_sec: rate, depth: rate };
    let limits = vec![limit(Counted::Ops, iops), limit(Counted::Bytes, bytes)];
    let base = Percentiles::constant(Duration::from_micros(random.random_range(0..1_000)));
    let latency = Latency { read: base, write: base };
    Contract { limits, latency, op_bytes_max, ..Contract::unlimited() }
}
