//! Sizes and rates that carry their unit in their type.

use std::fmt;

/// Bytes in a kibibyte.
pub const KIB: u64 = 1024;
/// Bytes in a mebibyte.
pub const MIB: u64 = 1024 * KIB;
/// Bytes in a gibibyte.
pub const GIB: u64 = 1024 * MIB;

/// I/O operations a second.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Iops(pub u64);

/// A number of bytes: shown in the largest binary unit that keeps it readable.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Bytes(pub u64);

/// Bytes a second.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct BytesPerSec(pub u64);

impl fmt::Display for Iops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} IOPS", self.0)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            GIB.. => (GIB, "GiB"),
            MIB.. => (MIB, "MiB"),
            KIB.. => (KIB, "KiB"),
            _ => return write!(f, "{} B", self.0),
        };
        if self.0.is_multiple_of(unit) {
            write!(f, "{} {name}", self.0 / unit)
        } else {
            write!(f, "{:.1} {name}", self.0 as f64 / unit as f64)
        }
    }
}

impl fmt::Display for BytesPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_show_in_their_largest_whole_unit() {
        assert_eq!(Bytes(17).to_string(), "17 B");
        assert_eq!(Bytes(256 * KIB).to_string(), "256 KiB");
        assert_eq!(Bytes(MIB + MIB / 2).to_string(), "1.5 MiB");
        assert_eq!(BytesPerSec(125 * MIB).to_string(), "125 MiB/s");
        assert_eq!(Iops(3000).to_string(), "3000 IOPS");
    }
}
