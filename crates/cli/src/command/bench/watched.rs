//! A volume that counts the I/O of the pool's copies.
//!
//! Copies share a class with deep compactions, or with users, so a gate's counters cannot separate them. Below a gate every
//! call is one operation and names its origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use policy::purpose::Origin;
use volume::{
    Check, Extent, Intent, Io, IoBuf, IoBufMut, Limits, Listed, Name, Object, Pending, ReadTime,
    Result, Space, Volume, Zeros,
};

/// The I/O of copies, relief copies and rebuilds so far. Clones share the counts.
#[derive(Clone, Default)]
pub(super) struct CopyIo(Arc<Counts>);

#[derive(Default)]
struct Counts {
    ops: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl CopyIo {
    /// Calls, of reads and writes.
    pub(super) fn ops(&self) -> u64 {
        self.0.ops.load(Ordering::Relaxed)
    }

    /// Bytes read.
    pub(super) fn read_bytes(&self) -> u64 {
        self.0.read_bytes.load(Ordering::Relaxed)
    }

    /// Bytes written.
    pub(super) fn written_bytes(&self) -> u64 {
        self.0.written_bytes.load(Ordering::Relaxed)
    }

    fn count_read(&self, io: Io, bytes: usize) {
        self.count(io, &self.0.read_bytes, bytes);
    }

    fn count_write(&self, io: Io, bytes: usize) {
        self.count(io, &self.0.written_bytes, bytes);
    }

    fn count(&self, io: Io, moved: &AtomicU64, bytes: usize) {
        if matches!(io.origin, Origin::Copy | Origin::Relief | Origin::Rebuild) {
            self.0.ops.fetch_add(1, Ordering::Relaxed);
            moved.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

/// The volume.
pub(super) struct Watched {
    pub(super) inner: Arc<dyn Volume>,
    pub(super) copies: CopyIo,
}

#[deny(clippy::missing_trait_methods)]
impl Volume for Watched {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let made = self.inner.create(name, intent);
        Box::pin(async move { Ok(self.object(made.await?)) })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let opened = self.inner.open(name);
        Box::pin(async move { Ok(self.object(opened.await?)) })
    }

    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        self.copies.count_write(io, data.len());
        self.inner.write_whole(name, intent, data, io)
    }

    volume::forward! {
        self => self.inner;
        fn remove(name: &Name) -> Pending<'_, ()>;
        fn list() -> Pending<'_, Vec<Listed>>;
        fn space() -> Pending<'_, Space>;
        fn expected_read() -> ReadTime;
        fn users_load() -> f64;
        fn limits() -> Limits;
        fn rename(from: &Name, to: &Name) -> Pending<'_, ()>;
        fn link(from: &Name, to: &Name) -> Pending<'_, ()>;
    }
}

impl Watched {
    fn object(&self, inner: Arc<dyn Object>) -> Arc<dyn Object> {
        Arc::new(WatchedObject { inner, copies: self.copies.clone() })
    }
}

struct WatchedObject {
    inner: Arc<dyn Object>,
    copies: CopyIo,
}

#[deny(clippy::missing_trait_methods)]
impl Object for WatchedObject {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        self.copies.count_read(io, into.len());
        self.inner.read_at(offset, into, io)
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        self.copies.count_write(io, data.len());
        self.inner.write_at(offset, data, io)
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        self.copies.count_read(io, into.len());
        self.inner.blocking_read_at(offset, into, io)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        self.copies.count_write(io, data.len());
        self.inner.blocking_write_at(offset, data, io)
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        self.copies.count_write(io, data.len());
        self.inner.write_durable(offset, data, io)
    }

    volume::forward! {
        self => self.inner;
        fn len() -> u64;
        fn is_log() -> bool;
        fn is_empty() -> bool;
        fn zero(offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()>;
        fn extents(offset: u64, len: u64) -> Pending<'_, Vec<Extent>>;
        fn set_len(len: u64) -> Pending<'_, ()>;
        fn read_again(offset: u64, into: IoBufMut, io: Io, check: Check) -> Pending<'_, IoBufMut>;
        fn align(offset: u64, len: u64, io: Io) -> Pending<'_, ()>;
        fn expected_read(offset: u64, len: u64) -> ReadTime;
        fn seal(io: Io) -> Pending<'_, ()>;
        fn sync_ahead(more: u64, io: Io) -> Pending<'_, bool>;
        fn sync(io: Io) -> Pending<'_, ()>;
    }
}

#[cfg(test)]
mod tests {
    use policy::purpose::Step;
    use volume::mem::Mem;
    use volume::task::block_on;

    use super::*;

    #[test]
    fn it_counts_copies_and_nothing_else() {
        let copies = CopyIo::default();
        let watched = Watched { inner: Arc::new(Mem::new("v")), copies: copies.clone() };
        let name = Name::new("a").expect("a name");
        let object = block_on(watched.create(&name, &Intent::DATA)).expect("memory takes it");
        for origin in [Origin::UserWrite, Origin::Relief, Origin::Prefetch, Origin::Rebuild] {
            let data = IoBuf::from(&b"bytes"[..]);
            block_on(object.write_at(0, data, Io::new(origin, Step::Data))).expect("there is room");
        }
        let object = block_on(watched.open(&name)).expect("it is there");
        let into = IoBufMut::zeroed(4);
        block_on(object.read_at(0, into, Io::new(Origin::Copy, Step::Data))).expect("it is there");
        assert_eq!((copies.ops(), copies.read_bytes(), copies.written_bytes()), (3, 4, 10));
    }
}
