//! The objects of a store as a scrub of its pool comes to them.

use std::ops::Range;
use std::sync::Arc;

use volume::{ErrorKind, Expected, Io, Name, Pending, Verified, Verify};

use super::super::{Error, Result};
use super::device::Device;
use super::{Store, table};

/// What a scrub of an extent found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Scrubbed {
    /// Blocks and pages of checksums that one copy had wrongly, and another one had. Parity is not among them.
    pub repaired: u64,
    /// What no copy has as it was written: reads of it fail, others are served.
    pub lost: Vec<String>,
}

impl Store {
    /// Reads every copy of the extent with this name back, in spare capacity of the volumes, and repairs copies that are
    /// not as they were written; repairs are durable on return. Writers of the extent wait for no more than a read each.
    /// Other objects of the store, its table and the devices' marks, are read at each opening, and not here.
    ///
    /// # Errors
    /// `Closed`: the store closes, or the device was deleted. Else as the kind says: it was not read to its end.
    pub async fn scrub(&self, object: &Name) -> Result<Scrubbed> {
        let Some((id, number)) = self.extent_of(object) else { return Ok(Scrubbed::default()) };
        match self.device_by_id(id) {
            Some(device) => device.scrub(number).await,
            None => Ok(Scrubbed::default()),
        }
    }

    /// The device and the number of an extent.
    fn extent_of(&self, object: &Name) -> Option<(table::Id, u64)> {
        let rest = object.as_str().strip_prefix(&*self.0.shared.options.name)?.strip_prefix('/')?;
        let (id, number) = rest.split_once('/')?;
        let id = table::Id::from_str_radix(id, 16).ok()?;
        Some((id, u64::from_str_radix(number, 16).ok()?))
    }

    fn is_deleted(&self, object: &Name) -> bool {
        let id = self.extent_of(object).map(|(id, _)| id);
        id.and_then(|id| self.device_by_id(id)).is_none()
    }

    fn device_by_id(&self, id: table::Id) -> Option<Arc<Device>> {
        self.0.devices.lock().values().find(|device| device.id == id).cloned()
    }
}

impl Verify for Store {
    fn verify<'a>(&'a self, object: &'a Name) -> Pending<'a, Verified> {
        Box::pin(async move {
            let error = match self.scrub(object).await {
                Ok(Scrubbed { lost, .. }) => return Ok(Verified { lost }),
                Err(error) => error,
            };
            let kind = match error {
                Error::Closed(_) if self.is_deleted(object) => ErrorKind::Gone,
                Error::Corrupt(_) => ErrorKind::Corrupt,
                Error::Unavailable(_) => ErrorKind::Unavailable,
                _ => ErrorKind::Busy,
            };
            Err(volume::Error::new(kind, error.to_string()))
        })
    }

    fn expected<'a>(
        &'a self,
        object: &'a Name,
        blocks: Range<u64>,
        fetch: Option<Io>,
    ) -> Pending<'a, Vec<Expected>> {
        Box::pin(async move {
            let extent = self.extent_of(object);
            Ok(match extent.and_then(|(id, number)| Some((self.device_by_id(id)?, number))) {
                Some((device, number)) => device.expected(number, blocks, fetch).await,
                None => blocks.map(|_| Expected::Unchecked).collect(),
            })
        })
    }
}
