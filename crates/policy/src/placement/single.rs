use super::{Candidate, Layout, New, Placement, Tables, first_from, whole};

/// Everything on the first volume while it has room, then on the next: the single large volume of
/// the benches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Single;

impl Placement for Single {
    fn choose(&mut self, new: New<'_>, candidates: &[Candidate], _: &Tables) -> Option<Layout> {
        let at = first_from(candidates, 0, new.len())?;
        Some(whole(&candidates[at]))
    }
}
