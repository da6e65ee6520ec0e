//! Permits for threads that execute requests.

use tokio::sync::{Semaphore, SemaphorePermit};

/// The permits of a listener. Requests that write have permits of their own: while volumes are full or away, a store
/// may stall writes for as long as that lasts, and its reads go on.
pub(super) struct Threads {
    reads: Semaphore,
    writes: Semaphore,
}

impl Threads {
    /// `each` for requests that only read, and as many for those that write.
    pub(super) fn new(each: usize) -> Self {
        Self { reads: Semaphore::new(each), writes: Semaphore::new(each) }
    }

    /// Waits for a permit, until it is dropped the right to execute requests.
    pub(super) async fn permit(&self, writes: bool) -> SemaphorePermit<'_> {
        let of = if writes { &self.writes } else { &self.reads };
        of.acquire().await.expect("the semaphores are never closed")
    }
}
