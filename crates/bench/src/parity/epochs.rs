//! B33: how often a parity server has the base of a range that is written.

use std::collections::BTreeSet;

use policy::parity_log::record::Group;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::cluster::{Cluster, Counts};
use super::device::Medium;
use super::layout::Block;
use super::load::Operation;
use super::machines::options;
use super::scheme::Scheme;
use crate::ycsb::Zipfian;

/// Journals are emptied when the fullest is used by this much, in percent: before the servers begin to forget by themselves.
const EMPTIED: u64 = 40;

/// What happens when a journal fills up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Full {
    /// All journals are merged and emptied, as in the paper: an epoch ends.
    Empty,
    /// Servers merge, keep merged values as bases, and forget the oldest records.
    KeepBases,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Speculated {
    pub(super) writes: u64,
    /// Writes for which a parity server asked for the value before.
    pub(super) misses: u64,
    /// By the workload alone: the sum, over epochs, of the different blocks that were written in each.
    pub(super) distinct: u64,
    pub(super) epochs: u64,
}

impl Speculated {
    pub(super) fn hit_rate(&self) -> f64 {
        1.0 - self.misses as f64 / self.writes as f64
    }

    /// The rate that follows from the epochs.
    pub(super) fn expected(&self) -> f64 {
        1.0 - self.distinct as f64 / self.writes as f64
    }
}

/// Overwrites `blocks` blocks, a power of two, by Zipf's law with 0.99, on servers with journals of `capacity` bytes.
///
/// # Errors
/// Bytes are not what they have to be.
pub(super) fn measure(
    blocks: u64,
    capacity: u64,
    writes: u64,
    full: Full,
    seed: u64,
) -> anyhow::Result<Speculated> {
    let mut cluster = Cluster::new(Medium::Flash, seed)?;
    cluster.machines.options = options(capacity);
    let set: Vec<Block> = (0..blocks).map(Block::of).collect();
    let groups: BTreeSet<Group> = set.iter().map(|block| block.group).collect();
    cluster.start(&groups);
    // As after an epoch, data servers do not know what parity servers have.
    cluster.empty_journals();
    cluster.counts = Counts::default();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let zipfian = Zipfian::new(blocks);
    let mut speculated = Speculated { writes, epochs: 1, ..Speculated::default() };
    let mut epoch = BTreeSet::new();
    for _ in 0..writes {
        // An odd factor scatters the ranks, each to another block.
        let rank = zipfian.rank(&mut random).wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks;
        let block = set[rank as usize];
        if full == Full::Empty && cluster.journal_bytes()[0] >= capacity * EMPTIED / 100 {
            cluster.drain();
            cluster.merge_all();
            cluster.empty_journals();
            epoch.clear();
            speculated.epochs += 1;
        }
        speculated.distinct += u64::from(epoch.insert(block));
        cluster.drive(Scheme::HIT, Operation::Write, &[block], 1);
        cluster.drain();
    }
    cluster.merge_all();
    speculated.misses = cluster.counts.misses;
    cluster.check(true)?;
    Ok(speculated)
}

#[cfg(test)]
mod tests {
    use policy::units::{KIB, MIB};

    use super::*;

    #[test]
    fn each_block_misses_once_in_an_epoch() {
        let got = measure(64, 256 * KIB, 300, Full::Empty, 5).expect("it runs");
        assert!(got.epochs > 2 && got.distinct < 300 && got.distinct > 64, "{got:?}");
        assert_eq!(got.misses, got.distinct, "{got:?}");
        // A journal that never fills up is one epoch.
        let got = measure(64, 64 * MIB, 300, Full::Empty, 5).expect("it runs");
        assert_eq!((got.epochs, got.misses), (1, got.distinct), "{got:?}");
        assert!(got.distinct <= 64);
    }

    #[test]
    fn merged_values_that_stay_save_misses() {
        let of = |full| measure(64, 256 * KIB, 300, full, 5).expect("it runs").misses;
        assert!(of(Full::KeepBases) < of(Full::Empty));
    }
}
