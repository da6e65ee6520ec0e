use super::{Candidate, Layout, Placement, first_from, whole};
use crate::intent::Intent;

/// Each object on the volume after the last one's; a volume that will not do is skipped.
///
/// Logs have a turn of their own: they may have other candidates, and are far fewer.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    /// Positions in the candidates at which to look next.
    next: usize,
    next_for_logs: usize,
}

impl Placement for RoundRobin {
    fn choose(&mut self, _: u64, intent: &Intent, candidates: &[Candidate]) -> Option<Layout> {
        let next = if intent.is_log() { &mut self.next_for_logs } else { &mut self.next };
        let at = first_from(candidates, *next, intent.len.unwrap_or(0))?;
        *next = at + 1;
        Some(whole(&candidates[at]))
    }
}
