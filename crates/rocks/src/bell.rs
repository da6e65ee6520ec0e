//! Rings when a database may have come nearer to making its writers wait, or farther from it.
//!
//! RocksDB tells listeners so, on threads that must not ask it anything back: a listener only rings,
//! and whoever wants to know asks afterwards, from a thread of its own.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A bell that somebody waits at.
#[derive(Debug, Default)]
pub struct Bell {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rung: bool,
    over: bool,
}

impl Bell {
    /// Waits until it rings, or for `longest`; rings before that count. False when it is over.
    pub fn wait(&self, longest: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.rung && !state.over {
            self.changed.wait_for(&mut state, longest);
        }
        state.rung = false;
        !state.over
    }

    /// Nobody need wait any more.
    pub fn end(&self) {
        self.state.lock().over = true;
        self.changed.notify_all();
    }

    pub(crate) fn ring(&self) {
        self.state.lock().rung = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_kept_for_who_comes_later_and_the_end_for_ever() {
        let bell = Bell::default();
        bell.ring();
        assert!(bell.wait(Duration::MAX));
        bell.end();
        assert!(!bell.wait(Duration::MAX));
        assert!(!bell.wait(Duration::MAX));
    }
}
