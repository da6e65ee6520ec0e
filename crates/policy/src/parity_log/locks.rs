//! Locks of byte ranges, granted in the order in which they were asked for.

use std::collections::VecDeque;
use std::ops::Range;

/// Ranges that are held, and who waits for which. Ranges that do not overlap do not wait for each other.
#[derive(Debug)]
pub(super) struct Locks<T> {
    held: Vec<(Range<u64>, T)>,
    waiting: VecDeque<(Range<u64>, T)>,
    is_shared: bool,
}

impl<T: Clone + PartialEq> Locks<T> {
    /// With `is_shared` every lock is granted at once, which only a test wants.
    pub(super) fn new(is_shared: bool) -> Self {
        Self { held: Vec::new(), waiting: VecDeque::new(), is_shared }
    }

    /// Asks for a range. [`Locks::grant`] gives it.
    pub(super) fn ask(&mut self, range: Range<u64>, owner: T) {
        self.waiting.push_back((range, owner));
    }

    /// Whether the owner holds or waits.
    pub(super) fn knows(&self, is_it: impl Fn(&T) -> bool) -> bool {
        self.held.iter().chain(&self.waiting).any(|(_, owner)| is_it(owner))
    }

    /// Whether someone holds a part of the range.
    pub(super) fn is_held(&self, range: &Range<u64>) -> bool {
        self.held.iter().any(|(held, _)| overlap(held, range))
    }

    /// Takes the locks of these owners away, held or waiting.
    pub(super) fn release(&mut self, is_it: impl Fn(&T) -> bool) {
        self.held.retain(|(_, owner)| !is_it(owner));
        self.waiting.retain(|(_, owner)| !is_it(owner));
    }

    /// The next owner that gets its range, if one can.
    pub(super) fn grant(&mut self) -> Option<T> {
        let next = (0..self.waiting.len()).find(|&next| {
            let range = &self.waiting[next].0;
            let before = self.waiting.range(..next);
            self.is_shared
                || !self.held.iter().chain(before).any(|(other, _)| overlap(other, range))
        })?;
        let lock = self.waiting.remove(next).expect("found above");
        self.held.push(lock.clone());
        Some(lock.1)
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_granted_in_order() {
        let mut locks = Locks::new(false);
        for (range, owner) in [(0..4, 'a'), (2..6, 'b'), (5..8, 'c'), (8..9, 'd')] {
            locks.ask(range, owner);
        }
        assert_eq!(std::iter::from_fn(|| locks.grant()).collect::<String>(), "ad");
        assert!(locks.is_held(&(3..5)) && !locks.is_held(&(4..8)));
        locks.release(|&owner| owner == 'a');
        assert_eq!(std::iter::from_fn(|| locks.grant()).collect::<String>(), "b");
        locks.release(|&owner| owner == 'b');
        assert_eq!(std::iter::from_fn(|| locks.grant()).collect::<String>(), "c");
        assert!(locks.knows(|&owner| owner == 'c') && !locks.knows(|&owner| owner == 'b'));
    }
}
