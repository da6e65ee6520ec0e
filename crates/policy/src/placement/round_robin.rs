use super::{Candidate, Layout, New, Placement, Tables, first_from, whole};

/// Each object on the volume after the last one's; a volume without room is skipped.
///
/// Logs rotate separately: they may have other candidates, and are far fewer.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    /// The positions in the candidates to try next.
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
