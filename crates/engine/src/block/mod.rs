//! Block devices: the interface between protocol servers and a store of devices, free of any protocol.
//!
//! A device is a run of bytes of a fixed size, read and written at any offset. Bytes that were never written, and those
//! that were discarded, read as zeros and take no room.
//!
//! Every read returns, for each byte, what the last acknowledged write put there, or a later one under way; a read that
//! begins after another one returned new bytes does not give old ones. Acknowledged writes survive the death of the
//! process. They survive the death of the machine after [`BlockDevice::flush`], or at once where they are [`Durable::Now`] or
//! the device says so ([`Geometry::writes_are_durable`]).

mod lease;
pub mod memory;
pub mod store;

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

pub use lease::{HOLDER_NAME_MAX, Holder, Lease};
pub use memory::Memory;
pub use volume::task::block_on;
pub use volume::{Extent, IoBuf, IoBufMut, Zeros, host};

/// What a call on a device ends with.
pub type Result<T> = std::result::Result<T, Error>;

/// A call in progress. Dropping it ends the wait: a change may still happen.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Why a call failed: one kind for each way a caller reacts.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing was done; it may work later.
    #[error("busy: {0}")]
    Busy(String),
    /// Volumes are away, and a change may have taken effect: try again when they are back.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// There is no room. Reads, discards, and writes over bytes that have room still work.
    #[error("out of space: {0}")]
    OutOfSpace(String),
    /// Stored bytes differ from those written, on every copy. Other bytes can still be read.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// There is no such device.
    #[error("not found: {0}")]
    NotFound(String),
    /// There is one of this name already.
    #[error("exists: {0}")]
    AlreadyExists(String),
    /// Another one holds the device's lease: leave the device to it, or take it away by force.
    #[error("{0}")]
    Held(String),
    /// The range ends behind the device, or the request makes no sense: change it.
    #[error("{0}")]
    Invalid(String),
    /// The device cannot do it: do without.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The store is closing, or the device was deleted.
    #[error("closed: {0}")]
    Closed(String),
}

/// When a change is durable.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Durable {
    /// After a later [`BlockDevice::flush`].
    Later,
    /// On return.
    Now,
}

/// The sizes of a device, and what its acknowledgements mean.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// Its size in bytes: a multiple of `block`.
    pub size: u64,
    /// Reads and writes of whole blocks, at multiples of it, cost least. Others read first. In bytes, a power of two.
    pub block: u32,
    /// Every acknowledged change is durable: the device has no write cache, and a flush has nothing to do.
    pub writes_are_durable: bool,
}

/// One device. Calls may overlap, as many as there are; of overlapping calls that are under way together, either may
/// come first.
pub trait BlockDevice: Send + Sync {
    /// Its sizes now. The size changes when an operator resizes it.
    fn geometry(&self) -> Geometry;

    /// Fills `into` with the bytes at `offset`.
    ///
    /// # Errors
    /// As the kind says. `Invalid`: the range ends behind the device.
    fn read(&self, offset: u64, into: IoBufMut) -> Pending<'_, IoBufMut>;

    /// Writes all of `data` at `offset`. After an error the bytes of the range are old or new, block by block.
    ///
    /// # Errors
    /// As the kind says. `Invalid`: the range ends behind the device.
    fn write(&self, offset: u64, data: IoBuf, durable: Durable) -> Pending<'_, ()>;

    /// Makes the bytes of a range zeros. `Zeros::Free` gives their room back, `Zeros::Keep` keeps it. With `fast`, it does
    /// nothing where it would have to write the zeros.
    ///
    /// # Errors
    /// As the kind says. `Invalid`: the range ends behind the device. `Unsupported`: it would not be `fast`.
    fn zero(&self, range: Range<u64>, room: Zeros, fast: bool, durable: Durable)
    -> Pending<'_, ()>;

    /// Gives back the room of the range's whole blocks, as far as it can; those read as zeros. Others stay as they are.
    ///
    /// # Errors
    /// As the kind says. `Invalid`: the range ends behind the device.
    fn discard(&self, range: Range<u64>, durable: Durable) -> Pending<'_, ()>;

    /// Every change that was acknowledged before this call, by any client, is durable on return.
    ///
    /// # Errors
    /// As the kind says: the changes may not be durable, and a later flush does not say that they are unless they were
    /// written again.
    fn flush(&self) -> Pending<'_, ()>;

    /// The extents of a range, in order and without gaps; at most `most` of them, which then end before the range. What
    /// is called data may be zeros; what is called a hole is.
    ///
    /// # Errors
    /// As the kind says. `Invalid`: the range ends behind the device.
    fn extents(&self, range: Range<u64>, most: usize) -> Pending<'_, Vec<Extent>>;

    /// Says that a range will be read soon.
    ///
    /// # Errors
    /// As the kind says. `Invalid`: the range ends behind the device.
    fn prefetch(&self, range: Range<u64>) -> Pending<'_, ()>;
}

/// The devices of a store, by name.
pub trait BlockDevices: Send + Sync {
    /// The names of all devices, sorted.
    fn names(&self) -> Vec<String>;

    /// Opens a device. All callers share one.
    ///
    /// # Errors
    /// As the kind says.
    fn open(&self, name: &str) -> Pending<'_, Arc<dyn BlockDevice>>;

    /// The lease of a device now; the default one where there is no such device. The store keeps it, and lets any caller
    /// write: to refuse writes of others is the task of its servers.
    fn lease(&self, name: &str) -> Lease;

    /// Gives a device to `holder`, with `force` also when another one holds it. Returns the token of this take, which is
    /// larger than those of all earlier ones. Durable on return. It must not be dropped before it is done: run it by
    /// [`block_on`].
    ///
    /// # Errors
    /// `Held`: another one holds it, and the message has its name. `Invalid`: the holder's name. Else as the kind says:
    /// the lease stays as it was, and a crash may leave it taken.
    fn take(&self, name: &str, holder: &Holder, force: bool) -> Pending<'_, u64>;

    /// Ends the take that got `token`, or any if there is none, so the next one needs no force. Does nothing if another take
    /// came later. Durable on return, and not to be dropped before, as [`BlockDevices::take`].
    ///
    /// # Errors
    /// As the kind says: the lease stays, and a crash may leave it released.
    fn release(&self, name: &str, token: Option<u64>) -> Pending<'_, ()>;
}

/// Checks that a range lies on a device of `size` bytes.
///
/// # Errors
/// `Invalid`.
pub fn within(range: &Range<u64>, size: u64) -> Result<()> {
    if range.start <= range.end && range.end <= size {
        return Ok(());
    }
    let Range { start, end } = range;
    Err(Error::Invalid(format!("bytes {start} to {end} of a device that has {size}")))
}
