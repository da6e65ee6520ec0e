//! Virtual time: actions, each at its instant.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use policy::time::Instant;

/// Something that happens to a world.
pub(super) type Action<W> = Box<dyn FnOnce(&mut W)>;

/// Actions that are due. Those of one instant happen in the order in which they were added.
pub(super) struct Timeline<W> {
    now: Instant,
    added: u64,
    due: BTreeMap<(Instant, u64), Action<W>>,
}

impl<W> Timeline<W> {
    pub(super) fn new() -> Self {
        Self { now: Instant::ZERO, added: 0, due: BTreeMap::new() }
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// Adds an action at an instant that is not past.
    pub(super) fn at(&mut self, when: Instant, action: Action<W>) {
        debug_assert!(when >= self.now, "time goes forward");
        self.added += 1;
        self.due.insert((when, self.added), action);
    }

    /// Adds an action that happens in `wait` from now.
    pub(super) fn after(&mut self, wait: Duration, action: Action<W>) {
        self.at(self.now + wait, action);
    }

    /// The next action. It is time for it now.
    pub(super) fn next(&mut self) -> Option<Action<W>> {
        let ((now, _), action) = self.due.pop_first()?;
        self.now = now;
        Some(action)
    }
}

/// An action that follows the last of several parts.
pub(super) struct Join<W>(Rc<RefCell<(usize, Option<Action<W>>)>>);

impl<W: 'static> Join<W> {
    /// `done` follows once this number of parts has ended, at least one.
    pub(super) fn new(parts: usize, done: Action<W>) -> Self {
        assert!(parts > 0, "a join of nothing would never end");
        Self(Rc::new(RefCell::new((parts, Some(done)))))
    }

    /// One of the parts.
    pub(super) fn part(&self) -> Action<W> {
        let join = Rc::clone(&self.0);
        Box::new(move |world| {
            let done = {
                let (left, done) = &mut *join.borrow_mut();
                *left -= 1;
                if *left == 0 { done.take() } else { None }
            };
            if let Some(done) = done {
                done(world);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_happen_in_order_and_a_join_after_its_last_part() {
        let mut timeline: Timeline<Vec<u32>> = Timeline::new();
        let ms = Duration::from_millis;
        let join = Join::new(2, Box::new(|seen: &mut Vec<u32>| seen.push(9)));
        timeline.after(ms(2), join.part());
        timeline.after(ms(1), Box::new(|seen| seen.push(1)));
        timeline.after(ms(1), Box::new(|seen| seen.push(2)));
        timeline.after(ms(3), join.part());
        let mut seen = Vec::new();
        while let Some(action) = timeline.next() {
            action(&mut seen);
        }
        assert_eq!((seen, timeline.now()), (vec![1, 2, 9], Instant::ZERO + ms(3)));
    }
}
