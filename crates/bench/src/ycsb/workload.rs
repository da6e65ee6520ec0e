//! The workloads as data: what they do, how often, and to which records.
//!
//! Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010, table 2, and the files
//! `workloads/workload{a,…,f}` of YCSB.

use super::choose::Distribution;

/// What an operation does.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Operation {
    /// Gets a value.
    Read,
    /// Puts a new value under a key that is there.
    Update,
    /// Puts a value under a new key.
    Insert,
    /// Gets up to [`SCAN_MAX`] records, in the order of keys.
    Scan,
    /// Gets a value, then puts a new one under the same key.
    ReadModifyWrite,
}

/// The most records of a scan; how many is chosen evenly from one on.
pub const SCAN_MAX: usize = 100;

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 5] =
        [Self::Read, Self::Update, Self::Insert, Self::Scan, Self::ReadModifyWrite];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read-modify-write",
        }
    }
}

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
    /// The workloads after the load, in the order YCSB recommends: those that insert last.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::F, Self::D, Self::E];

    /// The name in reports; on the command line in small letters.
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

    /// What it does, in percent of its operations.
    #[must_use]
    pub const fn mix(self) -> &'static [(Operation, u32)] {
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

    /// Which records it is about.
    #[must_use]
    pub const fn distribution(self) -> Distribution {
        match self {
            Self::D => Distribution::Latest,
            _ => Distribution::Zipfian,
        }
    }

    /// The operation at `percent` of the mix, from 0 to 99.
    pub(super) fn operation(self, percent: u32) -> Operation {
        let mut above = 0;
        let chosen = self.mix().iter().find(|(_, share)| {
            above += share;
            percent < above
        });
        chosen.expect("the shares add up to 100").0
    }

    /// The share of `operation`, in percent.
    pub(super) fn share(self, operation: Operation) -> u32 {
        self.mix().iter().filter(|(other, _)| *other == operation).map(|(_, share)| share).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_is_whole_and_drawn_in_its_shares() {
        for workload in Workload::ALL.into_iter().chain([Workload::Load]) {
            let mut drawn = [0; Operation::ALL.len()];
            (0..100).for_each(|percent| drawn[workload.operation(percent) as usize] += 1);
            for operation in Operation::ALL {
                assert_eq!(drawn[operation as usize], workload.share(operation), "{workload:?}");
            }
        }
    }
}
