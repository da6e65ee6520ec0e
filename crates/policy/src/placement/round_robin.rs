use super::{Candidate, Layout, New, Placement, Tables, first_from, whole};

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
    fn choose(&mut self, new: New<'_>, candidates: &[Candidate], _: &Tables) -> Option<Layout> {
        let next = if new.intent.is_log() { &mut self.next_for_logs } else { &mut self.next };
        let at = first_from(candidates, *next, new.len())?;
        *next = at + 1;
        Some(whole(&candidates[at]))
    }
}
