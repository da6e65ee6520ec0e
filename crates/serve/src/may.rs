//! What somebody who said who they are may do.

/// What may be done behind a door.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum May {
    /// Read, write, and change what there is.
    #[default]
    All,
    /// Read, and nothing else.
    Read,
    /// Write, and not read. Of time series: points; of keys: whatever commands that write do, also
    /// those that tell what was there before.
    Write,
}

impl May {
    /// Every one, in the order people are told of them.
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

    /// Whether reading is part of it.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::All | Self::Read)
    }

    /// Whether writing is part of it.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::All | Self::Write)
    }
}
