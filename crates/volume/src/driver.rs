//! A thread that waits for the transfers of threads that may not block.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::ring::{self, Call};
use crate::task::block_on;

/// A handle to the thread. The first call starts it, and dropping the handle ends it.
#[derive(Default)]
pub(crate) struct Driver(Arc<Queue>);

#[derive(Default)]
struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    waker: Option<Waker>,
    has_thread: bool,
    is_closed: bool,
}

impl Driver {
    /// Begins a call. Without a thread or a ring it ends with `AGAIN`.
    pub(crate) fn begin(&self, call: Call) {
        let mut state = self.0.0.lock();
        if !state.has_thread {
            let queue = Arc::clone(&self.0);
            // What a call runs at its end may panic; other calls must not wait for that.
            let drive = move || block_on(queue.drive());
            let work = move || while catch_unwind(AssertUnwindSafe(&drive)).is_err() {};
            let started = std::thread::Builder::new().name("io-ring".into()).spawn(work);
            state.has_thread = started.is_ok();
            if started.is_err() {
                drop(state);
                return call.end(Err(Errno::AGAIN));
            }
        }
        state.calls.push(call);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.0.lock();
            state.is_closed = true;
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Queue {
    async fn drive(&self) {
        while let Some(calls) = poll_fn(|cx| self.poll(cx.waker())).await {
            calls.into_iter().for_each(ring::begin);
        }
    }

    /// New calls; none when there will be no more.
    fn poll(&self, waker: &Waker) -> Poll<Option<Vec<Call>>> {
        let mut state = self.0.lock();
        if !state.calls.is_empty() {
            return Poll::Ready(Some(std::mem::take(&mut state.calls)));
        }
        if state.is_closed {
            return Poll::Ready(None);
        }
        state.waker = Some(waker.clone());
        Poll::Pending
    }
}
