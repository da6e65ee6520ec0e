use super::{Candidate, Layout, Placement, first_from, whole};
use crate::intent::Intent;

/// Everything on the first volume while it has room, then on the next: the single large volume of
/// the benches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Single;

impl Placement for Single {
    fn choose(&mut self, _: u64, intent: &Intent, candidates: &[Candidate]) -> Option<Layout> {
        let at = first_from(candidates, 0, intent.len.unwrap_or(0))?;
        Some(whole(&candidates[at]))
    }
}
