use super::{Candidate, Layout, New, Placement, Tables, first_from, whole};

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

/// Spreads consecutive ids: the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
pub(super) const fn mix(id: u64) -> u64 {
    let id = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    id ^ (id >> 31)
}
