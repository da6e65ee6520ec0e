//! A volume whose objects can be renamed, as those of a pool: the store renames its table of devices.

use std::sync::Arc;

use policy::purpose::{Io, Origin, Step};
use volume::{
    ErrorKind, Intent, IoBuf, IoBufMut, Limits, Listed, Name, Object, Pending, ReadTime, Result,
    Space, Volume,
};

const IO: Io = Io::new(Origin::UserWrite, Step::Data);

/// The volume below, and names that change by a copy.
pub(super) struct Names<V>(pub(super) V);

#[deny(clippy::missing_trait_methods)]
impl<V: Volume> Volume for Names<V> {
    volume::forward! {
        self => self.0;
        fn create(name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>>;
        fn open(name: &Name) -> Pending<'_, Arc<dyn Object>>;
        fn remove(name: &Name) -> Pending<'_, ()>;
        fn list() -> Pending<'_, Vec<Listed>>;
        fn space() -> Pending<'_, Space>;
        fn expected_read() -> ReadTime;
        fn users_load() -> f64;
        fn limits() -> Limits;
        fn write_whole(name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()>;
        fn link(from: &Name, to: &Name) -> Pending<'_, ()>;
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        let (from, to) = (from.clone(), to.clone());
        Box::pin(async move { self.copy_and_remove(&from, &to).await })
    }
}

impl<V: Volume> Names<V> {
    async fn copy_and_remove(&self, from: &Name, to: &Name) -> Result<()> {
        let object = self.0.open(from).await?;
        let bytes = object.read_at(0, IoBufMut::zeroed(object.len() as usize), IO).await?;
        match self.0.remove(to).await {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.0.write_whole(to, &Intent::DATA, bytes.freeze(), IO).await?;
        self.0.remove(from).await
    }
}
