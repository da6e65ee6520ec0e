//! The homes that a journal may move to, if its volumes say which home is current: no two disjoint sets of volumes
//! ever open it.
//!
//! A journal opens with more than half of the volumes that hold its copies. A move may be cut after any
//! header: a process that sees only old headers opens the old home, one that sees a new header the new
//! one. So a journal moves only to a home that *meets* the old one: every majority of the one shares a
//! volume with every majority of the other, and that volume shows the later process what the earlier
//! one did. Three volumes meet any two of themselves, and any four that include them; longer ways take several moves. A
//! move may end between them, and volumes be lost after that. So a way over homes that survive as many losses as the
//! usual ones goes first: from three volumes to three others over four, of which three open it, not over two. If two of five volumes fail at the same moment, no majority of the other three meets
//! the five; but all three together do. So a home between may need all of its volumes. If half of the volumes or more
//! fail at the same moment there is no way: the journal takes no more edits until one of them is back.

use std::collections::{BTreeSet, VecDeque};

use policy::placement::VolumeId;

/// The volumes of a home, and how many of them open it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Quorum {
    /// The volumes that hold its copies.
    pub(crate) volumes: Vec<VolumeId>,
    /// How many of them must be there: more than half, or all.
    pub(crate) needs: usize,
}

impl Quorum {
    /// A home that more than half of its volumes open.
    pub(crate) const fn majority(volumes: Vec<VolumeId>) -> Self {
        let needs = volumes.len() / 2 + 1;
        Self { volumes, needs }
    }

    /// A home that only all of its volumes together open: a step on the way to another.
    const fn all(volumes: Vec<VolumeId>) -> Self {
        let needs = volumes.len();
        Self { volumes, needs }
    }

    /// How many of its volumes may be lost.
    const fn losses(&self) -> usize {
        self.volumes.len() - self.needs
    }

    /// Whether all volumes that open this home share one with all that open the other.
    fn meets(&self, other: &Self) -> bool {
        let shared = self.volumes.iter().filter(|volume| other.volumes.contains(volume)).count();
        // The number of shared volumes that any set which opens a home contains.
        let needs = |home: &Self| home.needs.saturating_sub(home.volumes.len() - shared);
        needs(self) + needs(other) > shared
    }
}

/// The first step on the way from the homes that may be current to one of the volumes `wanted`, over volumes that are
/// `well`; `None` if there is no way. Homes have `copies` volumes at most, and one more on the way. Of all ways it is a
/// shortest one of those whose homes survive the most losses, at most as many as a home of `copies` volumes.
pub(crate) fn step(
    may_count: &[Quorum],
    wanted: &[VolumeId],
    well: &[VolumeId],
    copies: usize,
) -> Option<Quorum> {
    let wanted = Quorum::majority(wanted.to_vec());
    if may_count.iter().all(|home| home.meets(&wanted)) {
        return Some(wanted);
    }
    let around = may_count.iter().flat_map(|home| &home.volumes).chain(&wanted.volumes);
    let around: BTreeSet<_> = around.copied().collect();
    let around: Vec<_> = around.into_iter().filter(|volume| well.contains(volume)).collect();
    let homes = homes(&around, copies + 1);
    let mut losses = (0..=copies.saturating_sub(1) / 2).rev();
    losses.find_map(|losses| {
        let homes: Vec<_> = homes.iter().filter(|home| home.losses() >= losses).collect();
        first_step(may_count, &wanted, &homes)
    })
}

/// The first step on the shortest way to `wanted` over `homes`.
fn first_step(may_count: &[Quorum], wanted: &Quorum, homes: &[&Quorum]) -> Option<Quorum> {
    let fits = |next: &&Quorum| may_count.iter().all(|home| home.meets(next));
    let mut seen: Vec<bool> = homes.iter().map(fits).collect();
    let first = (0..homes.len()).filter(|&at| seen[at]).map(|at| (at, at));
    let mut reached: VecDeque<_> = first.collect();
    while let Some((first, at)) = reached.pop_front() {
        if homes[at].meets(wanted) {
            return Some(homes[first].clone());
        }
        for (next, home) in homes.iter().enumerate() {
            if !seen[next] && homes[at].meets(home) {
                seen[next] = true;
                reached.push_back((first, next));
            }
        }
    }
    None
}

