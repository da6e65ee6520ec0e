//! Which keys of a range are popular.

use crate::drive::scramble;

/// The share of accesses to the keys up to a rank, as a power of the rank: `share = a · rank^b`. If `a` or `b` is 0,
/// all keys of a range are equally popular.
///
/// `a` depends on the size: all accesses fall below rank `a^(-1/b)`. To keep the shape with fewer records, scale it
/// with [`Power::shrunk`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Power {
    /// db_bench's `key_dist_a`.
    pub a: f64,
    /// db_bench's `key_dist_b`.
    pub b: f64,
}

impl Power {
    /// The papers' values: 0.002312 and 0.3467, for 100 million records.
    pub const PUBLISHED: Self = Self { a: 0.002_312, b: 0.346_7 };

    /// The same shape for `by` times fewer records: each part of a range keeps its share of the accesses.
    #[must_use]
    pub fn shrunk(self, by: f64) -> Self {
        Self { a: self.a * by.powf(self.b), b: self.b }
    }

    /// The rank below which the share `u` of accesses lies, `u` in `[0, 1)`, rounded up.
    pub(super) fn rank(self, u: f64) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let rank = (u / self.a).powf(1.0 / self.b).ceil() as u64;
        rank
    }

    /// The offset in a range of `size` keys for the share `u`: ranks are scattered over the range.
    pub(super) fn offset(self, u: f64, size: u64) -> u64 {
        if self.a == 0.0 || self.b == 0.0 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part")]
            let even = (u * size as f64) as u64;
            return even.min(size - 1);
        }
        scramble(self.rank(u)) % size
    }
}
