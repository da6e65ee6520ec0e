//! A file that could not be opened when its store was. Each call tries again, so that the file is back with its volume.

use std::sync::Arc;

use futures_util::lock::Mutex;
use policy::purpose::Io;
use volume::{
    Check, Extent, IoBuf, IoBufMut, Name, Object, Pending, ReadTime, Result, Volume, Zeros,
    blocking,
};

/// The object called `name`, opened by the first call that can.
pub(super) struct Late {
    volume: Arc<dyn Volume>,
    name: Name,
    /// Its length in the listing. The file is sealed, so it does not change.
    len: u64,
    /// Whether it is written through the page cache.
    is_log: bool,
    opened: Mutex<Option<Arc<dyn Object>>>,
}

impl Late {
    pub(super) fn new(volume: &Arc<dyn Volume>, name: &Name, len: u64, is_log: bool) -> Self {
        let (volume, name) = (Arc::clone(volume), name.clone());
        Self { volume, name, len, is_log, opened: Mutex::default() }
    }

    async fn object(&self) -> Result<Arc<dyn Object>> {
        let mut opened = self.opened.lock().await;
        if let Some(object) = &*opened {
            return Ok(Arc::clone(object));
        }
        let object = self.volume.open(&self.name).await?;
        *opened = Some(Arc::clone(&object));
        Ok(object)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Object for Late {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        Box::pin(async move { self.object().await?.read_at(offset, into, io).await })
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(async move { self.object().await?.write_at(offset, data, io).await })
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(async move { self.object().await?.write_durable(offset, data, io).await })
    }

    fn zero(&self, offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()> {
        Box::pin(async move { self.object().await?.zero(offset, len, room, io).await })
    }

    fn extents(&self, offset: u64, len: u64) -> Pending<'_, Vec<Extent>> {
        Box::pin(async move { self.object().await?.extents(offset, len).await })
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        blocking::read_at(self, offset, into, io)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        blocking::write_at(self, offset, data, io)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn is_log(&self) -> bool {
        self.is_log
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        Box::pin(async move { self.object().await?.set_len(len).await })
    }

    fn read_again(
        &self,
        offset: u64,
        into: IoBufMut,
        io: Io,
        check: Check,
    ) -> Pending<'_, IoBufMut> {
        Box::pin(async move { self.object().await?.read_again(offset, into, io, check).await })
    }

    fn align(&self, offset: u64, len: u64, io: Io) -> Pending<'_, ()> {
        Box::pin(async move { self.object().await?.align(offset, len, io).await })
    }

    fn expected_read(&self, _offset: u64, _len: u64) -> ReadTime {
        self.volume.expected_read()
    }

    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        volume::ahead::sync(self, more, io)
    }

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(async move { self.object().await?.seal(io).await })
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(async move { self.object().await?.sync(io).await })
    }
}
