//! NA: one pool of P tokens a second, open to all all the time, whoever came first.
//!
//! The I/O stabilizer of Calcspar alone (Calcspar, ATC 2023): the paid rate is kept second by second, and
//! no class goes before another. Since a second's tokens are all there at its start, up to P of them may
//! go at once, right after the last of the second before: the provider, whose bucket refills
//! continuously, then throttles some.

use super::{GROUPS, Scheme, Used};

/// One pool, first come first served.
#[derive(Debug)]
pub struct Stabilizer;

impl Scheme for Stabilizer {
    fn deal(&mut self, _: Option<Used>) -> [f64; GROUPS] {
        [1.0, 0.0, 0.0]
    }

    fn pool(&self, _: usize) -> usize {
        0
    }
}
