//! Waits of callers on threads of a runtime.

use std::sync::atomic::{AtomicUsize, Ordering};

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
pub(super) fn seldom_waiting<T>(work: impl FnOnce() -> T) -> T {
    volume::task::with_aside(|wait| waiting(wait), work)
}

/// The writes under way in RocksDB, where one may wait for another, which waits for a volume.
#[derive(Default)]
pub(super) struct Writers(AtomicUsize);

impl Writers {
    pub(super) fn begin(&self) -> Writer<'_> {
        let is_alone = self.0.fetch_add(1, Ordering::AcqRel) == 0;
        Writer { is_alone, all: self }
    }
}

/// A write under way, until it is dropped.
pub(super) struct Writer<'a> {
    /// There was no other one when it began.
    pub(super) is_alone: bool,
    all: &'a Writers,
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.all.0.fetch_sub(1, Ordering::AcqRel);
    }
}
