//! The workloads as data: operations, their shares, and the choice of records.
//!
//! Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010, table 2, and the files
//! `workloads/workload{a,…,f}` of YCSB.

use super::choose::Distribution;
use crate::drive::{Mix, Operation};

/// The most records of a scan; the length is uniform from one on.
pub const SCAN_MAX: usize = 100;

/// One of YCSB's core workloads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Workload {
    /// Inserts every record.
    Load,
    /// Update heavy: a session store.
    A,
    /// Read mostly: tags on photographs.
    B,
    /// Read only: profiles built elsewhere.
    C,
    /// Read latest: status updates.
    D,
    /// Short ranges: threaded conversations.
    E,
    /// Read-modify-write: a user database.
    F,
}

impl Workload {
    /// The workloads after the load, in YCSB's recommended order: those that insert come last.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::F, Self::D, Self::E];

    /// The name in reports; lower case on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "Load",
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::E => "E",
            Self::F => "F",
        }
    }

    /// Its operations, in percent.
    #[must_use]
    pub const fn mix(self) -> &'static Mix {
        use Operation::{Insert, Read, ReadModifyWrite, Scan, Update};
        match self {
            Self::Load => &[(Insert, 100)],
            Self::A => &[(Read, 50), (Update, 50)],
            Self::B => &[(Read, 95), (Update, 5)],
            Self::C => &[(Read, 100)],
            Self::D => &[(Read, 95), (Insert, 5)],
            Self::E => &[(Scan, 95), (Insert, 5)],
            Self::F => &[(Read, 50), (ReadModifyWrite, 50)],
        }
    }

    /// The popularity of its records.
    #[must_use]
    pub const fn distribution(self) -> Distribution {
        match self {
            Self::D => Distribution::Latest,
            _ => Distribution::Zipfian,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_is_whole_and_drawn_in_its_shares() {
        for workload in Workload::ALL.into_iter().chain([Workload::Load]) {
            let mut drawn = [0; Operation::ALL.len()];
            (0..100)
                .for_each(|percent| drawn[Operation::of(workload.mix(), percent) as usize] += 1);
            for operation in Operation::ALL {
                assert_eq!(
                    drawn[operation as usize],
                    operation.share(workload.mix()),
                    "{workload:?}"
                );
            }
        }
    }
}
