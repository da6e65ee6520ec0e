//! Sizes: the paper's, and our divisors.
//!
//! The paper's nodes had file systems of 100 GB on 7200 rpm disks of 500 GB, files of 1 GB and objects of 128 KiB (PSTA
//! 8(3), 2017). The bench keeps the ratios of files, live data and open files to the capacity, and of seek distances.
//! It divides the capacity, by about a hundred in profile short, but not the disk's speed. Files are smaller and begun
//! more often by the same factor, which exaggerates the cost of beginning one.

use policy::units::{KIB, MIB};

use crate::Profile;

/// How much each profile measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The factor and the divisor for the sizes of profile short.
    times: u64,
    parts: u64,
    /// Bytes of a value where only copies are counted.
    pub small: usize,
    /// Whether a sweep tries only its first and last value.
    pub ends_only: bool,
    /// Fillings of the disks after the first during which throughput must stay flat.
    pub flat_fills: f64,
}

impl Scale {
    /// The scale of a profile.
    #[must_use]
    pub const fn of(profile: Profile) -> Self {
        let small = 2 * KIB as usize;
        let short = Self { times: 1, parts: 1, small, ends_only: false, flat_fills: 20.0 };
        match profile {
            Profile::Smoke => {
                Self { parts: 8, small: small / 2, ends_only: true, flat_fills: 2.0, ..short }
            }
            Profile::Short => short,
            Profile::Paper => Self { times: 8, small: 8 * small, ..short },
        }
    }

    /// The bytes of `mib` MiB of profile short, scaled.
    #[must_use]
    pub const fn mib(&self, mib: u64) -> u64 {
        mib * MIB * self.times / self.parts
    }

    /// The values of a sweep to try.
    #[must_use]
    pub fn some<T: Copy>(&self, all: &[T]) -> Vec<T> {
        match all {
            [first, .., last] if self.ends_only => vec![*first, *last],
            all => all.to_vec(),
        }
    }
}
