//! Waits of callers on threads of a runtime.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Runs work that waits for volumes or other callers. A thread of a multi-threaded runtime hands its other tasks on
/// first.
pub(super) fn waiting<T>(work: impl FnOnce() -> T) -> T {
    let serves_many = Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if serves_many { block_in_place(work) } else { work() }
}
