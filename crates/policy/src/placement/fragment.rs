use std::fmt;

use super::{Chunks, VolumeId};
use crate::units::{Bytes, KIB, MIB};

/// How an object is cut into fragments by an erasure code: `data` fragments hold its bytes, and each of `parity` more
/// can take the place of any other.
///
/// The bytes are dealt out over the data fragments in strips, as [`Chunks`] says. For the code, every data fragment ends
/// with zeros up to the length of the first one, which is the longest; these zeros are not stored. So all bytes at one
/// offset of the fragments belong together, whatever the strip.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Code {
    data: u8,
    parity: u8,
    strip: u32,
}

/// Why there is no such [`Code`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CodeError {
    /// The number of data fragments.
    #[error("{0} data fragments: at least {min}, at most {max}", min = Code::DATA_MIN, max = Code::DATA_MAX)]
    Data(u64),
    /// The number of parity fragments.
    #[error("{0} parity fragments: at least 1, at most {max}", max = Code::PARITY_MAX)]
    Parity(u64),
    /// As many parity fragments as data fragments, or more.
    #[error("{parity} parity fragments for {data} of data: fewer than those")]
    Parities {
        /// Data fragments.
        data: u64,
        /// Parity fragments.
        parity: u64,
    },
    /// The strip.
    #[error(
        "a strip of {}: whole pages of 4 KiB, at least {}, at most {}",
        Bytes(*.0), Bytes(Code::STRIP_MIN), Bytes(Code::STRIP_MAX)
    )]
    Strip(u64),
}

impl Code {
    /// The fewest data fragments. One would be copies.
    pub const DATA_MIN: u64 = 2;
    /// The most data fragments: a degraded read asks as many volumes.
    pub const DATA_MAX: u64 = 16;
    /// The most parity fragments.
    pub const PARITY_MAX: u64 = 4;
    /// The shortest strip, in bytes.
    pub const STRIP_MIN: u64 = 4 * KIB;
    /// The longest strip, in bytes.
    pub const STRIP_MAX: u64 = MIB;
    /// The strip unless another one is asked for, in bytes. A read that crosses the end of a strip costs two operations:
    /// of reads of a 16 KiB block one in sixteen does. A provider counts 256 KiB as one operation.
    pub const STRIP: u64 = 256 * KIB;

    /// The code with these numbers of fragments, and strips of `strip` bytes.
    ///
    /// # Errors
    /// A number is out of its bounds.
    pub fn new(data: u64, parity: u64, strip: u64) -> Result<Self, CodeError> {
        if !(Self::DATA_MIN..=Self::DATA_MAX).contains(&data) {
            return Err(CodeError::Data(data));
        }
        if !(1..=Self::PARITY_MAX).contains(&parity) {
            return Err(CodeError::Parity(parity));
        }
        if parity >= data {
            return Err(CodeError::Parities { data, parity });
        }
        let is_strip = (Self::STRIP_MIN..=Self::STRIP_MAX).contains(&strip);
        if !is_strip || !strip.is_multiple_of(4 * KIB) {
            return Err(CodeError::Strip(strip));
        }
        Ok(Self { data: data as u8, parity: parity as u8, strip: strip as u32 })
    }

    /// The number of data fragments: any as many fragments hold the object.
    #[must_use]
    pub const fn data(self) -> usize {
        self.data as usize
    }

    /// The number of parity fragments: as many fragments may be lost.
    #[must_use]
    pub const fn parity(self) -> usize {
        self.parity as usize
    }

    /// The number of all fragments. Those of data come first.
    #[must_use]
    pub const fn fragments(self) -> usize {
        self.data() + self.parity()
    }

    /// Bytes of a strip.
    #[must_use]
    pub const fn strip(self) -> u64 {
        self.strip as u64
    }

    /// The mapping from offsets of the object to those of its data fragments.
    #[must_use]
    pub fn chunks(self) -> Chunks {
        Chunks::new(self.strip(), self.data as u64)
    }

    /// The length of the fragment `index` of an object of `total` bytes.
    #[must_use]
    pub fn fragment_len(self, total: u64, index: usize) -> u64 {
        self.chunks().part_len(total, if index < self.data() { index } else { 0 })
    }

    /// The bytes of all fragments of an object of `total` bytes.
    #[must_use]
    pub fn stored_len(self, total: u64) -> u64 {
        (0..self.fragments()).map(|index| self.fragment_len(total, index)).sum()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

/// One fragment of an object, and its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fragment {
    /// The volume that holds it.
    pub volume: VolumeId,
    /// Its number among the fragments of the code.
    pub index: u8,
    /// How the object is cut.
    pub code: Code,
    /// The xxh3-64 of its bytes; 0 for one that is written in place.
    pub checksum: u64,
}

impl Fragment {
    /// The xxh3-64 of its bytes, if they never change again.
    #[must_use]
    pub const fn checksum(&self) -> Option<u64> {
        if self.checksum == 0 { None } else { Some(self.checksum) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_its_bounds() {
        assert!(Code::new(4, 2, 256 * KIB).is_ok());
        assert!(Code::new(16, 4, MIB).is_ok());
        assert!(Code::new(2, 1, 4 * KIB).is_ok());
        assert_eq!(Code::new(1, 1, MIB), Err(CodeError::Data(1)));
        assert_eq!(Code::new(17, 1, MIB), Err(CodeError::Data(17)));
        assert_eq!(Code::new(8, 0, MIB), Err(CodeError::Parity(0)));
        assert_eq!(Code::new(8, 5, MIB), Err(CodeError::Parity(5)));
        assert_eq!(Code::new(2, 2, MIB), Err(CodeError::Parities { data: 2, parity: 2 }));
        for strip in [0, 4095, 4097, 6 * KIB, MIB + 4096] {
            assert_eq!(Code::new(4, 2, strip), Err(CodeError::Strip(strip)));
        }
        let why = Code::new(4, 2, 6 * KIB).unwrap_err().to_string();
        assert_eq!(why, "a strip of 6 KiB: whole pages of 4 KiB, at least 4 KiB, at most 1 MiB");
    }

    #[test]
    fn fragments_hold_every_byte_once_and_parity_is_as_long_as_the_longest() {
        let code = Code::new(4, 2, 4 * KIB).unwrap();
        for total in [0, 1, 4095, 4096, 4097, 16_384, 16_385, 70_000] {
            let lens: Vec<_> = (0..6).map(|index| code.fragment_len(total, index)).collect();
            assert_eq!(lens[..4].iter().sum::<u64>(), total);
            assert!(lens[..4].iter().all(|&len| len <= lens[0]), "{lens:?}");
            assert_eq!(lens[4..], [lens[0]; 2]);
            assert_eq!(code.stored_len(total), lens.iter().sum::<u64>());
        }
        // Half more than the object, and at most a strip for each parity fragment beside.
        assert_eq!(code.stored_len(16 * 4096), 24 * 4096);
        assert_eq!(code.stored_len(1), 3);
    }
}
