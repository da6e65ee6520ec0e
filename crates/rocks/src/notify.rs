//! Notifies when a database may have moved towards a write stall, or away from one.
//!
//! RocksDB calls its listeners on threads that must not call back into it. So a listener only notifies,
//! and the waiting thread queries the database.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A notification that one thread waits for.
#[derive(Debug, Default)]
pub struct Notify {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rung: bool,
    over: bool,
}

impl Notify {
    /// Waits for a notification, or for `longest`. An earlier notification counts. False after [`Notify::end`].
    pub fn wait(&self, longest: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.rung && !state.over {
            self.changed.wait_for(&mut state, longest);
        }
        state.rung = false;
        !state.over
    }

    /// Ends every wait, now and later.
    pub fn end(&self) {
        self.state.lock().over = true;
        self.changed.notify_all();
    }

    pub(crate) fn notify(&self) {
        self.state.lock().rung = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_kept_for_who_comes_later_and_the_end_for_ever() {
        let notify = Notify::default();
        notify.notify();
        assert!(notify.wait(Duration::MAX));
        notify.end();
        assert!(!notify.wait(Duration::MAX));
        assert!(!notify.wait(Duration::MAX));
    }
}
