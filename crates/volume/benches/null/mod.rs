//! A device that costs nothing, to measure the layers above it.

use std::sync::Arc;

use futures_util::FutureExt;
use volume::{
    Intent, Io, IoBuf, IoBufMut, Listed, Name, Object, Pending, Result, Space, Volume, ready,
};

/// A device that does nothing, at once.
pub(crate) struct Null;

impl Volume for Null {
    fn create(&self, _: &Name, _: &Intent) -> Pending<'_, Arc<dyn Object>> {
        ready(Ok(Arc::new(Self)))
    }

    fn open(&self, _: &Name) -> Pending<'_, Arc<dyn Object>> {
        ready(Ok(Arc::new(Self)))
    }

    fn remove(&self, _: &Name) -> Pending<'_, ()> {
        ready(Ok(()))
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        ready(Ok(Vec::new()))
    }

    fn space(&self) -> Pending<'_, Space> {
        ready(Ok(Space::default()))
    }
}

impl Object for Null {
    fn read_at(&self, _: u64, into: IoBufMut, _: Io) -> Pending<'_, IoBufMut> {
        ready(Ok(into))
    }

    fn write_at(&self, _: u64, _: IoBuf, _: Io) -> Pending<'_, ()> {
        ready(Ok(()))
    }

    fn blocking_write_at(&self, _: u64, _: &[u8], _: Io) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> u64 {
        0
    }

    fn is_log(&self) -> bool {
        false
    }

    fn set_len(&self, _: u64) -> Pending<'_, ()> {
        ready(Ok(()))
    }

    fn sync(&self, _: Io) -> Pending<'_, ()> {
        ready(Ok(()))
    }
}

/// The result of an operation that is ready at once.
///
/// # Panics
/// When it is not ready.
pub(crate) fn now<T>(pending: Pending<'_, T>) -> Result<T> {
    pending.now_or_never().expect("a null device is always ready")
}
