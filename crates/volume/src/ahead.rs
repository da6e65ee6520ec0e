//! [`Object::sync_ahead`] of volumes that write nothing ahead.

use crate::{Io, Object, Pending};

/// Syncs the object.
pub fn sync<O: Object + ?Sized>(object: &O, _more: u64, io: Io) -> Pending<'_, bool> {
    Box::pin(async move { object.sync(io).await.map(|()| false) })
}
