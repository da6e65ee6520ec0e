//! [`Object::read_again`] for objects with one copy of their bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// The longest whole records at an offset of an object, of any of its copies: one copy may be damaged where another is not. Asks
/// each for `len` bytes, of which `records` counts the whole records at their beginning. `None` if no copy has any there; one that
/// is away counts as having none.
pub async fn records(
    object: &dyn Object,
    at: u64,
    len: usize,
    io: Io,
    records: impl Fn(&[u8]) -> usize + Send + Sync + 'static,
) -> Option<IoBufMut> {
    let records = Arc::new(records);
    let longest = Arc::new(AtomicUsize::new(0));
    // What lies behind them may be torn, so no copy is accepted yet.
    let measure: Check = {
        let (records, longest) = (Arc::clone(&records), Arc::clone(&longest));
        Arc::new(move |bytes| {
            longest.fetch_max(records(bytes), Ordering::Relaxed);
            false
        })
    };
    let _ = object.read_again(at, IoBufMut::zeroed(len), io, measure).await;
    let len = longest.load(Ordering::Relaxed);
    if len == 0 {
        return None;
    }
    let check: Check = Arc::new(move |bytes| bytes.len() == len && records(bytes) == len);
    object.read_again(at, IoBufMut::zeroed(len), io, check).await.ok()
}

/// The error of [`Object::read_again`] if the check refused every answer for `len` bytes at `offset`.
#[must_use]
pub fn refused(offset: u64, len: usize) -> Error {
    let message =
        format!("{len} bytes at {offset} are not what was written: restore them from elsewhere");
    Error::new(ErrorKind::Corrupt, message)
}
