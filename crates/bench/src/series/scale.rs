//! Sizes: the paper's, and what we divide them by.
//!
//! The paper's nodes had file systems of 100 GB on 7200 rpm disks of 500 GB, files of 1 GB and objects of 128 KiB
//! (PSTA 8(3), 2017). Ratios are kept: of files to the capacity, of what lives to it, of open files, of the
//! way the arm moves. The capacity is divided, by about a hundred in profile short; the disk's speed is not.
//! Smaller files are begun more often, so what beginning one costs the disk is exaggerated by the same.

use policy::units::{KIB, MIB};

use crate::Profile;

/// How much each profile measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Runs of each rule, each with a seed of its own.
    pub runs: u64,
    /// What sizes of profile short are multiplied by, and then divided by.
    times: u64,
    parts: u64,
    /// Bytes of a value where only copies are counted.
    pub small: usize,
    /// Which part of the values of a sweep is tried: all, or the first and last.
    pub ends_only: bool,
    /// Fillings of the disks after the first where throughput has to stay flat.
    pub flat_fills: f64,
}

impl Scale {
    /// Of a profile.
    #[must_use]
    pub const fn of(profile: Profile) -> Self {
        let small = 2 * KIB as usize;
        match profile {
            Profile::Smoke => Self {
                runs: 1,
                times: 1,
                parts: 8,
                small: small / 2,
                ends_only: true,
                flat_fills: 2.0,
            },
            Profile::Short => {
                Self { runs: 3, times: 1, parts: 1, small, ends_only: false, flat_fills: 20.0 }
            }
            Profile::Paper => Self {
                runs: 5,
                times: 8,
                parts: 1,
                small: 8 * small,
                ends_only: false,
                flat_fills: 20.0,
            },
        }
    }

    /// What is so many MiB in profile short, in bytes.
    #[must_use]
    pub const fn mib(&self, mib: u64) -> u64 {
        mib * MIB * self.times / self.parts
    }

    /// What of a sweep is tried.
    #[must_use]
    pub fn some<T: Copy>(&self, all: &[T]) -> Vec<T> {
        match all {
            [first, .., last] if self.ends_only => vec![*first, *last],
            all => all.to_vec(),
        }
    }
}
