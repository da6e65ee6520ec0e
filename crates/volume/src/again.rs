//! [`Object::read_again`] for objects with one copy of their bytes.

use std::sync::Arc;

use crate::{Error, ErrorKind, Io, IoBufMut, Object, Pending};

/// Says whether the bytes of a range are those that the caller once wrote, by a checksum in them.
pub type Check = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Reads once more, since a device may have answered wrongly once, and checks the answer.
pub fn read<O: Object + ?Sized>(
    object: &O,
    offset: u64,
    into: IoBufMut,
    io: Io,
    check: Check,
) -> Pending<'_, IoBufMut> {
    Box::pin(async move {
        let read = object.read_at(offset, into, io).await?;
        if check(&read) {
            return Ok(read);
        }
        Err(refused(offset, read.len()))
    })
}

/// The error of [`Object::read_again`] if the check refused every answer for `len` bytes at `offset`.
#[must_use]
pub fn refused(offset: u64, len: usize) -> Error {
    let message =
        format!("{len} bytes at {offset} are not what was written: restore them from elsewhere");
    Error::new(ErrorKind::Corrupt, message)
}
