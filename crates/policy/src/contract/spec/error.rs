//! Errors in making a contract from a spec, a size and the bought rates.

use crate::units::Bytes;

/// Why there is no contract: change the settings. The message says what was found and what is
/// accepted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The text is not TOML, or not a spec; the source knows the position.
    #[error("{}", .0.message())]
    Syntax(#[from] toml::de::Error),
    /// The catalogue has no such file.
    #[error(
        "there is no contract {found:?}; accepted are {accepted}, or a table {{ iops, mib_per_s }}"
    )]
    Unknown {
        /// The requested name.
        found: String,
        /// Every name of the catalogue.
        accepted: String,
    },
    /// A rate follows from the size of the volume, and no size was given.
    #[error(
        "contract {contract}: its {figure} follow from the volume's size, and no size is given"
    )]
    SizeNeeded {
        /// The contract's name.
        contract: String,
        /// `iops` or `mib_per_s`.
        figure: &'static str,
    },
    /// The volume is not sold in this size.
    #[error(
        "contract {contract}: a size of {found} was found; accepted are {min} GiB to {max} GiB"
    )]
    Size {
        /// The contract's name.
        contract: String,
        /// The requested size.
        found: Bytes,
        /// The smallest, in GiB.
        min: u64,
        /// The largest, in GiB.
        max: u64,
    },
    /// A rate that is not sold for this volume.
    #[error("contract {contract}: {figure} = {found} was found; accepted are {min} to {max}")]
    Rate {
        /// The contract's name.
        contract: String,
        /// `iops` or `mib_per_s`.
        figure: &'static str,
        /// The requested rate.
        found: u64,
        /// The least that can be bought.
        min: u64,
        /// The most that can be bought.
        max: u64,
    },
    /// The requested rate follows from the volume and cannot be bought.
    #[error("contract {contract}: {figure} = {found} was found; its {figure} cannot be chosen")]
    NotSold {
        /// The contract's name.
        contract: String,
        /// `iops` or `mib_per_s`.
        figure: &'static str,
        /// The requested rate.
        found: u64,
    },
    /// No rate is included, so one must be given.
    #[error(
        "contract {contract}: no {figure} given, and it has to be bought; accepted are {min} to {max}"
    )]
    NotGiven {
        /// The contract's name.
        contract: String,
        /// `iops` or `mib_per_s`.
        figure: &'static str,
        /// The least that can be bought.
        min: u64,
        /// The most that can be bought.
        max: u64,
    },
    /// The spec contradicts itself.
    #[error("contract {contract}: {why}")]
    Inconsistent {
        /// The contract's name.
        contract: String,
        /// The contradiction.
        why: String,
    },
}

impl SpecError {
    /// The setting that has to change: `contract`, `size`, `iops` or `mib_per_s`.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Syntax(_) | Self::Unknown { .. } | Self::Inconsistent { .. } => "contract",
            Self::SizeNeeded { .. } | Self::Size { .. } => "size",
            Self::Rate { figure, .. }
            | Self::NotSold { figure, .. }
            | Self::NotGiven { figure, .. } => figure,
        }
    }
}
