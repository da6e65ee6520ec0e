//! What a volume likes and can do, by which callers cut and align their calls.

/// The sizes by which a volume's calls cost least. All in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Reads and writes of whole units, at multiples of it, go to the device as they are. For others the volume moves
    /// more bytes, or holds a part back until the next sync.
    pub unit: u64,
    /// A crash leaves each piece of this size, at multiples of it, old or new as a whole.
    pub atomic: u64,
    /// A larger read or write costs as much as several of this size. `None` if size does not matter.
    pub io_max: Option<u64>,
    /// Writes of whole stripes, at multiples of it, cost less than others: a coded volume need not read first.
    pub stripe: Option<u64>,
    /// Whether [`Object::zero`](crate::Object::zero) can free room.
    pub holes: bool,
}

impl Limits {
    /// Those of memory: pages, of which a crash tears sectors.
    pub const PAGES: Self =
        Self { unit: 4096, atomic: 512, io_max: None, stripe: None, holes: true };

    /// Those of a volume on both: what suits each of them.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let both = |a: Option<u64>, b: Option<u64>, least: fn(u64, u64) -> u64| match (a, b) {
            (Some(a), Some(b)) => Some(least(a, b)),
            (one, none) => one.or(none),
        };
        Self {
            unit: self.unit.max(other.unit),
            atomic: self.atomic.min(other.atomic),
            io_max: both(self.io_max, other.io_max, u64::min),
            stripe: both(self.stripe, other.stripe, u64::max),
            holes: self.holes && other.holes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_on_two_suits_both() {
        let ssd = Limits { io_max: Some(256 << 10), ..Limits::PAGES };
        let coded =
            Limits { unit: 16384, atomic: 4096, io_max: None, stripe: Some(65536), holes: false };
        let both = Limits {
            unit: 16384,
            atomic: 512,
            io_max: Some(256 << 10),
            stripe: Some(65536),
            holes: false,
        };
        assert_eq!((ssd.and(coded), coded.and(ssd)), (both, both));
    }
}
