//! One run of one scheme.

use std::collections::BTreeSet;
use std::time::Duration;

use policy::parity_log::record::Group;
use policy::parity_log::view::Entry;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::cluster::{Cluster, Counts};
use super::device::Medium;
use super::layout::Block;
use super::load::{self, Operation};
use super::scheme::{Base, Scheme};

/// Requests under way while a working set is written for the first time.
const WARM_DEPTH: usize = 16;

/// Which blocks are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Order {
    /// Blocks of a working set at random places.
    Random {
        /// Blocks of the working set.
        blocks: u64,
    },
    /// Blocks of some groups side by side.
    Near {
        /// Blocks of these groups.
        blocks: u64,
    },
    /// One after the other.
    Sequential,
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) scheme: Scheme,
    pub(super) medium: Medium,
    pub(super) operation: Operation,
    pub(super) order: Order,
    pub(super) count: u64,
    pub(super) depth: usize,
    pub(super) seed: u64,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Operations a second, until the last answer.
    pub(super) iops: f64,
    pub(super) mean: Duration,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) operations: u64,
    /// I/Os until all writes were in place, without merges.
    pub(super) counts: Counts,
    /// I/Os of merges, journals included.
    pub(super) of_merges: u64,
    /// The time of disks, for each operation, until all writes were in place.
    pub(super) disk_time: Duration,
    /// The same until all logs were merged, or emptied.
    pub(super) merged_time: Duration,
    /// Operations a second, if clients waited until all logs were merged.
    pub(super) merged_iops: f64,
}

impl Run {
    /// This count for each operation.
    pub(super) fn each(&self, count: u64) -> f64 {
        count as f64 / self.operations as f64
    }
}

/// Runs one scheme, and checks the bytes at its end.
///
/// # Errors
/// Bytes are not what they have to be.
pub(super) fn run(setup: &Setup) -> anyhow::Result<Run> {
    let Setup { scheme, medium, operation, order, count, depth, seed } = *setup;
    let mut cluster = Cluster::new(medium, seed)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed);
    let blocks = match order {
        Order::Random { blocks } => {
            let set = load::distinct(blocks.max(count), &cluster.layout, &mut random);
            match scheme {
                // Each block for the first time.
                Scheme::Speculative { base: Base::Miss | Base::KnownMiss, .. } => {
                    set[..count as usize].to_vec()
                }
                _ => load::choices(count, &set[..blocks as usize], &mut random),
            }
        }
        Order::Near { blocks } => {
            let set = load::sequence(blocks, &cluster.layout, &mut random);
            load::choices(count, &set, &mut random)
        }
        Order::Sequential => load::sequence(count, &cluster.layout, &mut random),
    };
    if let Scheme::Speculative { base, writes_back } = scheme {
        let groups: BTreeSet<Group> = blocks.iter().map(|block| block.group).collect();
        cluster.start(&groups);
        cluster.machines.writes_back = writes_back;
        match base {
            Base::Hit => {
                let set: BTreeSet<Block> = blocks.iter().copied().collect();
                let set: Vec<Block> = set.into_iter().collect();
                cluster.drive(scheme, Operation::Write, &set, WARM_DEPTH);
                cluster.drain();
            }
            // In a view that it goes on in, a data server does not know what parity servers have.
            Base::Miss => {
                cluster.install(|_, _| Entry::Continued);
                cluster.drain();
            }
            Base::KnownMiss => {}
        }
    }
    cluster.counts = Counts::default();
    let (begun, busy) = (cluster.now(), total(&cluster));
    let seen = cluster.drive(scheme, operation, &blocks, depth);
    cluster.drain();
    let counts = cluster.counts;
    let disk_time = total(&cluster) - busy;
    cluster.recycle();
    cluster.empty_log();
    cluster.drain();
    cluster.merge_all();
    anyhow::ensure!(cluster.is_quiet(), "writes are under way at the end");
    let (merged, took) = (total(&cluster) - busy, cluster.now().since(begun));
    cluster.check(!matches!(scheme, Scheme::Plain | Scheme::Copies))?;
    let n = u32::try_from(count)?;
    let quantile = |part: f64| seen.latencies[((count - 1) as f64 * part).round() as usize];
    Ok(Run {
        iops: count as f64 / seen.took.as_secs_f64(),
        mean: seen.latencies.iter().sum::<Duration>() / n,
        p50: quantile(0.5),
        p99: quantile(0.99),
        operations: count,
        counts,
        of_merges: cluster.counts.of_merges,
        disk_time: disk_time / n,
        merged_time: merged / n,
        merged_iops: count as f64 / took.as_secs_f64(),
    })
}

/// The time for which disks were busy.
fn total(cluster: &Cluster) -> Duration {
    cluster.busy().into_iter().sum()
}

#[cfg(test)]
mod tests {
    use policy::parity_log::scheme::{Cost, cost};

    use super::*;
    use crate::parity::layout::PARITY;

    const SCHEMES: [Scheme; 6] = [
        Scheme::Incremental,
        Scheme::LOG,
        Scheme::HIT,
        Scheme::HIT_BACK,
        Scheme::MISS,
        Scheme::KNOWN,
    ];

    fn setup(scheme: Scheme) -> Setup {
        Setup {
            scheme,
            medium: Medium::Flash,
            operation: Operation::Write,
            order: Order::Random { blocks: 30 },
            count: 60,
            depth: 1,
            seed: 3,
        }
    }

    #[test]
    fn a_write_costs_what_the_model_says() {
        for medium in Medium::ALL {
            for scheme in SCHEMES {
                let got = run(&Setup { medium, ..setup(scheme) }).expect("it runs");
                let model = cost(scheme.model().expect("the model has it"), PARITY as u64);
                let Counts { reads, writes, appends, .. } = got.counts;
                let found = Cost { reads: reads / 60, writes: writes / 60, appends: appends / 60 };
                assert_eq!(found, model, "{scheme:?}, {medium:?}: {got:?}");
                let exact = [reads, writes, appends].iter().all(|count| count.is_multiple_of(60));
                assert!(exact, "{scheme:?}, {medium:?}: {got:?}");
            }
        }
        let of = |scheme| run(&setup(scheme)).expect("it runs").counts;
        let logged = of(Scheme::Logged);
        assert_eq!((logged.reads, logged.writes, logged.appends), (0, 0, 180));
        let shared = run(&Setup { depth: 16, ..setup(Scheme::Logged) }).expect("it runs").counts;
        // While half of the clients wait for a sync, the others come.
        assert!(shared.appends <= 180 / 6, "{shared:?}");
        let (plain, copies) = (of(Scheme::Plain), of(Scheme::Copies));
        assert_eq!((plain.reads, plain.writes, plain.appends), (0, 60, 0));
        assert_eq!((copies.reads, copies.writes, copies.appends), (0, 180, 0));
    }

    #[test]
    fn merges_cost_time_that_is_counted_apart_and_a_seed_repeats_itself() {
        for scheme in [Scheme::LOG, Scheme::HIT, Scheme::Logged] {
            let got = run(&setup(scheme)).expect("it runs");
            assert!(got.merged_time > got.disk_time && got.merged_iops < got.iops, "{got:?}");
            let again = run(&setup(scheme)).expect("it runs");
            assert_eq!((got.mean, got.merged_time), (again.mean, again.merged_time));
        }
        let got = run(&setup(Scheme::Incremental)).expect("it runs");
        assert_eq!(got.merged_time, got.disk_time);
    }
}
