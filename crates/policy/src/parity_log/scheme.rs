//! What a small write to a group costs, by scheme. Tests compare the state machines with it, exactly.

/// How parity follows a small write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    /// Data and each parity strip are read and written in place.
    Incremental,
    /// Data is read and written in place, and the change goes to a log of each parity server.
    ParityLogging,
    /// The data server speculates, and the parity servers ask for the value before.
    SpeculativeMiss,
    /// The data server knows that the parity servers need the value before, and sends both.
    SpeculativeKnownMiss,
    /// The parity servers know the base.
    SpeculativeHit,
}

/// I/Os of one write, until it is acknowledged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Cost {
    /// Random reads.
    pub reads: u64,
    /// Random writes. One after a read of the same range waits for a rotation of the disk.
    pub writes: u64,
    /// Appends to journals.
    pub appends: u64,
}

/// What a write costs in a group with so many parity strips, merges aside.
#[must_use]
pub const fn cost(scheme: Scheme, parities: u64) -> Cost {
    let (reads, writes, appends) = match scheme {
        Scheme::Incremental => (1 + parities, 1 + parities, 0),
        Scheme::ParityLogging | Scheme::SpeculativeKnownMiss => (1, 1, parities),
        Scheme::SpeculativeMiss => (1, 1, 2 * parities),
        Scheme::SpeculativeHit => (0, 1, parities),
    };
    Cost { reads, writes, appends }
}
