//! [`Object::write_durable`] by means of a write and a sync.

use crate::{Io, IoBuf, Object, Pending};

/// Writes, then syncs the object: two operations, where the device counts syncs.
pub fn write<O: Object + ?Sized>(object: &O, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
    Box::pin(async move {
        object.write_at(offset, data, io).await?;
        object.sync(io).await
    })
}