/// The possible intermediate homes of these volumes: of two volumes or more, those that a majority opens first, and of
/// them the larger ones; of those that only all open the smaller ones, as one that fails closes them.
fn homes(volumes: &[VolumeId], copies: usize) -> Vec<Quorum> {
    let mut homes: Vec<Vec<VolumeId>> = vec![Vec::new()];
    for &volume in volumes {
        let more = homes.iter().filter(|home| home.len() < copies);
        let more: Vec<_> = more.map(|home| [&home[..], &[volume]].concat()).collect();
        homes.extend(more);
    }
    homes.retain(|home| home.len() > 1);
    homes.sort_by_key(|home| std::cmp::Reverse(home.len()));
    // Of two volumes, a majority is both.
    let all = homes.iter().rev().filter(|home| home.len() > 2).cloned().map(Quorum::all);
    let all: Vec<_> = all.collect();
    homes.into_iter().map(Quorum::majority).chain(all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volumes(ids: &[u16]) -> Vec<VolumeId> {
        ids.iter().copied().map(VolumeId).collect()
    }

    fn majority(ids: &[u16]) -> Quorum {
        Quorum::majority(volumes(ids))
    }

    /// Every home of volumes below `count`.
    fn all(count: u16, copies: usize) -> Vec<Quorum> {
        let all: Vec<_> = (0..count).map(VolumeId).collect();
        let mut homes = homes(&all, copies);
        homes.extend(all.iter().map(|&volume| Quorum::majority(vec![volume])));
        homes
    }

    #[test]
    fn homes_meet_if_no_two_sets_that_open_them_are_strangers() {
        let opens = |home: &Quorum, set: u32| {
            let there = home.volumes.iter().filter(|volume| set & (1 << volume.0) != 0).count();
            there >= home.needs
        };
        for one in all(6, 5) {
            for other in all(6, 5) {
                let strangers = (0u32..64).any(|set| opens(&one, set) && opens(&other, !set & 63));
                assert_eq!(one.meets(&other), !strangers, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn one_of_three_may_fail_and_two_may_not() {
        let home = [majority(&[0, 1, 2])];
        let step = |home: &[Quorum], wanted: &[u16], well: &[u16]| {
            step(home, &volumes(wanted), &volumes(well), 3)
        };
        assert_eq!(step(&home, &[1, 2, 3], &[1, 2, 3, 4]), Some(majority(&[1, 2])));
        assert_eq!(step(&home, &[2, 3, 4], &[2, 3, 4]), None);
        assert_eq!(step(&home, &[2], &[2]), None);
        assert_eq!(step(&[majority(&[1, 2])], &[2], &[2]), Some(majority(&[2])));
        assert_eq!(step(&[], &[5], &[5]), Some(majority(&[5])));
    }

    /// Any three of five open them, so a home of the other three must not open with two of these.
    #[test]
    fn two_of_five_may_fail_at_once_and_three_may_not() {
        let home = [majority(&[0, 1, 2, 3, 4])];
        let step = |home: &[Quorum], wanted: &[u16], well: &[u16]| {
            step(home, &volumes(wanted), &volumes(well), 5)
        };
        let between = Quorum::all(volumes(&[2, 3, 4]));
        for wanted in [&[2, 3, 4][..], &[2, 3, 4, 5], &[2, 3, 4, 5, 6]] {
            assert_eq!(step(&home, wanted, &[2, 3, 4, 5, 6]), Some(between.clone()));
            assert_eq!(
                step(std::slice::from_ref(&between), wanted, wanted),
                Some(majority(wanted))
            );
        }
        assert_eq!(step(&home, &[3, 4, 5], &[3, 4, 5, 6]), None);
    }

    /// A crash between two moves, and the loss of one volume, left one of two.
    #[test]
    fn every_home_on_the_way_survives_as_many_losses_as_its_ends() {
        for (copies, count) in [(3, 6), (5, 7)] {
            let well: Vec<_> = (0..count).map(VolumeId).collect();
            let full = |home: &Quorum| home.volumes.len() == copies && home.needs < copies;
            let from = majority(&(0..copies as u16).collect::<Vec<_>>());
            for to in all(count, copies).into_iter().filter(full) {
                let mut home = from.clone();
                while home != to {
                    home = step(&[home.clone()], &to.volumes, &well, copies).expect("a way");
                    assert!(home.losses() >= from.losses(), "{home:?} on the way to {to:?}");
                }
            }
        }
    }

    #[test]
    fn from_volumes_that_are_all_well_there_is_a_way_to_any_others() {
        for (copies, count) in [(3, 6), (5, 6)] {
            let well: Vec<_> = (0..count).map(VolumeId).collect();
            let homes = all(count, copies);
            for from in homes.iter().filter(|home| home.volumes.len() > 1) {
                for to in homes.iter().filter(|to| to.needs == to.volumes.len() / 2 + 1) {
                    let mut home = from.clone();
                    let mut steps = 0;
                    while home != *to {
                        let next = step(&[home.clone()], &to.volumes, &well, copies);
                        let next = next.expect("a way");
                        assert!(home.meets(&next));
                        home = next;
                        steps += 1;
                        assert!(steps < 6, "{from:?} {to:?}");
                    }
                }
            }
        }
    }
}
