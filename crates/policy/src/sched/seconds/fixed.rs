//! SA: a private pool for each group, 6 : 3 : 1 of P; no group may use what another leaves (Calcspar, ATC 2023).

use super::{GROUPS, Scheme, Used};

/// The paper's shares of high, medium and low.
pub(super) const SHARES: [f64; GROUPS] = [0.6, 0.3, 0.1];

/// Private pools of fixed size.
#[derive(Debug)]
pub struct Static;

impl Scheme for Static {
    fn deal(&mut self, _: Option<Used>) -> [f64; GROUPS] {
        SHARES
    }

    fn pool(&self, group: usize) -> usize {
        group
    }
}
