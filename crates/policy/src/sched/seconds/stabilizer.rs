//! NA: one pool of P tokens a second, always open to every class, first come first served.
//!
//! Calcspar's I/O stabilizer alone (ATC 2023): it keeps the paid rate second by second, without an order of classes.
//! All tokens of a second are there at its start, so up to P requests may go at once, right after the last of the
//! second before. The provider's bucket refills continuously, so it then throttles some.

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
