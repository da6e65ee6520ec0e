use super::{Candidate, Layout, Placement, first_from, whole};
use crate::intent::Intent;

/// Each object on the volume after the last one's; a volume that will not do is skipped.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    /// Position in the candidates at which to look next.
    turn: usize,
}

impl Placement for RoundRobin {
    fn choose(&mut self, _: u64, intent: &Intent, candidates: &[Candidate]) -> Option<Layout> {
        let at = first_from(candidates, self.turn, intent.len.unwrap_or(0))?;
        self.turn = (at + 1) % candidates.len();
        Some(whole(&candidates[at]))
    }
}
