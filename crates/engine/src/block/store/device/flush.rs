//! Flushes: changes of extents become durable with a sync of each, removals with a sync of the volume's names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;

use super::super::super::{Durable, Result};
use super::super::extents::Extent;
use super::{Device, WRITE, all};

impl Device {
    pub(super) async fn flush(&self) -> Result<()> {
        self.begin(&(0..0))?;
        self.shared.counts.flushes.add(1);
        self.make_durable().await
    }

    pub(super) async fn flush_if(&self, durable: Durable) -> Result<()> {
        match durable == Durable::Now || self.shared.options.durable {
            true => self.make_durable().await,
            false => Ok(()),
        }
    }

    pub(in crate::block::store) async fn make_durable(&self) -> Result<()> {
        let _in_order = self.flushing.lock().await;
        let mut taken = Unflushed { device: self, extents: BTreeMap::new(), removed: false };
        taken.extents = std::mem::take(&mut *self.unsynced.lock());
        taken.removed = self.removed.swap(false, Ordering::AcqRel);
        let syncs = taken.extents.values().map(async |extent| match self.sync(extent).await {
            // It was removed meanwhile, or is being removed.
            Err(_) if extent.is_gone() => self.finish_removal(extent.number).await,
            synced => synced,
        });
        all(join_all(syncs).await)?;
        taken.removed |= self.removed.swap(false, Ordering::AcqRel);
        if taken.removed {
            self.marks.sync().await.map_err(|e| self.failed(e))?;
        }
        taken.extents.clear();
        taken.removed = false;
        Ok(())
    }

    async fn sync(&self, extent: &Extent) -> Result<()> {
        self.object(extent).await?.sync(WRITE).await.map_err(|e| self.failed(e))
    }

    /// The next flush syncs the extent, if it still exists.
    pub(super) fn note_unsynced(&self, extent: Arc<Extent>) {
        if self.extents.has(&extent) {
            self.unsynced.lock().insert(extent.number, extent);
        }
    }
}

/// Changes that a flush makes durable; they stay unsynced if the flush fails or is dropped.
struct Unflushed<'a> {
    device: &'a Device,
    extents: BTreeMap<u64, Arc<Extent>>,
    removed: bool,
}

impl Drop for Unflushed<'_> {
    fn drop(&mut self) {
        std::mem::take(&mut self.extents)
            .into_values()
            .for_each(|extent| self.device.note_unsynced(extent));
        if self.removed {
            self.device.removed.store(true, Ordering::Release);
        }
    }
}
