//! Waits of callers on threads of a runtime.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Runs work that waits for volumes or other callers. A thread of a multi-threaded runtime hands its other tasks on
/// first.
pub(super) fn waiting<T>(work: impl FnOnce() -> T) -> T {
    let serves_many = Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if serves_many { block_in_place(work) } else { work() }
}

/// Runs work that waits only for calls to volumes, and mostly for a moment: what takes longer hands the thread's other
/// tasks on, too.
fn seldom_waiting<T>(work: impl FnOnce() -> T) -> T {
    volume::task::with_aside(|wait| waiting(wait), work)
}

/// How long a write waits on its thread for the one before it: several times as long as an append to the page cache.
const TURN: Duration = Duration::from_micros(100);

/// The writes under way in RocksDB, where one may wait for another, which waits for a volume. A write made in place, on
/// the caller's thread, must not: so it is made alone.
#[derive(Default)]
pub(super) struct Writers {
    /// Held by the write in place.
    turn: Mutex<()>,
    /// The writes whose threads have handed their tasks on.
    aside: AtomicUsize,
}

impl Writers {
    /// Makes a write in place, or nothing where another one is under way for longer than [`TURN`].
    pub(super) fn in_place<T>(&self, write: impl FnOnce() -> T) -> Option<T> {
        let _turn = self.turn.try_lock_for(TURN)?;
        (self.aside.load(Ordering::Acquire) == 0).then(|| seldom_waiting(write))
    }

    /// Makes a write that may wait for others, once the thread has handed its tasks on.
    pub(super) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.aside.fetch_add(1, Ordering::AcqRel);
        let _counted = Counted(&self.aside);
        waiting(|| {
            // The one in place may have begun before this one was counted, and must not become its follower.
            drop(self.turn.lock());
            write()
        })
    }
}

/// One of a count, until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
