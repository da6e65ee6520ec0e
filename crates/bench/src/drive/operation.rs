//! Kinds of operations.

/// The kind of an operation.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Operation {
    /// Gets a value.
    Read,
    /// Puts a new value under an existing key.
    Update,
    /// Puts a value under a new key.
    Insert,
    /// Gets several records, in the order of keys.
    Scan,
    /// Gets a value, then puts a new one under the same key.
    ReadModifyWrite,
}

/// The shares of operations in a workload, in percent. They add up to 100.
pub type Mix = [(Operation, u32)];

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

    /// Whether it writes and reads nothing.
    #[must_use]
    pub const fn only_writes(self) -> bool {
        matches!(self, Self::Update | Self::Insert)
    }

    /// The operation at `percent` of a mix, from 0 to 99.
    pub(crate) fn of(mix: &Mix, percent: u32) -> Self {
        let mut above = 0;
        let chosen = mix.iter().find(|(_, share)| {
            above += share;
            percent < above
        });
        chosen.expect("the shares add up to 100").0
    }

    /// The share of this operation in a mix, in percent.
    pub(crate) fn share(self, mix: &Mix) -> u32 {
        mix.iter().filter(|(other, _)| *other == self).map(|(_, share)| share).sum()
    }
}
