//! The unit of timestamps.

/// The unit of a timestamp.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Precision {
    /// Nanoseconds.
    #[default]
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
}

impl Precision {
    /// The precision a client names: `ns`, `us`, `ms`, `s` (v2), or `n`, `u`, `ms`, `s`, `m`, `h` (v1).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "ns" | "n" => Self::Nanoseconds,
            "us" | "u" | "µ" | "µs" => Self::Microseconds,
            "ms" => Self::Milliseconds,
            "s" => Self::Seconds,
            "m" => Self::Minutes,
            "h" => Self::Hours,
            _ => return None,
        })
    }

    /// Nanoseconds of one unit.
    #[must_use]
    pub fn nanos(self) -> i64 {
        match self {
            Self::Nanoseconds => 1,
            Self::Microseconds => 1_000,
            Self::Milliseconds => 1_000_000,
            Self::Seconds => 1_000_000_000,
            Self::Minutes => 60 * 1_000_000_000,
            Self::Hours => 3600 * 1_000_000_000,
        }
    }
}
