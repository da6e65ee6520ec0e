//! System calls that would stop an executor.
//!
//! Only threads that run under [`crate::task::block_on`] may block. For calls from all other threads, a leaf volume
//! uses the threads of this pool; for calls from any thread where the device may hang, see [`IoPool::apart`].

use std::collections::VecDeque;
use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use async_task::{Runnable, Task};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use crate::driver::Driver;
use crate::ring::{self, Call, Memory, Transfer};
use crate::task;

/// How long a thread waits for another call before it ends.
const IDLE: Duration = Duration::from_secs(5);

/// Threads for each volume: as many calls as the deepest queue that a device is given.
pub const THREADS: NonZeroUsize = NonZeroUsize::new(128).expect("128 is not zero");

/// A bounded number of threads, started on demand and ended when idle. Clones share them.
///
/// Calls run first in, first out. The queue has no bound of its own: each call in it is a request that a gate let
/// through.
#[derive(Clone)]
pub struct IoPool(Arc<Shared>);

struct Shared {
    threads_max: NonZeroUsize,
    is_apart: bool,
    /// Makes transfers of threads that may not block.
    driver: Option<Driver>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Runnable>,
    threads: usize,
    /// How to call each idle thread. The last one to become idle is called first: its memory is in the caches, and those
    /// that are not needed end.
    idle: Vec<Arc<Condvar>>,
    /// Idle threads that were called, and have not looked yet.
    called: usize,
}

impl IoPool {
    /// Starts no thread yet. At most `threads_max` calls run at once, one on each thread.
    #[must_use]
    pub fn new(threads_max: NonZeroUsize) -> Self {
        Self::with(threads_max, false, None)
    }

    /// A pool that makes no call in place, also for threads that may block. A system call on a hanging device never
    /// returns: it must not keep the caller, who can give up waiting for the pool. Transfers go through `io_uring` where
    /// the kernel has it, and all other calls through threads.
    #[must_use]
    pub fn apart(threads_max: NonZeroUsize) -> Self {
        Self::with(threads_max, true, Some(Driver::default()))
    }

    /// As [`IoPool::apart`], but all calls go through threads.
    #[must_use]
    pub fn threads(threads_max: NonZeroUsize) -> Self {
        Self::with(threads_max, true, None)
    }

    fn with(threads_max: NonZeroUsize, is_apart: bool, driver: Option<Driver>) -> Self {
        Self(Arc::new(Shared { threads_max, is_apart, driver, state: Mutex::default() }))
    }

    /// Whether no call is ever made in place.
    pub(crate) fn is_apart(&self) -> bool {
        self.0.is_apart
    }

    /// Makes `call`: in place if this thread may block and the pool is not [apart](IoPool::apart), else on a thread of
    /// the pool.
    ///
    /// After the future is dropped, a call that began still ends, and any other call is not made. The call owns its
    /// buffers in both cases.
    ///
    /// # Panics
    /// When `call` does.
    pub async fn run<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> T {
        if task::may_block() && !self.0.is_apart { call() } else { self.submit(call).await }
    }

    /// Whether [`IoPool::transfer`] can be used.
    pub(crate) fn has_ring(&self) -> bool {
        self.0.driver.is_some()
    }

    /// Makes a transfer without a thread, in a pool that [has a ring](IoPool::has_ring). It ends with `AGAIN` where it
    /// would wait before it reaches the device, and with `NOSYS` where the kernel has no rings.
    ///
    /// `ended` runs when the transfer has ended, also after the future is dropped, and must not wait.
    pub(crate) fn transfer<T, F>(
        &self,
        transfer: Transfer,
        ended: F,
    ) -> impl Future<Output = T> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(Result<usize, Errno>, Memory) -> T + Send + 'static,
    {
        let answer = Arc::new(Answer::default());
        let theirs = Arc::clone(&answer);
        let call = Call::new(transfer, move |moved, memory| theirs.give(ended(moved, memory)));
        match &self.0.driver {
            Some(driver) if !task::may_block() && !ring::is_hosted() => driver.begin(call),
            _ => ring::begin(call),
        }
        poll_fn(move |cx| answer.poll(cx.waker()))
    }

    fn submit<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> Task<T> {
        let shared = Arc::clone(&self.0);
        let (runnable, task) = async_task::Builder::new()
            .propagate_panic(true)
            .spawn(|()| async { call() }, move |runnable| shared.push(runnable));
        runnable.schedule();
        task
    }
}

/// What a transfer left for its caller.
struct Answer<T>(Mutex<(Option<T>, Option<Waker>)>);

impl<T> Default for Answer<T> {
    fn default() -> Self {
        Self(Mutex::new((None, None)))
    }
}

impl<T> Answer<T> {
    fn give(&self, value: T) {
        let waker = {
            let mut answer = self.0.lock();
            answer.0 = Some(value);
            answer.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    fn poll(&self, waker: &Waker) -> Poll<T> {
        let mut answer = self.0.lock();
        match answer.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                answer.1 = Some(waker.clone());
                Poll::Pending
            }
        }
    }
}

