//! How many volumes a pool may lose.

/// The number of volumes that a pool may lose at the same moment, whichever they are, without losing an object. It keeps `copies`
/// copies of each on members that survive the loss of so many of their own volumes: 0 for a volume. An erasure code survives
/// what one copy more than it has parity fragments survives.
#[must_use]
pub fn losses_survived(copies: usize, members: impl IntoIterator<Item = usize>) -> usize {
    let (mut count, mut weakest) = (0, usize::MAX);
    for survived in members {
        (count, weakest) = (count + 1, weakest.min(survived));
    }
    // An object is lost once each of its members is, and each of these takes one loss more than it survives.
    let holding = copies.min(manifest(copies, count)).min(count);
    if holding == 0 { 0 } else { weakest.saturating_add(1).saturating_mul(holding) - 1 }
}

/// The members whose loss together stops a pool of `count` from opening and from changing: more than half of those that keep its
/// manifest are needed, but of two either one.
fn manifest(copies: usize, count: usize) -> usize {
    let keeping = count.min(members_for(copies.saturating_sub(1)));
    if count < MANIFESTS_MIN { count } else { keeping - keeping / 2 }
}

/// The fewest members that keep the manifest of a pool, if it has as many.
const MANIFESTS_MIN: usize = 3;

/// The number of members that must keep a pool's manifest if the pool is to survive `losses` of them at the same moment: those left
/// are more than half.
#[must_use]
pub const fn members_for(losses: usize) -> usize {
    let members = 2 * losses + 1;
    if members > MANIFESTS_MIN { members } else { MANIFESTS_MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_on_members_that_survive_losses_multiply() {
        assert_eq!(losses_survived(1, [0]), 0);
        assert_eq!(losses_survived(2, [0, 0, 0]), 1);
        assert_eq!(losses_survived(3, [0, 0]), 1, "two members hold two copies");
        assert_eq!(losses_survived(1, [1, 0]), 0, "the weakest member counts");
        assert_eq!(losses_survived(2, [1, 1]), 3);
        assert_eq!(losses_survived(2, []), 0);
    }

    #[test]
    fn the_manifest_needs_more_than_half_of_its_members() {
        assert_eq!(losses_survived(3, [0; 3]), 1, "one copy is left, and no majority");
        assert_eq!(losses_survived(3, [0; 4]), 1);
        assert_eq!(losses_survived(3, [0; 5]), 2);
        assert_eq!(losses_survived(3, [0; 9]), 2);
        assert_eq!(losses_survived(2, [0, 0]), 1, "either of two goes on alone");
        assert_eq!(losses_survived(3, [1, 1, 1]), 3);
        assert_eq!([0, 1, 2, 3].map(members_for), [3, 3, 5, 7]);
    }
}
