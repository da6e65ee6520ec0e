//! Transfers of a thread that runs an executor of its own.
//!
//! Such a thread may not block, but it can wait for its own transfers: its executor calls [`turn`] before it waits, and
//! when the descriptor of [`Host::readiness`] can be read. Otherwise they would go through another thread.

use std::marker::PhantomData;
use std::os::fd::OwnedFd;

use crate::{Error, Result, ring};

/// While it lives, transfers that begin on this thread are this thread's own.
pub struct Host(PhantomData<*const ()>);

impl Host {
    /// Takes the transfers of this thread over.
    ///
    /// # Errors
    /// `Unsupported`: the kernel has no `io_uring`, or forbids it. `Busy`: no descriptor or memory is left for it.
    ///
    /// # Panics
    /// When the thread has one already.
    pub fn begin() -> Result<Self> {
        ring::host().map_err(|error| Error::from_io("begin to use io_uring".to_owned(), error))?;
        Ok(Self(PhantomData))
    }

    /// A descriptor that can be read when transfers have ended.
    ///
    /// # Errors
    /// `Busy`: no descriptor is left.
    pub fn readiness(&self) -> Result<OwnedFd> {
        let failed = |error| Error::from_io("watch an io_uring".to_owned(), error);
        ring::readiness().map_err(failed)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        ring::unhost();
    }
}

/// Hands new transfers of this thread to the kernel, and ends those that it has ended. It does not wait.
pub fn turn() {
    if ring::is_in_use() {
        ring::turn();
    }
}
