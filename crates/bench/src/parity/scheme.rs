//! What is compared.

#[cfg(test)]
use policy::parity_log::scheme::Scheme as Costs;

/// How a write becomes durable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scheme {
    /// One disk, in place.
    Plain,
    /// Three copies, in place and at once.
    Copies,
    /// 4 + 2: data and parity are read and written in place.
    Incremental,
    /// 4 + 2: data are read and written in place, changes of parity are appended.
    ParityLog {
        /// Whether the server reads on, for the next write of a sequence.
        reads_ahead: bool,
    },
    /// 4 + 2: PARIX.
    Speculative {
        /// Whether parity servers know the base of each range.
        base: Base,
        /// Whether the data in place are written back later, once the journals have them.
        writes_back: bool,
    },
    /// 4 + 2: new data are appended to a log with three copies, and go in place later, a row at a time.
    Logged,
}

/// What servers know of the base of a range that is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Base {
    /// Parity servers have it.
    Hit,
    /// They have not, and the data server does not know that.
    Miss,
    /// They have not, and the data server knows that: it reads first, and sends both values.
    KnownMiss,
}

impl Scheme {
    pub(super) const HIT: Self = Self::Speculative { base: Base::Hit, writes_back: false };
    pub(super) const HIT_BACK: Self = Self::Speculative { base: Base::Hit, writes_back: true };
    pub(super) const MISS: Self = Self::Speculative { base: Base::Miss, writes_back: false };
    pub(super) const KNOWN: Self = Self::Speculative { base: Base::KnownMiss, writes_back: false };
    pub(super) const LOG: Self = Self::ParityLog { reads_ahead: false };
    pub(super) const LOG_AHEAD: Self = Self::ParityLog { reads_ahead: true };

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain disk",
            Self::Copies => "3 copies",
            Self::Incremental => "incremental",
            Self::ParityLog { reads_ahead: false } => "parity log",
            Self::ParityLog { reads_ahead: true } => "parity log, reads ahead",
            Self::Speculative { base: Base::Hit, writes_back: false } => "hit",
            Self::Speculative { base: Base::Hit, writes_back: true } => "hit, writes back",
            Self::Speculative { base: Base::Miss, .. } => "miss",
            Self::Speculative { base: Base::KnownMiss, .. } => "known miss",
            Self::Logged => "logged",
        }
    }

    /// What an acknowledged write survives.
    pub(super) const fn survives(self) -> &'static str {
        match self {
            Self::Plain => "a power failure; no lost disk",
            Self::Copies => "a power failure, and any two lost disks",
            Self::Incremental => {
                "a power failure, and any two lost disks; a crash in the middle of a write leaves strips and parity that do \
                 not fit (the write hole is open)"
            }
            Self::ParityLog { .. } => {
                "a power failure, and any two lost disks; a crash between data and log leaves the write hole"
            }
            Self::Speculative { writes_back: false, .. } | Self::Logged => {
                "a power failure, and any two lost disks; no write hole"
            }
            Self::Speculative { writes_back: true, .. } => {
                "a power failure, and any two lost disks or journals; the data server writes the bytes again from a journal \
                 if it stops before they are in place"
            }
        }
    }

    /// The I/Os of a write in the table of the cost model; `None`: the model does not have it.
    #[cfg(test)]
    pub(super) const fn model(self) -> Option<Costs> {
        match self {
            Self::Plain | Self::Copies | Self::ParityLog { reads_ahead: true } | Self::Logged => {
                None
            }
            Self::Incremental => Some(Costs::Incremental),
            Self::ParityLog { reads_ahead: false } => Some(Costs::ParityLogging),
            Self::Speculative { base: Base::Hit, .. } => Some(Costs::SpeculativeHit),
            Self::Speculative { base: Base::Miss, .. } => Some(Costs::SpeculativeMiss),
            Self::Speculative { base: Base::KnownMiss, .. } => Some(Costs::SpeculativeKnownMiss),
        }
    }
}
