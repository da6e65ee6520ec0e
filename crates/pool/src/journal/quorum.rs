//! The homes that a journal may move to, if its volumes say which home is current: no two disjoint sets of volumes
//! ever open it.
//!
//! A journal opens with more than half of the volumes that hold its copies. A move may be cut after any
//! header: a process that sees only old headers opens the old home, one that sees a new header the new
//! one. So a journal moves only to a home that *meets* the old one: every majority of the one shares a
//! volume with every majority of the other, and that volume shows the later process what the earlier
//! one did. Three volumes meet any two of themselves, and two volumes any three that include them;
//! longer ways take several moves. If two of three volumes fail at the same moment there is no way: the
//! journal takes no more edits until one of them is back.

use std::collections::{BTreeSet, VecDeque};

use policy::placement::VolumeId;

/// The most copies of a home.
pub(crate) const COPIES: usize = 3;

/// Whether every majority of `one` shares a volume with every majority of `other`.
fn meets(one: &[VolumeId], other: &[VolumeId]) -> bool {
    let shared = one.iter().filter(|volume| other.contains(volume)).count();
    // The number of shared volumes that any majority contains.
    let needs = |home: &[VolumeId]| (home.len() / 2 + 1).saturating_sub(home.len() - shared);
    needs(one) + needs(other) > shared
}

/// The first step on the shortest way from the homes that may be current to `wanted`, over volumes that are
/// `well`; `None` if there is no way.
pub(crate) fn step(
    may_count: &[Vec<VolumeId>],
    wanted: &[VolumeId],
    well: &[VolumeId],
) -> Option<Vec<VolumeId>> {
    let fits = |next: &[VolumeId]| may_count.iter().all(|home| meets(home, next));
    if fits(wanted) {
        return Some(wanted.to_vec());
    }
    let around: BTreeSet<_> = may_count.iter().flatten().chain(wanted).copied().collect();
    let around: Vec<_> = around.into_iter().filter(|volume| well.contains(volume)).collect();
    let homes = homes(&around);
    let mut seen: Vec<bool> = homes.iter().map(|home| fits(home)).collect();
    let first = (0..homes.len()).filter(|&at| seen[at]).map(|at| (at, at));
    let mut reached: VecDeque<_> = first.collect();
    while let Some((first, at)) = reached.pop_front() {
        if meets(&homes[at], wanted) {
            return Some(homes[first].clone());
        }
        for (next, home) in homes.iter().enumerate() {
            if !seen[next] && meets(&homes[at], home) {
                seen[next] = true;
                reached.push_back((first, next));
            }
        }
    }
    None
}

/// The possible intermediate homes of these volumes: of two or three volumes, the larger ones first.
fn homes(volumes: &[VolumeId]) -> Vec<Vec<VolumeId>> {
    let mut homes: Vec<Vec<VolumeId>> = vec![Vec::new()];
    for &volume in volumes {
        let more = homes.iter().filter(|home| home.len() < COPIES);
        let more: Vec<_> = more.map(|home| [&home[..], &[volume]].concat()).collect();
        homes.extend(more);
    }
    homes.retain(|home| home.len() > 1);
    homes.sort_by_key(|home| std::cmp::Reverse(home.len()));
    homes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volumes(ids: &[u16]) -> Vec<VolumeId> {
        ids.iter().copied().map(VolumeId).collect()
    }

    /// Every set of volumes below `count` that is not empty and not larger than a home.
    fn all(count: u16) -> Vec<Vec<VolumeId>> {
        let all: Vec<_> = (0..count).map(VolumeId).collect();
        let mut homes = homes(&all);
        homes.extend(all.iter().map(|&volume| vec![volume]));
        homes
    }

    #[test]
    fn homes_meet_if_no_two_sets_that_open_them_are_strangers() {
        let opens = |home: &[VolumeId], set: u32| {
            let there = home.iter().filter(|volume| set & (1 << volume.0) != 0).count();
            2 * there > home.len()
        };
        for one in all(6) {
            for other in all(6) {
                let strangers = (0u32..64).any(|set| opens(&one, set) && opens(&other, !set & 63));
                assert_eq!(meets(&one, &other), !strangers, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn one_of_three_may_fail_and_two_may_not() {
        let home = [volumes(&[0, 1, 2])];
        let well = volumes(&[1, 2, 3, 4]);
        assert_eq!(step(&home, &volumes(&[1, 2, 3]), &well), Some(volumes(&[1, 2])));
        assert_eq!(step(&home, &volumes(&[2, 3, 4]), &volumes(&[2, 3, 4])), None);
        assert_eq!(step(&home, &volumes(&[2]), &volumes(&[2])), None);
        assert_eq!(step(&[volumes(&[1, 2])], &volumes(&[2]), &volumes(&[2])), Some(volumes(&[2])));
        assert_eq!(step(&[], &volumes(&[5]), &volumes(&[5])), Some(volumes(&[5])));
    }

    #[test]
    fn from_volumes_that_are_all_well_there_is_a_way_to_any_others() {
        let well = volumes(&[0, 1, 2, 3, 4, 5]);
        let homes = all(6);
        for from in homes.iter().filter(|home| home.len() > 1) {
            for to in &homes {
                let mut home = from.clone();
                let mut steps = 0;
                while home != *to {
                    let next = step(&[home.clone()], to, &well).expect("a way");
                    assert!(meets(&home, &next));
                    home = next;
                    steps += 1;
                    assert!(steps < 6, "{from:?} {to:?}");
                }
            }
        }
    }
}
