//! Reads and writes for threads that wait for one at a time, RocksDB's above all.
//!
//! [`Object::blocking_read_at`] and [`Object::blocking_write_at`] work in the caller's memory, without a future: they
//! allocate nothing and share nothing. A profile of RocksDB's write-ahead log is the reason: boxes, buffers and wakers
//! took as long as the system call itself. A layer that gains nothing from its own version calls the functions here,
//! which go through its `read_at` and `write_at`.

use crate::task::block_on;
use crate::{Io, IoBuf, IoBufMut, Object, Result};

/// [`Object::blocking_read_at`] by means of [`Object::read_at`].
///
/// # Errors
/// As the object's.
pub fn read_at<O: Object + ?Sized>(
    object: &O,
    offset: u64,
    into: &mut [u8],
    io: Io,
) -> Result<usize> {
    let read = block_on(object.read_at(offset, IoBufMut::zeroed(into.len()), io))?;
    into[..read.len()].copy_from_slice(&read);
    Ok(read.len())
}

/// [`Object::blocking_write_at`] by means of [`Object::write_at`].
///
/// # Errors
/// As the object's.
pub fn write_at<O: Object + ?Sized>(object: &O, offset: u64, data: &[u8], io: Io) -> Result<()> {
    // Called inside: some layers make the call below before they give their future.
    block_on(async { object.write_at(offset, IoBuf::from(data), io).await })
}
