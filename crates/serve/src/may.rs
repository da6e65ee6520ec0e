//! The rights of an authenticated client.

/// The rights of a client.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum May {
    /// Read, write, and change databases and settings.
    #[default]
    All,
    /// Only read.
    Read,
    /// Only write. For time series, points; for keys, all commands that write, including those that return the old
    /// value.
    Write,
}

impl May {
    /// Every value, in the order shown to users.
    pub const EVERY: [Self; 3] = [Self::All, Self::Read, Self::Write];

    /// The word for it in settings.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// Whether it includes reading.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::All | Self::Read)
    }

    /// Whether it includes writing.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::All | Self::Write)
    }
}