impl Shared {
    fn push(self: &Arc<Self>, runnable: Runnable) {
        let mut state = self.state.lock();
        state.queue.push_back(runnable);
        // Each thread that was called takes one; only calls beyond those justify another thread.
        if state.queue.len() <= state.called {
            return;
        }
        if let Some(idle) = state.idle.pop() {
            state.called += 1;
            idle.notify_one();
            return;
        }
        if state.threads == self.threads_max.get() {
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(self);
        let started = std::thread::Builder::new().name("io".into()).spawn(move || shared.work());
        if started.is_err() {
            let mut state = self.state.lock();
            state.threads -= 1;
            // No room for a thread. The other threads serve the call; without any, this thread does.
            if state.threads == 0 {
                Self::drain(&mut state);
            }
        }
    }

    fn work(&self) {
        let me = Arc::new(Condvar::new());
        let mut state = self.state.lock();
        loop {
            Self::drain(&mut state);
            state.idle.push(Arc::clone(&me));
            let timed_out = me.wait_for(&mut state, IDLE).timed_out();
            let place = state.idle.iter().position(|idle| Arc::ptr_eq(idle, &me));
            match place {
                // No call took it from the list.
                Some(place) => _ = state.idle.remove(place),
                None => state.called -= 1,
            }
            if timed_out && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    /// Runs every queued call, without the lock.
    fn drain(state: &mut MutexGuard<'_, State>) {
        while let Some(runnable) = state.queue.pop_front() {
            MutexGuard::unlocked(state, || runnable.run());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Barrier, mpsc};
    use std::thread;

    use futures_util::future::join_all;

    use super::*;
    use crate::task::block_on;

    fn pool(threads: usize) -> IoPool {
        IoPool::new(NonZeroUsize::new(threads).unwrap())
    }

    #[test]
    fn a_thread_that_may_block_makes_its_calls_itself() {
        let here = thread::current().id();
        let there = block_on(async { pool(1).run(|| thread::current().id()).await });
        assert_eq!(there, here);
    }

    #[test]
    fn a_pool_apart_keeps_its_calls_from_every_caller() {
        let pool = IoPool::apart(NonZeroUsize::MIN);
        let here = thread::current().id();
        let there = block_on(async { pool.run(|| thread::current().id()).await });
        assert_ne!(there, here);
    }

    #[test]
    fn others_get_a_thread_and_never_more_than_allowed() {
        let pool = pool(3);
        let here = thread::current().id();
        let calls = (0..200).map(|i| pool.submit(move || (i, thread::current().id())));
        let done = block_on(join_all(calls));
        assert!(done.iter().enumerate().all(|(i, (number, _))| i == *number));
        let threads: std::collections::HashSet<_> = done.iter().map(|(_, id)| *id).collect();
        assert!(!threads.contains(&here));
        assert!((1..=3).contains(&threads.len()), "{threads:?}");
    }

    #[test]
    fn calls_are_under_way_together() {
        let pool = pool(2);
        let ((to_a, from_b), (to_b, from_a)) = (mpsc::channel(), mpsc::channel());
        // Each call ends only when the other has begun.
        let a = pool.submit(move || (to_b.send(()), from_b.recv()));
        let b = pool.submit(move || (to_a.send(()), from_a.recv()));
        let (a, b) = block_on(async { (a.await, b.await) });
        assert!(a.1.is_ok() && b.1.is_ok());
    }

    #[test]
    fn calls_one_at_a_time_need_one_thread_and_leave_the_others_idle() {
        let pool = pool(3);
        let meeting = Arc::new(Barrier::new(3));
        let calls = (0..3).map(|_| {
            let meeting = Arc::clone(&meeting);
            pool.submit(move || _ = meeting.wait())
        });
        block_on(join_all(calls));
        let one = || {
            while pool.0.state.lock().idle.len() < 3 {
                thread::yield_now();
            }
            block_on(pool.submit(|| thread::current().id()))
        };
        let first = one();
        assert!((0..20).all(|_| one() == first));
    }

    #[test]
    fn a_call_that_began_ends_although_nobody_waits() {
        let pool = pool(1);
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let (ended, has_ended) = mpsc::channel();
        let buffer = vec![7u8; 4096];
        let call = pool.submit(move || {
            begun.send(()).unwrap();
            may_go_on.recv().unwrap();
            ended.send(buffer).unwrap();
        });
        has_begun.recv().unwrap();
        let waiting = pool.submit(|| panic!("a dropped call that has not begun is not made"));
        drop(waiting);
        drop(call);
        go_on.send(()).unwrap();
        assert_eq!(has_ended.recv().unwrap(), [7; 4096]);
        assert_eq!(block_on(pool.submit(|| 1)), 1, "the thread goes on");
    }

    #[test]
    fn a_panic_arrives_at_whoever_waits() {
        let pool = pool(1);
        let call = pool.submit(|| panic!("inside"));
        let caught = catch_unwind(AssertUnwindSafe(|| block_on(call)));
        assert!(caught.is_err());
        assert_eq!(block_on(pool.submit(|| 1)), 1, "the thread goes on");
    }
}
