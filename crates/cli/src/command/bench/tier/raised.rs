//! A volume on which a tier's flushes wait as long as users' reads do, and no longer: what a tier does that has no classes.

use std::sync::Arc;

use policy::purpose::Origin;
use volume::{
    Check, Extent, Intent, Io, IoBuf, IoBufMut, Limits, Listed, Name, Object, Pending, ReadTime,
    Result, Space, Volume, Zeros,
};

/// Gives flushes the class of users' reads.
const fn raised(io: Io) -> Io {
    match io.origin {
        Origin::WriteBack => Io { origin: Origin::UserChange, ..io },
        _ => io,
    }
}

/// The volume.
pub(super) struct Raised {
    pub(super) inner: Arc<dyn Volume>,
}

fn object(inner: Arc<dyn Object>) -> Arc<dyn Object> {
    Arc::new(RaisedObject { inner })
}

#[deny(clippy::missing_trait_methods)]
impl Volume for Raised {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let made = self.inner.create(name, intent);
        Box::pin(async move { Ok(object(made.await?)) })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let opened = self.inner.open(name);
        Box::pin(async move { Ok(object(opened.await?)) })
    }

    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        self.inner.write_whole(name, intent, data, raised(io))
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

struct RaisedObject {
    inner: Arc<dyn Object>,
}

#[deny(clippy::missing_trait_methods)]
impl Object for RaisedObject {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        self.inner.read_at(offset, into, raised(io))
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        self.inner.write_at(offset, data, raised(io))
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        self.inner.blocking_read_at(offset, into, raised(io))
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        self.inner.blocking_write_at(offset, data, raised(io))
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        self.inner.write_durable(offset, data, raised(io))
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        self.inner.sync(raised(io))
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
    }
}

#[cfg(test)]
mod tests {
    use policy::purpose::{Class, Step};

    use super::*;

    #[test]
    fn flushes_get_the_class_of_reads_and_others_keep_theirs() {
        let class = |origin| raised(Io::new(origin, Step::Data)).class();
        let read = Io::new(Origin::UserRead, Step::Data).class();
        assert_eq!((class(Origin::WriteBack), read), (Class::Foreground, Class::Foreground));
        assert_eq!(class(Origin::Scrub), Class::Idle);
        assert_eq!(class(Origin::UserWrite), Class::Commit);
    }
}
