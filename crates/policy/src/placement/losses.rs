//! How many volumes a pool may lose.

/// The number of volumes that a pool may lose, whichever they are, without losing an object. It keeps `copies` copies of each on
/// members that survive the loss of so many of their own volumes: 0 for a volume. An erasure code survives what one copy more
/// than it has parity fragments survives.
#[must_use]
pub fn losses_survived(copies: usize, members: impl IntoIterator<Item = usize>) -> usize {
    let (mut count, mut weakest) = (0, usize::MAX);
    for survived in members {
        (count, weakest) = (count + 1, weakest.min(survived));
    }
    // An object is lost once each of its members is, and each of these takes one loss more than it survives.
    let holding = copies.min(count);
    if holding == 0 { 0 } else { weakest.saturating_add(1).saturating_mul(holding) - 1 }
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
}
