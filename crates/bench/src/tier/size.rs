//! Sizes of caches.

use policy::units::Bytes;

/// The size of a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// In percent of the footprint of the trace.
    Percent(f64),
    /// In bytes.
    Bytes(u64),
}

impl Size {
    /// What is replayed by default.
    pub const DEFAULT: [Self; 5] = [
        Self::Percent(1.0),
        Self::Percent(5.0),
        Self::Percent(10.0),
        Self::Percent(20.0),
        Self::Percent(80.0),
    ];

    /// The whole units that fit, at least one.
    #[must_use]
    pub fn units(self, footprint_units: usize, unit_bytes: u32) -> usize {
        let units = match self {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part")]
            Self::Percent(percent) => (footprint_units as f64 * percent / 100.0).round() as usize,
            Self::Bytes(bytes) => {
                usize::try_from(bytes / u64::from(unit_bytes)).unwrap_or(usize::MAX)
            }
        };
        units.max(1)
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent} %"),
            Self::Bytes(bytes) => write!(f, "{}", Bytes(*bytes)),
        }
    }
}
