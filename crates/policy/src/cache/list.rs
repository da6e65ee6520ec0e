//! Queues of slots, linked through one vector: no allocation when an entry moves.

use super::Slot;

const NONE: Slot = Slot::MAX;

/// The neighbours of every slot. A slot is in at most one queue at a time.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<Link>);

#[derive(Clone, Copy, Debug)]
struct Link {
    newer: Slot,
    older: Slot,
}

/// A queue: entries join at the new end.
#[derive(Debug)]
pub(super) struct Queue {
    newest: Slot,
    oldest: Slot,
}

impl Default for Queue {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE }
    }
}

impl Queue {
    pub(super) fn oldest(&self) -> Option<Slot> {
        some(self.oldest)
    }

    /// From the oldest to the newest.
    pub(super) fn iter<'a>(&self, links: &'a Links) -> impl Iterator<Item = Slot> + use<'a> {
        std::iter::successors(self.oldest(), |&slot| links.newer(slot))
    }

    pub(super) fn push(&mut self, links: &mut Links, slot: Slot) {
        let at = slot as usize;
        if links.0.len() <= at {
            links.0.resize(at + 1, Link { newer: NONE, older: NONE });
        }
        links.0[at] = Link { newer: NONE, older: self.newest };
        match some(self.newest) {
            Some(newest) => links.0[newest as usize].newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
    }

    pub(super) fn remove(&mut self, links: &mut Links, slot: Slot) {
        let Link { newer, older } = links.0[slot as usize];
        match some(newer) {
            Some(newer) => links.0[newer as usize].older = older,
            None => self.newest = older,
        }
        match some(older) {
            Some(older) => links.0[older as usize].newer = newer,
            None => self.oldest = newer,
        }
    }
}

impl Links {
    /// The next entry towards the new end.
    pub(super) fn newer(&self, slot: Slot) -> Option<Slot> {
        some(self.0[slot as usize].newer)
    }
}

fn some(slot: Slot) -> Option<Slot> {
    (slot != NONE).then_some(slot)
}
