use super::{Candidate, Layout, New, Placement, Tables, first_from, mix, whole};

/// Each object on the volume its id hashes to, or on the next one that has room.
///
/// Volumes without room keep their position, so a full or missing volume moves only its own objects
/// elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hash;

impl Placement for Hash {
    fn choose(&mut self, new: New<'_>, candidates: &[Candidate], _: &Tables) -> Option<Layout> {
        let home = mix(new.object).checked_rem(candidates.len() as u64)?;
        let at = first_from(candidates, home as usize, new.len())?;
        Some(whole(&candidates[at]))
    }
}
